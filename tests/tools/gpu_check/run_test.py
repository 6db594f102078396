#!/usr/bin/env python3
"""run.py of tools/gpu_check: the rows that run, their settings, and their results."""

import os
import shutil
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "tests/tools/gpu_check"))
from bundle_case import FAILS, FAKE, HANGS, PASSES, SANITIZER, BundleCase, test  # noqa: E402


class RunTest(BundleCase):
    def test_results(self):
        """Each program runs with its settings; failures, hangs, crashes and skips are recorded."""
        self.make({"tests.nn.a_test": PASSES, "tests.fsdp.b_test": FAILS, "tests.fsdp.slow_test": "#!/bin/bash\nsleep 60\n",
                   "tests.fsdp.dead_test": "#!/bin/bash\nkill -9 $$\n", "tests.fsdp.skip_test": "#!/bin/bash\necho 'SKIPPED: why'\n",
                   "tests.fsdp.late_test": PASSES + "exit 3\n"},
                  [test("tests.nn.a_test", POISON="1")] + [test(f"tests.fsdp.{name}_test") for name in
                                                           ["b", "slow", "dead", "skip", "late"]])
        found = self.run_bundle("--timeout", "1", "--parts", "nn,fsdp", status=1)
        told = "cuda local 1,2,3,4,5,6,7,8"
        self.assertEqual(self.cases(found, "tests.nn.a_test"), [(f"{told} 1", "passed", "")])
        self.assertEqual(self.cases(found, "tests.fsdp.b_test"), [(f"{told} ", "failed", "")])
        self.assertEqual(self.cases(found, "tests.fsdp.slow_test"), [("", "failed", "ran longer than 1 s")])
        self.assertEqual(self.cases(found, "tests.fsdp.dead_test"), [("", "failed", "left no report, exit status -9")])
        self.assertEqual(self.cases(found, "tests.fsdp.skip_test"), [("", "skipped", "why")])
        self.assertEqual(self.cases(found, "tests.fsdp.late_test")[1], ("", "failed", "exit status 3"))
        self.assertEqual((found["passed"], found["failed"], found["skipped"], found["left"]), (2, 4, 1, []))

    def test_a_test_that_hangs(self):
        """A program that is asked to end reports its current case and its results; the end of its output is kept."""
        self.make({"tests.nn.a_test": HANGS, "tests.nn.deaf_test": "#!/bin/bash\ntrap '' TERM\necho $$ > deaf\necho deaf\nsleep 60\n"},
                  [test("tests.nn.a_test"), test("tests.nn.deaf_test")])
        begin = time.time()
        found = self.run_bundle("--parts", "nn", "--timeout", "1", status=1)
        self.assertLess(time.time() - begin, 40)
        late = ("", "failed", "ran longer than 1 s")
        self.assertEqual(self.cases(found, "tests.nn.a_test"), [("first", "passed", ""), ("stuck", "failed", "ran when time was up"), late])
        self.assertEqual(self.cases(found, "tests.nn.deaf_test"), [late])
        self.assertEqual([result["log"] for result in found["results"]], ["so far\n", "deaf\n"])
        with open(f"{self.bundle}/deaf", encoding="utf-8") as file, self.assertRaises(ProcessLookupError):
            os.kill(int(file.read()), 0)

    def test_several_at_a_time(self):
        """Tests share the GPU; what measures time runs alone. Without --jobs one runs at a time."""
        meets = PASSES + "echo + >> log; sleep 1; echo - >> log\n"  # starts and ends
        names = ["tests.fsdp.a_test", "tests.fsdp.b_test", "tests.fsdp.schedule.overlap_test_cuda"]
        self.make({name: meets for name in names}, [test(name) for name in names])
        for words, together in [(["--jobs", "3"], True), ([], False)]:
            found = self.run_bundle("--parts", "fsdp", "--again", *words)
            self.assertEqual((found["passed"], found["failed"], found["left"]), (3, 0, []))
            with open(f"{self.bundle}/log", encoding="utf-8") as file:
                self.assertEqual(file.read().split(), list("++--+-" if together else "+-+-+-"))
            os.remove(f"{self.bundle}/log")

    def test_order(self):
        """First whether anything works, then what counts most."""
        names = ["tests.nn.a_test", "tests.gpu.x_kernels_test", "tests.gpu.preflight_test"]
        self.make({name: PASSES for name in names}, [test(name) for name in names])
        for name in ["bench_gpu_matmul", "bench_gpu_attention", "bench_gpu_train_torch.py", "bench_gpu_train"]:
            self.write(f"gpu_check/benchmarks/{name}", "#!/bin/bash\n" if "." not in name else "")
        found = self.run_bundle("--only", "tests|bench")
        wanted = ["tests.gpu.preflight_test", "bench_gpu_train", "bench_gpu_train_torch.py", "bench_gpu_attention", "bench_gpu_matmul",
                  "tests.gpu.x_kernels_test", "tests.nn.a_test"]
        self.assertEqual([name for name in self.names(found) if "check." not in name], wanted)

    def test_no_jobs(self):
        self.make({}, [])
        self.assertIsNone(self.run_bundle("--jobs", "0", status=2))
        self.assertIn("--jobs is 0; it is at least 1", self.output)

    def test_a_row_that_cannot_run(self):
        """If a program does not start, only its row fails."""
        self.make({"tests.nn.b_test": PASSES}, [test("tests.nn.absent_test"), test("tests.nn.b_test")])
        found = self.run_bundle("--parts", "nn", status=1)
        self.assertIn("could not be run: FileNotFoundError", self.cases(found, "tests.nn.absent_test")[0][2])
        self.assertEqual(self.cases(found, "tests.nn.b_test")[0][1], "passed")

    def test_a_test_without_a_part(self):
        """A test without a known part is an error: nothing runs."""
        self.make({"tests.nn.a_test": PASSES, "tests.odd.a_test": PASSES}, [test("tests.nn.a_test"), test("tests.odd.a_test")])
        self.assertIsNone(self.run_bundle("--parts", "nn", status=1))
        self.assertIn("tests.odd.a_test has no part", self.output)

    def test_worlds_without_gpus(self):
        """NCCL worlds larger than the number of GPUs are skipped with a reason."""
        self.make({"tests.distributed.a_test": PASSES}, [test("tests.distributed.a_test", 2, "nccl")])
        found = self.run_bundle("--parts", "nccl", "--only", "a_test", gpus=3)
        self.assertEqual(self.cases(found, "tests.distributed.a_test")[0][0], "cuda nccl 1,2,3,4,5,6,7,8 EAGER")
        reason = "NCCL needs a GPU for each rank, found 3"
        self.assertEqual(self.cases(found, "tests.distributed.a_test")[1], ("worlds of 4, 5, 6, 7, 8 ranks", "skipped", reason))

    def test_sanitizers(self):
        """Tests of kernels run under each tool; an error of the tool fails a test whose cases passed."""
        self.make({"tests.gpu.x_kernels_test": PASSES, "tests.gpu.two_gpus_test": PASSES},
                  [test("tests.gpu.x_kernels_test"), test("tests.gpu.two_gpus_test")])
        self.write("lib/compute-sanitizer", SANITIZER)
        found = self.run_bundle("--parts", "sanitizer", status=1, PATH=f"{self.libraries}:{os.environ['PATH']}")
        self.assertEqual(self.names(found), [f"{tool}.tests.gpu.x_kernels_test" for tool in ["memcheck", "racecheck", "initcheck"]])
        self.assertEqual(len(self.cases(found, "memcheck.tests.gpu.x_kernels_test")), 1)
        with open(f"{self.bundle}/sanitized", encoding="utf-8") as file:
            only_ours = ["--kernel-name kns=7tessera" in line for line in file]
        self.assertEqual(only_ours, [False, True, False])
        self.assertEqual(self.cases(found, "racecheck.tests.gpu.x_kernels_test")[1], ("", "failed", "exit status 99"))

    def test_what_is_sanitized(self):
        """All tests that launch a kernel of ours, on two ranks; those that need several GPUs only under memcheck, and not
        under initcheck if kernels of libraries run in between.
        """
        here = ["core_gpu_test", "graph_gpu_test", "local_collectives_gpu_test_local"]
        mixed = ["attention_kernels_test", "conv_kernels_test", "matmul_kernels_test"]
        far = ["local_collectives_gpu_test_nccl", "local_collectives_gpus_test_local", "nccl_graph_gpu_test"]
        tests = [test(f"tests.gpu.{name}") for name in here + mixed] + [test(f"tests.gpu.{name}", 2) for name in far]
        self.make({each["name"]: PASSES for each in tests}, tests)
        self.write("lib/compute-sanitizer", SANITIZER.replace("[[ $tool != racecheck ]] || exit 99\n", ""))
        found = self.run_bundle("--parts", "sanitizer", gpus=2, PATH=f"{self.libraries}:{os.environ['PATH']}")
        wanted = [f"memcheck.tests.gpu.{name}" for name in here + mixed + far]
        wanted += [f"racecheck.tests.gpu.{name}" for name in here + mixed] + [f"initcheck.tests.gpu.{name}" for name in here]
        self.assertEqual(self.names(found), wanted)
        self.assertEqual({case["name"].split()[2] for result in found["results"] for case in result["cases"]}, {"2"})

    def test_without_a_gpu(self):
        """Neither sanitizers nor the experiment start anything."""
        self.make({"tests.gpu.x_kernels_test": FAILS}, [test("tests.gpu.x_kernels_test")])
        self.write("lib/compute-sanitizer", SANITIZER)
        found = self.run_bundle("--parts", "sanitizer,nccl", gpus=0, PATH=f"{self.libraries}:{os.environ['PATH']}")
        reasons = [case["reason"] for result in found["results"] for case in result["cases"]]
        self.assertEqual(reasons, ["needs 1 GPU, found 0"] * 5)

    def test_a_driver_in_a_folder(self):
        """Libraries are found outside the loader's list, also by the programs; without them, --require-gpu ends at once."""
        self.make({"tests.nn.a_test": "#!/bin/bash\necho \"SKIPPED: $LD_LIBRARY_PATH\"\n"}, [test("tests.nn.a_test")])
        folder = f"{self.root}/python/nvidia/driver/lib"
        os.makedirs(folder)
        self.assertIsNone(self.run_bundle("--parts", "nn", "--require-gpu", gpus=0, status=2))
        self.assertEqual(self.output.count("\n"), 1)
        self.assertIn("found no GPU", self.output)
        shutil.copy(FAKE, f"{folder}/libcuda.so.1")
        found = self.run_bundle("--parts", "nn", "--require-gpu", LD_LIBRARY_PATH="", PYTHONPATH=f"{self.root}/python")
        self.assertEqual(found["machine"]["gpus"], 1)
        self.assertIn(folder, self.cases(found, "tests.nn.a_test")[0][2].split(":"))

    def test_figures_are_kept(self):
        """For a benchmark that runs too long or fails; an incomplete line is ignored."""
        self.make({}, [])
        self.write("gpu_check/benchmarks/bench_a", "#!/bin/bash\necho '{\"us\": 1}'\necho '{\"us\": 2}'\nprintf '{\"us\"'\nsleep 60\n")
        self.write("gpu_check/benchmarks/bench_b", "#!/bin/bash\necho '{\"us\": 3}'\nexit 7\n")
        found = self.run_bundle("--parts", "bench", "--timeout", "1", status=1)
        self.assertEqual([result["figures"] for result in found["results"]], [[{"us": 1}, {"us": 2}], [{"us": 3}]])
        self.assertEqual(self.cases(found, "bench_a"), [("", "failed", "ran longer than 1 s, 2 figures")])
        self.assertEqual(self.cases(found, "bench_b"), [("", "failed", "exit status 7, 1 figures")])

    def test_benchmarks(self):
        self.make({}, [])
        self.write("gpu_check/benchmarks/bench_a", "#!/bin/bash\necho words\necho '{\"ratio\": 0.9}'\n")
        self.write("gpu_check/benchmarks/bench_b", "#!/bin/bash\necho 'skipped: no GPU'\n")
        self.write("gpu_check/benchmarks/bench_c.py", "import os\nprint('{\"ours\": %d}' % ('TESSERA_LIBRARY_PATH' in os.environ))\n")
        self.write("gpu_check/benchmarks/of_c.py", "raise SystemExit('not to be run')\n")
        found = self.run_bundle("--parts", "bench")
        self.assertEqual([result.get("figures") for result in found["results"]], [[{"ratio": 0.9}], None, [{"ours": 1}]])
        self.assertEqual(self.cases(found, "bench_b"), [("", "skipped", "no GPU")])

    def test_benchmarks_leave_the_bundle_as_it_was(self):
        """One script imports another; a __pycache__ folder, as Python creates by default, does not change the bundle's
        identity.
        """
        self.make({}, [])
        self.write("gpu_check/benchmarks/bench_c.py", "import of_c\nprint('{\"ours\": %d}' % of_c.NUMBER)\n")
        self.write("gpu_check/benchmarks/of_c.py", "NUMBER = 7\n")
        first = self.run_bundle("--parts", "bench")
        self.assertEqual(first["results"][0]["figures"], [{"ours": 7}])
        self.assertEqual(sorted(os.listdir(f"{self.bundle}/benchmarks")), ["bench_c.py", "of_c.py"])
        os.makedirs(f"{self.bundle}/benchmarks/__pycache__")
        self.assertEqual(self.run_bundle("--parts", "bench")["bundle"], first["bundle"])

    def test_nccl_on_one_gpu(self):
        """The experiment reports NCCL's message; only a wrong sum is a failure."""
        self.make({}, [])
        outcomes = []
        for fake, status in [("wrong", 1), ("refuse", 0), ("", 0)]:
            found = self.run_bundle("--parts", "nccl", "--only", "2_ranks", "--again", status=status, FAKE_NCCL=fake)
            outcomes.append((found["results"][0]["outcome"], found["results"][0]["cases"][0]["result"]))
        self.assertEqual(outcomes, [
            ("wrong: rank 0: 1048576 of 1048576 sums are not 3.0", "failed"),
            ("refused: rank 1: ncclCommInitRank: invalid usage: Duplicate GPU detected", "skipped"),
            ("works", "passed"),
        ])
        found = self.run_bundle("--parts", "nccl", "--only", "4_ranks")
        self.assertEqual(found["results"][1]["outcome"], "works")


if __name__ == "__main__":
    unittest.main()
