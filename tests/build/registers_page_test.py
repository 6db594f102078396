#!/usr/bin/env python3
"""tools/cuda/registers.py: the contents of the table, and the spills that the page allows."""

import os
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "tools/cuda/registers.py")
PTXAS = """ptxas info    : Compiling entry function '{name}' for 'sm_90'
ptxas info    : Function properties for {name}
    16 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, 512 bytes smem
"""
FAST, WIDE, NARROW = "_Z4fastv", "_Z4slowIdEvv", "_Z4slowIfEvv"  # fast(), slow<double>(), slow<float>()


def kernel(name, registers, stores=0, loads=0):
    return PTXAS.format(name=name, registers=registers, stores=stores, loads=loads)


class RegistersPageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(folder.cleanup)
        self.page = os.path.join(folder.name, "PAGE.md")
        self.ptxas = os.path.join(folder.name, "bin/tensor/_objs/x/a.cu.ptxas")
        os.makedirs(os.path.dirname(self.ptxas))

    def write(self, path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def run_tool(self, *arguments):
        done = subprocess.run([sys.executable, TOOL, *arguments, self.ptxas], stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def check(self, *allowed):
        """For a page that allows these kernels to spill."""
        self.write(self.page, "".join(f"- allowed to spill: tensor/a.cu: {name}: it is slow\n" for name in allowed))
        return self.run_tool("--check", self.page)

    def test_the_most_of_any_one_kernel(self):
        """A kernel's stores and loads together, not the sum over kernels."""
        self.write(self.ptxas, kernel(FAST, 40) + kernel(WIDE, 30, 8, 16) + kernel(NARROW, 32, 4, 4))
        self.assertEqual(self.run_tool()[1][2:], ["| `tensor/a.cu` | sm_90 | 3 | 40 | `fast` | 512 B | 16 B | 24 B |"])

    def test_each_kernel_needs_a_permission(self):
        self.write(self.ptxas, kernel(FAST, 40, 4, 0) + kernel(WIDE, 30, 8, 16) + kernel(NARROW, 32))
        self.assertEqual(self.check("fast", "slow"), (0, ["1 rows, none spills beyond what is allowed"]))
        self.assertEqual(self.check("slow"), (1, ["fast of tensor/a.cu spills 4 bytes: use fewer registers, or allow it with a reason"]))

    def test_a_permission_without_a_spill(self):
        self.write(self.ptxas, kernel(FAST, 40) + kernel(WIDE, 30, 8, 16))
        self.assertEqual(self.check("fast", "slow"), (1, ["fast of tensor/a.cu is allowed to spill, but does not: delete the line"]))


if __name__ == "__main__":
    unittest.main()
