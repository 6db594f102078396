#!/usr/bin/env python3
"""tools/check_format.sh fails for a file that clang-format would change."""

import unittest

from checker_test_case import CheckerTestCase

STYLE = "BasedOnStyle: Google\nColumnLimit: 100\n"


class CheckFormatTest(CheckerTestCase):
    checker = ("check_format.sh",)

    def test_formatted(self):
        self.assertIn("1 files", self.assert_green({".clang-format": STYLE, "nn/a.cc": "int f() { return 1; }\n"}))

    def test_not_formatted(self):
        for name in ("a.h", "a.cc", "a.cu"):
            self.assert_red({".clang-format": STYLE, f"nn/{name}": "int f( ){return 1;}\n"}, "clang-format-violations")


if __name__ == "__main__":
    unittest.main()
