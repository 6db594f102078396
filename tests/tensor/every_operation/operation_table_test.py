#!/usr/bin/env python3
"""Compares the table of operations with the headers that declare them: none may be missing, none may be made up.

A row begins with {"name", or {.name = "name", and calls `name`; each overload has a row of its own. Reads
tensor/ops/*.h, tensor/random.h, the friends of tensor/tensor.h and the *_operations.cc files beside this script.
"""

import glob
import os
import re
import sys

# Functions without a row, and the reason.
EXCEPTIONS = {
    "operator+": "add",
    "operator-": "sub",
    "operator*": "mul",
    "operator/": "div",
    "operator<": "lt",
    "operator>": "gt",
    "operator&": "bitwise_and",
    "operator|": "bitwise_or",
    "operator~": "bitwise_not",
    "split_sizes": "numbers only, no tensor",
    "chunk_sizes": "numbers only, no tensor",
    "pitch_of": "numbers only, no tensor",
    "named_key": "numbers only, no tensor",
    "whole": "numbers only, no tensor",
    "permutation": "host memory only",
    "result_dtype": "dtypes only",
}
# These call members of Tensor.
VIEWS = ["view", "unflatten", "transpose", "permute", "movedim", "slice", "narrow", "select", "expand", "squeeze", "unsqueeze",
         "diagonal", "swapaxes", "swapdims", "broadcast_to", "expand_as", "view_as"]
EXCEPTIONS.update((name, "a view of tensor.h") for name in VIEWS)

_DECLARATION = re.compile(r"^(?:inline )?[A-Za-z_][\w:<>]*&? (operator.|\w+)\(", re.MULTILINE)
_FRIEND = re.compile(r"^  friend (.*)", re.MULTILINE)
_ROW = re.compile(r'\{(?:\.name = )?"(\w+)",|scattering<\w+>\(\s*"(\w+)",')


def declared(text):
    """The names of the functions at namespace level, once for each overload."""
    return _DECLARATION.findall(re.sub(r"//[^\n]*", "", text))


def rows(text):
    """(name, the row) of the rows in a part of the table."""
    starts = list(_ROW.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return [(match[1] or match[2], text[match.end():end]) for match, end in zip(starts, ends)]


def complaints(headers, parts):
    found, wanted, out = {}, {}, []
    for path, text in sorted(parts.items()):
        for name, row in rows(text):
            found[name] = found.get(name, 0) + 1
            if not re.search(r"\b%s\b" % name, row):
                out.append("%s: the row of %s does not call it" % (path, name))
    for path, text in sorted(headers.items()):
        for name in declared(text):
            wanted.setdefault(name, []).append(path)
    for name, paths in sorted(wanted.items()):
        if name not in EXCEPTIONS and found.get(name, 0) < len(paths):
            out.append("%s declares %s %d times, the table has %d rows of it; add one" %
                       (paths[0], name, len(paths), found.get(name, 0)))
    out += ["the table has a row of %s, which no header declares" % name for name in sorted(set(found) - set(wanted))]
    out += ["the exception %s is not declared or has a row" % name
            for name in sorted(EXCEPTIONS) if name not in wanted or name in found]
    return out, wanted


def read(pattern):
    out = {}
    for path in glob.glob(pattern):
        with open(path, encoding="utf-8") as file:
            out[os.path.relpath(path)] = file.read()
    return out


def check_itself():
    """The comparison finds what it is for."""
    header = {"h": "Tensor f(const Tensor& x);\nvoid g_(const Tensor& x);\nTensor f(int dim);\nstruct S {\n  Tensor h();\n};\n"}
    missing, _ = complaints(header, {"t": '{"f", {any({3})}, [](C t) { f(t[0]); }},\n{"f", {}, f},\n{"k", {}, l}'})
    assert "h declares g_ 1 times, the table has 0 rows of it; add one" in missing, missing
    assert "t: the row of k does not call it" in missing, missing
    assert "the table has a row of k, which no header declares" in missing, missing
    assert not any("declares f " in line for line in missing), missing


def main():
    check_itself()
    here = os.path.dirname(os.path.abspath(__file__))
    tensor = os.path.join(here, "..", "..", "..", "tensor")
    friends = {path: "\n".join(_FRIEND.findall(text)) for path, text in read(os.path.join(tensor, "tensor.h")).items()}
    headers = {**friends, **read(os.path.join(tensor, "ops", "*.h")), **read(os.path.join(tensor, "random.h"))}
    found, wanted = complaints(headers, read(os.path.join(here, "*_operations.cc")))
    print("\n".join(found))
    print("%d operations in %d headers, %d exceptions" % (len(wanted), len(headers), len(EXCEPTIONS)))
    return 1 if found or len(wanted) < 150 else 0


if __name__ == "__main__":
    sys.exit(main())
