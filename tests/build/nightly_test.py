#!/usr/bin/env python3
"""tools/nightly runs each job once per commit, continues after an interruption, and records the passed jobs."""

import os
import re
import signal
import subprocess
import time
import unittest

import ci_tree
from ci_jobs import JOBS, job_named, names
from ci_status import Row, line_of, rows_of, with_rows

HASH = ci_tree.COMMIT[:10]
TODAY = r"\d{4}-\d\d-\d\d"


def targets(*jobs):
    return [" ".join(job_named(job).targets) for job in jobs]


class NightlyTestCase(ci_tree.CiTreeTest):
    def setUp(self):
        super().setUp()
        self.add_toolkit()
        # In the tree, rows change whenever a run is recorded.
        page = self.read("tests/STATUS.md")
        self.write("tests/STATUS.md", with_rows(page, {name: Row(name, row.runs) for name, row in rows_of(page).items()}))

    def nightly(self, *words):
        return self.call("tools/nightly", *words)

    def table(self, output):
        """The rows of the table, by job; each is (commit, date, result, minutes)."""
        lines = output.partition("\njob ")[2].partition("\n\n")[0].splitlines()[1:]
        return {cells[0]: tuple(cells[1:]) for cells in (re.split("  +", line) for line in lines)}

    def row(self, name):
        return rows_of(self.read("tests/STATUS.md"))[name]

    def begin(self, *words):
        """A run that waits in the job named by `waits`."""
        child = subprocess.Popen(["tools/nightly", *words], cwd=self.root, env=self.environment(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        until = time.monotonic() + 60
        while not os.path.exists(self.path("state/is_waiting")) and child.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        self.assertTrue(os.path.exists(self.path("state/is_waiting")))
        return child


class NightlyTest(NightlyTestCase):
    def test_all_jobs(self):
        status, output = self.nightly()
        self.assertEqual(status, 0, output)
        self.assertEqual(self.targets_run(), targets(*names()))
        rows = self.table(output)
        self.assertEqual(list(rows), names())
        for commit, date, result, minutes in rows.values():
            self.assertEqual((commit, result, minutes), (HASH, "passed, 2 cases", "0.0"))
            self.assertRegex(date, TODAY)

    def test_one_line_and_one_log_for_each_job(self):
        output = self.nightly("asan_nn", "outside")[1]
        for line, name in zip(output.splitlines(), ("asan_nn", "outside")):
            log = f"{self.path('cache')}/tessera/nightly/{ci_tree.COMMIT}/{name}.log"
            self.assertEqual(line, f"{name}, log {log}: passed, 2 cases, 0.0 minutes")
            with open(log, encoding="utf-8") as file:
                self.assertIn(targets(name)[0], file.readline())

    def test_options_reach_bazel(self):
        self.nightly("asan_nn")
        self.assertRegex(self.read("state/calls"), "^test --build_event_json_file=.* --keep_going .*--config=asan .*"
                                                   "--test_tag_filters=-no-asan,-exclusive -- //tests/nn/")

    def test_a_failure_does_not_stop_the_others(self):
        self.state(fails="//tests/nn/...")
        status, output = self.nightly("asan_nn", "asan_ranks", "outside")
        self.assertEqual(status, 1)
        self.assertEqual(self.targets_run(), targets("asan_nn", "asan_ranks", "outside"))
        rows = self.table(output)
        self.assertEqual(rows["asan_nn"][2], "failed: //bad:a_test (FAILED) (+1)")
        self.assertEqual(rows["outside"][2], "passed, 2 cases")

    def test_a_second_call_runs_nothing_again(self):
        self.state(fails="//tests/nn/...")
        self.nightly("asan_nn", "outside")
        self.targets_run()
        self.state(fails=None)
        status, output = self.nightly("asan_nn", "outside", "asan_fsdp")
        self.assertEqual((status, self.targets_run()), (1, targets("asan_fsdp")))
        self.assertIn("asan_nn: failed: //bad:a_test (FAILED) (+1) (on ", output)
        self.assertEqual(self.table(output)["asan_nn"][2], "failed: //bad:a_test (FAILED) (+1)")
        status, output = self.nightly("asan_nn", "--again")
        self.assertEqual((status, self.targets_run()), (0, targets("asan_nn")))
        self.assertEqual(self.table(output)["asan_nn"][2], "passed, 2 cases")
        self.assertEqual(self.nightly("asan_nn")[0], 0)

    def test_another_commit_runs_again(self):
        self.nightly("asan_nn")
        self.targets_run()
        self.state(commit="f" * 40 + "\n")
        self.nightly("asan_nn")
        self.assertEqual(self.targets_run(), targets("asan_nn"))

    def test_interrupted_and_resumed(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.state(waits="//tests/distributed/...", calls="", commit=f"{number:040x}\n")
            child = self.begin("asan_below", "asan_nn", "asan_ranks", "asan_fsdp", "--record")
            child.send_signal(number)
            output = child.communicate()[0]
            self.assertEqual(child.returncode, 130, output)
            self.assertRegex(output, r"asan_ranks, log .*: interrupted\nnightly: interrupted; what has ended is kept\n")
            self.assertEqual(self.read("state/calls").splitlines()[-1], "cancelled")
            rows = self.table(output)
            self.assertEqual((rows["asan_nn"][2], rows["asan_ranks"][2], rows["asan_fsdp"][2]),
                             ("passed, 2 cases", "not run", "not run"))
            self.assertEqual((self.row("asan_nn").commit, self.row("asan_ranks").commit), (f"{number:040x}"[:10], "never"))
            self.state(waits=None, is_waiting=None, calls="")
            self.assertEqual(self.nightly("asan_below", "asan_nn", "asan_ranks", "asan_fsdp")[0], 0)
            self.assertEqual(self.targets_run(), targets("asan_ranks", "asan_fsdp"))

    def test_interrupted_again_keeps_results(self):
        self.nightly("asan_below", "asan_nn")
        self.state(waits="//tests/tensor/...", calls="")
        child = self.begin("asan_below", "asan_nn", "--again")
        child.send_signal(signal.SIGINT)
        output = child.communicate()[0]
        self.assertEqual(child.returncode, 130, output)
        self.assertEqual([self.table(output)[job][2] for job in ("asan_below", "asan_nn")], ["passed, 2 cases"] * 2)

    def test_one_run_at_a_time(self):
        self.state(waits="//tests/nn/...")
        child = self.begin("asan_nn")
        status, output = self.nightly("asan_nn")
        self.assertEqual((status, output), (2, "nightly: another tools/nightly is running for this commit\n"))
        child.send_signal(signal.SIGINT)
        child.communicate()

    def test_no_toolkit(self):
        os.remove(self.path("cuda/bin/nvcc"))
        status, output = self.nightly()
        self.assertEqual(status, 0, output)
        self.assertEqual(len(self.targets_run()), sum(not job.needs_toolkit for job in JOBS))
        self.assertEqual(self.table(output)["gpu_below"], (HASH, "-", "left out: no CUDA toolkit", "-"))
        self.add_toolkit()
        self.nightly()
        self.assertEqual(self.targets_run(), targets(*[job.name for job in JOBS if job.needs_toolkit]))

    def test_no_test_ran(self):
        self.write("tools/bazel", "#!/bin/bash\nexit ${1:+0}\n", 0o755)
        status, output = self.nightly("asan_nn")
        self.assertEqual((status, self.table(output)["asan_nn"][2]), (1, "failed: no test ran"))

    def test_bazel_fails_without_a_test(self):
        self.write("tools/bazel", "#!/bin/bash\nexit 1\n", 0o755)
        self.assertEqual(self.table(self.nightly("asan_nn")[1])["asan_nn"][2], "failed: asan_nn (exit status 1)")

    def test_bazel_that_could_not_do_its_work_gives_no_result(self):
        self.state(changed="")
        for does, status in (("kill -KILL $$", -9), ("exit 8", 8), ("exit 36", 36), ("exit 37", 37)):
            self.write("tools/bazel", f"#!/bin/bash\nprintf '{{\"id\"' >\"${{2#*=}}\"\n{does}\n", 0o755)
            ended, output = self.nightly("asan_nn", "outside")
            self.assertEqual(ended, 2, output)
            self.assertRegex(output, f"nightly: Bazel ended with exit status {status} in asan_nn, whose result is not kept; .*log")
            for job in ("asan_nn", "outside"):
                self.assertEqual(self.table(output)[job][2], "not run")

    def test_unknown_job(self):
        status, output = self.nightly("asan_nn", "nix")
        self.assertEqual(status, 2)
        self.assertIn("nightly: there is no job nix; the jobs are asan_below", output)
        self.assertEqual(self.targets_run(), [])

    def test_list(self):
        status, output = self.nightly("--list")
        self.assertEqual((status, [line.split()[0] for line in output.splitlines()]), (0, names()))
        self.assertEqual(output.count("needs a CUDA toolkit"), 4)

    def test_no_git(self):
        os.remove(self.path("bin/git"))
        self.assertEqual(self.nightly(), (2, "nightly: git is not installed\n"))


class ChangedTreeTest(NightlyTestCase):
    def test_results_of_a_changed_tree_are_not_kept(self):
        self.state(changed=" M nn/linear.cc\0")
        for _ in range(2):
            status, output = self.nightly("asan_nn")
            self.assertEqual((status, self.targets_run()), (0, targets("asan_nn")))
            self.assertIn("the work tree is changed, so results are not kept", output)
            self.assertIn(f"asan_nn  {HASH}+  ", output)
        self.state(changed="")
        self.nightly("asan_nn")
        self.assertEqual(self.targets_run(), targets("asan_nn"))

    def test_a_commit_while_a_job_runs(self):
        self.state(moves="//tests/nn/...")
        status, output = self.nightly("asan_nn", "outside")
        self.assertEqual((status, self.targets_run()), (2, targets("asan_nn")))
        self.assertIn("the work tree changed while asan_nn ran, so its result is not kept", output)
        self.state(moves=None, commit=ci_tree.COMMIT + "\n")
        self.nightly("asan_nn")
        self.assertEqual(self.targets_run(), targets("asan_nn"))


class RecordTest(NightlyTestCase):
    def test_only_jobs_that_passed_are_dated(self):
        old = Row("asan_nn", "an old text", "aaaaaaa", "2020-01-01", "9", "-", "needs | memory")
        self.write("tests/STATUS.md", with_rows(self.read("tests/STATUS.md"), {"asan_nn": old}))
        before = self.read("tests/STATUS.md")
        self.state(fails="//tests/nn/...")
        status, output = self.nightly("asan_nn", "asan_ranks", "--record")
        self.assertEqual(status, 1)
        self.assertIn("tests/STATUS.md: wrote the rows of asan_nn asan_ranks\n", output)
        passed, failed = self.row("asan_ranks"), self.row("asan_nn")
        self.assertEqual((passed.commit, passed.minutes, passed.failed), (HASH, "0.0", "-"))
        self.assertRegex(passed.date, f"^{TODAY}$")
        self.assertEqual((failed.commit, failed.date, failed.minutes, failed.remarks),
                         ("aaaaaaa", "2020-01-01", "9", "needs | memory"))
        self.assertRegex(failed.failed, rf"^`{HASH}`, {TODAY}: //bad:a_test \(FAILED\) \(\+1\)$")
        self.assertEqual(failed.runs, job_named("asan_nn").runs)
        new = {"asan_nn": failed, "asan_ranks": passed}
        self.assertEqual(with_rows(before, new), self.read("tests/STATUS.md"))

    def test_a_job_that_passes_again(self):
        failed = Row("asan_nn", "", "aaaaaaa", "2020-01-01", "9", "`bbbbbbbbbb`, 2020-02-02: //bad", "slow")
        self.write("tests/STATUS.md", with_rows(self.read("tests/STATUS.md"), {"asan_nn": failed}))
        self.state(changed=" M tests/STATUS.md\0")
        status, output = self.nightly("asan_nn", "--record")
        self.assertEqual(status, 0, output)
        row = self.row("asan_nn")
        self.assertEqual((row.commit, row.failed, row.remarks), (HASH, "-", "slow"))

    def test_results_of_an_earlier_call_are_recorded(self):
        self.nightly("asan_nn")
        self.targets_run()
        self.nightly("asan_nn", "--record")
        self.assertEqual((self.row("asan_nn").commit, self.targets_run()), (HASH, []))

    def test_a_job_left_out_keeps_its_row(self):
        os.remove(self.path("cuda/bin/nvcc"))
        page = self.read("tests/STATUS.md")
        self.assertIn("tests/STATUS.md: wrote the rows of no job\n", self.nightly("gpu_below", "--record")[1])
        self.assertEqual(self.read("tests/STATUS.md"), page)

    def test_refused_on_a_changed_tree(self):
        page = self.read("tests/STATUS.md")
        self.state(changed=" M tests/STATUS.md\0?? new file.cc\0")
        self.assertEqual(self.nightly("asan_nn", "--record"), (
            2, "nightly: --record needs a work tree without changes; changed: new file.cc\n"))
        self.assertEqual((self.targets_run(), self.read("tests/STATUS.md")), ([], page))

    def test_refused_on_a_page_with_a_fault(self):
        self.write("tests/STATUS.md", line_of(Row("asan_nn", "tests")))
        status, output = self.nightly("--record")
        self.assertEqual((status, self.targets_run()), (2, []))
        self.assertIn("nightly: tests/STATUS.md: 0 rows for asan_below, expected 1", output)


if __name__ == "__main__":
    unittest.main()
