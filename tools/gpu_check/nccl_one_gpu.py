#!/usr/bin/env python3
"""An experiment: can several ranks of NCCL share one GPU?

NCCL rejects two ranks on one GPU of one host. Here each rank is a process that claims a host of its own (NCCL_HOSTID), and
they communicate over the loopback interface. Calls libnccl and libcudart directly, nothing of Tessera.

    nccl_one_gpu.py [RANKS]               prints the outcome: works, refused: why, or wrong: why
    nccl_one_gpu.py RANK RANKS FOLDER     one rank; prints one line of JSON
"""

import array
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

COUNT = 1 << 20  # numbers that are summed
FLOAT32, SUM = 7, 0  # of ncclDataType_t, ncclRedOp_t
TO_DEVICE, TO_HOST = 1, 2  # of cudaMemcpyKind


class Refused(Exception):
    """A call that the library, the driver or the machine rejected."""


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def load(name):
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise Refused(str(error)) from error


class Libraries:
    """The calls of one rank; each throws Refused with the library's message."""

    def __init__(self):
        self._cuda, self._nccl = load("libcudart.so.13"), load("libnccl.so.2")
        for function in (self._cuda.cudaGetErrorString, self._nccl.ncclGetErrorString, self._nccl.ncclGetLastError):
            function.restype = ctypes.c_char_p

    def cuda(self, name, *arguments):
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise Refused(f"{name}: {self._cuda.cudaGetErrorString(code).decode()}")

    def nccl(self, name, *arguments):
        code = getattr(self._nccl, name)(*arguments)
        if code:
            last = (self._nccl.ncclGetLastError(None) or b"").decode().strip()
            raise Refused(f"{name}: {self._nccl.ncclGetErrorString(code).decode()}{': ' if last else ''}{last}")


def shared_id(libraries, rank, folder):
    """Created by rank 0, read by the others."""
    made, path = UniqueId(), os.path.join(folder, "id")
    if rank == 0:
        libraries.nccl("ncclGetUniqueId", ctypes.byref(made))
        with open(path + ".new", "wb") as file:
            file.write(bytes(made))
        os.rename(path + ".new", path)
        return made
    deadline = time.time() + 30
    while not os.path.exists(path):
        if time.time() > deadline:
            raise Refused("rank 0 gave no id")
        time.sleep(0.02)
    with open(path, "rb") as file:
        return UniqueId.from_buffer_copy(file.read())


def run_rank(rank, ranks, folder):
    """Sums one buffer over all ranks; returns the error in the sum, or an empty text."""
    libraries = Libraries()
    libraries.cuda("cudaSetDevice", 0)
    communicator, data = ctypes.c_void_p(), ctypes.c_void_p()
    libraries.nccl("ncclCommInitRank", ctypes.byref(communicator), ranks, shared_id(libraries, rank, folder), rank)
    host = array.array("f", [rank + 1.0]) * COUNT
    address, size = ctypes.c_void_p(host.buffer_info()[0]), ctypes.c_size_t(4 * COUNT)
    libraries.cuda("cudaMalloc", ctypes.byref(data), size)
    libraries.cuda("cudaMemcpy", data, address, size, TO_DEVICE)
    libraries.nccl("ncclAllReduce", data, data, ctypes.c_size_t(COUNT), FLOAT32, SUM, communicator, None)
    libraries.cuda("cudaDeviceSynchronize")
    libraries.cuda("cudaMemcpy", address, data, size, TO_HOST)
    libraries.nccl("ncclCommDestroy", communicator)
    expected = ranks * (ranks + 1) / 2
    wrong = sum(value != expected for value in host)
    return f"{wrong} of {COUNT} sums are not {expected}" if wrong else ""


def rank_main(rank, ranks, folder):
    try:
        answer = {"wrong": run_rank(rank, ranks, folder)}
    except Refused as error:
        answer = {"refused": str(error)}
    print(json.dumps(answer), flush=True)
    os._exit(0)  # NCCL's own cleanup could wait for ranks that have exited


def answer_of(process, seconds):
    """The last line that a rank printed."""
    try:
        text, _ = process.communicate(timeout=max(0.1, seconds))
    except subprocess.TimeoutExpired:
        return {"refused": "it did not end in time"}
    for line in reversed(text.splitlines()):
        try:
            return json.loads(line)
        except ValueError:
            continue
    return {"refused": f"exit status {process.returncode}: {text[-300:]}"}


def outcome_of(answers):
    """works, refused: why, or wrong: why; from the first rank with a message."""
    for what in ("refused", "wrong"):
        for rank, answer in enumerate(answers):
            if answer.get(what):
                return f"{what}: rank {rank}: {answer[what]}"
    return "works"


def experiment(ranks, environment, seconds=60):
    """Runs the ranks, each as a process; returns the outcome as text."""
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            settings = {"NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
            command = [sys.executable, os.path.abspath(__file__), str(rank), str(ranks), folder]
            processes.append(subprocess.Popen(command, env=dict(environment, **settings), stdout=subprocess.PIPE,
                                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True))
        end = time.time() + seconds
        try:
            return outcome_of([answer_of(process, end - time.time()) for process in processes])
        finally:
            for process in processes:
                process.kill()
                process.wait()


if __name__ == "__main__":
    if len(sys.argv) == 4:
        rank_main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        print(experiment(int(sys.argv[1]) if len(sys.argv) > 1 else 2, os.environ))
