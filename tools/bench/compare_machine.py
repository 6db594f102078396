"""Shared by compare_pytorch: this machine, and the environments of both sides."""

import contextlib
import ctypes
import datetime
import json
import os
import re
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# MKL asks this function of its own whether it may use its fast kernels.
UNLOCKED_MKL = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
# What decides how fast each dtype is.
FLAGS = ["avx2", "avx512f", "avx512_bf16", "amx_bf16"]


def cpu_facts():
    """vendor, model and flags of the first CPU."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    facts = dict(re.findall(r"^(vendor_id|model name|cpu family|model|flags)\s*: (.*)$", text.partition("\n\n")[0], re.MULTILINE))
    flags = [flag for flag in FLAGS if flag in facts.get("flags", "").split()]
    return {"vendor": facts.get("vendor_id", "?"), "cpu": facts.get("model name", "?").strip(),
            "family": facts.get("cpu family", "?"), "model": facts.get("model", "?"), "flags": flags}


def keep_to_cores(count):
    """Lets this process and its children use so many cores, or all if there are fewer. Returns them."""
    cores = sorted(os.sched_getaffinity(0))[:count]
    os.sched_setaffinity(0, cores)
    return cores


def load_average():
    return round(os.getloadavg()[0], 2)


class Peer:
    """The Python that has PyTorch, and its environment; `why` says why it is left out, if it is."""

    def __init__(self, python, folder, is_amd):
        self.python = python
        self.unlocked = {}
        self.facts = {}
        self.why = ""
        code = ("import json, torch; print(json.dumps({'version': torch.__version__, 'mkl': torch.backends.mkl.is_available(), "
                "'capability': torch.backends.cpu.get_cpu_capability()}))")
        done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            self.why = f"{python} has no PyTorch ({(done.stderr.strip().splitlines() or ['?'])[-1]})"
            return
        self.facts = json.loads(done.stdout.splitlines()[-1])
        if is_amd and self.facts["mkl"]:
            self.unlocked = {"LD_PRELOAD": compiled_unlocker(folder)}

    def environment(self, threads, installed=False):
        """Of a process with so many threads; `installed`: as PyTorch is installed."""
        return dict(os.environ, OMP_NUM_THREADS=str(threads), **({} if installed else self.unlocked))


def compiled_unlocker(folder):
    """A library that makes MKL use its fast kernels on AMD's CPUs as well, when it is preloaded."""
    source, library = os.path.join(folder, "unlocked_mkl.c"), os.path.join(folder, "unlocked_mkl.so")
    with open(source, "w", encoding="ascii") as file:
        file.write(UNLOCKED_MKL)
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", source, "-o", library], check=True)
    return library


def end_with_parent():
    """For a child process before its program starts: it is killed when this script is, also while it is stopped."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def busy_processes(count):
    """So many processes that compute all the time, on the cores of this process."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=end_with_parent) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def our_environment(threads):
    # run.py sets this path to Tessera's libraries; PyTorch finds its own.
    path = os.environ.get("TESSERA_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH", ""))
    return dict(os.environ, OMP_NUM_THREADS=str(threads), LD_LIBRARY_PATH=path)


def json_lines(command, environment):
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def measured_limits(programs, peer, thread_counts, smoke):
    """The lines of bench_limits, and PyTorch's products, as installed too if that differs."""
    small = ["--smoke"] if smoke else []
    for threads in thread_counts:
        for line in json_lines([programs.limits] + small, our_environment(threads)):
            yield dict(line, side="tessera")
        for installed in [] if peer.why else [False, True] if peer.unlocked else [False]:
            command = [peer.python, os.path.join(HERE, "torch_train_cpu.py"), "limits"] + small
            for line in json_lines(command, peer.environment(threads, installed)):
                yield dict(line, side="pytorch as installed" if installed else "pytorch")


def versions(programs, peer):
    commit = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True, check=False).stdout.strip()
    printed = subprocess.run([programs.tessera, "train", "gpt", "--print-config"], stdout=subprocess.PIPE, text=True, check=True).stdout
    config = json.loads(printed)
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "tessera": config["tessera"], "commit": commit, "instruction_set": config["instruction_set"],
            "pytorch": peer.facts.get("version"), "pytorch_capability": peer.facts.get("capability"),
            "mkl_unlocked": bool(peer.unlocked)}
