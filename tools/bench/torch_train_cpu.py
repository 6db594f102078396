#!/usr/bin/env python3
"""The PyTorch side of compare_pytorch: limits of its matrix products, and training steps on request. For the use of that script.

    torch_train_cpu.py limits [--smoke]
    torch_train_cpu.py train ROW [--mode eager|compiled|fsdp2] [--way WAY]

`train` builds the model of ROW (torch_models.py; also dtype, batch and ranks), prints a line of JSON when it is ready, and then, for each
line "SECONDS" on its standard input, trains one step that warms up and as many as last about that long, and prints their times.
In f32 everything is f32. For bf16 there are two ways: autocast, and a model whose parameters are bf16. Without --way each is tried,
and the faster one stays. The same holds for AdamW: foreach or fused. Gradients are clipped to 1, and the loss is read at each
step, as in ours. With fsdp2, ranks are processes in the environment of torchrun; rank 0 reads the requests.
"""

import argparse
import contextlib
import json
import math
import os
import sys
import time

import torch

from torch_models import MODELS, begin_as_ours

# A step that takes longer needs no other one to warm up, and is not repeated to choose between ways.
LONG_STEP = 4.0


def seconds_of(body):
    begin = time.perf_counter()
    body()
    return time.perf_counter() - begin


def limits(smoke):
    for dtype in (torch.float32, torch.bfloat16):
        for n in [8] if smoke else [384, 512, 768, 1000, 1024, 1536, 2048]:
            a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
            if not smoke and dtype == torch.bfloat16 and n > 1000:
                continue  # takes seconds where the CPU cannot multiply bf16
            best = min(seconds_of(lambda: torch.matmul(a, b)) for _ in range(1 if smoke else 5))
            figure = None if smoke else round(2e-9 * n ** 3 / best, 2)
            print(json.dumps({"limit": f"product {n}", "dtype": "f32" if dtype == torch.float32 else "bf16",
                              "threads": torch.get_num_threads(), "gflops": figure}), flush=True)


def sharded(model, row):
    """The model with its blocks and itself as groups of FSDP2."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if row["dtype"] == "bf16" else MixedPrecisionPolicy()
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (row["ranks"],))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


class Training:
    """A model, its optimizer and its data."""

    def __init__(self, row, mode, way):
        torch.manual_seed(1)
        self.way = way
        model = MODELS[row["model"]](torch)(row)
        begin_as_ours(torch, model, row["layers"])
        self.elements = sum(each.numel() for each in model.parameters())
        if way == "bf16 parameters":
            model = model.to(torch.bfloat16)
        if mode == "fsdp2":
            model = sharded(model, row)
        self.parameters = list(model.parameters())
        self.optimizer = self.faster_optimizer()
        self.rows = row["batch"] // row["ranks"]
        self.text = torch.randint(0, row["vocab_size"], (64 * self.rows, row["length"] + 1))
        self.steps = 0

        def loss_of(tokens, targets):
            logits = model(tokens)
            return torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))
        self.loss_of = torch.compile(loss_of) if mode == "compiled" else loss_of
        self.context = (lambda: torch.autocast("cpu", torch.bfloat16)) if way == "autocast" else contextlib.nullcontext

    def make_optimizer(self, **implementation):
        matrices = [each for each in self.parameters if each.dim() > 1]
        others = [each for each in self.parameters if each.dim() <= 1]
        return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                 lr=1e-4, betas=(0.9, 0.95), **implementation)

    def faster_optimizer(self):
        """Fused or foreach: what updates these parameters faster."""
        times = {}
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        for name in ("fused", "foreach"):
            optimizer = self.make_optimizer(**{name: True})
            optimizer.step()
            times[name] = min(seconds_of(optimizer.step) for _ in range(3))
            optimizer.zero_grad(set_to_none=True)
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
        self.optimizer_name = self.agreed(min(times, key=times.get))
        optimizer = self.make_optimizer(**{self.optimizer_name: True})
        optimizer.zero_grad(set_to_none=True)
        return optimizer

    @staticmethod
    def agreed(name):
        """That of rank 0."""
        if not torch.distributed.is_initialized():
            return name
        names = [name]
        torch.distributed.broadcast_object_list(names, src=0)
        return names[0]

    def step(self):
        first = self.steps % 64 * self.rows
        batch = self.text[first:first + self.rows]
        self.steps += 1
        with self.context():
            loss = self.loss_of(batch[:, :-1], batch[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def warm(self):
        """Seconds of a step after the first ones."""
        spent = seconds_of(self.step)
        return spent if spent > 5 * LONG_STEP else min(seconds_of(self.step) for _ in range(2))


def faster_training(row, mode, way):
    ways = [way] if way else ["autocast", "bf16 parameters"] if row["dtype"] == "bf16" else ["f32"]
    if mode == "fsdp2":
        ways = ["f32" if row["dtype"] == "f32" else "bf16 by FSDP2's mixed precision"]
    best, least = None, math.inf
    for each in ways:
        training = Training(row, mode, each)
        spent = training.warm()
        if spent < least:
            best, least = training, spent
    return best, least


def peak_rss_kib():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def serve(training, last):
    """Runs the turns that rank 0 reads; `last` is the time of a step."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    while True:
        steps = 0
        if rank == 0:
            line = sys.stdin.readline().strip()
            steps = max(1, round(float(line) / last)) if line else 0
        if torch.distributed.is_initialized():
            shared = torch.tensor([steps])
            torch.distributed.broadcast(shared, 0)
            steps = int(shared)
        if steps == 0:
            return
        if last < LONG_STEP:
            training.step()
        times = [seconds_of(training.step) for _ in range(steps)]
        last = sum(times) / steps
        if rank == 0:
            print(json.dumps({"step_ms": [round(1e3 * each, 3) for each in times], "peak_rss_mib": peak_rss_kib() // 1024}), flush=True)


def train(row, mode, way):
    if mode == "fsdp2":
        torch.distributed.init_process_group("gloo")
    training, spent = faster_training(row, mode, way)
    if mode != "fsdp2" or torch.distributed.get_rank() == 0:
        print(json.dumps({"ready": True, "parameters": training.elements, "way": training.way, "optimizer": training.optimizer_name,
                          "threads": torch.get_num_threads(), "first_ms": round(1e3 * spent, 3)}), flush=True)
    serve(training, spent)
    os._exit(0)  # the process group's shutdown is not of interest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["limits", "train"])
    parser.add_argument("row", nargs="?", help="JSON")
    parser.add_argument("--mode", choices=["eager", "compiled", "fsdp2"], default="eager")
    parser.add_argument("--way", default="")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.what == "limits":
        limits(args.smoke)
    else:
        train(json.loads(args.row), args.mode, args.way)


if __name__ == "__main__":
    main()
