#!/usr/bin/env python3
"""Runs Tessera's GPU tests and benchmarks on this machine, and writes one result file.

    tar xf bundle.tar.xz && gpu_check/run.py [--out results.json] [--only REGEX] [--worlds 1,2,...] [--timeout S]
                                             [--tool "compute-sanitizer --tool memcheck"] [--no-benchmarks]

Needs a driver, the CUDA libraries (a toolkit, or Python's nvidia-* packages) and Python 3, nothing else. Each test case is
passed, failed, or skipped with a reason; without a GPU all are skipped. Exit status 0 unless something failed.
"""

import argparse
import glob
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.abspath(__file__))


def library_folders():
    """Where CUDA's libraries may lie, best first."""
    patterns = ["/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu"]
    for python in sys.path:
        patterns += [f"{python}/nvidia/cu13/lib", f"{python}/nvidia/*/lib"]
    folders = [folder for pattern in patterns for folder in sorted(glob.glob(pattern))]
    wanted = ["libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"]
    return list(dict.fromkeys(f for f in folders if any(os.path.exists(f"{f}/{name}") for name in wanted)))


def machine():
    """What the results were measured on."""
    def output(command):
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            return ""
    gpus = output(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    return {
        "gpus": gpus.splitlines() if "NVIDIA-SMI has failed" not in gpus else [],
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "libraries": library_folders(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def cases_of(report, log):
    """[{name, result, reason}] from a test's JUnit report, or None if it left none."""
    said = re.findall(r"^SKIPPED: (.*)$", log, re.MULTILINE)
    try:
        found = list(xml.parse(report).iter("testcase"))
    except (OSError, xml.ParseError):
        found = []
    if not found:
        return [{"name": "", "result": "skipped", "reason": said[0]}] if said else None
    cases = []
    for case in found:
        result, reason = "passed", ""
        if case.find("skipped") is not None:
            result, reason = "skipped", case.find("skipped").get("message")
        elif case.find("failure") is not None or case.find("error") is not None:
            result = "failed"
        cases.append({"name": case.get("name"), "result": result, "reason": reason})
    return cases


def environment(settings):
    out = dict(os.environ, **settings)
    folders = [f"{HERE}/programs"] + library_folders() + [out.get("LD_LIBRARY_PATH", "")]
    out["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
    return out


def run(command, settings, timeout, folder):
    """Exit status (124: it ran too long), output, seconds."""
    begin = time.time()
    log = os.path.join(folder, "log")
    with open(log, "wb") as file:
        process = subprocess.Popen(command, cwd=HERE, env=environment(settings), stdout=file, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            status = 124
    with open(log, encoding="utf-8", errors="replace") as file:
        return status, file.read(), round(time.time() - begin, 2)


def run_test(test, args):
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.xml"
        settings = {
            "TESSERA_TEST_GPUS": str(test["gpus"]),
            "TESSERA_TEST_DEVICE": test["device"],
            "TESSERA_TEST_TRANSPORT": "local",
            "TESSERA_TEST_WORLDS": args.worlds,
            "TEST_TMPDIR": folder,
            "XML_OUTPUT_FILE": report,
        }
        command = args.tool.split() + [f"{HERE}/programs/{test['name']}"]
        status, log, seconds = run(command, settings, args.timeout, folder)
        cases = cases_of(report, log)
    if cases is None:
        reason = "ran too long" if status == 124 else f"left no report, exit status {status}"
        cases = [{"name": "", "result": "failed", "reason": reason}]
    elif status != 0 and all(case["result"] != "failed" for case in cases):
        cases.append({"name": "", "result": "failed", "reason": f"exit status {status}"})
    failed = any(case["result"] == "failed" for case in cases)
    return {"test": test["name"], "seconds": seconds, "cases": cases, "log": log[-6000:] if failed else ""}


def run_benchmark(path, args):
    with tempfile.TemporaryDirectory() as folder:
        status, log, seconds = run([path], {}, args.timeout, folder)
    figures = []
    for line in log.splitlines():
        try:
            figures.append(json.loads(line))
        except ValueError:
            continue
    skipped = re.search(r"skipped: (.*)", log, re.IGNORECASE)
    result = "failed" if status != 0 else "skipped" if skipped and not figures else "passed"
    return {"benchmark": os.path.basename(path), "seconds": seconds, "result": result,
            "reason": skipped.group(1) if result == "skipped" else "" if status == 0 else f"exit status {status}",
            "figures": figures, "log": log[-6000:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results.json")
    parser.add_argument("--only", default="", help="names of tests and benchmarks to run, a regular expression")
    parser.add_argument("--worlds", default="1,2,3,4,5,8", help="world sizes of tests on several ranks")
    parser.add_argument("--timeout", type=float, default=300, help="of one program, in seconds")
    parser.add_argument("--tool", default="", help="put before each test's command")
    parser.add_argument("--no-benchmarks", action="store_true")
    args = parser.parse_args()
    args.out = os.path.abspath(args.out)

    results = {"machine": machine(), "tests": [], "benchmarks": []}
    count = {"passed": 0, "failed": 0, "skipped": 0}

    def save():
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(dict(results, **count), file, indent=1)

    with open(f"{HERE}/tests.json", encoding="utf-8") as file:
        tests = [test for test in json.load(file) if re.search(args.only, test["name"])]
    for test in tests:
        result = run_test(test, args)
        results["tests"].append(result)
        here = {what: sum(case["result"] == what for case in result["cases"]) for what in count}
        for what in count:
            count[what] += here[what]
        print(f"{test['name']}: {here['passed']} passed, {here['failed']} failed, {here['skipped']} skipped, "
              f"{result['seconds']} s", flush=True)
        for case in result["cases"]:
            if case["result"] == "failed":
                print(f"  FAILED {case['name']} {case['reason']}", flush=True)
        save()
    benchmarks = [] if args.no_benchmarks else sorted(glob.glob(f"{HERE}/benchmarks/*"))
    for path in benchmarks:
        if not re.search(args.only, os.path.basename(path)):
            continue
        result = run_benchmark(path, args)
        results["benchmarks"].append(result)
        count[result["result"]] += 1
        print(f"{result['benchmark']}: {result['result']} {result['reason']}, {len(result['figures'])} figures", flush=True)
        save()
    save()
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped: {args.out}")
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
