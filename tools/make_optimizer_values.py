#!/usr/bin/env python3
"""Writes tests/nn/optim/torch_values.h: parameters after 20 steps of PyTorch's optimizers, in f64.

    python3 tools/make_optimizer_values.py > tests/nn/optim/torch_values.h

Needs PyTorch 2.9 or newer. Element i of a parameter starts as cos(1 + i), and has the gradient sin(0.7 (i + 1) + 0.3 t)
at step t, counted from 0: torch_steps_test.cc does the same. The second parameter is in a group of its own.
"""

import torch

torch.set_default_dtype(torch.float64)
STEPS = 20
# PyTorch's Muon orthogonalises in bf16, which keeps two digits; in f64 the rest can be compared too.
torch.bfloat16 = torch.float64

CASES = [
    ("sgd_dampening", torch.optim.SGD, dict(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.05), (4,)),
    ("sgd_nesterov", torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05, maximize=True), (4,)),
    ("adam", torch.optim.Adam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.05), (4,)),
    ("adam_amsgrad", torch.optim.Adam,
     dict(lr=0.02, betas=(0.8, 0.6), weight_decay=0.05, amsgrad=True, maximize=True), (4,)),
    ("adamw", torch.optim.AdamW, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6), (4,)),
    ("adamw_amsgrad", torch.optim.AdamW,
     dict(lr=0.02, betas=(0.8, 0.6), weight_decay=0.1, amsgrad=True, maximize=True), (4,)),
    ("muon", torch.optim.Muon, dict(lr=0.02), (2, 3)),
    ("muon_plain", torch.optim.Muon, dict(lr=0.02, momentum=0.8, nesterov=False, weight_decay=0.3, ns_steps=3), (2, 3)),
    ("muon_rms", torch.optim.Muon, dict(lr=0.02, adjust_lr_fn="match_rms_adamw"), (2, 3)),
]


def start(shape):
    count = torch.Size(shape).numel()
    return torch.nn.Parameter(torch.cos(1 + torch.arange(count, dtype=torch.float64)).reshape(shape))


def gradient(parameter, step):
    place = torch.arange(parameter.numel(), dtype=torch.float64) + 1
    return torch.sin(0.7 * place + 0.3 * step).reshape(parameter.shape)


def run(make, options, second_shape):
    parameters = [start((3, 2)), start(second_shape)]
    second = dict(params=[parameters[1]], lr=options["lr"] / 2, weight_decay=0)
    optimizer = make([dict(params=[parameters[0]]), second], **options)
    for step in range(STEPS):
        for parameter in parameters:
            parameter.grad = gradient(parameter, step)
        optimizer.step()
    return [x for parameter in parameters for x in parameter.detach().reshape(-1).tolist()]


def main():
    print("// Parameters after 20 steps of PyTorch's optimizers; tools/make_optimizer_values.py writes this file.")
    print("#pragma once\n\n#include <vector>\n\nnamespace tessera::testing::torch {\n")
    for name, make, options, second_shape in CASES:
        print(f"inline const std::vector<double> {name} = {{")
        print(",\n".join(f"{x!r}" for x in run(make, options, second_shape)) + "};")
    print("\n}  // namespace tessera::testing::torch")


if __name__ == "__main__":
    main()
