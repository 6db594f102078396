#!/usr/bin/env python3
"""The versions of CUDA's libraries that a build accepts: tools/cuda/versions.bzl, whose functions are also Python."""

import sys
import unittest

RULES = {}

HEADER = """
#ifndef NCCL_H_
#define NCCL_H_
#define NCCL_MAJOR %d
#define   NCCL_MINOR %d
#define NCCL_PATCH 3
#define NCCL_SUFFIX ""
#define NCCL_VERSION(X,Y,Z) (((X) >= 2 && (Y) >= 9) ? (X) * 10000 + (Y) * 100 + (Z) : 0)
"""


class VersionsTest(unittest.TestCase):
    def problem(self, text):
        return RULES["version_problem"](text, "NCCL", (2, 27))

    def test_the_version_of_a_header(self):
        self.assertEqual(RULES["header_version"](HEADER % (2, 28), "NCCL"), (2, 28))
        self.assertIsNone(RULES["header_version"](HEADER % (2, 28), "CUDNN"))

    def test_new_enough(self):
        for version in [(2, 27), (2, 28), (3, 0), (10, 1)]:
            self.assertIsNone(self.problem(HEADER % version))

    def test_too_old(self):
        self.assertEqual(self.problem(HEADER % (2, 26)), "it is NCCL 2.26, and Tessera needs 2.27 or newer")
        self.assertIn("it is NCCL 1.99", self.problem(HEADER % (1, 99)))

    def test_no_version(self):
        self.assertIn("does not tell which NCCL it is", self.problem("#define NCCL_MAJOR 2\n"))


if __name__ == "__main__":
    with open(sys.argv.pop(1), encoding="utf-8") as rules:
        exec(rules.read(), RULES)
    unittest.main()
