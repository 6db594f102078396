#!/usr/bin/env python3
"""tools/ci_jobs.py: which jobs a run of .ci/run includes."""

import datetime
import unittest

import ci_tree  # finds the tools
from ci_git import GitError
from ci_jobs import ROTATED, arguments, choose, job_named, names, rotation

TODAY = datetime.date(2026, 5, 31)


class CountingGit:
    """Git in a history of `commits` commits; None: git cannot count them."""

    def __init__(self, commits):
        self.commits = commits

    def number(self):
        if self.commits is None:
            raise GitError("this clone is shallow")
        return self.commits


def chosen(wanted="", commits=0, has_toolkit=True, today=TODAY):
    """The names of the jobs, and the printed lines."""
    said = []
    jobs = choose(wanted, CountingGit(commits), has_toolkit, today, said.append)
    return [job.name for job in jobs], said


class CiJobsTest(unittest.TestCase):
    def test_fourteen_jobs_rotate(self):
        self.assertEqual(len({job.name for job in ROTATED}), 14)
        self.assertEqual(names(), [job.name for job in ROTATED] + ["faults"])

    def test_successive_commits_run_all_jobs(self):
        for first in (0, 1, 148):
            run = [name for commits in range(first, first + 14) for name in chosen(commits=commits)[0]]
            self.assertCountEqual(run, [job.name for job in ROTATED])

    def test_no_two_jobs_with_a_toolkit_follow_each_other(self):
        order = rotation(0)
        for job, following in zip(order, order[1:] + order[:1]):
            self.assertFalse(job.needs_toolkit and following.needs_toolkit, f"{job.name}, {following.name}")

    def test_another_job_where_there_is_no_toolkit(self):
        for commits in range(14):
            job, following = rotation(commits)[:2]
            expected = following if job.needs_toolkit else job
            run, said = chosen(commits=commits, has_toolkit=False)
            self.assertEqual(run, [expected.name])
            left_out = [f"{job.name}: left out, no CUDA toolkit here; {following.name} takes its place"]
            self.assertEqual(said, [f"commit {commits} of this history"] + (left_out if job.needs_toolkit else []))

    def test_without_a_toolkit_all_other_jobs_run(self):
        run = [name for commits in range(14) for name in chosen(commits=commits, has_toolkit=False)[0]]
        self.assertEqual(set(run), {job.name for job in ROTATED if not job.needs_toolkit})
        self.assertEqual(max(run.count(name) for name in run), 2)

    def test_the_date_chooses_where_git_cannot_count(self):
        days = [TODAY + datetime.timedelta(days) for days in range(14)]
        self.assertCountEqual([chosen(commits=None, today=day)[0][0] for day in days], [job.name for job in ROTATED])
        self.assertEqual(chosen(commits=None)[1], ["the date chooses the job: this clone is shallow"])

    def test_wanted_jobs(self):
        self.assertEqual(chosen("gpu_fsdp  asan_nn gpu_fsdp"), (["gpu_fsdp", "asan_nn"], []))
        self.assertEqual(chosen("none"), ([], []))
        self.assertEqual(chosen("  ", commits=0), chosen("", commits=0))

    def test_wanted_jobs_are_not_replaced(self):
        self.assertEqual(chosen("gpu_fsdp asan_nn", has_toolkit=False),
                         (["asan_nn"], ["gpu_fsdp: left out, no CUDA toolkit here"]))

    def test_unknown_job(self):
        with self.assertRaisesRegex(ValueError, "there is no job asan_all; the jobs are asan_below .* wide faults$"):
            chosen("asan_nn asan_all")
        with self.assertRaisesRegex(ValueError, "tests is part of every run"):
            chosen("tests")

    def test_arguments(self):
        common = ["--keep_going", "--curses=no", "--color=no", "--show_progress_rate_limit=60"]
        self.assertEqual(arguments(job_named("tests")), common + ["--", "//..."])
        self.assertEqual(arguments(job_named("gpu_below")), common + [
            "--config=emulated_gpu", "--build_tests_only", "--test_tag_filters=gpu", "--",
            "//tests/autograd/...", "//tests/nn/..."])
        self.assertEqual(arguments(job_named("tsan_program"))[-7:], [
            "//...", "-//tests/tensor/...", "-//tests/autograd/...", "-//tests/nn/...", "-//tests/support/...",
            "-//tests/distributed/...", "-//tests/fsdp/..."])


class CommandLineTest(ci_tree.CiTreeTest):
    def test_toolkit(self):
        self.assertEqual(self.call("tools/ci_jobs.py", "toolkit"), (1, ""))
        self.write("elsewhere/bin/nvcc", "", 0o755)
        self.assertEqual(self.call("tools/ci_jobs.py", "toolkit", CUDA_HOME=self.path("elsewhere")), (0, ""))
        self.add_toolkit()
        self.assertEqual(self.call("tools/ci_jobs.py", "toolkit"), (0, ""))

    def test_list(self):
        status, output = self.call("tools/ci_jobs.py", "list")
        self.assertEqual((status, [line.split()[0] for line in output.splitlines()]), (0, names()))

    def test_unknown_words(self):
        self.assertEqual(self.call("tools/ci_jobs.py", "choos")[0], 2)
        status, output = self.call("tools/ci_jobs.py", "arguments", "nix")
        self.assertEqual(status, 2)
        self.assertIn("ci_jobs: there is no job nix", output)


if __name__ == "__main__":
    unittest.main()
