"""Shared by compare_pytorch: training steps of `tessera train` and of PyTorch, in turns."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from compare_machine import HERE, end_with_parent, json_lines, load_average, our_environment

VOCABULARY = 257  # of `--tokenizer bytes`
WAIT_SECONDS = 1200
WARM_STEPS = 3


@dataclass
class Model:
    """Sizes of a model, in the order of the options of `tessera train`."""
    name: str
    family: str
    layers: int
    dim: int
    heads: int
    length: int
    batch: int

    def parameters(self):
        block = {"gpt": 13, "transformer": 9}[self.family]
        return (VOCABULARY + self.length + 2) * self.dim + self.layers * (12 * self.dim ** 2 + block * self.dim)

    def operations_per_token(self):
        """As tools/program/flops.h counts them: 6 for each weight of a product, and attention with half of the pairs."""
        weights = VOCABULARY * self.dim + self.layers * 12 * self.dim ** 2
        return 6 * weights + 6 * self.layers * self.dim * self.length


MODELS = [Model("transformer small", "transformer", 4, 192, 6, 256, 16), Model("gpt 25M", "gpt", 8, 512, 8, 256, 4)]
SMOKE_MODELS = [Model("transformer smoke", "transformer", 1, 16, 2, 8, 4), Model("gpt smoke", "gpt", 1, 16, 2, 8, 4)]


def write_text(path, size):
    """Words of random letters: what a byte means does not matter to the time of a step."""
    chance = random.Random(1)
    with open(path, "w", encoding="ascii") as file:
        while file.tell() < size:
            file.write("".join(chance.choices("abcdefghijklmnopqrstuvwxyz      \n", k=10000)))


def children_of(process):
    """The process ids of a process and of all its descendants."""
    found, queue = [], [process]
    while queue:
        each = queue.pop()
        found.append(each)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{task}/children", encoding="ascii") as file:
                    queue += [int(child) for child in file.read().split()]
    return found


def state_of(process):
    """A letter of proc(5): T is stopped; X if it has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(") ")[2][0]
    except OSError:
        return "X"


def peak_rss_mib(processes):
    """The sum over processes of the most memory that each had."""
    total = 0
    for each in processes:
        with contextlib.suppress(OSError):
            with open(f"/proc/{each}/status", encoding="utf-8") as file:
                total += int((re.search(r"VmHWM:\s*(\d+)", file.read()) or [0, 0])[1])
    return total // 1024


class Ours:
    """`tessera train`, stopped except in its turns; begin() comes before the first one."""

    def __init__(self, program, folder, text, model, dtype, ranks, threads):
        self.out = os.path.join(folder, f"run{time.monotonic_ns()}")
        self.log = self.out + ".log"
        sizes = ["--layers", model.layers, "--dim", model.dim, "--heads", model.heads, "--seq-len", model.length, "--batch", model.batch]
        command = [program, "train", model.family, "--data", text, "--tokenizer", "bytes", "--dropout", 0, "--precision", dtype, "--ranks", ranks,
                   "--steps", 10 ** 7, "--save-every", 0, "--sample-tokens", 0, "--timeout", 10 ** 5, "--tensorboard", "off",
                   "--out", self.out, *sizes]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(each) for each in command], env=our_environment(threads), stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=end_with_parent)
        self.seen = 0

    def begin(self, model):
        """Waits for the first steps."""
        self._wait_for(lambda rows: len(rows) > WARM_STEPS)
        self._stop()
        self.seen = len(self._rows())
        with open(self.log, encoding="utf-8") as log:
            parameters = int(re.search(r"([\d,]+) parameters", log.read())[1].replace(",", ""))
        if parameters != model.parameters():
            sys.exit(f"{model.name} has {parameters} parameters in Tessera, not {model.parameters()}")

    def _stop(self):
        os.killpg(self.process.pid, signal.SIGSTOP)
        while any(state_of(each) not in "TZX" for each in children_of(self.process.pid)):
            time.sleep(0.001)

    def _rows(self):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.out, "metrics.jsonl"), encoding="ascii") as file:
            return file.read().split("\n")[:-1]
        return []

    def _wait_for(self, enough):
        """Waits until the metrics after those seen are enough; returns how many there are."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            rows = self._rows()
            if enough(rows[self.seen:]):
                return len(rows)
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(self.log, encoding="utf-8") as log:
                    sys.exit(f"tessera train ended, or made no step in {WAIT_SECONDS} s:\n{log.read()[-2000:]}")
            time.sleep(0.005)

    def turn(self, seconds):
        """Milliseconds of the steps of a turn. The first one, which began before, is left out."""
        def times(rows):
            return [json.loads(row)["step_ms"] for row in rows[1:]]
        os.killpg(self.process.pid, signal.SIGCONT)
        begin = self.seen
        end = self._wait_for(lambda rows: len(rows) > 1 and sum(times(rows)) >= 900 * seconds)
        self._stop()
        measured = times(self._rows()[begin:end])
        self.seen = len(self._rows())
        return measured

    def facts(self):
        return {"peak_rss_mib": peak_rss_mib(children_of(self.process.pid))}

    def close(self):
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Theirs:
    """PyTorch's counterpart, which waits except in its turns."""

    def __init__(self, peer, folder, model, dtype, ranks, threads, mode, way="", installed=False):
        row = {"model": model.family, "layers": model.layers, "dim": model.dim, "heads": model.heads, "length": model.length,
               "batch": model.batch, "vocab_size": VOCABULARY, "dtype": dtype, "ranks": ranks}
        command = [peer.python, os.path.join(HERE, "torch_train_cpu.py"), "train", json.dumps(row), "--mode", mode, "--way", way]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.processes = []
        self.log = os.path.join(folder, f"peer{time.monotonic_ns()}.log")
        for rank in range(ranks):
            environment = dict(peer.environment(threads, installed), RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(port))
            with open(self.log if rank == 0 else os.devnull, "wb") as log:
                self.processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                                                       stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL, stderr=log,
                                                       text=True, preexec_fn=end_with_parent))

    def begin(self, model):
        """Waits until the counterpart is ready."""
        self.ready = self._read()
        if self.ready["parameters"] != model.parameters():
            sys.exit(f"{model.name} has {self.ready['parameters']} parameters in PyTorch, not {model.parameters()}")

    def _read(self):
        line = self.processes[0].stdout.readline()
        if not line:
            status = self.processes[0].wait()
            with open(self.log, encoding="utf-8", errors="replace") as log:
                last = (log.read().strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"ended with status {status}: {last}")
        return json.loads(line)

    def turn(self, seconds):
        with contextlib.suppress(BrokenPipeError):  # it has ended: reading says so
            self.processes[0].stdin.write(f"{seconds}\n")
            self.processes[0].stdin.flush()
        return self._read()["step_ms"]

    def facts(self):
        return {"peak_rss_mib": peak_rss_mib(process.pid for process in self.processes), "way": self.ready["way"],
                "optimizer": self.ready["optimizer"]}

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes[0].stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.processes[0].stdin.close()


class Products:
    """This machine's fastest product of matrices in turns of its own: what a step could reach at the time."""

    def __init__(self, program, limit, threads):
        self.command = [program, "--turn", limit["limit"].split()[1], limit["dtype"]]
        self.threads = threads
        self.operations = 2 * int(self.command[2]) ** 3

    def turn(self, seconds):
        """Milliseconds of each product."""
        line, = json_lines([*self.command, str(seconds)], our_environment(self.threads))
        return [us / 1e3 for us in line["product_us"]]


def quartiles(values):
    ordered = sorted(values)
    return [round(ordered[len(ordered) // 4], 3), round(ordered[(3 * len(ordered)) // 4], 3)]


def turns(sides, settings):
    """Steps of all sides in turns: name -> the median step of each round. At least one round."""
    medians = {name: [] for name in sides}
    begin = time.monotonic()
    for done in range(settings.pairs):
        if done > 0 and time.monotonic() - begin > settings.limit:
            break
        for name, side in sides.items():
            medians[name].append(statistics.median(side.turn(settings.turn)))
    return medians


def results(sides, medians, model, limit=None, product=None):
    """Of each side tokens per second, and its share of the fastest product (`limit`) and of that in the same round (`product`: its
    operations, and its milliseconds in each round); of PyTorch's sides also the ratio of times, and its quartiles."""
    out = {}
    operations = model.batch * model.length * model.operations_per_token()
    for name, steps in medians.items():
        tokens = 1e3 * model.batch * model.length / statistics.median(steps)
        out[name] = {"tokens_per_s": round(tokens), "step_ms": round(statistics.median(steps), 3), **sides[name].facts()}
        if limit:
            out[name]["share_of_peak"] = round(operations / statistics.median(steps) / limit["gflops"] / 1e6, 3)
        if product:
            of, times = product
            out[name]["share_of_product"] = round(statistics.median(operations / step * at / of for step, at in zip(steps, times)), 3)
        if name != "tessera":
            ratios = [theirs / mine for mine, theirs in zip(medians["tessera"], steps)]
            out[name].update(ratio=round(statistics.median(ratios), 3), quartiles=quartiles(ratios))
    return out


def peer_sides(stack, peer, settings, row, model):
    """PyTorch's sides by name. Those that cannot start are in row["failed"], with the reason."""
    sides = {}

    def start(name, mode, way="", installed=False):
        side = Theirs(peer, settings.folder, model, row["dtype"], row["ranks"], row["threads_per_rank"], mode, way, installed)
        stack.callback(side.close)
        try:
            side.begin(model)
            sides[name] = side
        except RuntimeError as error:
            row.setdefault("failed", {})[name] = str(error)
    if row["ranks"] > 1:
        start("fsdp2", "fsdp2")
        return sides
    start("eager", "eager")
    way = sides["eager"].ready["way"] if sides else ""
    if settings.installed and peer.unlocked:
        start("as installed", "eager", way, installed=True)
    if settings.compiled:
        start("compiled", "compiled", way)
    return sides


def compare(programs, peer, settings, model, dtype, ranks, limit=None):
    """One row: the sides train the same model in turns, and in turns with the fastest product, `limit`."""
    threads = max(1, settings.cores // ranks)
    row = {"model": model.name, "dtype": dtype, "ranks": ranks, "threads_per_rank": threads, "parameters": model.parameters()}
    with contextlib.ExitStack() as stack:
        ours = Ours(programs.tessera, settings.folder, settings.text, model, dtype, ranks, threads)
        stack.callback(ours.close)
        ours.begin(model)
        sides = {"tessera": ours}
        if peer.why:
            row["skipped"] = f"PyTorch: {peer.why}"
        else:
            sides.update(peer_sides(stack, peer, settings, row, model))
        products = {"product": Products(programs.limits, limit, settings.cores)} if limit else {}
        medians = turns({**sides, **products}, settings)
        product = (products["product"].operations, medians.pop("product")) if limit else None
        row["load"] = load_average()
        row["pairs"] = len(medians["tessera"])
        row["sides"] = {name: {} for name in sides} if settings.smoke else results(sides, medians, model, limit, product)
    return row
