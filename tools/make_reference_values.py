#!/usr/bin/env python3
"""Writes tests/tensor/reference/*.json: results of PyTorch for operations of neural networks.

    python3 tools/make_reference_values.py [FOLDER]

Needs PyTorch (CPU, 2.4 or newer); tests read the files and need neither it nor this script. All in f64, with small odd
shapes. A file is a list of cases: a name, options, and tensors by name; "d<name>" is the gradient of tensor <name> for the
output gradient "dy". tests/support/reference.h reads them.
"""

import json
import math
import os
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def values(shape, low=-2.0, high=2.0, seed=0.1):
    """Pseudo-random numbers in [low, high) with three decimals, the same on every machine."""
    count = math.prod(shape)
    steps = [(seed + 0.7548776662466927 * (i + 1)) % 1.0 for i in range(count)]
    return torch.tensor([round(low + (high - low) * s, 3) for s in steps]).reshape(shape)


def as_json(tensor):
    kinds = {torch.float64: "f64", torch.int64: "i64", torch.bool: "bool"}
    return {
        "dtype": kinds[tensor.dtype],
        "shape": list(tensor.shape),
        # Ten digits are enough for a comparison.
        "values": [float(f"{x:.10g}") if tensor.dtype == torch.float64 else int(x)
                   for x in tensor.detach().reshape(-1).tolist()],
    }


def case(name, options, tensors):
    return {"name": name, "options": options, "tensors": {k: as_json(v) for k, v in tensors.items() if v is not None}}


def derived(name, function, inputs, constants=None, options=None):
    """A case of function(**inputs, **constants) with its gradients for every input that is not None."""
    constants = constants or {}
    leaves = {k: v.clone().requires_grad_() for k, v in inputs.items() if v is not None}
    absent = {k: None for k, v in inputs.items() if v is None}
    y = function(**leaves, **absent, **constants)
    dy = values(tuple(y.shape), seed=0.37)
    gradients = torch.autograd.grad(y, list(leaves.values()), dy, allow_unused=True)
    tensors = dict(inputs, **{k: v for k, v in constants.items() if isinstance(v, torch.Tensor)})
    tensors.update(y=y, dy=dy)
    tensors.update({"d" + k: g for k, g in zip(leaves, gradients)})
    return case(name, options or {}, tensors)


# ---- softmax and losses -----------------------------------------------------------------------------------------------


def softmax_cases():
    cases = []
    for shape in [(5,), (3, 4), (2, 3, 5)]:
        for dim in range(len(shape)):
            x = {"x": values(shape, -3, 3)}
            for name, function in [("softmax", F.softmax), ("log_softmax", F.log_softmax)]:
                cases.append(
                    derived(f"{name}{list(shape)} over dim {dim}", lambda x: function(x, dim), x,
                            options={"function": name, "dim": dim}))
    return cases


def cross_entropy_cases():
    cases = []
    logits = values((5, 4), -3, 3)
    weight = values((4,), 0.2, 2.0, seed=0.6)
    all_count = torch.tensor([2, 0, 3, 3, 1])
    some_ignored = torch.tensor([2, -100, 3, -100, 1])
    all_ignored = torch.full((5,), -100)
    for targets, kept in [(all_count, "all count"), (some_ignored, "some ignored"), (all_ignored, "all ignored")]:
        for w in [None, weight]:
            for smoothing in [0.0, 0.1, 1.0]:
                for reduction in ["none", "mean", "sum"]:
                    if kept == "all ignored" and reduction == "mean":
                        continue  # NaN, which JSON cannot represent
                    options = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": -100}
                    cases.append(
                        derived(f"{kept}, weight {w is not None}, smoothing {smoothing}, {reduction}",
                                lambda logits, targets, weight: F.cross_entropy(
                                    logits, targets, weight, ignore_index=-100, reduction=reduction,
                                    label_smoothing=smoothing),
                                {"logits": logits}, {"targets": targets, "weight": w}, options))
    return cases


# ---- normalisation ----------------------------------------------------------------------------------------------------


def affine(shape, wanted):
    weight = values(shape, 0.3, 1.7, seed=0.5) if wanted else None
    bias = values(shape, -1, 1, seed=0.8) if wanted else None
    return {"weight": weight, "bias": bias}


def row_norm_cases():
    cases = []
    for shape, dims in [((3, 5), 1), ((2, 3, 4), 1), ((2, 3, 4), 2), ((7,), 1)]:
        for wanted in [False, True]:
            normalized = shape[-dims:]
            inputs = {"x": values(shape, -1, 4), **affine(normalized, wanted)}
            options = {"dims": dims, "eps": 1e-3}
            cases.append(
                derived(f"layer_norm{list(shape)} dims {dims}, affine {wanted}",
                        lambda x, weight, bias: F.layer_norm(x, normalized, weight, bias, 1e-3), inputs,
                        options=dict(options, function="layer_norm")))
            inputs.pop("bias")
            cases.append(
                derived(f"rms_norm{list(shape)} dims {dims}, weight {wanted}",
                        lambda x, weight: F.rms_norm(x, normalized, weight, 1e-3), inputs,
                        options=dict(options, function="rms_norm")))
    return cases


def group_norm_cases():
    cases = []
    for shape, groups in [((3, 4), 2), ((2, 6, 3), 3), ((2, 6, 3, 2), 1), ((2, 3, 5), 3)]:
        for wanted in [False, True]:
            inputs = {"x": values(shape, -1, 4), **affine((shape[1],), wanted)}
            cases.append(
                derived(f"group_norm{list(shape)} groups {groups}, affine {wanted}",
                        lambda x, weight, bias: F.group_norm(x, groups, weight, bias, 1e-3), inputs,
                        options={"function": "group_norm", "groups": groups, "eps": 1e-3}))
    return cases


def batch_norm_cases():
    cases = []
    for shape in [(5, 3), (3, 2, 4), (2, 3, 3, 2)]:
        for training in [False, True]:
            for wanted in [False, True]:
                channels = (shape[1],)
                mean, variance = values(channels, -1, 1, 0.2), values(channels, 0.5, 2, 0.9)
                new_mean, new_variance = mean.clone(), variance.clone()
                made = derived(
                    f"batch_norm{list(shape)} training {training}, affine {wanted}",
                    lambda x, weight, bias: F.batch_norm(x, new_mean, new_variance, weight, bias, training, 0.2, 1e-3),
                    {"x": values(shape, -1, 4), **affine(channels, wanted)},
                    options={"function": "batch_norm", "training": training, "momentum": 0.2, "eps": 1e-3})
                for name, tensor in [("running_mean", mean), ("running_var", variance),
                                     ("new_running_mean", new_mean), ("new_running_var", new_variance)]:
                    made["tensors"][name] = as_json(tensor)
                cases.append(made)
    return cases


def norm_cases():
    return row_norm_cases() + group_norm_cases() + batch_norm_cases()


# ---- rotary embedding -------------------------------------------------------------------------------------------------


def rotary(x, cos, sin, interleaved):
    """x [..., time, heads, dim]; cos and sin [time, dim / 2]; a pair is a complex number."""
    cos, sin = cos[:, None, :], sin[:, None, :]
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    turned = torch.complex(a, b) * torch.complex(cos, sin).expand(a.shape)
    if interleaved:
        return torch.stack([turned.real, turned.imag], -1).flatten(-2)
    return torch.cat([turned.real, turned.imag], -1)


def rotary_cases():
    cases = []
    for dim, base, offset in [(4, 10000.0, 0), (6, 500.0, 3)]:
        frequency = torch.tensor([base**(-2.0 * i / dim) for i in range(dim // 2)])
        angle = torch.arange(offset, offset + (3 if offset else 5))[:, None] * frequency[None, :]
        for interleaved in [False, True]:
            cases.append(
                derived(f"rotary dim {dim}, base {base}, offset {offset}, interleaved {interleaved}",
                        lambda x, cos, sin: rotary(x, cos, sin, interleaved), {"x": values((2, 3, 3, dim) if offset else (5, 1, dim))},
                        {"cos": angle.cos(), "sin": angle.sin()},
                        {"base": base, "offset": offset, "interleaved": interleaved}))
    return cases


# ---- optimizers -------------------------------------------------------------------------------------------------------

STEPS = 5


def optimizer_case(name, make, options):
    parameter = values((3, 3)).requires_grad_()
    tensors = {"parameter": parameter.detach().clone()}
    optimizer = make([parameter])
    for step in range(STEPS):
        parameter.grad = values((3, 3), -1, 1, seed=0.3 + 0.11 * step)
        tensors[f"gradient{step}"] = parameter.grad.clone()
        optimizer.step()
        tensors[f"parameter{step}"] = parameter.detach().clone()
    return case(name, options, tensors)


def optimizer_cases():
    cases = []
    sgd = {"lr": 0.1, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False, "maximize": False}
    for change in [{}, {"weight_decay": 0.05}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.3},
                   {"momentum": 0.9, "nesterov": True, "weight_decay": 0.05},
                   {"momentum": 0.9, "weight_decay": 0.05, "maximize": True}]:
        options = dict(sgd, **change)
        cases.append(
            optimizer_case(f"sgd {change}", lambda p: torch.optim.SGD(p, **options), dict(options, function="sgd")))
    adam = {"lr": 0.02, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.0, "amsgrad": False,
            "maximize": False}
    for kind, name in [(torch.optim.Adam, "adam"), (torch.optim.AdamW, "adamw")]:
        for change in [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "amsgrad": True, "beta2": 0.6},
                       {"weight_decay": 0.1, "maximize": True}]:
            options = dict(adam, **change)
            arguments = dict(options, betas=(options["beta1"], options["beta2"]))
            arguments.pop("beta1"), arguments.pop("beta2")
            cases.append(
                optimizer_case(f"{name} {change}", lambda p: kind(p, **arguments), dict(options, function=name)))
    return cases


# ---- attention --------------------------------------------------------------------------------------------------------


def attention(query, key, value, mask, causal, scale):
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, scale=scale)


def attention_cases():
    """query [batch, heads, queries, dim], key and value [batch, key heads, keys, dim or value dim]."""
    cases = []
    for batch, heads, key_heads in [(2, 1, 1), (1, 4, 2), (1, 3, 1)]:
        for causal, mask_kind, scale, queries, keys in [(False, None, None, 3, 5), (True, None, None, 4, 4),
                                                        (True, None, 0.7, 3, 5), (False, "bool", None, 3, 5),
                                                        (False, "float", None, 3, 5)]:
            mask = None
            if mask_kind == "bool":
                mask = values((queries, keys), -1, 2, 0.45) > 0
                mask[:, 0] = True  # every row has a key
            elif mask_kind == "float":
                mask = values((heads, 1, keys), -1, 1, 0.45)
            inputs = {"query": values((batch, heads, queries, 4), -2, 2), "key": values((batch, key_heads, keys, 4), -2, 2, 0.4),
                      "value": values((batch, key_heads, keys, 4), -2, 2, 0.7)}
            cases.append(
                derived(f"batch {batch}, heads {heads} of {key_heads}, causal {causal}, mask {mask_kind}, scale {scale}",
                        lambda query, key, value, mask: attention(query, key, value, mask, causal, scale), inputs,
                        {"mask": mask}, {"causal": causal, "scale": scale or 0.5}))  # 0.5 = 1 / sqrt(4)
    return cases


# ---- convolution and pooling ------------------------------------------------------------------------------------------


def conv_cases():
    cases = []
    for dims, function in [(1, F.conv1d), (2, F.conv2d)]:
        size = (7,) if dims == 1 else (5, 6)
        kernel = (3,) if dims == 1 else (3, 2)
        for groups, stride, padding, dilation, with_bias in [(1, 1, 0, 1, True), (1, 2, 1, 1, True), (2, 1, 1, 2, False),
                                                             (2, 2, 2, 1, True), (4, 1, 1, 1, False)]:
            inputs = {"x": values((2, 4) + size), "weight": values((4, 4 // groups) + kernel, -1, 1, 0.6),
                      "bias": values((4,), -1, 1, 0.9) if with_bias else None}
            options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
            cases.append(
                derived(f"conv{dims}d {options}",
                        lambda x, weight, bias: function(x, weight, bias, stride, padding, dilation, groups), inputs,
                        options=dict(options, function=f"conv{dims}d")))
    # Distinct numbers in each pair.
    options = {"stride": [2, 1], "padding": [0, 2], "dilation": [1, 2], "groups": 1}
    inputs = {"x": values((1, 3, 6, 5)), "weight": values((2, 3, 2, 3), -1, 1, 0.6), "bias": values((2,), -1, 1, 0.9)}
    cases.append(
        derived(f"conv2d {options}",
                lambda x, weight, bias: F.conv2d(x, weight, bias, (2, 1), (0, 2), (1, 2)), inputs,
                options=dict(options, function="conv2d")))
    return cases


def pool_cases():
    cases = []
    for dims in [1, 2]:
        x = {"x": values((2, 2, 7) if dims == 1 else (1, 2, 5, 6))}
        max_pool, avg_pool = (F.max_pool1d, F.avg_pool1d) if dims == 1 else (F.max_pool2d, F.avg_pool2d)
        for kernel, stride, padding, dilation, ceil in [(2, 2, 0, 1, False), (3, 2, 1, 1, False), (3, 1, 1, 2, False),
                                                        (3, 2, 0, 1, True), (2, 3, 1, 1, True)]:
            options = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil}
            cases.append(
                derived(f"max_pool{dims}d {options}",
                        lambda x: max_pool(x, kernel, stride, padding, dilation, ceil_mode=ceil), x,
                        options=dict(options, function=f"max_pool{dims}d")))
            for include in [False, True] if dilation == 1 else []:
                options = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil,
                           "count_include_pad": include}
                cases.append(
                    derived(f"avg_pool{dims}d {options}",
                            lambda x: avg_pool(x, kernel, stride, padding, ceil, include), x,
                            options=dict(options, function=f"avg_pool{dims}d")))
        for output in ([1], [3], [7], [9]) if dims == 1 else ([1, 1], [2, 3], [3, 4], [5, 7]):
            for kind in ["max", "avg"]:
                function = getattr(F, f"adaptive_{kind}_pool{dims}d")
                cases.append(
                    derived(f"adaptive_{kind}_pool{dims}d to {output}", lambda x: function(x, output), x,
                            options={"function": f"adaptive_{kind}_pool{dims}d", "output": output}))
    return cases


def write(folder, name, cases):
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":"), allow_nan=False) for c in cases) + "\n]\n")
    print(f"{path}: {len(cases)} cases, {os.path.getsize(path)} bytes")


def main(arguments):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = arguments[0] if arguments else os.path.join(here, "tests", "tensor", "reference")
    os.makedirs(folder, exist_ok=True)
    print(f"PyTorch {torch.__version__}")
    for name, make in [("softmax", softmax_cases), ("cross_entropy", cross_entropy_cases), ("norm", norm_cases),
                       ("rotary", rotary_cases), ("optimizer", optimizer_cases), ("attention", attention_cases),
                       ("conv", conv_cases), ("pool", pool_cases)]:
        write(folder, name, make())


if __name__ == "__main__":
    main(sys.argv[1:])
