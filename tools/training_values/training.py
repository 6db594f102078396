"""How a case of make_training_values.py is made: a model with state from formulas, trained for 20 steps in f64.

All initial values are products of whole numbers and powers of two, so that f32, f64, Python and C++ begin with the same
bits. tests/support/training_reference.h reads the files, and repeats `numbers`.
"""

import copy
import json
import math
import os

import torch

STEPS = 20
FULL = 15  # tensors of more elements are written as a digest
SAMPLES = 4
STATE_SEED = 1  # of the first parameter; each further one has the next, then buffers
INPUT_SEED = 1000
STEP_SEED = 101  # added to an input's seed for each step: every step sees another batch
DOT_SEED = 7
LEVELS = 4096


def levels(count, seed):
    """`count` pseudo-random whole numbers in [0, LEVELS)."""
    out = []
    for i in range(count):
        x = (i * 2654435761 + seed * 2246822519 + 374761393) & 0xFFFFFFFF
        x ^= x >> 15
        x = (x * 2654435761) & 0xFFFFFFFF
        x ^= x >> 13
        out.append(x >> 20)
    return out


def numbers(count, seed, offset=0.0, scale=1.0):
    """In [offset - scale, offset + scale); exact in f32 if offset and scale are small powers of two."""
    return [offset + scale * (level - LEVELS // 2) / (LEVELS // 2) for level in levels(count, seed)]


def tensor_of(spec, seed, dtype):
    count = math.prod(spec["shape"])
    if "values" in spec:
        kind = {"bool": torch.bool, "float": dtype}[spec["dtype"]]
        return torch.tensor(spec["values"]).to(kind).reshape(spec["shape"])
    if "integers" in spec:
        return torch.tensor([level % spec["integers"] for level in levels(count, seed)]).reshape(spec["shape"])
    made = numbers(count, seed, spec["offset"], spec["scale"])
    return torch.tensor(made, dtype=torch.float64).to(dtype).reshape(spec["shape"])


# ---- what a case gives ------------------------------------------------------------------------------------------------


def real(name, *shape, offset=0.0, scale=1.0, gradient=True):
    """An input of floating-point numbers; with `gradient` its gradient is compared too."""
    return {"name": name, "shape": list(shape), "offset": offset, "scale": scale, "gradient": gradient}


def target(*shape, offset=0.0, scale=1.0):
    return real("target", *shape, offset=offset, scale=scale, gradient=False)


def whole(name, *shape, below):
    """An input of whole numbers in [0, below)."""
    return {"name": name, "shape": list(shape), "integers": below}


def fixed(name, tensor):
    """The same numbers, a bool or floating-point mask, in every step."""
    values = tensor.reshape(-1).tolist()
    kind = "bool" if tensor.dtype == torch.bool else "float"
    return {"name": name, "shape": list(tensor.shape), "dtype": kind,
            "values": [int(v) if kind == "bool" else v for v in values]}


def mean_square(output, inputs):
    return ((output - inputs["target"]) ** 2).mean()


def of_x(loss=mean_square):
    """A step that calls the model with x and compares with the target."""

    def step(model, inputs):
        output = model(inputs["x"])
        return output, loss(output, inputs)

    return step


SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}


def sgd(model):
    """The optimizer of all cases that do not test optimizers. Returns the function of a step."""
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], **SGD).step


# ---- the state to start from ------------------------------------------------------------------------------------------


def power_below(x):
    return 2.0 ** math.floor(math.log2(x))


def state_spec(name, tensor):
    """Ranges in which training is stable: weights around +-1/sqrt(fan in), scales of norms around 1."""
    spec = {"name": name, "shape": list(tensor.shape)}
    last = name.rsplit(".", 1)[-1]
    if not tensor.dtype.is_floating_point:
        return {**spec, "integers": 3}
    if last == "running_var":
        return {**spec, "offset": 1.5, "scale": 0.5}
    if tensor.dim() <= 1:
        return {**spec, "offset": 1.0 if last == "weight" else 0.0, "scale": 0.5 if last == "weight" else 0.25}
    fan_in = tensor.numel() // tensor.shape[0]
    return {**spec, "offset": 0.0, "scale": power_below(1.5 / math.sqrt(fan_in))}


def named_state(model):
    return list(model.named_parameters()) + list(model.named_buffers())


def set_state(model, specs):
    for i, (spec, (_, tensor)) in enumerate(zip(specs, named_state(model))):
        with torch.no_grad():
            tensor.copy_(tensor_of(spec, STATE_SEED + i, torch.float64))


# ---- the run ----------------------------------------------------------------------------------------------------------


def inputs_of_step(specs, step, dtype):
    out = {}
    for i, spec in enumerate(specs):
        x = tensor_of(spec, INPUT_SEED + i + STEP_SEED * step, dtype)
        out[spec["name"]] = x.requires_grad_() if spec.get("gradient") else x
    return out


def digest(tensor):
    """All elements of a small tensor; for a large one its dot product with fixed numbers, its sum of squares, and samples."""
    if tensor is None:
        return None
    flat = tensor.detach().double().reshape(-1)
    if len(flat) <= FULL:
        return flat.tolist()
    weights = torch.tensor(numbers(len(flat), DOT_SEED), dtype=torch.float64)
    samples = [float(flat[(2 * j + 1) * len(flat) // (2 * SAMPLES)]) for j in range(SAMPLES)]
    return [float(flat @ weights), float(flat @ flat), *samples]


def with_shape(tensor):
    return {"shape": list(tensor.shape), "numbers": digest(tensor)}


def run(model, step, specs, make_optimizer, dtype):
    """The recorded values, gradients in the order of inputs and parameters."""
    update = make_optimizer(model)
    record = {"losses": []}
    for i in range(STEPS):
        inputs = inputs_of_step(specs, i, dtype)
        model.zero_grad()
        output, loss = step(model, inputs)
        loss.backward()
        if i == 0:
            record["output"] = with_shape(output)
            record["input_gradients"] = [digest(x.grad) for x in inputs.values()]
            record["gradients"] = [digest(p.grad) for p in model.parameters()]
        record["losses"].append(loss.item())
        update()
    record["final"] = [digest(tensor) for _, tensor in named_state(model)]
    model.eval()
    with torch.no_grad():
        record["evaluated"] = with_shape(step(model, inputs_of_step(specs, STEPS, dtype))[0])
    return record


def deviation(a, b):
    """The largest |a - b| / max(1, |b|) of two records."""
    if isinstance(b, dict):
        return max((deviation(a[k], b[k]) for k in b), default=0.0)
    if isinstance(b, list):
        return max((deviation(x, y) for x, y in zip(a, b)), default=0.0)
    return 0.0 if b is None else abs(a - b) / max(1.0, abs(b))


def check_useful(name, before, after, record):
    """A case must change its parameters, and f32 must be able to follow it."""
    moved = max((a - b).abs().max().item() for a, b in zip(after, before))
    assert all(math.isfinite(x) for x in record["losses"]), name
    assert 5e-3 < moved < 10, f"{name}: parameters moved by {moved}"
    return moved


def case(name, make, step, inputs, optimizer=sgd):
    """make() returns a PyTorch model; step(model, inputs by name) its output and its loss; optimizer(model) the function
    that runs after each backward.
    """
    model = make().double()
    state = [state_spec(n, t) for n, t in named_state(model)]
    set_state(model, state)
    single = copy.deepcopy(model).float()
    before = [p.detach().clone() for p in model.parameters()]
    record = run(model, step, inputs, optimizer, torch.float64)
    moved = check_useful(name, before, list(model.parameters()), record)
    of_f32 = deviation(run(single, step, inputs, optimizer, torch.float32), record)
    losses = record["losses"]
    print(f"  {name}: losses {losses[0]:.3g} to {losses[-1]:.3g}, moved {moved:.2g}, PyTorch in f32 is off by {of_f32:.1e}")
    assert of_f32 < 5e-5, name
    for spec, final in zip(state, record.pop("final")):
        spec["final"] = final
    for spec, gradient in zip(state, record.pop("gradients")):
        spec["gradient"] = gradient
    inputs = [dict(spec) for spec in inputs]
    for spec, gradient in zip(inputs, record.pop("input_gradients")):
        spec["gradient"] = gradient
    return {"name": name, "sgd": SGD if optimizer is sgd else None, **record, "inputs": inputs, "state": state}


# ---- files ------------------------------------------------------------------------------------------------------------


def shortened(value):
    """Twelve digits are enough for a comparison at 1e-9."""
    if isinstance(value, dict):
        return {k: shortened(v) for k, v in value.items()}
    if isinstance(value, list):
        return [shortened(v) for v in value]
    if isinstance(value, float):
        short = float(f"{value:.12g}")
        return int(short) if short == int(short) and abs(short) < 1e6 else short
    return value


def write(folder, name, cases):
    path = os.path.join(folder, name + ".json")
    lines = [json.dumps(shortened(c), separators=(",", ":"), allow_nan=False) for c in cases]
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")
    size = os.path.getsize(path)
    assert size < 60_000, f"{path} has {size} bytes"
    print(f"{path}: {len(cases)} cases, {size} bytes")
