#!/usr/bin/env python3
"""tools/check_gpu.py passes if the lists are complete, and fails for each kind of error.

The macros are the real ones.
"""

import os
import unittest

from checker_test_case import TOOLS, CheckerTestCase

LOAD = """
load("//tools:tessera.bzl", "tessera_cc_test", "tessera_gpu_test", "tessera_rank_test")
load("//tools/cuda:cuda_library.bzl", "if_cudnn", "needs_cudnn")
load("//tools:values.bzl", "VALUES", "other_macro")
[other_macro(name = value) for value in VALUES]
"""
TESTS = """
tessera_cc_test(name = "plain_test", srcs = ["plain_test.cc"])
[tessera_cc_test(name = name, srcs = [name + ".cc"], devices = ["cpu", "cuda"]) for name in ["add_test", "mul_test"]]
tessera_rank_test(name = "ranks_test", srcs = ["ranks_test.cc"], devices = ["cpu", "cuda", "nccl"])
tessera_rank_test(name = "own_ranks_test", srcs = ["own_ranks_test.cc"], gpus = 2, worlds = [2, 3])
tessera_gpu_test(name = "many_test", srcs = ["many_test.cc"], gpus = 4)
tessera_cc_test(name = "names_test", srcs = ["names_test.cc"], tags = ["vendor-libraries"], target_compatible_with = needs_cudnn())
tessera_cc_test(name = "poison_test", srcs = ["poison_test.cc"], devices = ["cuda"], env = {"POISON": "1"})
tessera_gpu_test(name = "build_test", srcs = ["build_test.cc"])
"""
LIST = """
load("//tools/cuda:cuda_library.bzl", "if_cudnn")
def _how(program, gpus, device = "cpu", transport = "local", settings = {}):
    return struct(program = "//tests/a:" + program, gpus = gpus, device = device, transport = transport, settings = settings)
GPU_TESTS = {
    "//tests/a:add_test_cuda": _how("add_test", 1, "cuda"),
    "//tests/a:mul_test_cuda": _how("mul_test", 1, "cuda"),
    "//tests/a:ranks_test_cuda": _how("ranks_test", 1, "cuda"),
    "//tests/a:ranks_test_nccl": _how("ranks_test", 2, "cuda", "nccl"),
    "//tests/a:own_ranks_test_local": _how("own_ranks_test", 2),
    "//tests/a:own_ranks_test_nccl": _how("own_ranks_test", 2, transport = "nccl"),
    "//tests/a:many_test": _how("many_test", 4),
    "//tests/a:poison_test_cuda": _how("poison_test", 1, "cuda", settings = {"POISON": "1"}),
}
GPU_TESTS.update([(name, _how("names_test", 0)) for name in if_cudnn(["//tests/a:names_test"])])
LEFT_OUT = {"//tests/a:build_test": "a reason"}
"""


class CheckGpuTest(CheckerTestCase):
    checker = ("check_gpu.py",)

    def tree(self, tests=TESTS, listed=LIST):
        with open(os.path.join(TOOLS, "tessera.bzl"), encoding="utf-8") as file:
            macros = file.read()
        return {
            "tools/tessera.bzl": macros, "tools/gpu_check/tests.bzl": listed, "tests/a/BUILD": LOAD + tests,
            "tools/cuda/REGISTERS.md": "| source | GPU |\n|---|---|\n| `tensor/add.cu` | sm_90 |\n", "tensor/add.cu": "", "tests/a/b.cu": "",
        }

    def changed(self, old, new):
        self.assertIn(old, LIST)
        return self.tree(listed=LIST.replace(old, new))

    def test_same(self):
        self.assertIn("9 tests, as the BUILD files have them", self.assert_green(self.tree()))

    def test_missing(self):
        for name in ["add_test_cuda", "ranks_test_nccl", "own_ranks_test_local", "many_test"]:
            lines = [line for line in LIST.splitlines() if f":{name}\"" not in line]
            self.assert_red(self.tree(listed="\n".join(lines)), f"//tests/a:{name} is not in tools/gpu_check/tests.bzl")
        self.assert_red(self.changed('for name in if_cudnn(["//tests/a:names_test"])', "for name in []"),
                        "//tests/a:names_test is not in")

    def test_new_test(self):
        self.assert_red(self.tree(TESTS + 'tessera_cc_test(name = "x_test", srcs = ["x.cc"], devices = ["cuda"])\n'),
                        "//tests/a:x_test_cuda is not in")

    def test_what_is_no_test(self):
        row = '    "//tests/a:gone_test": _how("gone_test", 1),\n}\nGPU_TESTS.update'
        self.assert_red(self.changed("}\nGPU_TESTS.update", row), "has //tests/a:gone_test, which is no test")
        self.assert_red(self.changed("build_test", "gone_test"), "leaves out //tests/a:gone_test, which is no test")

    def test_other_program(self):
        self.assert_red(self.changed('_how("mul_test"', '_how("add_test"'), "//tests/a:mul_test_cuda: program is //tests/a:mul_test in")

    def test_other_settings(self):
        self.assert_red(self.changed('"many_test", 4', '"many_test", 3'), "//tests/a:many_test: gpus is 4 in its BUILD file and 3 in")
        self.assert_red(self.changed('"add_test", 1, "cuda"', '"add_test", 1, "cpu"'), "//tests/a:add_test_cuda: device is cuda in")
        self.assert_red(self.changed('2, "cuda", "nccl"', '2, "cuda"'), "//tests/a:ranks_test_nccl: transport is nccl in")
        self.assert_red(self.changed(', settings = {"POISON": "1"}', ""), "//tests/a:poison_test_cuda: settings is {'POISON': '1'} in")

    def test_listed_and_left_out(self):
        self.assert_red(self.changed("//tests/a:build_test", "//tests/a:many_test"), "has //tests/a:many_test, and leaves it out")

    def test_kernels_without_a_row(self):
        self.assert_red(dict(self.tree(), **{"nn/add.cu": ""}), "nn/add.cu is not in tools/cuda/REGISTERS.md")


if __name__ == "__main__":
    unittest.main()
