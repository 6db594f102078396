"""Runs Bazel's tests on a tree with one defect and reads the result, for tools/mutate."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

from ci_summary import count_test
from check_docs import target_exists
from mutations import read_text

CAUGHT, COMPILE_ERROR, NOT_FOUND = "caught", "compile error", "not found"
# Exit codes of Bazel. STOPPED: something could not be built, or a test failed and the remaining ones were cancelled.
PASSED, STOPPED, NO_TESTS = 0, 1, 4
# Stops at the first failure. Manual tests are left out even if a label names them, because //... does not run them.
OPTIONS = ("--notest_keep_going", "--build_tests_only", "--test_tag_filters=-manual", "--curses=no", "--color=no")


class RunError(Exception):
    """The tests could not be run, so nothing is known about the defect."""


@dataclass
class Runner:
    """Tests defects in one tree."""

    tree: str
    bazel: str
    options: list
    log: str
    stages: list

    def labels(self, defect, stage):
        """What a stage tests. Listed targets that this tree does not have are left to the next stage."""
        if stage == "expected":
            return [label for label in defect.tests if target_exists(self.tree, label)]
        return [f"//tests/{defect.floor}/..."] if stage == "floor" else ["//..."]

    def bazel_run(self, verb, labels, *options):
        """Runs `bazel test` or `bazel build`; returns its exit status. An exception interrupts Bazel and waits for its end."""
        command = [self.bazel, verb, *OPTIONS, *options, *self.options, "--", *labels]
        with open(self.log, "ab") as log:
            log.write(f"\n$ {' '.join(command)}\n".encode())
            log.flush()
            # In a session of its own, so that Ctrl-C reaches it through this program alone.
            with subprocess.Popen(command, cwd=self.tree, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                  start_new_session=True) as process:
                try:
                    return process.wait()
                except BaseException:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGINT)
                    process.wait()
                    raise

    def verdict(self, labels):
        """Runs the tests; returns the result and the names of the cases or targets that failed."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events.json")
            status = self.bazel_run("test", labels, f"--build_event_json_file={path}")
            events = read_events(path)
            failed = failed_cases(events)
        if failed:
            return CAUGHT, failed
        if status in (PASSED, NO_TESTS):
            return NOT_FOUND, []
        if status == STOPPED:
            return COMPILE_ERROR, failed_builds(events)
        raise RunError(f"bazel ended with exit status {status} for {' '.join(labels)}; {self.log} says why")

    def try_stages(self, defect):
        for stage in self.stages:
            labels = self.labels(defect, stage)
            result, by = self.verdict(labels) if labels else (NOT_FOUND, [])
            if result != NOT_FOUND:
                return result, stage, by
        return NOT_FOUND, self.stages[-1], []

    def require_build(self, labels):
        """A build that fails without the defect too, on a full disk for instance, says nothing about the defect."""
        if self.bazel_run("build", labels) != PASSED:
            raise RunError(f"{' '.join(labels)} cannot be built without the defect either; {self.log} says why")

    def run(self, defect):
        """Tests one defect and returns its result. The file is restored in any case."""
        path = os.path.join(self.tree, defect.file)
        text = read_text(self.tree, defect.file)
        changed = defect.apply(text)
        begin = time.monotonic()
        try:
            write_text(path, changed)
            result, stage, by = self.try_stages(defect)
        finally:
            write_text(path, text)
        if result == COMPILE_ERROR:
            self.require_build(self.labels(defect, stage))
        return {"id": defect.id, "file": defect.file, "digest": defect.digest, "stages": self.stages,
                "result": result, "stage": stage, "by": by, "seconds": round(time.monotonic() - begin, 1)}


def write_text(path, text):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def read_events(path):
    """The events that Bazel has written; the last line is incomplete if Bazel was killed."""
    events = []
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                events.append(json.loads(line))
    return events


def failed_cases(events):
    """The failed cases as `label: case`. Tests that were cancelled after the first failure are not among them."""
    failed = []
    for event in events:
        if event.get("testResult", {}).get("status") in ("FAILED", "TIMEOUT"):
            failed += count_test(event["id"]["testResult"]["label"], event["testResult"]).failed
    return list(dict.fromkeys(failed))


def failed_builds(events):
    """The targets that could not be built; Bazel's message if it names none."""
    ids = [event["id"] for event in events if event.get("action", {"success": True}).get("success", False) is False]
    labels = [id["actionCompleted"].get("label") for id in ids if "actionCompleted" in id]
    said = [event["aborted"].get("description", "").strip() for event in events if "aborted" in event]
    return list(dict.fromkeys(filter(None, labels))) or list(dict.fromkeys(filter(None, said)))[:1]
