#!/usr/bin/env python3
"""The bundle unpacks to less than its limit and runs: each test has a result, and a skipped one a reason."""

import json
import os
import subprocess
import sys
import tarfile
import tempfile

LIMIT = 60 << 20


def main():
    bundle = sys.argv[1]
    size = os.path.getsize(bundle)
    assert size <= LIMIT, f"the bundle has {size} bytes, more than {LIMIT}"
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(bundle) as archive:
            archive.extractall(folder)
        root = f"{folder}/gpu_check"
        with open(f"{root}/tests.json", encoding="utf-8") as file:
            tests = json.load(file)
        out = f"{folder}/results.json"
        run = subprocess.run([f"{root}/run.py", "--out", out, "--timeout", "60"], capture_output=True, text=True, check=False)
        print(run.stdout[-4000:], run.stderr[-2000:])
        with open(out, encoding="utf-8") as file:
            results = json.load(file)
    assert run.returncode == 0, f"run.py ended with {run.returncode}"
    assert len(tests) > 0 and len(results["tests"]) == len(tests)
    for result in results["tests"] + results["benchmarks"]:
        for case in result.get("cases", [result]):
            assert case["result"] != "failed", result
            assert case["result"] != "skipped" or case["reason"], result
    if not results["machine"]["gpus"]:
        ran = [result["test"] for result in results["tests"] if any(case["result"] == "passed" for case in result["cases"])]
        assert not ran, f"passed without a GPU: {ran}"
    print(f"{size / (1 << 20):.1f} MiB, {len(tests)} tests")


if __name__ == "__main__":
    main()
