"""Cases of optimizers, on one small model, and learning rates of schedules."""

import math
import unittest.mock

import torch
from torch import nn
from torch.optim import lr_scheduler

from training.cases import STEPS, case, of_x, real, target


class Lion(torch.optim.Optimizer):
    """The paper's formula; PyTorch does not have it."""

    def __init__(self, params, lr, beta1, beta2, weight_decay):
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                direction = torch.sign(group["beta1"] * m + (1 - group["beta1"]) * p.grad)
                p -= group["lr"] * (direction + group["weight_decay"] * p)
                m.mul_(group["beta2"]).add_(p.grad, alpha=1 - group["beta2"])


def small_net(bias=True):
    return nn.Sequential(nn.Linear(5, 8, bias), nn.GELU(), nn.Linear(8, 3, bias))


def optimized(name, make, bias=True):
    """make(model) returns an optimizer, or the function of a step."""

    def optimizer(model):
        made = make(model)
        return made if callable(made) else made.step

    return case(name, lambda: small_net(bias), of_x(), [real("x", 9, 5), target(9, 3)], optimizer)


def muon(**options):
    """PyTorch orthogonalises in bf16; in the parameter's dtype the formula is the same."""

    def make(model):
        optimizer = torch.optim.Muon(model.parameters(), **options)
        dtype = next(model.parameters()).dtype

        def step():
            with unittest.mock.patch.object(torch, "bfloat16", dtype):
                optimizer.step()

        return step

    return make


def clipped(clip):
    """clip(parameters) returns whether it changed a gradient; it must in some steps and not in others."""

    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5)
        changed = []

        def step():
            changed.append(clip(list(model.parameters())))
            assert len(changed) < STEPS or set(changed) == {True, False}, changed
            optimizer.step()

        return step

    return make


def clipped_by_norm(max_norm, norm_type):
    return clipped(lambda parameters: bool(nn.utils.clip_grad_norm_(parameters, max_norm, norm_type) > max_norm))


def clipped_by_value(max_value):
    def clip(parameters):
        changes = any(bool((p.grad.abs() > max_value).any()) for p in parameters)
        nn.utils.clip_grad_value_(parameters, max_value)
        return changes

    return clipped(clip)


def scheduled(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0625)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 15, 0.0625 / 16)

    def step():
        optimizer.step()
        if schedule.last_epoch < 15:
            schedule.step()

    return step


def grouped(model):
    biases = [p for p in model.parameters() if p.dim() < 2]
    weights = [p for p in model.parameters() if p.dim() >= 2]
    return torch.optim.AdamW([{"params": weights, "lr": 0.03125, "weight_decay": 0.5},
                              {"params": biases, "lr": 0.0625, "weight_decay": 0.0}])


def averaged(model):
    """At the end the model's parameters are the average."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.75))
    steps = 0

    def step():
        nonlocal steps
        optimizer.step()
        average.update_parameters(model)
        steps += 1
        if steps == STEPS:
            model.load_state_dict(average.module.state_dict())

    return step


def plain_cases():
    def of(kind, **options):
        return lambda model: kind(model.parameters(), **options)

    optim = torch.optim
    return [
        optimized("SGD", of(optim.SGD, lr=0.25)),
        optimized("SGD, nesterov, weight decay",
                  of(optim.SGD, lr=0.125, momentum=0.75, nesterov=True, weight_decay=0.125)),
        optimized("SGD, dampening", of(optim.SGD, lr=0.25, momentum=0.75, dampening=0.25)),
        optimized("SGD, maximize", of(optim.SGD, lr=0.03125, momentum=0.5, maximize=True)),
        optimized("Adam", of(optim.Adam, lr=0.03125)),
        optimized("Adam, weight decay", of(optim.Adam, lr=0.03125, betas=(0.75, 0.9375), eps=1e-4, weight_decay=0.125)),
        optimized("Adam, amsgrad", of(optim.Adam, lr=0.03125, betas=(0.75, 0.75), amsgrad=True)),
        optimized("AdamW", of(optim.AdamW, lr=0.03125, weight_decay=0.25)),
        optimized("AdamW, amsgrad", of(optim.AdamW, lr=0.03125, betas=(0.75, 0.75), weight_decay=0.25, amsgrad=True)),
        optimized("Lion", of(Lion, lr=0.0078125, beta1=0.75, beta2=0.875, weight_decay=0.25)),
        optimized("Muon", muon(lr=0.03125), bias=False),
        optimized("Muon, plain momentum, rates as AdamW's",
                  muon(lr=0.0625, weight_decay=0.25, momentum=0.75, nesterov=False, adjust_lr_fn="match_rms_adamw"),
                  bias=False),
    ]


def around_cases():
    return [
        optimized("parameter groups", grouped),
        optimized("cosine schedule", scheduled),
        optimized("clipped by norm 2", clipped_by_norm(0.25, 2.0)),
        optimized("clipped by norm 1", clipped_by_norm(1.5, 1.0)),
        optimized("clipped by norm 3", clipped_by_norm(0.1875, 3.0)),
        optimized("clipped by the largest element", clipped_by_norm(0.125, math.inf)),
        optimized("clipped by value", clipped_by_value(0.125)),
        optimized("moving average", averaged),
    ]


# ---- schedules --------------------------------------------------------------------------------------------------------


def rates(name, make):
    """The learning rate of each step, from 1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimizer)
    out = []
    for _ in range(STEPS):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return {"name": name, "rates": out}


def stopping_cosine(steps, to):
    """CosineAnnealingLR rises again after T_max; ours stays constant."""
    return lambda step: to + (1 - to) * (1 + math.cos(math.pi * min(step, steps) / steps)) / 2


def warm_up_stable_decay(warm_up, stable, decay, to, shape):
    def factor(step):
        if step < warm_up:
            return (step + 1) / warm_up
        x = min(max(step - warm_up - stable, 0) / decay, 1)
        return to + (1 - to) * shape(x)

    return factor


def schedule_cases():
    of = lr_scheduler.LambdaLR
    shapes = {"linear": lambda x: 1 - x, "cosine": lambda x: (1 + math.cos(math.pi * x)) / 2,
              "square root": lambda x: 1 - math.sqrt(x)}
    return [
        rates("constant", lambda o: lr_scheduler.ConstantLR(o, 0.25, 1000)),
        # LinearLR from 1/6 over 5 steps: 1/6, 2/6 ... 1.
        rates("warm up", lambda o: lr_scheduler.LinearLR(o, 1 / 6, 1, 5)),
        rates("linear", lambda o: lr_scheduler.LinearLR(o, 1, 0.125, 12)),
        rates("cosine", lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS, 0.125)),
        rates("cosine, then still", lambda o: of(o, stopping_cosine(11, 0.125))),
        rates("steps", lambda o: lr_scheduler.StepLR(o, 6, 0.5)),
        rates("warm up, then cosine", lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.2, 1, 4), lr_scheduler.CosineAnnealingLR(o, 15)], [5])),
        rates("product", lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.LinearLR(o, 0.25, 1, 6), lr_scheduler.StepLR(o, 5, 0.5)])),
        *[rates("warm up, stable, decay: " + name, lambda o: of(o, warm_up_stable_decay(4, 7, 6, 0.125, shape)))
          for name, shape in shapes.items()],
    ]


FILES = {"optimizer": lambda: plain_cases() + around_cases(), "schedule": schedule_cases}
