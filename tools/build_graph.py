"""Reads the BUILD files of Tessera's code layers: targets, their files, and their dependencies.

BUILD files are executed as Python with recorders in place of the rules; the subset of Starlark they use is Python.
"""

import glob
import os
from dataclasses import dataclass, field

FLOORS = ("tensor", "autograd", "nn", "distributed", "fsdp", "models")


# What a macro adds to the deps it is given.
ADDED_DEPS = {
    "tessera_cuda_library": ["//tools/third_party:cuda_runtime"],
    "tessera_program": ["//:tessera"],
    "example": ["//:tessera"],
    "example_program": ["//:tessera"],
}

# Macros whose source is NAME.cc.
NAMED_AFTER_SOURCE = ("example", "example_program")


@dataclass
class Target:
    label: str  # "//nn:module"
    package: str  # "nn"
    name: str
    hdrs: list = field(default_factory=list)  # paths from the root of the tree
    srcs: list = field(default_factory=list)
    deps: list = field(default_factory=list)  # labels
    hidden_deps: list = field(default_factory=list)  # the deps whose headers the target's users do not see

    @property
    def files(self):
        return self.hdrs + self.srcs

    @property
    def shown_deps(self):
        return [dep for dep in self.deps if dep not in self.hidden_deps]


class Selection(list):
    """The result of select() and if_...(): all branches at once, so that each is checked."""


class Recorder:
    """Stands for a rule or macro: a call with a name and deps or files is a target."""

    def __init__(self, targets, package, added_deps=(), named_after_source=False):
        self._targets = targets
        self._package = package
        self._added_deps = added_deps
        self._named_after_source = named_after_source

    def __call__(self, *args, **attributes):
        name = attributes.get("name")
        if name is None:
            return None
        target = Target(f"//{self._package}:{name}", self._package, name)
        for attribute in ("hdrs", "srcs"):
            for source in attributes.get(attribute) or []:
                if not source.startswith((":", "//", "@")):
                    getattr(target, attribute).append(os.path.join(self._package, source))
        if self._named_after_source:
            target.srcs.append(os.path.join(self._package, f"{name}.cc"))
        implementation_deps = attributes.get("implementation_deps") or []
        deps = [*(attributes.get("deps") or []), *self._added_deps]
        if "actual" in attributes:
            deps.append(attributes["actual"])
        shown = [normalized(dep, self._package) for dep in deps]
        # A label in both lists is visible to users.
        target.hidden_deps = [dep for dep in (normalized(dep, self._package) for dep in implementation_deps) if dep not in shown]
        target.deps = shown + target.hidden_deps
        self._targets[target.label] = target
        return None


def normalized(label, package):
    """The full form of a label written in `package`."""
    if label.startswith("@") and not label.startswith("@//"):
        return label
    label = label.removeprefix("@")
    if not label.startswith("//"):
        return f"//{package}:{label.removeprefix(':')}"
    folder, colon, name = label.removeprefix("//").partition(":")
    return f"//{folder}:{name if colon else os.path.basename(folder)}"


def branches(*alternatives):
    merged = Selection()
    for alternative in alternatives:
        merged.extend(value for value in alternative if value not in merged)
    return merged


def local_glob(root, package, include, exclude=(), **_):
    """The result of glob() in the BUILD file of `package`."""
    def matches(patterns):
        found = set()
        for pattern in patterns:
            found.update(glob.glob(pattern, root_dir=os.path.join(root, package), recursive=True))
        return found

    return sorted(matches(include) - matches(exclude))


def run_build_file(root, package, targets):
    """Executes one BUILD file, adding its targets."""
    path = os.path.join(root, package, "BUILD")
    recorder = Recorder(targets, package)

    names = {
        "glob": lambda *patterns, **more: local_glob(root, package, *patterns, **more),
        "select": lambda choices, **_: branches(*choices.values()),
        "package_name": lambda: package,
        "True": True,
        "False": False,
    }

    def load(_file, *loaded, **renamed):
        for name in (*loaded, *renamed):
            rule = Recorder(targets, package, ADDED_DEPS.get(name, ()), name in NAMED_AFTER_SOURCE)
            names[name] = branches if name.startswith("if_") else rule

    names["load"] = load
    for rule in ("cc_library cc_binary cc_test genrule filegroup alias sh_test sh_binary py_test py_binary test_suite "
                 "config_setting package package_group exports_files licenses").split():
        names[rule] = recorder
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), names)  # pylint: disable=exec-used


def read_targets(root, floors=FLOORS):
    """All targets of the code layers: label -> Target."""
    targets = {}
    for floor in floors:
        for folder, _, files in sorted(os.walk(os.path.join(root, floor))):
            if "BUILD" in files:
                run_build_file(root, os.path.relpath(folder, root), targets)
    return targets


def reachable(targets, label, shown_only=False):
    """The labels that `label` depends on, directly or not, each with the label it was reached from.

        `shown_only`: only those whose headers its users see.
    """
    reached_from = {}
    waiting = [label]
    while waiting:
        current = waiting.pop()
        if current not in targets:
            continue
        target = targets[current]
        for dep in target.shown_deps if shown_only else target.deps:
            if dep not in reached_from and dep != label:
                reached_from[dep] = current
                waiting.append(dep)
    return reached_from


def direct_deps(targets, target):
    """The labels a target depends on. A label without files of its own is replaced by the labels that it collects."""
    found, waiting = set(), list(target.deps)
    while waiting:
        label = waiting.pop()
        if label in found:
            continue
        found.add(label)
        dep = targets.get(label)
        if dep is not None and not dep.files:
            waiting.extend(dep.deps)
    return found
