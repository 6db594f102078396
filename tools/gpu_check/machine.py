"""The machine that a bundle runs on: its GPUs, the paths of CUDA's libraries, and the bundle's identity."""

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


# The libraries that programs load, and their dependencies: the names that are searched for in each folder.
WANTED = ["libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcudnn.so.9", "libnccl.so.2", "libnvrtc.so.13", "libcuda.so.1"]


def python_folders(pattern):
    """The folders of Python's nvidia packages."""
    return [f"{python}/nvidia/{pattern}" for python in sys.path]


def library_folders():
    """Folders that may contain CUDA's libraries, best first."""
    patterns = ["/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu",
                "/usr/lib64", "/usr/lib/wsl/lib", *python_folders("cu13/lib"), *python_folders("*/lib")]
    folders = [folder for pattern in patterns for folder in sorted(glob.glob(pattern))]
    return list(dict.fromkeys(f for f in folders if any(os.path.exists(f"{f}/{name}") for name in WANTED)))


def library_path(name):
    """The path at which a program that is started here finds the library; only its name if the system's own list has it."""
    told = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    return next((f"{folder}/{name}" for folder in [*told, *library_folders()] if os.path.exists(f"{folder}/{name}")), name)


@functools.cache
def gpu_count():
    """The GPUs that the driver offers to a program started here."""
    try:
        driver = ctypes.CDLL(library_path("libcuda.so.1"))
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def gpu_names():
    """Name, driver, memory and compute capability of each GPU, from nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def returned(library, function):
    library[function].restype = ctypes.c_size_t
    return library[function]()


def stored(library, function):
    number = ctypes.c_int(0)
    status = library[function](ctypes.byref(number))
    if status != 0:
        raise OSError(f"{function} returned {status}")
    return number.value


# library: function, how it returns its number, and the weight of major and minor version in that number.
VERSIONS = {
    "libcuda.so.1": ("cuDriverGetVersion", stored, 1000, 10),
    "libcudart.so.13": ("cudaRuntimeGetVersion", stored, 1000, 10),
    "libcublasLt.so.13": ("cublasLtGetVersion", returned, 10000, 100),
    "libcudnn.so.9": ("cudnnGetVersion", returned, 10000, 100),
    "libnccl.so.2": ("ncclGetVersion", stored, 10000, 100),
}


def versions():
    """library -> its version and path, or why it is unknown. The driver's version is that of the CUDA it supports."""
    found = {}
    for name, (function, tells, major, minor) in VERSIONS.items():
        path = library_path(name)
        try:
            number = tells(ctypes.CDLL(path), function)
        except (OSError, AttributeError) as error:
            found[name] = f"none: {error}"
            continue
        found[name] = f"{number // major}.{number % major // minor}.{number % minor} {path}"
    return found


def machine():
    """The machine and bundle that the results belong to."""
    return {"gpus": gpu_count(), "names": gpu_names(), "versions": versions(), "kernel": platform.release(),
            "cpus": os.cpu_count(), "libraries": library_folders()}


def bundle_id():
    """Identifies the bundle: equal for equal programs."""
    digest = hashlib.sha256()
    entries = glob.glob(f"{HERE}/programs/*") + glob.glob(f"{HERE}/benchmarks/*")
    for path in sorted(filter(os.path.isfile, entries)):  # a script may have left a __pycache__
        with open(path, "rb") as file:
            digest.update(os.path.basename(path).encode() + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:16]


def sanitizer_program():
    patterns = ["/usr/local/cuda*/bin/compute-sanitizer", "/usr/local/cuda*/compute-sanitizer/compute-sanitizer",
                *python_folders("*/bin/compute-sanitizer")]
    places = [place for pattern in patterns for place in glob.glob(pattern)]
    return shutil.which("compute-sanitizer") or (places[0] if places else None)


def child_environment(**settings):
    """For every program started here: keeps compiled Python out of the bundle."""
    return dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **settings)


def environment(settings, folders=()):
    """The environment of a program: this one's, the settings, and the library folders, which come first."""
    out = child_environment(**settings)
    out["LD_LIBRARY_PATH"] = ":".join(filter(None, [*folders, out.get("LD_LIBRARY_PATH", ""), *library_folders()]))
    return out
