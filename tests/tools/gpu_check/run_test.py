#!/usr/bin/env python3
"""run.py of tools/gpu_check in a bundle of small scripts, on a machine whose CUDA is a fake one."""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
FAKE = os.path.join(ROOT, "tests/tools/gpu_check/libfake_cuda.so")

# A test program: one passed case, named by what it was told.
PASSES = """#!/bin/bash
echo x >> runs
cat > "$XML_OUTPUT_FILE" <<END
<testsuite><testcase name="$TESSERA_TEST_DEVICE $TESSERA_TEST_TRANSPORT $TESSERA_TEST_WORLDS $POISON$CUDA_MODULE_LOADING"/></testsuite>
END
"""
FAILS = PASSES.replace("/></", "><failure>no</failure></testcase></") + "exit 1\n"
SANITIZER = """#!/bin/bash
tool=$2
echo "$@" >> sanitized
while [[ $1 != /* ]]; do shift; done
"$@"
[[ $tool != racecheck ]] || exit 99
"""


def test(name, gpus=1, transport="local", **settings):
    return {"name": name, "program": name, "gpus": gpus, "device": "cuda", "transport": transport, "settings": settings}


class RunTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(self._folder.cleanup)
        self.root = self._folder.name
        self.bundle, self.libraries = f"{self.root}/gpu_check", f"{self.root}/lib"
        for folder in [f"{self.bundle}/programs", f"{self.bundle}/benchmarks", self.libraries]:
            os.makedirs(folder)
        for script in glob.glob(f"{ROOT}/tools/gpu_check/*.py"):
            shutil.copy(script, self.bundle)
        for name in ["libcuda.so.1", "libcudart.so.13", "libnccl.so.2"]:
            shutil.copy(FAKE, f"{self.libraries}/{name}")

    def make(self, programs, tests):
        """A bundle: name -> text of its program, and its list of tests."""
        for name, text in programs.items():
            self.write(f"gpu_check/programs/{name}", text)
        self.write("gpu_check/tests.json", json.dumps(tests))

    def write(self, name, text):
        path = f"{self.root}/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def run_bundle(self, *words, gpus=1, status=0, **settings):
        """The content of the result file."""
        environment = dict(os.environ, FAKE_GPUS=str(gpus), LD_LIBRARY_PATH=self.libraries, **settings)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as where nobody has set it
        command = [sys.executable, f"{self.bundle}/run.py", "--out", f"{self.root}/out.json", *words]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        self.output = done.stdout
        with open(f"{self.root}/out.json", encoding="utf-8") as file:
            return json.load(file)

    def cases(self, content, name):
        return [(case["name"], case["result"], case["reason"]) for result in content["results"] if result["name"] == name
                for case in result["cases"]]

    def names(self, content):
        return [result["name"] for result in content["results"]]

    def runs(self):
        with open(f"{self.bundle}/runs", encoding="utf-8") as file:
            return len(file.readlines())

    def test_results(self):
        """Each program runs with its settings; what failed, hung, crashed or was skipped is told."""
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

    def test_parts_and_resuming(self):
        """Calls add to one file; what has a result is run again when that is asked for."""
        self.make({"tests.nn.a_test": PASSES, "tests.gpu.x_kernel_test": PASSES}, [test("tests.nn.a_test"), test("tests.gpu.x_kernel_test")])
        self.assertEqual(self.names(self.run_bundle("--parts", "nn")), ["tests.nn.a_test"])
        self.assertEqual(self.names(self.run_bundle("--parts", "nn,kernels")), ["tests.nn.a_test", "tests.gpu.x_kernel_test"])
        self.assertEqual(self.runs(), 2)
        self.assertEqual(len(self.names(self.run_bundle("--only", "a_test", "--again"))), 2)
        self.assertEqual(self.runs(), 3)
        self.run_bundle("--parts", "nn,none", status=2)
        self.assertIn("no part is called none", self.output)

    def test_time_is_up(self):
        """What does not fit into --seconds is left for the next call, also what was begun."""
        slow = PASSES.replace("#!/bin/bash", "#!/bin/bash\nsleep 0.8")
        self.make({f"tests.nn.{name}_test": slow for name in "abc"}, [test(f"tests.nn.{name}_test") for name in "abc"])
        found = self.run_bundle("--parts", "nn", "--seconds", "1.2", status=3)
        self.assertEqual((self.names(found), found["left"]), (["tests.nn.a_test"], ["tests.nn.b_test", "tests.nn.c_test"]))
        begin = time.time()
        self.assertEqual((len(self.names(self.run_bundle("--parts", "nn"))), self.runs()), (3, 3))
        self.assertLess(time.time() - begin, 30)

    def test_other_bundle_or_machine(self):
        """Results do not mix."""
        self.make({"tests.nn.a_test": PASSES}, [test("tests.nn.a_test")])
        self.run_bundle("--parts", "nn")
        self.run_bundle("--parts", "nn", gpus=2, status=1)
        self.assertIn("is of other GPUs", self.output)
        self.write("gpu_check/programs/tests.nn.a_test", FAILS)
        self.run_bundle("--parts", "nn", status=1)
        self.assertIn("is of another bundle", self.output)

    def test_worlds_without_gpus(self):
        """By NCCL, worlds larger than the number of GPUs are skipped in so many words."""
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
        self.assertEqual(self.cases(found, "racecheck.tests.gpu.x_kernels_test")[1], ("", "failed", "exit status 99"))

    def test_what_is_sanitized(self):
        """All that starts a kernel of ours, on two ranks; what needs several GPUs under memcheck alone."""
        here = ["core_gpu_test", "graph_gpu_test", "local_collectives_gpu_test_local"]
        far = ["local_collectives_gpu_test_nccl", "local_collectives_gpus_test_local", "nccl_graph_gpu_test"]
        tests = [test(f"tests.gpu.{name}") for name in here] + [test(f"tests.gpu.{name}", 2) for name in far]
        self.make({each["name"]: PASSES for each in tests}, tests)
        self.write("lib/compute-sanitizer", SANITIZER.replace("[[ $tool != racecheck ]] || exit 99\n", ""))
        found = self.run_bundle("--parts", "sanitizer", gpus=2, PATH=f"{self.libraries}:{os.environ['PATH']}")
        wanted = [f"memcheck.tests.gpu.{name}" for name in here + far]
        wanted += [f"{tool}.tests.gpu.{name}" for tool in ["racecheck", "initcheck"] for name in here]
        self.assertEqual(self.names(found), wanted)
        self.assertEqual({case["name"].split()[2] for result in found["results"] for case in result["cases"]}, {"2"})

    def test_without_a_gpu(self):
        """Neither sanitizers nor the experiment start anything."""
        self.make({"tests.gpu.x_kernels_test": FAILS}, [test("tests.gpu.x_kernels_test")])
        self.write("lib/compute-sanitizer", SANITIZER)
        found = self.run_bundle("--parts", "sanitizer,nccl", gpus=0, PATH=f"{self.libraries}:{os.environ['PATH']}")
        reasons = [case["reason"] for result in found["results"] for case in result["cases"]]
        self.assertEqual(reasons, ["needs 1 GPU, found 0"] * 5)

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
        """One that imports its neighbour; then a folder beside it, as Python makes one where nobody forbids it."""
        self.make({}, [])
        self.write("gpu_check/benchmarks/bench_c.py", "import of_c\nprint('{\"ours\": %d}' % of_c.NUMBER)\n")
        self.write("gpu_check/benchmarks/of_c.py", "NUMBER = 7\n")
        first = self.run_bundle("--parts", "bench")
        self.assertEqual(first["results"][0]["figures"], [{"ours": 7}])
        self.assertEqual(sorted(os.listdir(f"{self.bundle}/benchmarks")), ["bench_c.py", "of_c.py"])
        os.makedirs(f"{self.bundle}/benchmarks/__pycache__")
        self.assertEqual(self.run_bundle("--parts", "bench")["bundle"], first["bundle"])

    def test_nccl_on_one_gpu(self):
        """The experiment tells what NCCL said; only a wrong sum is a failure."""
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
