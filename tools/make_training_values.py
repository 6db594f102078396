#!/usr/bin/env python3
"""Writes tests/nn/reference/*.json: results of 20 training steps of layers, losses, optimizers and models in PyTorch.

    python3 tools/make_training_values.py [--to FOLDER] [FILE ...]

Needs PyTorch (CPU, 2.9 or newer); tests read the files and need neither it nor this script. All in f64. A file is a list of
cases: the formulas of parameters, buffers and each step's inputs; the first output; the gradients of the first step; the
loss of every step; parameters and buffers at the end; and an output in evaluation mode. The modules in training_values/
define the cases; tests/support/training_reference.h trains our models and compares.
"""

import argparse
import os

import torch

from training_values import attention, language_models, layers, losses, models, optimizers
from training_values.training import write

FILES = {**layers.FILES, **attention.FILES, **losses.FILES, **optimizers.FILES, **models.FILES,
         **language_models.FILES}


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--to", default=os.path.join(here, "tests", "nn", "reference"), help="folder")
    parser.add_argument("files", nargs="*", help="the files to write; all where none is named")
    arguments = parser.parse_args()
    os.makedirs(arguments.to, exist_ok=True)
    print(f"PyTorch {torch.__version__}")
    torch.set_num_threads(1)
    for name in arguments.files or FILES:
        write(arguments.to, name, FILES[name]())


if __name__ == "__main__":
    main()
