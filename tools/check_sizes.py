#!/usr/bin/env python3
"""Keeps files and functions readable: a file has at most 500 lines, a function at most 60.

    tools/check_sizes.py [ROOT]

Reads .h .cc .cu .py .bzl and prints what is too long, then the distribution. Aim for 300 and 40.
"""

import ast
import os
import sys

from cpp_functions import cpp_functions

FILE_WALL, FILE_AIM = 500, 300
FUNCTION_WALL, FUNCTION_AIM = 60, 40
ENDINGS = (".h", ".cc", ".cu", ".py", ".bzl")

# Exceptions: "path" or "path:function" -> reason.
EXCEPTIONS = {}


def source_files(root):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "bazel-", "__")))
        for name in sorted(files):
            if name.endswith(ENDINGS):
                yield os.path.relpath(os.path.join(folder, name), root)


def python_functions(text):
    """(name, first line, lines) of the functions in Python or Starlark text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def functions_of(path, text):
    return list(python_functions(text) if path.endswith((".py", ".bzl")) else cpp_functions(text))


def distribution(what, sizes, aim, wall):
    if not sizes:
        return f"no {what}"
    sizes = sorted(sizes)
    median, p90 = sizes[len(sizes) // 2], sizes[len(sizes) * 9 // 10]
    over_aim = sum(size > aim for size in sizes)
    return (f"{len(sizes)} {what}, {sum(sizes)} lines: median {median}, p90 {p90}, largest {sizes[-1]}, "
            f"{over_aim} over the aim of {aim} (wall {wall})")


def main(arguments):
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    errors, file_sizes, function_sizes, unused = [], [], [], set(EXCEPTIONS)
    for path in source_files(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        lines = text.count("\n")
        file_sizes.append(lines)
        if lines > FILE_WALL:
            unused.discard(path)
            if path not in EXCEPTIONS:
                errors.append(f"{path} has {lines} lines; the wall is {FILE_WALL}")
        for name, first, length in functions_of(path, text):
            function_sizes.append(length)
            if length > FUNCTION_WALL:
                unused.discard(f"{path}:{name}")
                if f"{path}:{name}" not in EXCEPTIONS:
                    errors.append(f"{path}:{first}: {name} has {length} lines; the wall is {FUNCTION_WALL}")
    errors += [f"{name} is listed as an exception and needs none" for name in sorted(unused)]
    for error in errors:
        print(f"check_sizes: {error}")
    print("check_sizes:", distribution("files", file_sizes, FILE_AIM, FILE_WALL))
    print("check_sizes:", distribution("functions", function_sizes, FUNCTION_AIM, FUNCTION_WALL))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
