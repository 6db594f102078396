#!/usr/bin/env python3
"""Training steps compared with PyTorch's on the same GPU: tools/bench/bench_gpu_train beside its PyTorch counterparts.

    tools/bench/bench_gpu_train_torch.py [--program bazel-bin/tools/bench/bench_gpu_train] [--rows REGEX] [--modes eager,compiled,fsdp2]

PyTorch's models have the same sizes, f32 masters and bf16 autocast (fsdp2: bf16 by its mixed precision), scaled dot product
attention, a fused AdamW and gradients clipped to 1; the loss is read at each step, as in ours. Each row is run in turns: ours, then
PyTorch, each in a process of its own, because two models would not fit. A line of JSON has the median step of both, and
`ratio`, above 1 where ours is faster. Without PyTorch or a GPU it prints "skipped".
"""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import time

from torch_models import MODELS, begin_as_ours

GOALS = {"eager": 1.2, "compiled": 1.0}


def sharded(torch, model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29512")
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def measure(row, mode, warmup, steps, profile):
    """In the process of a twin: prints one line of JSON."""
    import torch  # pylint: disable=import-outside-toplevel
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = MODELS[row["model"]](torch)(row)
        begin_as_ours(torch, model, row["layers"])
        make = lambda: torch.randint(0, row["vocab_size"], (row["batch"], row["length"]))
        tokens, targets = make(), make()
    if mode == "fsdp2":
        model = sharded(torch, model)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1, fused=True)
    if mode == "compiled":
        model = torch.compile(model)
    autocast = contextlib.nullcontext if mode == "fsdp2" else lambda: torch.autocast("cuda", torch.bfloat16)

    def step():
        with autocast():
            logits = model(tokens)
            loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))
        del logits
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for _ in range(warmup):
        loss = step()
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    if profile:
        from torch.profiler import ProfilerActivity, profile as profiled
        with profiled(activities=[ProfilerActivity.CUDA]) as found:
            step()
            torch.cuda.synchronize()
        print(found.key_averages().table(sort_by="cuda_time_total", row_limit=40, max_name_column_width=90), file=sys.stderr)
    print(json.dumps({"torch": torch.__version__, "step_ms": statistics.median(times), "loss": loss,
                      "peak_gib": torch.cuda.max_memory_allocated() / 2 ** 30}), flush=True)
    os._exit(0)  # the process group's shutdown is not of interest


def lines_of(command, environment):
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return found if done.returncode == 0 else None


def goal_of(mode):
    return {"goal": GOALS[mode]} if mode in GOALS else {}


def compare(args, row, ours_environment):
    ours = [args.program, "--only", row["row"], "--warmup", str(args.warmup), "--steps", str(args.steps)]
    first = lines_of(ours, ours_environment)
    for mode in args.modes.split(","):
        what = {"bench": "train_torch", "row": row["row"], "mode": mode}
        twin = [sys.executable, os.path.abspath(__file__), "--twin", json.dumps(row), "--modes", mode, "--warmup", str(args.warmup),
                "--steps", str(args.steps)] + (["--profile"] if args.profile else [])
        theirs = lines_of(twin, dict(os.environ))
        if not first or not theirs:
            print(json.dumps(dict(what, failed="ours" if not first else "PyTorch")), flush=True)
            continue
        mine = first[0]["step_ms"]
        print(json.dumps(dict(what, step_ms=mine, torch_ms=round(theirs[0]["step_ms"], 3), peak_gib=first[0]["peak_gib"],
                              torch_peak_gib=round(theirs[0]["peak_gib"], 2), loss=first[0]["loss"],
                              torch_loss=round(theirs[0]["loss"], 4), torch=theirs[0]["torch"],
                              ratio=round(theirs[0]["step_ms"] / mine, 3), **goal_of(mode))), flush=True)
    if first:
        print(json.dumps(first[0]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--program", default=os.path.join(here, "bench_gpu_train"))
    parser.add_argument("--rows", default="^gpt2-124m$|^gpt2-1.5b$|-2048x8$", help="names, a regular expression")
    parser.add_argument("--modes", default="eager,compiled", help="of eager, compiled and fsdp2")
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--profile", action="store_true", help="prints PyTorch's kernels of one step to standard error")
    parser.add_argument("--twin", help="a row as JSON: runs PyTorch's model in this process; for this script's own use")
    args = parser.parse_args()
    unknown = set(args.modes.split(",")) - {"eager", "compiled", "fsdp2"}
    if unknown:
        parser.error(f"no mode is called {', '.join(sorted(unknown))}")
    if args.twin:
        measure(json.loads(args.twin), args.modes, args.warmup, args.steps, args.profile)
        return
    if importlib.util.find_spec("torch") is None:
        print("skipped: no PyTorch")
        return
    import torch  # pylint: disable=import-outside-toplevel
    if not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        return
    # run.py sets this path to Tessera's libraries; PyTorch finds its own.
    environment = dict(os.environ, LD_LIBRARY_PATH=os.environ.get("TESSERA_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH", "")))
    for row in lines_of([args.program, "--table"], environment):
        if re.search(args.rows, row["row"]):
            compare(args, row, environment)


if __name__ == "__main__":
    main()
