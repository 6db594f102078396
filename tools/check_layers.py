#!/usr/bin/env python3
"""Checks that dependencies between the code layers go in one direction, and that each library has one place.

    tools/check_layers.py [ROOT]

From the BUILD files: no target depends, directly or not, on a layer that it must not use, or exposes a toolkit's headers to
its users. From the #includes: our headers are included as "tessera/..." and owned by a target that is a direct dep; each
library is included only in its place, by a target that depends on it, and in no public header.
"""

import os
import re
import sys

from build_graph import FLOORS, direct_deps, reachable, read_targets

# The layers that the targets of a layer may depend on, besides their own; the lowest layer comes first.
BELOW = {
    "tensor": set(),
    "autograd": {"tensor"},
    "nn": {"autograd", "tensor"},
    "distributed": {"tensor"},
    "fsdp": {"nn", "autograd", "distributed", "tensor"},
    "models": {"nn", "autograd", "tensor"},
}

# Packages (ending in "/") whose targets may depend on more layers, and the layers that are added.
REACHES_MORE = {
    "//distributed/parameters/": {"nn", "autograd"},
    "//distributed/tensor_parallel/": {"nn", "autograd"},
    "//models/parallelize/": {"fsdp", "distributed"},
    "//models/runs/": {"fsdp", "distributed"},
    "//models/training/": {"fsdp", "distributed"},
    "//models/examples/": {"fsdp", "distributed", "//:tessera"},  # written as a user would write them
}

# The targets that collect a complete layer. They may depend on everything that a package of their layer may depend on.
WHOLE_FLOORS = {f"//{floor}:{floor}": floor for floor in BELOW}

# The page that shows these rules; check_page() compares it with them.
PAGE = "CONTRIBUTING.md"


def page_of_rules():
    """The rules as the table of PAGE, from the highest layer to the lowest."""
    def listed(floors):
        ordered = [floor for floor in reversed(BELOW) if floor in floors]
        return ", ".join(f"`{floor}`" for floor in ordered) or "nothing of ours"

    lines = ["| folder | may depend on | some of its packages also on |", "|---|---|---|",
             "| `tools`, `tests` | everything | |"]
    for floor in reversed(BELOW):
        more = {}
        for place, added in REACHES_MORE.items():
            if place.startswith(f"//{floor}/"):
                more.setdefault(listed(added), []).append(f"`{place[2:]}`")
        cell = "; ".join(f"{', '.join(places)}: {floors}" for floors, places in more.items())
        lines.append(f"| `{floor}` | {listed(BELOW[floor])} | {cell} |")
    return "\n".join(line.replace("|  |", "| |") for line in lines)


def check_page(root):
    """PAGE shows the current rules."""
    path = os.path.join(root, PAGE)
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        if page_of_rules() not in file.read():
            yield f"{PAGE} does not show the rules of tools/check_layers.py; its table should be:\n{page_of_rules()}"


ANYWHERE = r""
# Implements the functions that CUDA's headers declare.
EMULATED = r"tests/support/emulated_gpu/|tests/tools/emulated_gpu/"
# Library (its name under //tools/third_party) -> a pattern for its includes, and the files that may include it.
LIBRARIES = {
    "eigen": (r"(unsupported/)?Eigen/", r"tensor/kernels/cpu/|tests/"),
    "onednn": (r"dnnl|oneapi/", r"tensor/kernels/cpu/"),
    "openmp": (r"omp\.h$", r"tensor/kernels/cpu/"),
    "cublas": (r"cublas", r"tensor/kernels/cuda/|" + EMULATED),
    "cudnn": (r"cudnn", r"tensor/kernels/cuda/|" + EMULATED),
    "cuda_runtime": (r"(cuda|driver_types|vector_types)\w*\.h", r"tensor/|distributed/nccl/|distributed/transports/reduce_on_gpu|tests/gpu/|" + EMULATED),
    "nccl": (r"nccl\.h$", r"distributed/nccl/nccl_|tests/gpu/nccl_names_test|" + EMULATED),
    "gloo": (r"gloo/", r"distributed/transports/(process_group_)?gloo|tools/bench/bench_plain_gloo"),
    "sodium": (r"sodium", r"distributed/store/authentication\."),
    "catch2": (r"catch2/", r"tests/"),
    "rapidcheck": (r"rapidcheck", r"tests/"),
    "fmt": (r"fmt/", ANYWHERE),
    "cli11": (r"CLI/", r"tools/program/options/command_parser\."),
    "json": (r"nlohmann/", r"tensor/io/safetensors|distributed/objects\.|fsdp/checkpoint/index\.|models/runs/flat_json\.|models/watch/metrics_reader\.|tests/"),
    "protobuf": (r"google/protobuf/", r"models/watch/|tests/models/watch/"),
    "sentencepiece": (r"sentencepiece_", r"models/data/sentence_piece|tests/"),
    "xxhash": (r"xxh", r"tensor/|distributed/|models/data/|tests/"),
    "zlib": (r"(zlib|zconf)\.h$", r"models/data/|tests/"),
}

# They have hundreds of headers: targets depend on them by implementation_deps.
TOOLKITS = ("eigen", "onednn", "cublas", "cudnn", "cuda_runtime", "nccl", "gloo")

# Exceptions: public headers that include a library: path -> library and reason.
SHOWN = {
    "tensor/check.h": ("fmt", "TESSERA_CHECK checks its format strings when it is compiled"),
    "models/watch/metrics_reader.h": ("json", "it keeps a JSON value; the header has the type's name only"),
    "distributed/objects.h": ("json", "it exchanges JSON values; the header has their names only"),
    "tensor/cuda/block.h": ("cuda_runtime", "only .cu files include it"),
    "tensor/cuda/start.h": ("cuda_runtime", "only .cu files include it"),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCE_ENDINGS = (".h", ".cc", ".cu", ".cuh")


def floor_of(label):
    """The layer of a label; None for tools, tests and external labels."""
    if not label.startswith("//"):
        return None
    top = label[2:].split(":")[0].split("/")[0]
    return top if top in FLOORS else None


def allowed_floors(target):
    floor = floor_of(target.label)
    allowed = {floor} | BELOW[floor]
    for place, more in REACHES_MORE.items():
        whole = target.label in WHOLE_FLOORS and place.startswith(f"//{floor}/")
        if whole or target.label.startswith((place, place[:-1] + ":")):
            allowed |= more
    return allowed


def chain_to(reached_from, label, dep):
    chain = [dep]
    while chain[-1] != label:
        chain.append(reached_from[chain[-1]])
    return " -> ".join(reversed(chain))


def check_deps(targets):
    """A target depends only on layers that it may use."""
    for label, target in targets.items():
        allowed = allowed_floors(target)
        reached_from = reachable(targets, label)
        for dep in reached_from:
            above = dep.startswith(("//tests", "//tools:", "//:")) and dep not in allowed
            if not above and (floor_of(dep) is None or floor_of(dep) in allowed):
                continue
            yield f"{label} must not reach {dep}: {chain_to(reached_from, label, dep)}"


def check_toolkits(targets):
    """No target above tensor exposes a toolkit's headers to its users, except through its own deps."""
    toolkits = {f"//tools/third_party:{name}" for name in TOOLKITS}
    for label, target in targets.items():
        if floor_of(label) in ("tensor", None) or target.package.endswith(("/cuda", "/nccl")):
            continue
        reached_from = reachable(targets, label, shown_only=True)
        for dep in sorted(toolkits & reached_from.keys() - set(target.deps)):
            yield f"{label} sees {dep}: {chain_to(reached_from, label, dep)}; make it one of implementation_deps on the way"


def source_files(root):
    """Every C++ and CUDA file of the tree, as path from the root."""
    for top in (*FLOORS, "tests", "tools"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for name in sorted(files):
                if name.endswith(SOURCE_ENDINGS):
                    yield os.path.relpath(os.path.join(folder, name), root)


def includes_of(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return INCLUDE.findall(file.read())


def library_of(included):
    for library, (pattern, _) in LIBRARIES.items():
        if re.match(pattern, included):
            return library
    return None


def is_public_header(path):
    return path.endswith(".h") and not path.startswith(("tests/", "tools/", "tensor/kernels/cpu/", "tensor/kernels/cuda/"))


def check_library(path, library, owners):
    """One file's include of one library."""
    place = LIBRARIES[library][1]
    if not re.match(place, path):
        yield f"{path} includes {library}, which belongs in {place} only"
    if is_public_header(path) and SHOWN.get(path, ("",))[0] != library:
        yield f"{path} is a public header and includes {library}; move the include into a .cc"
    for target in owners:
        if f"//tools/third_party:{library}" not in target.deps:
            yield f"{target.label} includes {library} in {path} without //tools/third_party:{library} in its deps"


def check_own_include(path, included, header_owners, owners, targets):
    """One file's include of one of our headers: the including target must depend directly on the header's."""
    header = included.removeprefix("tessera/")
    if header not in header_owners:
        if header.split("/")[0] in FLOORS:
            yield f"{path} includes {included}, which is in no target's hdrs"
        return
    for target in owners:
        providers = header_owners[header]
        if target not in providers and direct_deps(targets, target).isdisjoint(
                provider.label for provider in providers):
            wanted = " or ".join(provider.label for provider in providers)
            yield f"{target.label} includes {included} in {path} without {wanted} in its deps"


def check_includes(root, targets):
    owners, header_owners = {}, {}
    for target in targets.values():
        for path in target.files:
            owners.setdefault(path, []).append(target)
            if path.endswith(".h"):
                header_owners.setdefault(path, []).append(target)
    for path in source_files(root):
        if path.split("/")[0] in FLOORS and path not in owners:
            yield f"{path} is in no target"
        for bracket, included in includes_of(root, path):
            library = library_of(included) if not included.startswith("tessera/") else None
            if library:
                yield from check_library(path, library, owners.get(path, []))
            elif included.startswith("tessera/"):
                yield from check_own_include(path, included, header_owners, owners.get(path, []), targets)
            elif bracket == '"' and not path.startswith("tests/build/"):
                yield f'{path} includes "{included}"; our headers are included as "tessera/..."'


def check_folders(root):
    """The only top folders are the layers, tests and tools."""
    for entry in sorted(os.listdir(root)):
        known = entry in (*FLOORS, "tests", "tools") or entry.startswith((".", "bazel-"))
        if os.path.isdir(os.path.join(root, entry)) and not known:
            yield f"{entry}/ is no floor of Tessera: the top folders are {', '.join(FLOORS)}, tests, tools"


def main(arguments):
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    targets = read_targets(root)
    errors = [*check_page(root), *check_folders(root), *check_deps(targets), *check_toolkits(targets), *check_includes(root, targets)]
    for error in dict.fromkeys(errors):
        print(f"check_layers: {error}")
    if not errors:
        print(f"check_layers: {len(targets)} targets on {len(FLOORS)} floors, no arrow turns back")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
