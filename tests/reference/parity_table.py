#!/usr/bin/env python3
"""The parity table: how far our training is from PyTorch's, and the number of lines of each part.

    tools/bazel test //tests/nn/parity/... //tests/models/parity/... --test_output=all --nocache_test_results | tests/reference/parity_table.py [--short]

Reads the rows that these tests print. Deviations are the worst of values, gradients, 20 losses and the state after 20
steps, relative to max(1, |x|). With --short one row for each file of tests/nn/reference/, else one for each case.
"""

import argparse
import glob
import os
import sys

# The sources that a file of cases tests: prefixes below nn/, models/ or tests/, without extension.
SOURCES = {
    "linear": ["nn/layers/linear", "nn/layers/sequential"],
    "activation": ["nn/layers/activation", "nn/layers/identity"],
    "embedding": ["nn/layers/embedding"],
    "norm": ["nn/layers/layer_norm", "nn/layers/rms_norm", "nn/layers/group_norm"],
    "batch_norm": ["nn/layers/batch_norm", "nn/layers/sync_batch_norm"],
    "conv": ["nn/layers/conv"],
    "pool": ["nn/layers/pool"],
    "attention": ["nn/layers/transformer/attention", "nn/layers/transformer/attention_mask", "nn/layers/transformer/attention_weights",
                  "nn/layers/transformer/key_value_cache", "nn/layers/transformer/rotary_embedding"],
    "encoder_layer": ["nn/layers/transformer/transformer_encoder_layer", "nn/layers/transformer/transformer_layer"],
    "decoder_layer": ["nn/layers/transformer/transformer_decoder_layer"],
    "transformer": ["nn/layers/transformer/transformer"],
    "loss": ["nn/training/loss"],
    "optimizer": ["nn/optim/*"],
    "schedule": ["nn/optim/schedule"],
    "small_model": [f"tests/support/models/{name}" for name in (
        "mlp", "mlp_module", "double_linear", "skip_model", "net", "nested", "mixture_of_experts", "save_forward_inputs")],
    "shared_transformer_model": ["tests/support/models/transformer_with_shared_params"],
    "transformer_model": ["models/nets/transformer"],
}


def lines_of(root, prefixes):
    paths = {path for prefix in prefixes for ending in (".h", ".cc")
             for path in glob.glob(os.path.join(root, prefix + ending))}
    return sum(open(path, encoding="utf-8").read().count("\n") for path in paths)


def read_rows(stream):
    """(file, case, worst in f64, worst in f32 or None), in the order of the files above."""
    rows = []
    for line in stream:
        parts = [part.strip() for part in line.split("|")]
        if parts[0] == "parity" and len(parts) == 5:
            rows.append((parts[1], parts[2], float(parts[3]), None if parts[4] == "-" else float(parts[4])))
    order = list(SOURCES)
    return sorted(rows, key=lambda row: order.index(row[0]))


def summed_up(rows):
    """One row for each file: the number of cases for the name, and the worst deviations."""
    for file in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == file]
        f32 = [row[3] for row in own if row[3] is not None]
        yield file, str(len(own)), max(row[2] for row in own), max(f32, default=None)


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true", help="one row for each file")
    short = parser.parse_args().short
    rows = read_rows(sys.stdin)
    if not rows:
        sys.exit("parity_table: no rows; run the tests with --test_output=all --nocache_test_results")
    print(f"| file | {'cases' if short else 'case'} | f64 | f32 | lines |\n|---|---|---|---|---|")
    last = None
    for file, name, f64, f32 in summed_up(rows) if short else rows:
        lines = lines_of(root, SOURCES[file]) if file != last else ""
        print(f"| {file} | {name} | {f64:.0e} | {'' if f32 is None else f'{f32:.0e}'} | {lines} |")
        last = file


if __name__ == "__main__":
    main()
