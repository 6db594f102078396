"""Parameters after 20 steps of PyTorch's optimizers, in f64, as a C++ header.

Element i of a parameter starts as cos(1 + i), and has the gradient sin(0.7 (i + 1) + 0.3 t) at step t, counted from 0:
tests/nn/optim/torch_steps_test.cc does the same. The second parameter is in a group of its own.
"""

import unittest.mock

import torch

STEPS = 20

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
    ("rmsprop", torch.optim.RMSprop, dict(lr=0.02, alpha=0.9, eps=1e-6, weight_decay=0.05), (4,)),
    ("rmsprop_centered", torch.optim.RMSprop,
     dict(lr=0.02, weight_decay=0.05, momentum=0.8, centered=True, maximize=True), (4,)),
    ("adagrad", torch.optim.Adagrad, dict(lr=0.1, lr_decay=0.02, weight_decay=0.05), (4,)),
    ("adagrad_start", torch.optim.Adagrad,
     dict(lr=0.1, weight_decay=0.05, initial_accumulator_value=0.3, eps=1e-3, maximize=True), (4,)),
    ("adadelta", torch.optim.Adadelta, dict(lr=2.0, rho=0.8, eps=1e-4, weight_decay=0.05), (4,)),
    ("adamax", torch.optim.Adamax, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.05), (4,)),
    ("nadam", torch.optim.NAdam,
     dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.05, momentum_decay=0.1), (4,)),
    ("nadam_decoupled", torch.optim.NAdam,
     dict(lr=0.02, weight_decay=0.3, decoupled_weight_decay=True, maximize=True), (4,)),
    ("radam", torch.optim.RAdam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.05), (4,)),
    ("radam_decoupled", torch.optim.RAdam,
     dict(lr=0.02, weight_decay=0.3, decoupled_weight_decay=True, maximize=True), (4,)),
    ("adafactor", torch.optim.Adafactor, dict(lr=0.3, weight_decay=0.1), (4,)),
    ("adafactor_eps", torch.optim.Adafactor,
     dict(lr=0.2, beta2_decay=-0.5, eps=(0.3, 2.0), d=1.5, maximize=True), (2, 2, 2)),
]


def start(shape):
    count = torch.Size(shape).numel()
    return torch.nn.Parameter(torch.cos(1 + torch.arange(count, dtype=torch.float64)).reshape(shape))


def gradient(parameter, step):
    place = torch.arange(parameter.numel(), dtype=torch.float64) + 1
    return torch.sin(0.7 * place + 0.3 * step).reshape(parameter.shape)


def run(make, options, second_shape):
    # Muon orthogonalises in bf16, which keeps two digits; in f64 the rest can be compared too.
    with unittest.mock.patch.object(torch, "bfloat16", torch.float64):
        return parameters_after(make, options, second_shape)


def parameters_after(make, options, second_shape):
    parameters = [start((3, 2)), start(second_shape)]
    second = dict(params=[parameters[1]], lr=options["lr"] / 2, weight_decay=0)
    optimizer = make([dict(params=[parameters[0]]), second], **options)
    for step in range(STEPS):
        for parameter in parameters:
            parameter.grad = gradient(parameter, step)
        optimizer.step()
    return [x for parameter in parameters for x in parameter.detach().reshape(-1).tolist()]


def text_of(cases):
    lines = ["// Parameters after 20 steps of PyTorch's optimizers. tests/reference/make_values.py writes this file.",
             "#pragma once\n\n#include <vector>\n\nnamespace tessera::testing::torch {\n"]
    for name, make, options, second_shape in cases:
        lines.append(f"inline const std::vector<double> {name} = {{")
        lines.append(",\n".join(f"{x!r}" for x in run(make, options, second_shape)) + "};")
    lines.append("\n}  // namespace tessera::testing::torch\n")
    return "\n".join(lines)
