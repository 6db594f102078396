#!/usr/bin/env python3
""".ci/run includes the job of the commit, warns about jobs that have not passed lately, and ends with the count."""

import os
import re
import unittest

import ci_tree
from ci_jobs import JOBS, arguments, names, rotation


def targets(job):
    return " ".join(job.targets)


class CiRunTest(ci_tree.CiTreeTest):
    def setUp(self):
        super().setUp()
        with open(os.path.join(ci_tree.SOURCE, ".ci/run"), encoding="utf-8") as file:
            self.write(".ci/run", file.read())

    def ci(self, **environment):
        """Exit status and lines of output."""
        status, output = self.call("bash", ".ci/run", **environment)
        return status, output.splitlines()

    def test_suite_and_one_job(self):
        for number in (0, 1, 148):
            job = rotation(number)[0]
            self.state(number=f"{number}\n")
            status, lines = self.ci()
            self.assertEqual((status, lines[-1]), (0, "5 passed, 0 failed, 0 skipped"), lines)
            self.assertIn(f"=== jobs of this run: {job.name}", lines)
            self.assertEqual(self.targets_run(), ["//...", targets(job)])

    def test_options_reach_bazel(self):
        self.ci(TESSERA_CI_JOBS="asan_nn")
        job = next(job for job in JOBS if job.name == "asan_nn")
        self.assertIn(" ".join(arguments(job)), self.read("state/calls"))

    def test_a_job_without_its_toolkit_is_replaced(self):
        number = next(number for number in range(len(names())) if rotation(number)[0].needs_toolkit)
        left_out, instead = rotation(number)[:2]
        self.state(number=f"{number}\n")
        status, lines = self.ci()
        said = f"=== {left_out.name}: left out, no CUDA toolkit here; {instead.name} takes its place"
        self.assertEqual((status, lines.count(said)), (0, 2), lines)  # at the beginning and near the end
        self.assertEqual(self.targets_run(), ["//...", targets(instead)])

    def test_chosen_jobs(self):
        status, lines = self.ci(TESSERA_CI_JOBS="outside gpu_fsdp asan_nn")
        self.assertEqual((status, lines[-1]), (0, "7 passed, 0 failed, 0 skipped"))
        self.assertEqual(self.targets_run(), [
            "//...", "//tests/build:outside_workspace_test", "//tests/nn/... //tests/support/..."])
        self.assertIn("=== gpu_fsdp: left out, no CUDA toolkit here", lines)

    def test_no_job(self):
        self.assertEqual(self.ci(TESSERA_CI_JOBS="none")[1][-1], "3 passed, 0 failed, 0 skipped")
        self.assertRegex(self.read("state/calls"), "(?m)^build .* //...$")  # this is not a test
        self.assertEqual(self.targets_run(), ["//..."])

    def test_unknown_job(self):
        status, lines = self.ci(TESSERA_CI_JOBS="asan_nn nix")
        self.assertEqual((status, lines), (1, [f"TESSERA_CI_JOBS: there is no job nix; the jobs are {' '.join(names())}"]))
        self.assertEqual(self.read("state/calls"), "")

    def test_a_job_fails(self):
        self.state(fails="//tests/nn/...")
        status, lines = self.ci(TESSERA_CI_JOBS="asan_nn outside")
        self.assertEqual((status, lines[-1]), (1, "7 passed, 2 failed, 0 skipped"))
        self.assertIn("  FAILED //bad:b_test (TIMEOUT)", lines)
        self.assertEqual(len(self.targets_run()), 3)

    def test_warnings_are_before_the_count(self):
        # Independent of the current page of the real history.
        page = re.sub(r"(?m)^(\| `\w+` \| [^|]+ \|).*$", r"\1 never | - | - | - | - |", self.read("tests/STATUS.md"))
        self.write("tests/STATUS.md", page)
        status, lines = self.ci(TESSERA_CI_JOBS="none")
        first = next(number for number, line in enumerate(lines) if line.startswith("warning: "))
        self.assertTrue(lines[first - 1].startswith("whole run: "), lines)
        self.assertEqual(lines[first:first + len(names())],
                         [f"warning: {name} has never passed (tests/STATUS.md)" for name in names()])
        self.assertTrue(lines[first + len(names())].endswith(f": tools/nightly {' '.join(names())} --record"), lines)
        self.assertEqual(lines[first + len(names()) + 1:], [
            "packages: 0 passed, 0 failed, 0 skipped", "checks: 1 passed, 0 failed, 0 skipped",
            "tests: 2 passed, 0 failed, 0 skipped", "programs: 0 passed, 0 failed, 0 skipped", "3 passed, 0 failed, 0 skipped"])
        self.assertEqual((status, self.read("tests/STATUS.md")), (0, page))

    def test_shallow_clone(self):
        self.state(shallow="true\n")
        status, lines = self.ci()
        self.assertEqual((status, lines[0]), (
            0, "=== the date chooses the job: this clone is shallow, so its commits cannot be counted"))
        self.assertEqual(len(self.targets_run()), 2)

    def test_no_git(self):
        os.remove(self.path("bin/git"))
        status, lines = self.ci()
        self.assertEqual((status, lines[0]), (0, "=== the date chooses the job: git is not installed"))
        self.assertEqual(len(self.targets_run()), 2)


if __name__ == "__main__":
    unittest.main()
