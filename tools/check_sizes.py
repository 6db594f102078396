#!/usr/bin/env python3
"""Keeps files and functions readable: a file has at most 500 lines, a function at most 60.

    tools/check_sizes.py [--small] [--folders] [ROOT]

Reads .h .cc .cu .py .bzl and prints which files and functions are too long, then the distribution. Aim for 300 and 40.
With --small it also names the files under 40 lines, smallest first: several of them may be one concept. With --folders it
names the folders with more than 40 files.
"""

import argparse
import ast
import collections
import os
import sys

from cpp_functions import cpp_functions

FILE_WALL, FILE_AIM = 500, 300
FUNCTION_WALL, FUNCTION_AIM = 60, 40
SMALL = 40
FOLDER_AIM = 40  # files
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


def files_per_folder(root):
    """Folder -> number of its files, of all kinds."""
    counts = collections.Counter()
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "bazel-", "__"))]
        counts[os.path.relpath(folder, root)] = len(files)
    return counts


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help=f"name the files under {SMALL} lines")
    parser.add_argument("--folders", action="store_true", help=f"name the folders with more than {FOLDER_AIM} files")
    parser.add_argument("root", nargs="?", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    options = parser.parse_args(arguments)
    root = options.root
    small = []
    errors, file_sizes, function_sizes, unused = [], [], [], set(EXCEPTIONS)
    for path in source_files(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        lines = text.count("\n")
        file_sizes.append(lines)
        if lines < SMALL:
            small.append((lines, path))
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
    for lines, path in sorted(small) if options.small else ():
        print(f"check_sizes: {path} has {lines} lines")
    for folder, count in files_per_folder(root).most_common() if options.folders else ():
        if count > FOLDER_AIM:
            print(f"check_sizes: {folder}/ has {count} files")
    print("check_sizes:", distribution("files", file_sizes, FILE_AIM, FILE_WALL) + f", {len(small)} under {SMALL}")
    print("check_sizes:", distribution("functions", function_sizes, FUNCTION_AIM, FUNCTION_WALL))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
