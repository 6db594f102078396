#!/usr/bin/env python3
"""tools/check_docs.py passes on a correct tree, and fails for each thing that does not exist."""

import os
import tempfile
import unittest

from checker_test_case import CheckerTestCase

FOLDERS = ("tensor", "autograd", "nn", "distributed", "fsdp", "models", "tests", "tools")
TABLE = "| Debian package | used for |\n|---|---|\n| `catch2`, `g++` | tests |\n"


def tree(**pages):
    """A small tree. Keywords replace pages: root, nn."""
    files = {f"{folder}/README.md": f"# {folder}\n" for folder in (*FOLDERS, "tensor/kernels")}
    files["README.md"] = "".join(f"[{folder}]({folder}/README.md)\n" for folder in FOLDERS) + TABLE + pages.get("root", "")
    files["nn/README.md"] = "# The floor `nn`\n" + pages.get("nn", "")
    listed = [f'"//{os.path.dirname(path)}:README.md"' for path in files if path != "tests/README.md"]
    files["tests/docs/BUILD"] = "\n".join([*listed, '"//:tests/README.md"'])
    packages = [os.path.dirname(path) for path in files if path.endswith("README.md") and path != "tests/README.md"]
    files.update({os.path.join(package, "BUILD"): 'cc_library(name = "norm", srcs = [])\n' for package in packages})
    files["tools/packages.txt"] = "# why\ncatch2   tests\ng++      compiler\n"
    files[".bazelrc"] = "build:asan --copt=-g1\n"
    files["nn/layer.cc"] = "int one() {\n  return 1;\n}\nint two();\n"
    return files


def fenced(language, text):
    return f"```{language}\n{text}```\n"


class CheckDocsTest(CheckerTestCase):
    checker = ("check_docs.py",)

    def test_true_pages(self):
        nn = ("See [up](../README.md), [here](#the-floor-nn), [web](https://example.org/x). `layer.cc`, `nn/*.cc`,\n"
              "`tessera/nn/layer.cc`, `tensor/` and `std::span`.\n")
        nn += fenced("cpp", "// nn/layer.cc\nint one() { return 1; }\n") + fenced("cpp", "int three();\n")
        nn += "   ```cpp\n   // nn/layer.cc\n   int two();\n   ```\n"
        nn += fenced("sh", "X=1 bash nn/layer.cc --config=asan //nn:norm //nn/... //... /tmp/a/b  # nn/none.cc\n")
        self.assertIn("check_docs: 10 pages", self.assert_green(tree(nn=nn)))

    def test_names_of_pytorch(self):
        page = ("# PyTorch\n| PyTorch | here |\n|---|---|\n| `x.f()` | `%s`, `nn/layer.cc` |\n\n"
                "## Missing operations\n| group | operations | instead |\n|---|---|---|\n| a | `%s` | `exp` |\n\n## Layers\n`%s`\n")
        header = "Tensor exp(const Tensor& x);\nclass Linear;\nVariable apply_function(int x);\n"

        def with_names(*names):
            files = tree()
            files["nn/PYTORCH.md"] = page % names
            files["nn/layers.h"] = header
            files["tests/docs/BUILD"] += '"//nn:PYTORCH.md"'
            return files

        for known in ("exp(x)", "nn::Linear", "apply_function<F>", "exp"):
            self.assert_green(with_names(known, "erf", "Bilinear"))
        self.assert_red(with_names("log(x)", "erf", "Bilinear"), "nn/PYTORCH.md: no header declares log")
        self.assert_red(with_names("nn::Conv", "erf", "Bilinear"), "nn/PYTORCH.md: no header declares Conv")
        self.assert_red(with_names("exp", "exp", "Bilinear"), "nn/PYTORCH.md: exp is not missing")
        self.assert_red(with_names("exp", "erf", "Linear"), "nn/PYTORCH.md: Linear is not missing")

    def test_what_is_not_there(self):
        for text, message in {
            "[x](nowhere.md)": "nn/README.md: the link nowhere.md leads nowhere",
            "[x](../README.md#section)": "the link ../README.md#section names no heading of README.md",
            "`nn/none.cc`": "there is no file nn/none.cc",
            "`none.cc`": "there is no file none.cc",
            "`tensor/none/`": "there is no file tensor/none/",
            fenced("cpp", "// nn/layer.cc\nint one() { return 2; }\n"): "the block of line 3 is not in nn/layer.cc",
            fenced("cpp", "// nn/none.cc\nint one();\n"): "line 3 quotes nn/none.cc, which is not there",
            fenced("sh", "make all\n"): "line 3 runs make, which is no program of this tree",
            fenced("sh", "nn/layer.cc\n"): "line 3 runs nn/layer.cc, which is not executable",
            fenced("sh", "bash nn/none.sh\n"): "line 3: there is no file nn/none.sh",
            fenced("sh", "bash x --config=tsan\n"): "line 3: .bazelrc has no --config=tsan",
            fenced("sh", "bash x //nn:none\n"): "there is no target //nn:none",
            fenced("sh", "bash x //none/...\n"): "there is no target //none/...",
            "```cpp\nint x;\n": "nn/README.md: the block of line 3 is not closed",
        }.items():
            self.assert_red(tree(nn=text), message)

    def test_links_to_folders_are_not_followed(self):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as outputs:
            with open(os.path.join(outputs, "none.cc"), "w", encoding="utf-8"):
                pass
            self.assert_red(tree(root="`none.cc`\n"), "there is no file none.cc", {"bazel-out": outputs})

    def test_pages_that_are_missing(self):
        files = tree()
        del files["tensor/kernels/README.md"]
        self.assert_red(files, "tensor/kernels/README.md is missing")
        self.assert_red({**tree(), "nn/MORE.md": ""}, "nn/MORE.md: tests/docs/BUILD does not list //nn:MORE.md")
        files = tree()
        files["README.md"] = files["README.md"].replace("fsdp/README.md", "fsdp/BUILD")
        self.assert_red(files, "README.md: no link to fsdp/README.md")

    def test_dependency_table(self):
        files = tree()
        files["tools/packages.txt"] += "zlib1g-dev  gzip\n"
        self.assert_red(files, "the dependency table lacks zlib1g-dev")
        files["tools/packages.txt"] = "g++  compiler\n"
        self.assert_red(files, "the dependency table has catch2, which tools/packages.txt lacks")


if __name__ == "__main__":
    unittest.main()
