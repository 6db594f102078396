#!/usr/bin/env python3
"""Counts the test cases that ran (the targets, for tests that do not report cases), for the last line of .ci/run.

    tools/ci_summary.py STAGE:STATUS:FILE ...

FILE is Bazel's --build_event_json_file (.json), or lines "PASSED name" and "FAILED name". STATUS is the exit status of the
stage: a stage that failed without a failed test counts as one failure.
"""

import json
import re
import sys
import urllib.parse
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field


@dataclass
class Count:
    passed: int = 0
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def read_output(outputs, name):
    for output in outputs:
        if output["name"] == name and "uri" in output:
            path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    return file.read()
            except OSError:
                return ""
    return ""


def count_cases(label, text):
    """The cases of a test.xml; one nameless case if it cannot be read."""
    count = Count()
    try:
        cases = list(xml.fromstring(text.strip()).iter("testcase")) if text else []
    except xml.ParseError:
        cases = []
    if not cases:
        return Count(passed=1)
    for case in cases:
        name = f"{label}: {case.get('name')}" if len(cases) > 1 else label
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed.append(name)
        elif case.find("skipped") is not None:
            count.skipped.append(f"{name}: {case.find('skipped').get('message')}")
        else:
            count.passed += 1
    return count


def count_test(label, result):
    """One run of one test target."""
    outputs = result.get("testActionOutput", [])
    count = count_cases(label, read_output(outputs, "test.xml"))
    said = dict.fromkeys(re.findall(r"^SKIPPED: (.*)$", read_output(outputs, "test.log"), re.MULTILINE))
    if len(said) > len(count.skipped):
        count.passed = max(0, count.passed - (len(said) - len(count.skipped)))
        count.skipped = [f"{label}: {reason}" for reason in said]
    if result["status"] not in ("PASSED", "FLAKY") and not count.failed:
        count.passed = max(0, count.passed - 1)
        count.failed.append(f"{label} ({result['status']})")
    return count


def count_events(lines):
    """A build event file: counts every requested test target as passed, failed, or skipped."""
    count, tests, seen, left_out = Count(), [], set(), set()
    for line in lines:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            count.failed.append("the file of events has an incomplete line: Bazel was killed, or the disk is full")
            continue
        if "targetConfigured" in event["id"] and event.get("configured", {}).get("targetKind", "").endswith("_test rule"):
            tests.append(event["id"]["targetConfigured"]["label"])
        elif "testResult" in event["id"] and "testResult" in event:
            label = event["id"]["testResult"]["label"]
            seen.add(label)
            count.add(count_test(label, event["testResult"]))
        elif event.get("aborted", {}).get("reason") == "SKIPPED":
            left_out.add(event["id"].get("targetCompleted", {}).get("label"))
    for label in tests:
        if label in left_out:
            count.skipped.append(f"{label}: cannot be built here (no CUDA toolkit, or one ignored)")
        elif label not in seen:
            count.failed.append(f"{label} (not built or not run)")
    return count


def count_lines(lines):
    count = Count()
    for line in lines:
        state, _, name = line.strip().partition(" ")
        if state == "PASSED":
            count.passed += 1
        elif state == "FAILED":
            count.failed.append(name)
    return count


def count_stage(argument):
    stage, status, path = argument.split(":", 2)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            count = count_events(file) if path.endswith(".json") else count_lines(file)
    except FileNotFoundError:
        count = Count()
    if status != "0" and not count.failed:
        count.failed.append(f"{stage} (exit status {status})")
    return stage, count


def main(arguments):
    total = Count()
    for stage, count in map(count_stage, arguments):
        total.add(count)
        print(f"{stage}: {count.passed} passed, {len(count.failed)} failed, {len(count.skipped)} skipped")
        for name in count.failed:
            print(f"  FAILED {name}")
        for reason in count.skipped:
            print(f"  SKIPPED {reason}")
    print(f"{total.passed} passed, {len(total.failed)} failed, {len(total.skipped)} skipped")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
