#!/usr/bin/env python3
"""tools/ci_summary.py counts cases, and never misses a failure."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from checker_test_case import TOOLS

CASES = '<testsuites><testsuite><testcase name="a"/><testcase name="b">{}</testcase></testsuite></testsuites>'


class CiSummaryTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def result(self, label, status, xml="", log=""):
        """The build event of one finished test."""
        stem = label.replace("/", "_")
        outputs = [{"name": name, "uri": "file://" + self.write(stem + name, text)}
                   for name, text in {"test.xml": xml, "test.log": log}.items()]
        return {"id": {"testResult": {"label": label}}, "testResult": {"status": status, "testActionOutput": outputs}}

    def summary(self, events, status=0, wanted=()):
        """Exit status and last line for one stage with these events."""
        wanted = [{"id": {"targetConfigured": {"label": label}}, "configured": {"targetKind": "cc_test rule"}}
                  for label in wanted]
        path = self.write("events.json", "".join(json.dumps(event) + "\n" for event in wanted + events))
        done = subprocess.run([sys.executable, os.path.join(TOOLS, "ci_summary.py"), f"tests:{status}:{path}"],
                              stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout.splitlines()[-1]

    def test_counts_cases(self):
        self.assertEqual(self.summary([self.result("//a", "PASSED", CASES.format(""))]),
                         (0, "2 passed, 0 failed, 0 skipped"))

    def test_failed_case(self):
        self.assertEqual(self.summary([self.result("//a", "FAILED", CASES.format("<failure/>"))], 3),
                         (1, "1 passed, 1 failed, 0 skipped"))

    def test_failure_outside_of_cases(self):
        self.assertEqual(self.summary([self.result("//a", "TIMEOUT", CASES.format(""))], 3),
                         (1, "1 passed, 1 failed, 0 skipped"))

    def test_skipped_case(self):
        xml = CASES.format('<skipped message="why"/>')
        self.assertEqual(self.summary([self.result("//a", "PASSED", xml, "SKIPPED: why\n")]),
                         (0, "1 passed, 0 failed, 1 skipped"))

    def test_skipped_binary(self):
        log = "SKIPPED: needs 2 GPUs, found 0\n"
        events = [self.result("//a", "PASSED", "", log), self.result("//b", "PASSED")]
        self.assertEqual(self.summary(events), (0, "1 passed, 0 failed, 1 skipped"))

    def test_not_built(self):
        self.assertEqual(self.summary([self.result("//a", "PASSED")], 1, ["//a", "//b"]),
                         (1, "1 passed, 1 failed, 0 skipped"))

    def test_incompatible(self):
        left_out = {"id": {"targetCompleted": {"label": "//b"}}, "aborted": {"reason": "SKIPPED"}}
        self.assertEqual(self.summary([self.result("//a", "PASSED"), left_out], 0, ["//a", "//b"]),
                         (0, "1 passed, 0 failed, 1 skipped"))

    def test_stage_that_failed_without_a_test(self):
        self.assertEqual(self.summary([self.result("//a", "PASSED")], 2), (1, "1 passed, 1 failed, 0 skipped"))

    def test_killed_while_it_wrote(self):
        path = self.write("events.json", json.dumps(self.result("//a", "PASSED")) + '\n{"id": {"testRes')
        for status in (0, 137):
            done = subprocess.run([sys.executable, os.path.join(TOOLS, "ci_summary.py"), f"tests:{status}:{path}"],
                                  stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_nothing_ran(self):
        self.assertEqual(self.summary([]), (1, "0 passed, 0 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
