#!/usr/bin/env python3
"""tools/bench/compare_pytorch: it runs without PyTorch, takes turns, and computes ratios; its counterparts have the right sizes."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
TOOLS = os.path.join(ROOT, "tools", "bench")
sys.dont_write_bytecode = True
sys.path.insert(0, TOOLS)
import bench_ops_torch  # noqa: E402, pylint: disable=wrong-import-position
import compare_machine  # noqa: E402, pylint: disable=wrong-import-position
import compare_tables  # noqa: E402, pylint: disable=wrong-import-position
import compare_training  # noqa: E402, pylint: disable=wrong-import-position


def run(*arguments):
    command = [sys.executable, os.path.join(TOOLS, "compare_pytorch"), "--programs", ROOT, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


def script(folder, text):
    path = os.path.join(folder, "python")
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/bash\n" + text)
    os.chmod(path, 0o755)
    return path


def ticks_of(process):
    """The processor time that a process has used in its own code, as proc(5) counts it."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        return int(file.read().rpartition(") ")[2].split()[11])


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(folder.cleanup)
        self.folder = folder.name


class SmokeTest(FolderTest):
    def test_without_pytorch_ours_runs_and_the_rest_is_said_to_be_skipped(self):
        path = os.path.join(self.folder, "out.json")
        done = run("--smoke", "--threads", "2", "--json", path, "--python", script(self.folder, "echo 'no torch here' >&2; exit 1\n"))
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertIn("PyTorch skipped: ", done.stdout)
        self.assertIn("has no PyTorch (no torch here)", done.stdout)
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
        cores = results["machine"]["cores_used"]
        rows = [(row["model"], row["dtype"], row["ranks"]) for row in results["training"]]
        self.assertEqual(rows, [(f"{model} smoke", dtype, ranks) for model in ("transformer", "gpt") for dtype in ("f32", "bf16")
                                for ranks in range(1, min(cores, 2) + 1)])
        self.assertTrue(all(row["sides"] == {"tessera": {}} for row in results["training"]))
        self.assertGreater(len(results["operations"]), 300)
        self.assertTrue(all(row["smoke"] and "us" not in row for row in results["operations"]))
        self.assertEqual({line["limit"] for line in results["limits"]}, {"product 8", "triad"})
        self.assertTrue(all(line.get("gflops") is None and line.get("gb_per_s") is None for line in results["limits"]))

    def test_rows_select_training(self):
        path = os.path.join(self.folder, "out.json")
        done = run("--smoke", "--parts", "training", "--rows", "gpt.*bf16 1", "--json", path, "--python", "/bin/false")
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["training"]
        self.assertEqual([(row["model"], row["dtype"], row["ranks"]) for row in rows], [("gpt smoke", "bf16", 1)])

    def test_wrong_options_are_refused(self):
        for arguments, message in ((["--parts", "training,cake"], "no part is called cake"), (["--pairs", "0"], "at least 1"),
                                   (["--turn", "0"], "above 0"), (["--busy", "-1"], "--busy is not negative")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)


class BusyTest(unittest.TestCase):
    def test_busy_processes_compute_on_our_cores_and_end(self):
        with compare_machine.busy_processes(2) as processes:
            self.assertEqual(len(processes), 2)
            deadline = time.monotonic() + 30
            while any(ticks_of(each.pid) == 0 for each in processes):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            for each in processes:
                self.assertEqual(os.sched_getaffinity(each.pid), os.sched_getaffinity(0))
        self.assertTrue(all(each.returncode == -signal.SIGKILL for each in processes))
        with compare_machine.busy_processes(0) as none:
            self.assertEqual(none, [])


class PeerTest(FolderTest):
    FACTS = {"version": "9.9", "mkl": True, "capability": "AVX2"}

    def peer(self, is_amd, **facts):
        return compare_machine.Peer(script(self.folder, f"echo '{json.dumps(dict(self.FACTS, **facts))}'\n"), self.folder, is_amd)

    def test_mkl_is_unlocked_on_amd_where_pytorch_has_it_and_not_as_installed(self):
        peer = self.peer(True)
        library = peer.environment(3)["LD_PRELOAD"]
        self.assertEqual(ctypes.CDLL(library).mkl_serv_intel_cpu_true(), 1)
        self.assertEqual(peer.environment(3)["OMP_NUM_THREADS"], "3")
        with mock.patch.dict(os.environ, LD_PRELOAD=""):
            for other in (peer.environment(3, installed=True), self.peer(False).environment(3), self.peer(True, mkl=False).environment(3)):
                self.assertEqual(other["LD_PRELOAD"], "")

    def test_this_cpu_is_described(self):
        facts = compare_machine.cpu_facts()
        self.assertIn("avx2", facts["flags"])
        self.assertNotIn("?", facts.values())


class OursTest(FolderTest):
    def ours(self, model):
        text = os.path.join(self.folder, "text.txt")
        compare_training.write_text(text, 10 ** 5)
        ours = compare_training.Ours(os.path.join(ROOT, "tools", "tessera"), self.folder, text, model, "f32", 1, 1)
        self.addCleanup(ours.close)
        ours.begin(model)
        return ours

    def test_training_goes_on_in_its_turns_only(self):
        ours = self.ours(compare_training.SMOKE_MODELS[0])
        processes = compare_training.children_of(ours.process.pid)
        self.assertGreater(len(processes), 1)
        self.assertEqual({compare_training.state_of(each) for each in processes}, {"T"})
        before = ours._rows()  # pylint: disable=protected-access
        self.assertGreater(len(before), compare_training.WARM_STEPS)
        self.assertEqual(ours.seen, len(before))
        times = ours.turn(0.01)
        self.assertGreaterEqual(sum(times), 9)
        after = ours._rows()  # pylint: disable=protected-access
        # The first step began in an earlier turn.
        self.assertEqual(times, [json.loads(row)["step_ms"] for row in after[len(before) + 1:][:len(times)]])
        self.assertGreater(ours.facts()["peak_rss_mib"], 10)
        ours.close()
        deadline = time.monotonic() + 30
        while any(os.path.exists(f"/proc/{each}") for each in processes):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_another_number_of_parameters_ends_the_comparison(self):
        wrong = compare_training.SMOKE_MODELS[1]
        with mock.patch.object(compare_training.Model, "parameters", return_value=7):
            with self.assertRaises(SystemExit) as caught:
                self.ours(wrong)
        self.assertIn("gpt smoke has 7552 parameters in Tessera, not 7", str(caught.exception))


class CompareTest(FolderTest):
    FAKE = """[ "$1" = -c ] && { echo '{"version": "9.9", "mkl": false, "capability": "AVX2"}'; exit; }
case "$*" in
  *--mode\ compiled*) echo warning >&2; echo boom >&2; exit 3;;
esac
echo '{"ready": true, "parameters": 7488, "way": "f32", "optimizer": "fused"}'
while read -r seconds; do echo '{"step_ms": [5000.0, 7000.0, 6000.0]}'; done
"""

    def test_a_row_has_both_sides_and_the_reason_of_one_that_does_not_start(self):
        peer = compare_machine.Peer(script(self.folder, self.FAKE), self.folder, True)
        text = os.path.join(self.folder, "text.txt")
        compare_training.write_text(text, 10 ** 5)
        programs = mock.Mock(tessera=os.path.join(ROOT, "tools", "tessera"), limits=os.path.join(TOOLS, "bench_limits"))
        model = compare_training.SMOKE_MODELS[0]
        options = settings(turn=0.01, cores=1, compiled=True, installed=True, folder=self.folder, text=text, pairs=1)
        limit = {"limit": "product 16", "dtype": "f32", "gflops": 10.0}
        row = compare_training.compare(programs, peer, options, model, "f32", 1, limit)
        self.assertEqual(row["failed"], {"compiled": "ended with status 3: boom"})
        self.assertEqual((row["pairs"], list(row["sides"])), (1, ["tessera", "eager"]))
        ours, eager = row["sides"]["tessera"], row["sides"]["eager"]
        self.assertEqual((eager["step_ms"], eager["way"], eager["optimizer"]), (6000.0, "f32", "fused"))
        self.assertAlmostEqual(eager["ratio"] * ours["step_ms"] / 6000, 1, delta=0.01)
        self.assertGreater(ours["peak_rss_mib"], 10)
        self.assertGreater(ours["share_of_product"], 0)
        self.assertIn("share_of_product", eager)
        with open(peer.python, "w", encoding="utf-8") as file:
            file.write("#!/bin/bash\n" + self.FAKE.replace("while", "echo gone >&2; exit 4; while"))
        with self.assertRaisesRegex(RuntimeError, "ended with status 4: gone"):
            compare_training.compare(programs, peer, options, model, "f32", 1)
        wrong = compare_training.SMOKE_MODELS[1]
        with self.assertRaises(SystemExit) as caught:
            compare_training.compare(programs, peer, options, wrong, "f32", 1)
        self.assertIn("gpt smoke has 7488 parameters in PyTorch, not 7552", str(caught.exception))


class ProductsTest(unittest.TestCase):
    def test_products_are_timed_in_turns(self):
        products = compare_training.Products(os.path.join(TOOLS, "bench_limits"), {"limit": "product 24", "dtype": "bf16"}, 1)
        times = products.turn(0.01)
        self.assertEqual(products.operations, 2 * 24 ** 3)
        self.assertGreater(len(times), 1)
        self.assertGreater(sum(times), 5)

    def test_wrong_arguments_are_refused(self):
        for wrong in (["--turn", "3"], ["--turn", "3", "f16", "1"], ["--turn", "x", "f32", "1"], ["--turn", "3", "f32", "0"], ["--turm"]):
            done = subprocess.run([os.path.join(TOOLS, "bench_limits"), *wrong], stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--turn N f32|bf16 SECONDS", done.stderr)


class FakeSide:
    def __init__(self, name, step_ms, order):
        self.name, self.step_ms, self.order = name, step_ms, order

    def turn(self, seconds):
        self.order.append((self.name, seconds))
        return [self.step_ms, 2 * self.step_ms, 0]

    def facts(self):
        return {"peak_rss_mib": 5, **({"way": "autocast", "optimizer": "fused"} if self.name != "tessera" else {})}


def settings(**changes):
    return mock.Mock(**{"pairs": 3, "turn": 0.5, "limit": 1000, "smoke": False, **changes})


class TurnsTest(unittest.TestCase):
    def sides(self):
        order = []
        return {name: FakeSide(name, step, order) for name, step in (("tessera", 100), ("eager", 150), ("compiled", 80))}, order

    def test_sides_alternate(self):
        sides, order = self.sides()
        medians = compare_training.turns(sides, settings())
        self.assertEqual(order, [("tessera", 0.5), ("eager", 0.5), ("compiled", 0.5)] * 3)
        self.assertEqual(medians, {"tessera": [100] * 3, "eager": [150] * 3, "compiled": [80] * 3})

    def test_a_row_that_takes_too_long_ends_after_a_round(self):
        sides, order = self.sides()
        self.assertEqual(compare_training.turns(sides, settings(limit=-1))["eager"], [150])
        self.assertEqual(len(order), 3)

    def test_ratios_are_above_one_where_ours_is_faster(self):
        sides, _ = self.sides()
        model = compare_training.MODELS[0]
        medians = {"tessera": [100, 100, 200], "eager": [150, 160, 300], "compiled": [80, 90, 200]}
        operations = 4096 * model.operations_per_token()
        found = compare_training.results(sides, medians, model, {"gflops": 50.0}, (operations / 10, [9.0, 8.0, 7.0]))
        self.assertEqual(found["tessera"]["tokens_per_s"], 40960)
        self.assertEqual(found["tessera"]["share_of_peak"], round(operations / 0.1 / 50e9, 3))
        # In the rounds 0.9, 0.8 and 0.35 of the product's speed.
        self.assertEqual(found["tessera"]["share_of_product"], 0.8)
        self.assertEqual((found["eager"]["ratio"], found["eager"]["quartiles"]), (1.5, [1.5, 1.6]))
        self.assertEqual(found["compiled"]["ratio"], 0.9)
        self.assertNotIn("ratio", found["tessera"])
        without = compare_training.results(sides, medians, model)["tessera"]
        self.assertFalse({"share_of_peak", "share_of_product"} & set(without))


class TablesTest(unittest.TestCase):
    def results(self):
        side = {"tokens_per_s": 20, "step_ms": 5.0, "peak_rss_mib": 7, "share_of_peak": 0.25, "share_of_product": 0.5}
        eager = dict(side, ratio=1.5, quartiles=[1.4, 1.62], way="autocast", optimizer="fused")
        row = {"shape": [64, 64], "dtype": "f32", "threads": 1, "pass": "forward", "us": 2.0, "torch_us": 3.0}
        return {"machine": {"cpu": "X", "family": 1, "model": 2, "flags": ["avx2"], "cores": 4, "cores_used": 2, "load_before": 0.1,
                            "load_after": 2.5},
                "versions": {"date": "today", "tessera": "0", "commit": "abc", "instruction_set": "v3", "pytorch": "9",
                             "pytorch_capability": "AVX2", "mkl_unlocked": True},
                "peer_skipped": "",
                "limits": [{"limit": "triad", "dtype": "f32", "threads": 2, "side": "tessera", "gb_per_s": 11.0}],
                "training": [{"model": "m", "dtype": "bf16", "ranks": 1, "pairs": 15, "sides": {"tessera": side, "eager": eager}},
                             {"model": "m", "dtype": "bf16", "ranks": 2, "failed": {"compiled": "it broke"}}],
                "operations": [dict(row, op="fast", ratio=1.5), dict(row, op="slow", ratio=0.5), dict(row, op="slower", ratio=0.25)]}

    def test_small_operands_are_those_limited_by_the_call(self):
        small = [[64, 64], [64, 64, 64], [64, 10], [150, 256], [64, 64, 16]]
        large = [[2048, 1024], [8, 64, 28, 28], [8, 64, 512], [4, 8, 256, 64], [50, 1 << 16], [1 << 20], [32, 256, 256, 64]]
        self.assertEqual([compare_tables.is_small(shape) for shape in small + large], [True] * len(small) + [False] * len(large))

    def test_all_figures_are_shown(self):
        lines = [" ".join(line.split()) for line in compare_tables.text_of(self.results()).splitlines()]
        self.assertIn("PyTorch 9 (AVX2), MKL unlocked by a preloaded library (it runs slow kernels on AMD's CPUs)", lines)
        self.assertIn("load average 0.1 before, 2.5 after: above 2 others disturbed the figures", lines)
        self.assertIn("triad, GB/s f32 2 11.0", lines)
        self.assertIn("m tessera bf16 1 20 25 % 50 % 15 7", lines)
        self.assertIn("m eager (autocast, fused) bf16 1 20 25 % 50 % 1.50 1.40-1.62 15 7", lines)
        self.assertIn("m compiled failed: it broke bf16 2", lines)
        self.assertIn("f32 small 1 3 0.50 1 2", lines)
        slowest = [line for line in lines if " forward 64x64 " in line]
        self.assertEqual(slowest, ["slower forward 64x64 f32 1 2.0 3.0 0.25", "slow forward 64x64 f32 1 2.0 3.0 0.50"])


class CounterpartTest(unittest.TestCase):
    def test_operations_on_the_cpu_are_those_with_counterparts(self):
        command = [sys.executable, os.path.join(TOOLS, "bench_ops_torch.py"), "--program", os.path.join(TOOLS, "bench_ops"),
                   "--device", "cpu", "--check"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_operands_of_the_cpu_are_smaller(self):
        cpu, gpu = (bench_ops_torch.Ours(os.path.join(TOOLS, "bench_ops"), device, False).table() for device in ("cpu", "cuda"))
        self.assertEqual([(row["op"], row["dtype"]) for row in cpu], [(row["op"], row["dtype"]) for row in gpu])
        self.assertTrue(all(small["shape"] <= large["shape"] for small, large in zip(cpu, gpu)))
        self.assertLess(cpu[0]["shape"], gpu[0]["shape"])

    def test_the_library_for_pytorch_is_not_preloaded_for_ours(self):
        with mock.patch.dict(os.environ, LD_PRELOAD="unlocked.so"):
            self.assertNotIn("LD_PRELOAD", bench_ops_torch.Ours("ops", "cpu", False).environment)

    def test_another_device_is_refused(self):
        done = subprocess.run([os.path.join(TOOLS, "bench_ops"), "--device", "tpu"], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn('unknown argument "--device"', done.stderr)


if __name__ == "__main__":
    unittest.main()
