#!/usr/bin/env python3
"""The bundle unpacks to less than its limit and runs: each test has a result, and a skipped one a reason."""

import glob
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

LIMIT = 60 << 20


def check_kernels(programs):
    """The kernels name the CUDA runtime that they call: no program has to bring it for them."""
    kernels = glob.glob(f"{programs}/libtensor_kernels_cuda*.so")
    assert kernels, f"no kernels in {os.listdir(programs)}"
    for path in kernels:
        text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
        assert any(name.startswith("libcudart.so.") for name in needed), f"{path} needs {needed}"


def main():
    bundle = sys.argv[1]
    size = os.path.getsize(bundle)
    assert size <= LIMIT, f"the bundle has {size} bytes, more than {LIMIT}"
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(bundle) as archive:
            archive.extractall(folder)
        root = f"{folder}/gpu_check"
        check_kernels(f"{root}/programs")
        with open(f"{root}/tests.json", encoding="utf-8") as file:
            tests = json.load(file)
        out = f"{folder}/results.json"
        run = subprocess.run([f"{root}/run.py", "--out", out, "--timeout", "60"], capture_output=True, text=True, check=False)
        print(run.stdout[-4000:], run.stderr[-2000:])
        with open(out, encoding="utf-8") as file:
            results = json.load(file)
    assert run.returncode == 0, f"run.py ended with {run.returncode}"
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
