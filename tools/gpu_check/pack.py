#!/usr/bin/env python3
"""Makes the bundle of tools/gpu_check: an archive that unpacks to one folder with everything to run.

    pack.py OUT.tar.xz TESTS --scripts FILE... --programs FILE... --data FILE... --benchmarks FILE...

TESTS is JSON: a list of {name, program, gpus, device, transport, settings}. The bundle includes the shared objects that the
programs need, except CUDA's and the C and C++ runtime, which every Linux has.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile

FOLDER = "gpu_check"
# Present on the other machine: the C runtime, and the CUDA libraries for its driver.
NOT_TAKEN = re.compile(r"^(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv|cuda|cudart|cublas|cublasLt|cudnn.*|nccl|nvrtc.*|nvJitLink)\.so.*)")


def needed_libraries(path):
    """name -> path of the shared objects that the loader finds for the program."""
    text = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", text, re.MULTILINE))
    return {name: where for name, where in found.items() if not NOT_TAKEN.match(name)}


def is_program(path):
    """An ELF file: a program, also one among the data, or a shared object."""
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def data_place(path):
    """The path of a runfile for a program that runs in the bundle's folder."""
    return re.sub(r"^bazel-out/[^/]+/bin/", "", path)


def add_text(archive, name, text):
    info = tarfile.TarInfo(f"{FOLDER}/{name}")
    data = text.encode()
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def plain(info):
    """The same files give the same archive."""
    info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
    info.mode = 0o755
    return info


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("tests")
    parser.add_argument("--scripts", nargs="*", default=[])
    parser.add_argument("--programs", nargs="*", default=[])
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--benchmarks", nargs="*", default=[])
    args = parser.parse_args()

    taken = {}  # name in the bundle -> path
    for path in args.programs:
        if not NOT_TAKEN.match(os.path.basename(path)):
            taken[f"programs/{os.path.basename(path)}"] = path
    for path in args.benchmarks:
        if not path.endswith((".runfiles", ".so")):
            taken[f"benchmarks/{os.path.basename(path)}"] = path
    for path in args.data:
        if not re.search(r"\.so(\.\d+)*$", path):
            taken.setdefault(data_place(path), path)
    for path in filter(is_program, list(taken.values())):
        for name, where in needed_libraries(path).items():
            taken.setdefault(f"programs/{name}", os.path.realpath(where))

    tests = json.loads(args.tests)
    for test in tests:
        if f"programs/{test['program']}" not in taken:
            sys.exit(f"pack.py: the test {test['name']} has no program")
    for path in args.scripts:
        taken[os.path.basename(path)] = path
    with tarfile.open(args.out, "w:xz", preset=2) as archive:
        for name, path in sorted(taken.items()):  # in Bazel's sandbox each path is a link
            archive.add(os.path.realpath(path), f"{FOLDER}/{name}", filter=plain)
        add_text(archive, "tests.json", json.dumps(tests, indent=1) + "\n")


if __name__ == "__main__":
    main()
