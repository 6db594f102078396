"""The machine that a bundle runs on: its GPUs, where CUDA's libraries lie, which bundle it is."""

import ctypes
import functools
import glob
import hashlib
import os
import platform
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def library_folders():
    """Where CUDA's libraries may lie, best first."""
    patterns = ["/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu"]
    for python in sys.path:
        patterns += [f"{python}/nvidia/cu13/lib", f"{python}/nvidia/*/lib"]
    folders = [folder for pattern in patterns for folder in sorted(glob.glob(pattern))]
    wanted = ["libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"]
    return list(dict.fromkeys(f for f in folders if any(os.path.exists(f"{f}/{name}") for name in wanted)))


@functools.cache
def gpu_count():
    """The GPUs that the driver offers to a program that starts here."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def gpu_names():
    """Name, driver and memory of each, as nvidia-smi tells."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def machine():
    """What the results were found on."""
    return {"gpus": gpu_count(), "names": gpu_names(), "kernel": platform.release(), "cpus": os.cpu_count(),
            "libraries": library_folders()}


def bundle_id():
    """The same for the same programs."""
    digest = hashlib.sha256()
    entries = glob.glob(f"{HERE}/programs/*") + glob.glob(f"{HERE}/benchmarks/*")
    for path in sorted(filter(os.path.isfile, entries)):  # a script that ran may have left a __pycache__
        with open(path, "rb") as file:
            digest.update(os.path.basename(path).encode() + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:16]


def sanitizer_program():
    places = glob.glob("/usr/local/cuda*/bin/compute-sanitizer") + glob.glob("/usr/local/cuda*/compute-sanitizer/compute-sanitizer")
    return shutil.which("compute-sanitizer") or (places[0] if places else None)


def child_environment(**settings):
    """Of every program started here: it leaves no compiled Python in the bundle."""
    return dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **settings)


def environment(settings, folders=()):
    """For a program: what this one has, the settings, and where to look for libraries: in these folders first."""
    out = child_environment(**settings)
    out["LD_LIBRARY_PATH"] = ":".join(filter(None, [*folders, out.get("LD_LIBRARY_PATH", ""), *library_folders()]))
    return out
