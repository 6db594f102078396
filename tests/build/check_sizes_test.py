#!/usr/bin/env python3
"""tools/check_sizes.py passes up to its limits and fails above them."""

import unittest

from checker_test_case import CheckerTestCase


def function_of(lines):
    return "int f(int x) {\n" + "  ++x;\n" * (lines - 2) + "}\n"


class CheckSizesTest(CheckerTestCase):
    checker = ("check_sizes.py",)

    def test_at_the_walls(self):
        output = self.assert_green({"nn/a.cc": function_of(60), "nn/b.h": "\n" * 500})
        self.assertIn("2 files, 560 lines", output)
        self.assertIn("1 functions, 60 lines", output)

    def test_long_file(self):
        for name in ("a.h", "a.cc", "a.cu", "a.py", "a.bzl"):
            self.assert_red({f"nn/{name}": "\n" * 501}, f"nn/{name} has 501 lines; the wall is 500")

    def test_small_files(self):
        """--small names the files under 40 lines, smallest first."""
        tree = {"nn/a.cc": "\n" * 39, "nn/b.h": "\n" * 40, "nn/c.cc": "\n" * 5}
        self.assertIn("largest 40, 0 over the aim of 300 (wall 500), 2 under 40", self.assert_green(tree))
        self.checker = ("check_sizes.py", "--small")
        output = self.assert_green(tree)
        self.assertLess(output.index("nn/c.cc has 5 lines"), output.index("nn/a.cc has 39 lines"))
        self.assertNotIn("nn/b.h", output)

    def test_folders(self):
        """--folders names the folders with more than 40 files, of all kinds."""
        tree = {**{f"nn/{i}.txt": "" for i in range(41)}, **{f"fsdp/{i}.h": "" for i in range(40)}}
        self.assertNotIn("files\n", self.assert_green(tree).partition("check_sizes: 40 files")[0])
        self.checker = ("check_sizes.py", "--folders")
        output = self.assert_green(tree)
        self.assertIn("nn/ has 41 files", output)
        self.assertNotIn("fsdp/ has", output)

    def test_long_function(self):
        self.assert_red({"nn/a.cc": "\n" + function_of(61)}, "nn/a.cc:2: f has 61 lines; the wall is 60")

    def test_long_python_function(self):
        for name in ("a.py", "a.bzl"):
            self.assert_red({f"tools/{name}": "def f(x):\n" + "    x += 1\n" * 60}, "f has 61 lines")

    def test_shapes_of_functions(self):
        """Bodies are found after initialisers, qualifiers, templates and test macros; braces in literals are ignored."""
        body = "  ++x;\n" * 60
        for name, head in {
            "Box": "struct Box { Box() : a_{1}, b_{2}\n{",
            "size": "struct Box { long size() const noexcept override {",
            "operator": "struct Box { bool operator()(int x) const {",
            "sum": "namespace t { template <class T, class U = int> auto sum(T x) -> decltype(x) requires true {",
            "TEST_CASE": 'TEST_CASE("a { b") { const char* text = R"(}})"; char c = \'}\'; // }',
            "entry": 'extern "C" const int* entry() { static int t[] = {1, 2};',
        }.items():
            closing = "}" * (head.count("{") - head.count('"a {') - head.count("_{") - head.count("= {"))
            self.assert_red({"nn/a.cc": head + "\n" + body + closing + "\n"}, f": {name} has")

    def test_classes_and_namespaces_may_be_long(self):
        self.assert_green({"nn/a.h": "namespace t {\nclass alignas(16) A : public B<int> {\n" + "  int x;\n" * 100 + "};\n}\n"})


if __name__ == "__main__":
    unittest.main()
