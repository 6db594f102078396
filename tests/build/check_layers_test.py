#!/usr/bin/env python3
"""tools/check_layers.py passes on a small correct tree and fails for each kind of error."""

import unittest

from checker_test_case import CheckerTestCase

LOAD = 'load("//tools:tessera.bzl", "tessera_library", "tessera_cpu_kernels", "if_cuda")\n'


def library(name, deps=(), srcs=(), hdrs=()):
    return f"tessera_library(name = '{name}', srcs = {list(srcs)}, hdrs = {list(hdrs)}, deps = {list(deps)})\n"


def sound_tree():
    """A shape in tensor, a module in nn that uses it, kernels with Eigen."""
    return {
        "tensor/BUILD": LOAD + library("shape", srcs=["shape.cc"], hdrs=["shape.h"]),
        "tensor/shape.h": "#include <vector>\n",
        "tensor/shape.cc": '#include "tessera/tensor/shape.h"\n',
        "tensor/kernels/cpu/BUILD": LOAD + """
tessera_cpu_kernels(
    name = "v3",
    isa = "v3",
    srcs = glob(["*.cc"]),
    deps = ["//tensor:shape", "//tools/third_party:eigen"] + if_cuda(["//tensor:shape"]) + select({"//x": []}),
)
""",
        "tensor/kernels/cpu/add.cc": '#include <Eigen/Core>\n#include "tessera/tensor/shape.h"\n',
        "nn/BUILD": LOAD + library("module", ["//tensor:shape"], hdrs=["module.h"]),
        "nn/module.h": '#include "tessera/tensor/shape.h"\n',
    }


class CheckLayersTest(CheckerTestCase):
    checker = ("check_layers.py",)

    def changed(self, **files):
        """The correct tree with files replaced or added; __ stands for / and _dot_ for a dot."""
        tree = sound_tree()
        tree.update({path.replace("__", "/").replace("_dot_", "."): text for path, text in files.items()})
        return tree

    def test_sound_tree(self):
        self.assertIn("no arrow turns back", self.assert_green(sound_tree()))

    def test_lower_floor_depends_on_upper(self):
        tree = self.changed(tensor__BUILD=LOAD + library("shape", ["//nn:module"], ["shape.cc"], ["shape.h"]),
                            nn__BUILD=LOAD + library("module", hdrs=["module.h"]), nn__module_dot_h="")
        self.assert_red(tree, "//tensor:shape must not reach //nn:module")

    def test_chain_inside_a_floor(self):
        """distributed/launch must not depend on nn, not even through distributed/parameters, which may."""
        tree = self.changed(distributed__parameters__BUILD=LOAD + library("mesh_impl", ["//nn:module"]),
                            distributed__launch__BUILD=LOAD + library("world", ["//distributed/parameters:mesh_impl"]))
        self.assert_red(tree, "//distributed/launch:world must not reach //nn:module: "
                              "//distributed/launch:world -> //distributed/parameters:mesh_impl -> //nn:module")

    def test_toolkit_seen_from_far(self):
        """nn may depend on Eigen indirectly, but must not see its headers."""
        tensor = library("shape", srcs=["shape.cc"], hdrs=["shape.h"])
        sees = tensor.replace("deps = []", "deps = ['//tools/third_party:eigen']")
        self.assert_red(self.changed(tensor__BUILD=LOAD + sees),
                        "//nn:module sees //tools/third_party:eigen: //nn:module -> //tensor:shape -> //tools/third_party:eigen")
        hides = tensor.replace("deps = []", "implementation_deps = ['//tools/third_party:eigen']")
        self.assert_green(self.changed(tensor__BUILD=LOAD + hides))
        both = sees.replace("deps = ['//tools", "implementation_deps = ['//tools/third_party:eigen'], deps = ['//tools")
        self.assert_red(self.changed(tensor__BUILD=LOAD + both), "//nn:module sees //tools/third_party:eigen")

    def test_named_targets_reach_more(self):
        parameters = LOAD + library("mesh_impl", ["//nn:module"])
        self.assert_green(self.changed(distributed__parameters__BUILD=parameters))

    def test_whole_floor(self):
        """The target of a complete layer may depend on everything that packages of the layer may depend on; other targets
        may not.
        """
        parts = {"distributed__parameters__BUILD": LOAD + library("mesh_impl", ["//nn:module"])}
        whole = LOAD + library("distributed", ["//distributed/parameters:mesh_impl"])
        self.assert_green(self.changed(distributed__BUILD=whole, **parts))
        other = LOAD + library("collectives", ["//distributed/parameters:mesh_impl"])
        self.assert_red(self.changed(distributed__BUILD=other, **parts), "//distributed:collectives must not reach //nn:module")

    def test_page(self):
        """CONTRIBUTING.md shows the current rules."""
        self.assert_red(self.changed(CONTRIBUTING_dot_md="| `nn` | `autograd` | |\n"),
                        "CONTRIBUTING.md does not show the rules of tools/check_layers.py")

    def test_models_and_fsdp(self):
        build = {"fsdp__BUILD": LOAD + library("fully_shard")}
        trainer = LOAD + library("trainer", ["//fsdp:fully_shard"])
        self.assert_green(self.changed(models__training__BUILD=trainer, **build))
        gpt = LOAD + library("gpt", ["//fsdp:fully_shard"])
        self.assert_red(self.changed(models__nets__BUILD=gpt, **build),
                        "//models/nets:gpt must not reach //fsdp:fully_shard")

    def test_dependence_on_tests(self):
        self.assert_red(self.changed(fsdp__BUILD=LOAD + library("x", ["//tests/support:tiny_models"])),
                        "//fsdp:x must not reach //tests/support:tiny_models")

    def test_include_without_dep(self):
        self.assert_red(self.changed(nn__BUILD=LOAD + library("module", hdrs=["module.h"])),
                        "//nn:module includes tessera/tensor/shape.h in nn/module.h without //tensor:shape in its deps")

    def test_dep_on_a_whole_floor(self):
        """A target without files stands for its deps."""
        tensor = library("tensor", [":shape"]) + library("shape", srcs=["shape.cc"], hdrs=["shape.h"])
        self.assert_green(self.changed(tensor__BUILD=LOAD + tensor,
                                       nn__BUILD=LOAD + library("module", ["//tensor"], hdrs=["module.h"])))

    def test_include_without_prefix(self):
        self.assert_red(self.changed(nn__module_dot_h='#include "tensor/shape.h"\n'),
                        'nn/module.h includes "tensor/shape.h"; our headers are included as "tessera/..."')

    def test_file_of_no_target(self):
        self.assert_red(self.changed(nn__forgotten_dot_cc=""), "nn/forgotten.cc is in no target")

    def test_library_out_of_place(self):
        build = LOAD + library("module", ["//tensor:shape", "//tools/third_party:eigen"], ["m.cc"], ["module.h"])
        self.assert_red(self.changed(nn__BUILD=build, nn__m_dot_cc="#include <Eigen/Core>\n"),
                        "nn/m.cc includes eigen, which belongs in")

    def test_library_in_public_header(self):
        build = LOAD + library("data", ["//tools/third_party:json"], hdrs=["data.h"])
        self.assert_red(self.changed(models__BUILD=build, models__data_dot_h="#include <nlohmann/json.hpp>\n"),
                        "models/data.h is a public header and includes json")

    def test_library_without_dep(self):
        build = LOAD + library("module", ["//tensor:shape"], ["m.cc"], ["module.h"])
        self.assert_red(self.changed(nn__BUILD=build, nn__m_dot_cc="#include <fmt/core.h>\n"),
                        "//nn:module includes fmt in nn/m.cc without //tools/third_party:fmt in its deps")

    def test_unknown_top_folder(self):
        self.assert_red(self.changed(utilities__x_dot_txt=""), "utilities/ is no floor of Tessera")


if __name__ == "__main__":
    unittest.main()
