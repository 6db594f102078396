#!/usr/bin/env python3
"""The bundle unpacks to less than its limit and runs: each test has a result, and each skipped one a reason."""

import glob
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

LIMIT = 60 << 20


def dynamic_section(path):
    return subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout


def check_search_order(root):
    """LD_LIBRARY_PATH has priority over paths in the programs: tests and benchmarks find the same CUDA libraries."""
    binaries = [path for path in glob.glob(f"{root}/benchmarks/*") if not path.endswith(".py")]
    for path in [f"{root}/programs/libtessera.so", *glob.glob(f"{root}/programs/tests.*"), *binaries]:
        text = dynamic_section(path)
        assert "(RUNPATH)" in text and "(RPATH)" not in text, f"{path}:\n{text}"


def check_names(root):
    """Each kernel's name contains the sanitizers' filter: a filter that matches nothing would find no errors."""
    with open(f"{root}/rows.py", encoding="utf-8") as file:
        ours = re.search(r'^OUR_KERNELS = "kns=(\w+)"', file.read(), re.MULTILINE).group(1).encode()
    for path in glob.glob(f"{root}/programs/libtensor_kernels_cuda*.so") + [f"{root}/programs/libtessera.so"]:
        with open(path, "rb") as file:
            names = set(re.findall(rb"_Z\w*_GLOBAL__N__\w*_kernel\w*", file.read()))
        assert names and all(ours in name for name in names), f"{path}: {[name for name in names if ours not in name]}"


def check_kernels(programs):
    """The kernels name the CUDA runtime that they call, so no program has to load it for them."""
    kernels = glob.glob(f"{programs}/libtensor_kernels_cuda*.so")
    assert kernels, f"no kernels in {os.listdir(programs)}"
    for path in kernels:
        text = dynamic_section(path)
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
        assert any(name.startswith("libcudart.so.") for name in needed), f"{path} needs {needed}"


def main():
    bundle = sys.argv[1]
    size = os.path.getsize(bundle)
    assert size <= LIMIT, f"the bundle has {size} bytes, more than {LIMIT}"
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(bundle) as archive:
            links = [member.name for member in archive.getmembers() if not member.isfile()]
            assert not links, f"not files of the bundle's own: {links}"
            archive.extractall(folder)
        root = f"{folder}/gpu_check"
        check_kernels(f"{root}/programs")
        check_search_order(root)
        check_names(root)
        # Not in the build folder, with the libraries of the bundle.
        settings = dict(os.environ, LD_LIBRARY_PATH=f"{root}/programs")
        subprocess.run([f"{root}/tools/tessera", "--version"], check=True, cwd=folder, env=settings)
        with open(f"{root}/tests.json", encoding="utf-8") as file:
            tests = json.load(file)
        out = f"{folder}/results.json"
        run = subprocess.run([f"{root}/run.py", "--out", out, "--timeout", "60"], capture_output=True, text=True, check=False)
        said = f"run.py ended with {run.returncode}; it said:\n{run.stdout[-4000:]}\n{run.stderr[-2000:]}"
        assert os.path.exists(out), f"no results: {said}"
        with open(out, encoding="utf-8") as file:
            results = json.load(file)
    assert run.returncode == 0, said
    cases = {result["name"]: result["cases"] for result in results["results"]}
    assert len(tests) > 0 and all(cases.get(test["name"]) for test in tests) and not results["left"]
    for name, found in cases.items():
        for case in found:
            assert case["result"] != "failed", (name, case)
            assert case["result"] != "skipped" or case["reason"], name
    if not results["machine"]["gpus"]:
        needs_none = {test["name"] for test in tests if test["gpus"] == 0}
        ran = {name for name, found in cases.items() if any(case["result"] == "passed" for case in found)}
        assert ran == needs_none, f"passed without a GPU: {ran}, which should have been {needs_none}"
    print(f"{size / (1 << 20):.1f} MiB, {len(tests)} tests")


if __name__ == "__main__":
    main()
