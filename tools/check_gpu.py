#!/usr/bin/env python3
"""Checks that lists for GPUs are complete.

    tools/check_gpu.py [ROOT]

The bundle of tools/gpu_check: BUILD files are executed as Python, with the real macros of tools/tessera.bzl, so the tests
found here are the targets that Bazel makes. A test that is tagged gpu or vendor-libraries must be in
tools/gpu_check/tests.bzl, with the same program, number of GPUs, device, transport and settings. Everything in the list
must exist.
The table of registers: each .cu file has its rows in tools/cuda/REGISTERS.md.
"""

import os
import re
import sys
from types import SimpleNamespace

from build_graph import branches, local_glob, normalized

MACROS = "tools/tessera.bzl"
LIST = "tools/gpu_check/tests.bzl"
REGISTERS = "tools/cuda/REGISTERS.md"
TAGS = {"gpu", "vendor-libraries"}
# Set by run.py itself, or read by the emulated GPU only.
GIVEN = re.compile("TESSERA_PROGRAM|TESSERA_TEST_WORLDS|CUDA_MODULE_LOADING|TESSERA_EMULATED_.*")


class Workspace:
    """Executes .bzl and BUILD files, and records the test targets: label -> attributes."""

    def __init__(self, root):
        self.root = root
        self.tests = {}
        self.kernels = []  # paths of .cu files; those of tests are for the emulated GPU
        self._package = ""
        self._loaded = {}

    def _rule(self, kind):
        def call(**attributes):
            label = f"//{self._package}:{attributes['name']}"
            if kind.endswith("_test"):
                self.tests[label] = attributes
        return call

    def _names(self):
        kinds = "cc_library cc_binary cc_test genrule filegroup alias sh_test sh_binary py_test py_binary test_suite".split()
        rules = {kind: self._rule(kind) for kind in kinds}
        here = {
            "package_name": lambda: self._package,
            "glob": lambda *patterns, **more: local_glob(self.root, self._package, *patterns, **more),
        }
        ignored = "genquery exports_files package package_group config_setting constraint_setting constraint_value licenses"
        return {
            **rules, **here, **{name: lambda *_, **__: None for name in ignored.split()},
            "native": SimpleNamespace(**rules, **here),
            "select": lambda choices, **_: branches(*choices.values()),
            "struct": SimpleNamespace, "Label": str,
            "fail": lambda *args: sys.exit(" ".join(map(str, args))),
        }

    def run(self, path):
        """The names that a file defines."""
        names = self._names()

        def load(label, *same, **renamed):
            file = normalized(label, self._package).removeprefix("//").replace(":", "/")
            for name, original in [*((name, name) for name in same), *renamed.items()]:
                names[name] = self._load(file).get(original) if file in (MACROS, LIST) else stand_in(original)
        names["load"] = load
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), names)  # pylint: disable=exec-used
        return names

    def _load(self, file):
        if file not in self._loaded:
            self._loaded[file] = self.run(file)
        return self._loaded[file]

    def read(self):
        """Executes all BUILD files; returns the names that the list of the bundle defines."""
        for folder, folders, files in sorted(os.walk(self.root)):
            folders[:] = [name for name in folders if not name.startswith((".", "bazel-"))]
            self._package = os.path.relpath(folder, self.root).removeprefix(".")
            if not self._package.startswith("tests"):
                self.kernels += [os.path.join(self._package, file) for file in sorted(files) if file.endswith(".cu")]
            if "BUILD" in files:
                self.run(os.path.join(self._package, "BUILD"))
        self._package = os.path.dirname(LIST)
        return self.run(LIST)


class Nothing(list):
    """Stands for the names of other .bzl files: empty lists, and macros that make no test."""

    def __call__(self, *_, **__):
        return Nothing()


def stand_in(name):
    return branches if name.startswith("if_") else Nothing()


def settings_of(target):
    """The environment of a target's program: the arguments of tools/run_with.sh set it."""
    settings = dict(target.get("env", {}))
    for argument in target.get("args", []):
        match = re.fullmatch(r"(\w+)='(.*)'", argument)
        if match:
            settings[match[1]] = match[2]
    return settings


def program_of(workspace, label, target):
    """//package:X if the target runs the test cases of X_cases; None if it is not such a test."""
    package = label[2:].partition(":")[0]
    for dep in target.get("deps", []):
        if dep.endswith("_cases"):
            return normalized(dep, package).removesuffix("_cases")
    for argument in target.get("args", []):
        match = re.fullmatch(r"\$\(location (\S+)\)", argument)
        inner = normalized(match[1], package) if match else None
        if inner in workspace.tests:
            return program_of(workspace, inner, workspace.tests[inner])
    return None


def differences(workspace, label, row):
    """The error in a row of the list, if any."""
    target = workspace.tests.get(label)
    if target is None:
        return [f"{LIST} has {label}, which is no test"]
    settings = settings_of(target)
    real = {
        "program": program_of(workspace, label, target),
        "gpus": settings.pop("TESSERA_TEST_GPUS", "0"),
        "device": settings.pop("TESSERA_TEST_DEVICE", "cpu"),
        "transport": settings.pop("TESSERA_TEST_TRANSPORT", "local"),
        "settings": {name: value for name, value in settings.items() if not GIVEN.fullmatch(name)},
    }
    listed = dict(vars(row), gpus=str(row.gpus))
    return [f"{label}: {what} is {real[what]} in its BUILD file and {listed[what]} in {LIST}" for what in real
            if listed[what] != real[what]]


def problems_of(workspace, listed):
    rows, left_out = listed["GPU_TESTS"], listed["LEFT_OUT"]
    problems = []
    for label, target in sorted(workspace.tests.items()):
        if TAGS & set(target.get("tags") or []) and label not in rows and label not in left_out:
            problems.append(f"{label} is not in {LIST}")
    for label, row in sorted(rows.items()):
        problems += differences(workspace, label, row)
    for label in left_out:
        if label not in workspace.tests:
            problems.append(f"{LIST} leaves out {label}, which is no test")
        if label in rows:
            problems.append(f"{LIST} has {label}, and leaves it out")
    return problems


def unrecorded(workspace):
    with open(os.path.join(workspace.root, REGISTERS), encoding="utf-8") as file:
        rows = set(re.findall(r"^\| `(\S+\.cu)` \|", file.read(), re.MULTILINE))
    return [f"{path} is not in {REGISTERS}: is its library among //tools/cuda:ptxas?" for path in workspace.kernels
            if path not in rows]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    workspace = Workspace(root)
    listed = workspace.read()
    problems = problems_of(workspace, listed) + unrecorded(workspace)
    print("\n".join(problems) or f"check_gpu: {len(listed['GPU_TESTS'])} tests, as the BUILD files have them; "
          f"{len(workspace.kernels)} files of kernels, all in the table of registers")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
