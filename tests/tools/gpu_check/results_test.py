#!/usr/bin/env python3
"""The result file of tools/gpu_check: continued calls, worlds, figures compared with goals, the lines for a page."""

import json
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "tests/tools/gpu_check"))
from bundle_case import FAILS, HANGS, PASSES, BundleCase, test  # noqa: E402


class ResultsTest(BundleCase):
    def test_parts_and_resuming(self):
        """Calls add to one file; finished rows run again only on request."""
        self.make({"tests.nn.a_test": PASSES, "tests.gpu.x_kernel_test": PASSES}, [test("tests.nn.a_test"), test("tests.gpu.x_kernel_test")])
        self.assertEqual(self.names(self.run_bundle("--parts", "nn")), ["tests.nn.a_test"])
        self.assertEqual(self.names(self.run_bundle("--parts", "nn,kernels")), ["tests.nn.a_test", "tests.gpu.x_kernel_test"])
        self.assertEqual(self.runs(), 2)
        self.assertEqual(len(self.names(self.run_bundle("--only", "a_test", "--again"))), 2)
        self.assertEqual(self.runs(), 3)
        for parts in [["tests.nn.a_test", "tests.gpu.x_kernel_test"], ["tests.gpu.x_kernel_test", "tests.nn.a_test"]]:
            order = ",".join("nn" if "nn" in name else "kernels" for name in parts)
            self.assertEqual(self.names(self.run_bundle("--parts", order, "--again")), parts)  # in the order of the options
        self.run_bundle("--parts", "nn,none", status=2)
        self.assertIn("no part is called none", self.output)

    def test_time_is_up(self):
        """Rows that do not fit into --seconds are left for the next call, also a row that was begun."""
        slow = PASSES.replace("#!/bin/bash", "#!/bin/bash\nsleep 0.8")
        self.make({f"tests.nn.{name}_test": slow for name in "abc"}, [test(f"tests.nn.{name}_test") for name in "abc"])
        found = self.run_bundle("--parts", "nn", "--seconds", "1.2", status=3)
        self.assertEqual(self.names(found), ["tests.nn.a_test", "tests.nn.b_test"])
        self.assertEqual(self.cases(found, "tests.nn.b_test")[0][1], "skipped")
        self.assertIn("the next call runs it again", self.cases(found, "tests.nn.b_test")[0][2])
        self.assertEqual(found["left"], ["tests.nn.b_test", "tests.nn.c_test"])
        begin = time.time()
        self.assertEqual((len(self.names(self.run_bundle("--parts", "nn"))), self.runs()), (3, 3))
        self.assertLess(time.time() - begin, 30)

    def test_a_test_that_is_cut(self):
        """It has not failed: it is left for the next call."""
        self.make({"tests.nn.a_test": PASSES, "tests.nn.b_test": HANGS}, [test("tests.nn.a_test"), test("tests.nn.b_test")])
        found = self.run_bundle("--parts", "nn", "--seconds", "2", status=3)
        cases = self.cases(found, "tests.nn.b_test")
        self.assertEqual(cases[:2], [("first", "passed", ""), ("stuck", "skipped", "ran when time was up")])
        self.assertEqual((cases[2][1], found["left"], found["failed"]), ("skipped", ["tests.nn.b_test"], 0))

    def test_worlds_that_ran(self):
        """A result counts for its world sizes; several results together for all of theirs; a result that covers others
        replaces them.
        """
        self.make({"tests.nn.a_test": PASSES}, [test("tests.nn.a_test")])
        for worlds, runs, kept in [("1,2", 1, ["1,2"]), ("2", 1, ["1,2"]), ("3,4", 2, ["1,2", "3,4"]), ("2,3", 2, ["1,2", "3,4"]),
                                   ("1,2,3,4,8", 3, ["1,2,3,4,8"])]:
            found = self.run_bundle("--parts", "nn", "--worlds", worlds)
            self.assertEqual(([result["worlds"] for result in found["results"]], self.runs()), (kept, runs), worlds)
        self.run_bundle("--parts", "nn")
        self.assertEqual(self.runs(), 4)

    def test_again_in_parts(self):
        """--again drops the chosen results at once; calls without it continue, and other rows stay."""
        slow = PASSES.replace("#!/bin/bash", "#!/bin/bash\nsleep 0.8")
        self.make({f"tests.nn.{name}_test": slow for name in "abc"}, [test(f"tests.nn.{name}_test") for name in "abc"])
        self.run_bundle("--parts", "nn")
        found = self.run_bundle("--only", "[ab]_test", "--parts", "nn", "--again", "--seconds", "0.3", "--timeout", "5", status=1)
        self.assertEqual(self.names(found), ["tests.nn.c_test", "tests.nn.a_test"])  # b is dropped, a had too little time
        found = self.run_bundle("--parts", "nn", status=1)
        self.assertEqual((self.names(found)[2:], found["left"]), (["tests.nn.b_test"], []))

    def test_other_bundle_or_machine(self):
        """Results of different bundles or machines are not mixed."""
        self.make({"tests.nn.a_test": PASSES}, [test("tests.nn.a_test")])
        self.run_bundle("--parts", "nn")
        self.run_bundle("--parts", "nn", gpus=2, status=1)
        self.assertIn("is of other GPUs", self.output)
        self.write("gpu_check/programs/tests.nn.a_test", FAILS)
        self.run_bundle("--parts", "nn", status=1)
        self.assertIn("is of another bundle", self.output)

    def test_figures_of_what_was_cut(self):
        """It is kept until the next call, which runs it again."""
        self.make({}, [])
        self.write("gpu_check/benchmarks/bench_a", "#!/bin/bash\necho '{\"us\": 1}'\n")
        self.write("gpu_check/benchmarks/bench_b", "#!/bin/bash\necho '{\"us\": 2}'\n[[ -e begun ]] || { touch begun; sleep 60; }\n"
                                                   "echo '{\"us\": 3}'\n")
        found = self.run_bundle("--parts", "bench", "--seconds", "2", status=3)
        self.assertEqual((found["results"][1]["figures"], found["left"]), ([{"us": 2}], ["bench_b"]))
        self.assertEqual(self.cases(found, "bench_b")[0][1], "skipped")
        found = self.run_bundle("--parts", "bench")
        self.assertEqual([result["figures"] for result in found["results"]], [[{"us": 1}], [{"us": 2}, {"us": 3}]])
        self.assertEqual(self.cases(found, "bench_b"), [("", "passed", "")])

    def test_goals(self):
        """The file and the last lines have each goal: met or not, the median and the worst ratio."""
        self.make({}, [])
        lines = [{"op": "x", "ratio": 0.9, "goal": 0.8}, {"op": "y", "ratio": 0.7, "goal": 0.8}, {"op": "z", "ratio": 1.2, "goal": 0.8},
                 {"op": "w", "ratio": 2.0, "goal": 1.0}, {"op": "v", "ratio": 0.1}]
        self.write("gpu_check/benchmarks/bench_a", "#!/bin/bash\n" + "".join(f"echo '{json.dumps(line)}'\n" for line in lines))
        self.write("gpu_check/benchmarks/bench_b", "#!/bin/bash\necho '{\"goal\": 0.5, \"ratio\": NaN}'\necho '{\"goal\": 0.5}'\n")
        found = self.run_bundle("--parts", "bench")
        first, second, third = found["goals"]
        self.assertEqual(first, {"benchmark": "bench_a", "goal": 0.8, "lines": 3, "met": 2, "met_by_all": False, "median": 0.9,
                                 "worst": 0.7, "missed": [lines[1]]})
        self.assertEqual((second["goal"], second["met_by_all"], second["worst"]), (1.0, True, 2.0))
        self.assertEqual((third["lines"], third["met"], third["met_by_all"], third["median"]), (2, 0, False, None))
        last = self.output.splitlines()[-4:-1]
        self.assertEqual(last, ["bench_a: goal 0.8 NOT met by 2 of 3; median 0.900, worst 0.700",
                                "bench_a: goal 1.0 met by 1 of 1; median 2.000, worst 2.000",
                                "bench_b: goal 0.5 NOT met by 0 of 2; no ratio"])

    def test_machine_and_table(self):
        """The machine of the results, and the lines for a page."""
        self.make({"tests.nn.a_test": PASSES, "tests.nn.b_test": "#!/bin/bash\necho 'SKIPPED: a|b'\n"},
                  [test("tests.nn.a_test"), test("tests.nn.b_test")])
        self.write("gpu_check/benchmarks/bench_a", "#!/bin/bash\necho '{\"ratio\": 1.5, \"goal\": 1}'\n")
        self.write("lib/nvidia-smi", "#!/bin/bash\n[[ $1 == *compute_cap ]] && echo 'NVIDIA H100, 580.65, 81559 MiB, 9.0'\n")
        found = self.run_bundle("--parts", "nn,bench", "--worlds", "1,2", PATH=f"{self.libraries}:{os.environ['PATH']}")
        self.assertEqual(found["machine"]["names"], ["NVIDIA H100, 580.65, 81559 MiB, 9.0"])
        wanted = {"libcuda.so.1": "13.2.0", "libcudart.so.13": "13.0.0", "libcublasLt.so.13": "13.1.2", "libcudnn.so.9": "9.19.5",
                  "libnccl.so.2": "2.28.3"}
        self.assertEqual(found["machine"]["versions"], {name: f"{said} {self.libraries}/{name}" for name, said in wanted.items()})
        self.assertEqual(self.runs(), 1)
        self.run_bundle("--table", "abc123", "--out", f"{self.root}/none.json", status=1)
        self.assertIn("there is no", self.output)
        self.run_bundle("--table", "abc123", "--parts", "nn")
        day = found["results"][0]["date"][:10]
        where = f"{day}, NVIDIA H100, driver 580.65, abc123"
        for line in [f"| `//tests/nn:a_test` | 1,2 | {where}: 1 passed |", f"| `//tests/nn:b_test` | 1,2 | {where}: 1 skipped (a/b) |",
                     f"| `bench_a` |  | {where}: 1 passed |", "- bench_a: goal 1 met by 1 of 1; median 1.500, worst 1.500"]:
            self.assertIn(line, self.output.splitlines())
        self.assertEqual(self.runs(), 1)


if __name__ == "__main__":
    unittest.main()
