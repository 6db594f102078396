#!/usr/bin/env python3
"""Operations and their backwards compared with PyTorch eager on the same GPU or CPU: tools/bench/bench_ops beside its
PyTorch counterparts.

    tools/bench/bench_ops_torch.py [--program bazel-bin/tools/bench/bench_ops] [--device cpu] [--only REGEX] [--smoke]

The rows are those of the program (`--table`); ours and PyTorch's are measured in turns, in one run. Each row is a line of
JSON: medians of both in microseconds, and `ratio`, above 1 where ours is faster. In a line with `torch_backend` PyTorch was
told which library to use, such as cuDNN for attention; it has no goal. If PyTorch cannot do it, the line has the reason as
`skipped`. Without PyTorch or the GPU it prints "skipped". On the CPU both use the threads of OMP_NUM_THREADS, or of all cores;
compare_pytorch sets it, and makes PyTorch's matrix library use its fast kernels.
--smoke runs everything once and small, without a GPU too; --check only finds the counterpart of every row, without PyTorch.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import time

from torch_twins import BACKENDS, OPS, Inputs

PAIRS = 7
MEASURED_US = {"cuda": 5000, "cpu": 20000}  # as in bench_gpu_support.h
# A row that takes longer ends before its last pair, but not before the third.
MOST_SECONDS_OF_A_ROW = 20
FEWEST_PAIRS = 3


class Twin:
    """One pass of a row in PyTorch, ready to be measured again and again; all in the contexts that `setting` gives."""

    def __init__(self, torch, device, row, direction, setting=contextlib.nullcontext, once=True):
        self.setting = setting
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        with setting():
            self._make(torch, device, row, direction)
        self.calls, self.on_cpu = 1, device == "cpu"
        if not once:
            measured = MEASURED_US[device]
            fewest = 3 if self.microseconds() < measured else 1
            self.calls = fewest
            self.calls = int(min(2000, max(fewest, measured / self.microseconds())))

    def _make(self, torch, device, row, direction):
        inputs = Inputs(torch, device, row["dtype"])
        self.body = OPS[row["op"]](inputs, *row["shape"])
        result = self.body()
        first = result[0] if isinstance(result, tuple) else result
        self.result_shape = None if first is None else list(first.shape)
        if direction == "backward":
            gradient = torch.randn_like(first)
            self.body = lambda: torch.autograd.grad(first, inputs.leaves, gradient, retain_graph=True)
            self.body()

    def warm_calls(self):
        return self.calls if self.on_cpu else 1

    def microseconds(self):
        with self.setting():
            for _ in range(self.warm_calls()):  # after the other process used the device
                self.body()
            self.wait()
            begin = time.perf_counter_ns()
            for _ in range(self.calls):
                self.body()
            self.wait()
            return (time.perf_counter_ns() - begin) / 1e3 / self.calls


class Ours:
    """The program, which measures what it is asked for."""

    def __init__(self, program, device, smoke):
        # run.py sets this path to Tessera's libraries; PyTorch finds its own.
        environment = dict(os.environ, LD_LIBRARY_PATH=os.environ.get("TESSERA_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH", "")))
        environment.pop("LD_PRELOAD", None)  # what PyTorch needs
        self.command = [program] + (["--device", "cpu"] if device == "cpu" else []) + (["--smoke"] if smoke else [])
        self.environment = environment
        self.process = None

    def table(self):
        done = subprocess.run(self.command + ["--table"], env=self.environment, stdout=subprocess.PIPE, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def measure(self, number, direction):
        """The program's row, or the reason why it measures nothing."""
        if self.process is None:
            self.process = subprocess.Popen(self.command + ["--serve"], env=self.environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True)
        try:
            self.process.stdin.write(f"{number} {direction}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and printed why
        line = self.process.stdout.readline()
        if line.startswith("skipped"):
            return line.strip()
        if not line:
            sys.exit(f"{self.command[0]} ended in row {number}, {direction}, with status {self.process.wait()}")
        return json.loads(line)

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def check(table):
    """Every row has a twin, and every twin a row. What is wrong, a line each."""
    named = {row["op"] for row in table}
    return [f"no twin of the operation {name} in PyTorch" for name in sorted(named - OPS.keys())] + \
           [f"no row of the operation {name}" for name in sorted(OPS.keys() - named)]


def compare(twin, ours, pairs, number, out):
    """One line of results: `out`, what is measured, with the figures; or the reason why ours measures nothing."""
    mine, theirs = [], []
    begin = time.monotonic()
    while len(mine) < pairs and (len(mine) < FEWEST_PAIRS or time.monotonic() - begin < MOST_SECONDS_OF_A_ROW):
        answer = ours.measure(number, out["pass"])
        if isinstance(answer, str):
            return answer
        wanted = dict(out, result=twin.result_shape)
        assert all(answer[key] == wanted[key] for key in ["op", "shape", "dtype", "pass", "result"]), (answer, wanted)
        mine.append(answer.get("us"))
        theirs.append(twin.microseconds())
    if None in mine:
        return dict(out, smoke=True)
    ratios = [b / a for a, b in zip(mine, theirs)]
    figures = dict(out, us=round(statistics.median(mine), 3), torch_us=round(statistics.median(theirs), 3),
                   pairs=len(mine), ratio=round(statistics.median(ratios), 3))
    return figures if "torch_backend" in out else dict(figures, goal=1.0)


def compare_all(torch, device, ours, pairs, number_and_row, backends=BACKENDS):
    """The lines of a row: each of its passes, and once more for each library that PyTorch is told to use."""
    number, row = number_and_row
    for direction in row["passes"]:
        out = {"bench": "ops", "op": row["op"], "shape": row["shape"], "dtype": row["dtype"], "pass": direction}
        yield compare(Twin(torch, device, row, direction, once=pairs == 1), ours, pairs, number, out)
        for name, tell in backends.get(row["op"], {}).items():
            told = dict(out, torch_backend=name)
            try:
                twin = Twin(torch, device, row, direction, functools.partial(tell, torch), pairs == 1)
            except (AttributeError, RuntimeError) as error:
                yield dict(told, skipped=f"PyTorch refuses: {error}".splitlines()[0])
                continue
            yield compare(twin, ours, pairs, number, told)


def run(torch, args, table, ours):
    device = "cuda" if args.device == "cuda" and torch.cuda.is_available() and not args.smoke else "cpu"
    if device != args.device and not args.smoke:
        print("skipped: PyTorch sees no GPU")
        return
    backends = BACKENDS if args.device == "cuda" else {}
    # As in Tessera: f32 products are computed in f32.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    for number, row in enumerate(table):
        if not re.search(args.only, row["op"]):
            continue
        for result in compare_all(torch, device, ours, 1 if args.smoke else args.pairs, (number, row), backends):
            print(result if isinstance(result, str) else json.dumps(result), flush=True)
            if isinstance(result, str):
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--program", default=f"{here}/bench_ops")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only", default="", help="operations to measure, a regular expression")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    ours = Ours(args.program, args.device, args.smoke)
    table = ours.table()
    wrong = check(table)
    if wrong:
        sys.exit("\n".join(wrong))
    if args.check:
        print(f"{len(table)} rows of {len(OPS)} operations")
        return 0
    if importlib.util.find_spec("torch") is None:
        print("skipped: no PyTorch")
        return 0
    import torch  # pylint: disable=import-outside-toplevel
    try:
        run(torch, args, table, ours)
    finally:
        ours.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
