#!/usr/bin/env python3
"""The benchmarks for GPUs: each runs with small sizes on the test's device, and every operation has a PyTorch counterpart."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

TOOLS = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "tools", "bench")
WITHOUT_CUDA = ["bandwidth", "launch", "ops", "overlap", "train"]
# This one exists in builds with CUDA only, and needs a GPU for --smoke too.
BENCHMARKS = WITHOUT_CUDA + (["attention"] if os.path.exists(os.path.join(TOOLS, "bench_gpu_attention")) else [])
# Hides all GPUs, real or emulated.
WITHOUT_GPU = dict(os.environ, CUDA_VISIBLE_DEVICES="", TESSERA_EMULATED_GPUS="0")
sys.dont_write_bytecode = True
sys.path.insert(0, TOOLS)
import bench_ops_torch  # noqa: E402, pylint: disable=wrong-import-position
import torch_twins  # noqa: E402, pylint: disable=wrong-import-position


def program(name):
    return os.path.join(TOOLS, f"bench_{name}" if name == "ops" else f"bench_gpu_{name}")


def run(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **options)


def smoke_rows(name, *arguments, **options):
    done = run(program(name), "--smoke", *arguments, **options)
    assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-2000:]}"
    return [json.loads(line) for line in done.stdout.splitlines() if line != "skipped: no GPU"]


class BenchmarksTest(unittest.TestCase):
    def test_each_runs_and_shows_no_figures_of_a_run_that_measures_nothing(self):
        for name in BENCHMARKS:
            with self.subTest(name):
                rows = [row for row in smoke_rows(name) if "skipped" not in row]
                if name == "attention" and not rows:  # no GPU, or no cuDNN
                    continue
                self.assertGreater(len(rows), 2)
                for row in rows:
                    self.assertTrue(row["smoke"])
                    self.assertNotIn("us", row)
                    self.assertNotIn("ratio", row)

    def test_without_a_gpu_each_says_so(self):
        for name in BENCHMARKS:
            with self.subTest(name):
                done = run(program(name), env=WITHOUT_GPU)
                self.assertEqual((done.returncode, done.stdout), (0, "skipped: no GPU\n"))

    def test_other_arguments_are_refused(self):
        for name in BENCHMARKS:
            with self.subTest(name):
                done = run(program(name), "--fast")
                self.assertEqual(done.returncode, 2)
                self.assertIn('unknown argument "--fast"', done.stderr)


    def test_attention_says_which_of_the_plans_is_ours(self):
        if "attention" not in BENCHMARKS:
            self.skipTest("not a build with CUDA")
        rows = smoke_rows("attention")
        for row in rows:
            if "skipped" in row:  # a build without cuDNN
                continue
            self.assertGreaterEqual(row["plans"], 1)
            self.assertEqual(row["failed"], 0)
            self.assertLess(row["chosen"], row["plans"])
            self.assertGreaterEqual(row["chosen"], 0 if row["slices"] == 1 else -1)
        self.assertEqual([row["pass"] for row in rows], ["forward", "backward"] * (len(rows) // 2))

    def test_attention_without_a_gpu_has_nothing_to_show(self):
        if "attention" not in BENCHMARKS:
            self.skipTest("not a build with CUDA")
        self.assertEqual(run(program("attention"), "--smoke", env=WITHOUT_GPU).stdout, "skipped: no GPU\n")


class TrainingTest(unittest.TestCase):
    def test_the_table_names_every_row_once(self):
        names = [json.loads(line)["row"] for line in run(program("train"), "--table").stdout.splitlines()]
        self.assertEqual(len(names), len(set(names)))
        self.assertIn("gpt2-124m", names)
        self.assertEqual([row["row"] for row in smoke_rows("train", "--only", names[-1])], names[-1:])

    def test_a_row_that_does_not_exist_and_numbers_that_are_none_are_refused(self):
        done = run(program("train"), "--only", "gpt5")
        self.assertEqual((done.returncode, done.stderr), (2, 'no row is called "gpt5"; --table prints them\n'))
        for number in ["0", "many"]:
            done = run(program("train"), "--steps", number)
            self.assertEqual(done.returncode, 2)
            self.assertIn('unknown argument "--steps"', done.stderr)

    def test_an_unknown_mode_of_pytorch_is_refused(self):
        done = run(sys.executable, os.path.join(TOOLS, "bench_gpu_train_torch.py"), "--modes", "eager,fast", env=WITHOUT_GPU)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no mode is called fast", done.stderr)

    def test_without_pytorch_or_a_gpu_there_is_nothing_to_compare(self):
        done = run(sys.executable, os.path.join(TOOLS, "bench_gpu_train_torch.py"), env=WITHOUT_GPU)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(done.stdout, ["skipped: no PyTorch\n", "skipped: PyTorch sees no GPU\n"])

    def test_kernels_of_a_step_are_summed_by_name_and_shape(self):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            fake = os.path.join(folder, "ncu")
            rows = [(1, "void a<float>(int)", 3000), (2, "void a<float>(int)", 1000), (3, "b(int)", 500)]
            lines = ['"ID","Kernel Name","Grid Size","Block Size","Metric Name","Metric Value"']
            for number, name, nanoseconds in rows:
                for metric, value in [("gpu__time_duration.sum", f"{nanoseconds:,}"), ("dram__bytes_read.sum", "4,000,000")]:
                    lines.append(f'"{number}","{name}","(1, 1, 1)","(32, 1, 1)","{metric}","{value}"')
            with open(fake, "w", encoding="utf-8") as file:
                file.write("#!/bin/bash\ncat <<'E'\n" + "\n".join(lines) + "\nE\n")
            os.chmod(fake, 0o755)
            done = run(sys.executable, os.path.join(TOOLS, "kernel_table.py"), "--ncu", fake, "--row", "x")
        self.assertEqual(done.returncode, 0, done.stderr)
        table = done.stdout.splitlines()
        self.assertEqual(table[0], "x: 3 launches, 4 us in kernels")
        self.assertEqual(table[2].split()[:4], ["2", "4.0", "88.9%", "2000"])
        self.assertEqual(table[3].split()[:4], ["1", "0.5", "11.1%", "8000"])


class OperationsTest(unittest.TestCase):
    def torch_side(self, *arguments):
        return run(sys.executable, os.path.join(TOOLS, "bench_ops_torch.py"), *arguments, env=WITHOUT_GPU)

    def against_table(self, *names):
        """The output of --check for a program with a table of these operations."""
        rows = [json.dumps({"op": name, "shape": [2], "dtype": "f32", "passes": ["forward"]}) for name in names]
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            fake = os.path.join(folder, "ops")
            with open(fake, "w", encoding="utf-8") as file:
                file.write("#!/bin/bash\ncat <<'E'\n" + "\n".join(rows) + "\nE\n")
            os.chmod(fake, 0o755)
            return self.torch_side("--program", fake, "--check")

    def test_the_rows_measured_are_those_of_the_table(self):
        wanted = [(row["op"], row["shape"], row["dtype"], each)
                  for row in smoke_rows("ops", "--table") for each in row["passes"]]
        self.assertEqual([(row["op"], row["shape"], row["dtype"], row["pass"]) for row in smoke_rows("ops")], wanted)

    def test_every_operation_has_a_twin_and_every_twin_an_operation(self):
        done = self.torch_side("--program", program("ops"), "--check")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"rows of {len(torch_twins.OPS)} operations", done.stdout)

    def test_an_operation_without_a_twin_is_an_error_and_so_is_a_twin_alone(self):
        done = self.against_table("cube", *torch_twins.OPS)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "no twin of the operation cube in PyTorch\n")
        done = self.against_table(*[name for name in torch_twins.OPS if name != "relu"])
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "no row of the operation relu\n")

    def test_twins_take_the_extents_of_their_rows(self):
        for row in smoke_rows("ops", "--table"):
            torch = mock.MagicMock()
            torch.randn().__gt__.return_value = torch  # a mask
            inputs = torch_twins.Inputs(torch, "cpu", row["dtype"])
            call = torch_twins.OPS[row["op"]](inputs, *row["shape"])
            self.assertTrue(callable(call), row["op"])
            if "backward" in row["passes"]:
                self.assertTrue(inputs.leaves, row["op"])

    def test_without_pytorch_or_a_gpu_there_is_nothing_to_compare(self):
        done = self.torch_side("--program", program("ops"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(done.stdout, ["skipped: no PyTorch\n", "skipped: PyTorch sees no GPU\n"])

    def lines_of_attention(self, torch):
        """The output for one row of attention, if our program prints no times."""
        row = {"op": "attention", "shape": [1, 2, 6, 8], "dtype": "bf16", "passes": ["forward"]}
        answer = {"op": "attention", "shape": row["shape"], "dtype": "bf16", "pass": "forward", "result": [1, 2, 6, 8]}
        ours = mock.Mock(**{"measure.return_value": answer})
        return list(bench_ops_torch.compare_all(torch, "cpu", ours, 1, (7, row)))

    def torch_with_attention(self):
        torch = mock.MagicMock()
        torch.nn.functional.scaled_dot_product_attention.return_value.shape = (1, 2, 6, 8)
        return torch

    def test_pytorch_is_told_to_take_cudnn_for_attention_when_made_and_when_measured(self):
        self.assertLessEqual(torch_twins.BACKENDS.keys(), torch_twins.OPS.keys())
        torch = self.torch_with_attention()
        tell, told = torch.nn.attention.sdpa_kernel, []
        attention = torch.nn.functional.scaled_dot_product_attention
        tell.return_value.__enter__.side_effect = lambda *_: told.append(attention.call_count)
        tell.return_value.__exit__.side_effect = lambda *_: told.append(attention.call_count)
        first, second = self.lines_of_attention(torch)
        self.assertNotIn("torch_backend", first)
        self.assertEqual(second, dict(first, torch_backend="cudnn"))
        tell.assert_called_with(torch.nn.attention.SDPBackend.CUDNN_ATTENTION)
        # Once to make each counterpart; twice to measure it: warm-up, and one call.
        self.assertEqual(told, [3, 4, 4, 6])

    def test_what_pytorch_refuses_is_said_and_only_there(self):
        torch = self.torch_with_attention()
        refuse = RuntimeError("No available kernel.\nAborting.")
        torch.nn.attention.sdpa_kernel.return_value.__enter__.side_effect = refuse
        first, second = self.lines_of_attention(torch)
        self.assertNotIn("skipped", first)
        self.assertEqual(second["skipped"], "PyTorch refuses: No available kernel.")
        self.assertEqual(second["torch_backend"], "cudnn")
        torch.nn.functional.scaled_dot_product_attention.side_effect = refuse
        with self.assertRaises(RuntimeError):
            self.lines_of_attention(torch)

    def test_an_older_pytorch_without_that_library_is_said_too(self):
        torch = self.torch_with_attention()
        torch.nn.attention = object()
        self.assertIn("sdpa_kernel", self.lines_of_attention(torch)[1]["skipped"])

    def test_figures_have_a_goal_unless_pytorch_was_told(self):
        twin = mock.Mock(result_shape=[2], **{"microseconds.return_value": 6.0})
        out = {"op": "exp", "shape": [2], "dtype": "f32", "pass": "forward"}
        ours = mock.Mock(**{"measure.return_value": dict(out, result=[2], us=3.0)})
        wanted = dict(out, us=3.0, torch_us=6.0, pairs=3, ratio=2.0)
        self.assertEqual(bench_ops_torch.compare(twin, ours, 3, 0, out), dict(wanted, goal=1.0))
        told = dict(out, torch_backend="cudnn")
        self.assertEqual(bench_ops_torch.compare(twin, ours, 3, 0, told), dict(wanted, torch_backend="cudnn"))

    def test_serving_measures_what_is_asked_for(self):
        done = run(program("ops"), "--serve", "--smoke", input="1 forward\n0 backward\n0 backward\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(row["dtype"], row["pass"]) for row in rows],
                         [("bf16", "forward"), ("f32", "backward"), ("f32", "backward")])
        for line in ["0 sideways", "100000 forward"]:
            done = run(program("ops"), "--serve", "--smoke", input=line + "\n")
            self.assertEqual(done.returncode, 2)
            self.assertIn("there is no row " + line.split()[0], done.stderr)


if __name__ == "__main__":
    unittest.main()
