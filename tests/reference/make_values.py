#!/usr/bin/env python3
"""Writes the values of PyTorch that tests compare with.

    python3 tests/reference/make_values.py [--to ROOT] [--list] [PATH ...]

Needs PyTorch (CPU, 2.9 or newer). Tests read the files, and need neither PyTorch nor this script. PATH is one of the files
that --list prints, or a folder of them; without it all are written. With --to they are written below another folder than the
tree, to compare them with those that are there.

operations.py         tests/tensor/reference/: an operation's result and gradients
training/             tests/nn/reference/: 20 steps of training of layers, losses, optimizers and models
optimizer_steps.py    tests/nn/optim/torch_values.h: parameters after 20 steps of each optimizer
"""

import argparse
import os
import sys

import torch

import operations
import optimizer_steps
from training import attention, cases, language_models, layers, losses, models, optimizers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRAINING = {**layers.FILES, **attention.FILES, **losses.FILES, **optimizers.FILES, **models.FILES, **language_models.FILES}


def all_files():
    """Path from the root of the tree -> function that returns the file's text."""
    files = {"tests/nn/optim/torch_values.h": lambda: optimizer_steps.text_of(optimizer_steps.CASES)}
    for name, make in operations.FILES.items():
        files[f"tests/tensor/reference/{name}.json"] = lambda make=make: operations.text_of(make())
    for name, make in TRAINING.items():
        files[f"tests/nn/reference/{name}.json"] = lambda make=make: cases.text_of(make())
    return files


def chosen(files, paths):
    """The files that `paths` name; exits if a path names none."""
    if not paths:
        return list(files)
    out = []
    for path in paths:
        named = [file for file in files if file == path or file.startswith(path.rstrip("/") + "/")]
        if not named:
            sys.exit(f"make_values: {path} is none of the files; --list prints them")
        out.extend(named)
    return out


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", default=ROOT, metavar="ROOT", help="folder below which the files are written [the tree]")
    parser.add_argument("--list", action="store_true", help="print the files, write none")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="the files to write [all]")
    options = parser.parse_args(arguments)
    files = all_files()
    if options.list:
        print("\n".join(files))
        return
    print(f"PyTorch {torch.__version__}")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for path in chosen(files, options.paths):
        text = files[path]()
        full = os.path.join(options.to, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        print(f"{path}: {len(text)} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
