#!/usr/bin/env python3
"""Writes compile_commands.json at the root of the checkout, for clangd and other tools:

    tools/bazel run //tools:compile_commands
    /usr/bin/bazel-4 run @tessera//tools:compile_commands     in a workspace that uses Tessera

Asks Bazel how it would compile every C++ file. Headers are found once the targets have been built.
"""

import json
import os
import subprocess
import sys

# Options of GCC that clang tools reject.
GCC_ONLY = {"-fno-canonical-system-headers", "-Wno-free-nonheap-object", "-Wunused-but-set-parameter"}
DROPPED_WITH_VALUE = {"-MF", "-o"}


def bazel(*arguments):
    # A workspace that uses Tessera has no tools/bazel.
    program = "tools/bazel" if os.path.exists("tools/bazel") else "/usr/bin/bazel-4"
    return subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def clang_arguments(arguments):
    """A compile command without outputs and without options that only GCC knows."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument not in GCC_ONLY and argument not in DROPPED_WITH_VALUE and argument != "-MD":
            kept.append(argument)
        skip = argument in DROPPED_WITH_VALUE
    return kept


def source_of(arguments):
    return arguments[arguments.index("-c") + 1]


def entries(actions, workspace, execution_root):
    for action in actions:
        source = source_of(action["arguments"])
        if source.startswith(("external/", "bazel-out/")):
            continue
        path = os.path.join(workspace, source)
        arguments = clang_arguments(action["arguments"])
        arguments[arguments.index(source)] = path
        yield {"directory": execution_root, "file": path, "arguments": arguments}


def main():
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if workspace is None:
        sys.exit("run me as: tools/bazel run //tools:compile_commands")
    os.chdir(workspace)
    execution_root = bazel("info", "execution_root").strip()
    answer = json.loads(bazel("aquery", "--output=jsonproto", "--ui_event_filters=-info", "--noshow_progress",
                              'mnemonic("CppCompile", //...)'))
    commands = {entry["file"]: entry for entry in entries(answer["actions"], workspace, execution_root)}
    with open("compile_commands.json", "w", encoding="utf-8") as file:
        json.dump(sorted(commands.values(), key=lambda entry: entry["file"]), file, indent=1)
    print(f"compile_commands.json: {len(commands)} files")


if __name__ == "__main__":
    main()
