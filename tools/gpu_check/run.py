#!/usr/bin/env python3
"""Runs Tessera's GPU tests and benchmarks on this machine, and writes one result file.

    tar xf bundle.tar.xz && gpu_check/run.py [--out results.json] [--parts kernels,ops,...] [--only REGEX] [--again]
                                             [--seconds S] [--timeout S] [--worlds 1,2,...]

Needs a driver, the CUDA libraries (a toolkit, or Python's nvidia-* packages) and Python 3, nothing else. What has a result in
the file already is not run again, so a run may be cut into parts. Each test case is passed, failed, or skipped with a
reason; without a GPU all that need one are skipped. Exit status 1: something failed, now or before; 3: nothing did, but
time was up before all had run; 0: all chosen has run, and nothing failed.
"""

import argparse
import functools
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from typing import Callable

from machine import HERE, bundle_id, child_environment, environment, gpu_count, machine, sanitizer_program
from nccl_one_gpu import experiment

PARTS = ["libraries", "kernels", "ops", "nn", "models", "distributed", "fsdp", "nccl", "bench", "sanitizer"]
PART_OF = {"gpu": "kernels", "tensor": "ops", "autograd": "ops", "program": "models"}  # by folder; else its name
SANITIZERS = ["memcheck", "racecheck", "initcheck"]
# The tests that start each of our kernels: against their CPU twins; fills, copies, sleeps and their graphs; collectives.
SANITIZED = re.compile(r"tests\.gpu\.(\w+_kernels?_test|(core|graph|nccl_graph)_gpu_test|local_collectives_gpus?_test_\w+)")
FOUND_ERRORS = 99  # exit status of a sanitizer
TOO_LONG = 124


@dataclass
class Row:
    """One result of the file: of a test, a benchmark, a test under a sanitizer, or an experiment."""
    name: str
    part: str
    run: Callable  # of the seconds that it may take


class TooLong(Exception):
    """A program did not end in time."""


# ---- running ----------------------------------------------------------------------------------------------------------


def run(command, variables, limit, folder):
    """Exit status, output."""
    log = os.path.join(folder, "log")
    with open(log, "wb") as file:
        process = subprocess.Popen(command, cwd=HERE, env=variables, stdout=file, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = TOO_LONG
        if status == TOO_LONG:
            os.killpg(process.pid, 9)
            process.wait()
    with open(log, encoding="utf-8", errors="replace") as file:
        return status, file.read()


def of_bundle(settings):
    """The environment of a program that was linked here."""
    return environment(settings, [f"{HERE}/programs"])


def one_case(result, reason="", log=""):
    return {"cases": [{"name": "", "result": result, "reason": reason}], "log": log[-6000:]}


def cases_of(report, log):
    """[{name, result, reason}] from a test's JUnit report, or None if it left none."""
    said = re.findall(r"^SKIPPED: (.*)$", log, re.MULTILINE)
    try:
        found = list(xml.parse(report).iter("testcase"))
    except (OSError, xml.ParseError):
        found = []
    if not found:
        return one_case("skipped", said[0])["cases"] if said else None
    cases = []
    for case in found:
        result, reason = "passed", ""
        if case.find("skipped") is not None:
            result, reason = "skipped", case.find("skipped").get("message")
        elif case.find("failure") is not None or case.find("error") is not None:
            result = "failed"
        cases.append({"name": case.get("name"), "result": result, "reason": reason})
    return cases


def part_of(test):
    if test["gpus"] > 1 or test["transport"] == "nccl":
        return "nccl"
    folder = test["name"].split(".")[1]
    return "libraries" if test["gpus"] == 0 else PART_OF.get(folder, folder)


def worlds_left_out(test, worlds):
    """A case for the worlds of NCCL that have more ranks than there are GPUs: the program passes over them."""
    many = [world for world in worlds.split(",") if int(world) > gpu_count()]
    if test["transport"] != "nccl" or gpu_count() < test["gpus"] or not many:
        return []
    reason = f"NCCL needs a GPU for each rank, found {gpu_count()}"
    return [{"name": f"worlds of {', '.join(many)} ranks", "result": "skipped", "reason": reason}]


def run_test(test, worlds, limit, tool=()):
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.xml"
        settings = dict(test["settings"], **{
            "TESSERA_TEST_GPUS": str(test["gpus"]),
            "TESSERA_TEST_DEVICE": test["device"],
            "TESSERA_TEST_TRANSPORT": test["transport"],
            "TESSERA_TEST_WORLDS": worlds,
            "TESSERA_PROGRAM": f"{HERE}/tools/tessera",
            "TEST_TMPDIR": folder,
            "XML_OUTPUT_FILE": report,
        })
        if part_of(test) == "nccl":
            settings["CUDA_MODULE_LOADING"] = "EAGER"  # loading a kernel may wait for another thread's collective
        status, log = run([*tool, f"{HERE}/programs/{test['program']}"], of_bundle(settings), limit, folder)
        cases = cases_of(report, log)
    if status == TOO_LONG:
        raise TooLong
    if cases is None:
        return one_case("failed", f"left no report, exit status {status}", log)
    if status != 0 and all(case["result"] != "failed" for case in cases):
        cases.append(one_case("failed", f"exit status {status}")["cases"][0])
    failed = any(case["result"] == "failed" for case in cases)
    return {"cases": cases + worlds_left_out(test, worlds), "log": log[-6000:] if failed else ""}


def is_sanitized(tool, test):
    """On several GPUs memcheck alone: the other tools would judge NCCL's own kernels too."""
    return SANITIZED.fullmatch(test["name"]) and (tool == "memcheck" or part_of(test) != "nccl")


def run_sanitizer(tool, test, limit):
    """A test of kernels under compute-sanitizer: failed where that finds something."""
    program = sanitizer_program()
    if program is None:
        return one_case("skipped", "compute-sanitizer is not on this machine; it comes with a CUDA toolkit")
    if gpu_count() == 0:
        return one_case("skipped", "needs 1 GPU, found 0")
    # Errors that calls of the runtime return are the tests' own business: they provoke some.
    command = [program, "--tool", tool, "--error-exitcode", str(FOUND_ERRORS), "--report-api-errors", "no"]
    return run_test(test, "2", limit, command)


def run_benchmark(path, limit):
    command, variables = [path], of_bundle({})
    if path.endswith(".py"):  # it needs its own libraries, and ours for the programs of Tessera that it starts
        command = [sys.executable, path]
        variables = child_environment(TESSERA_LIBRARY_PATH=variables["LD_LIBRARY_PATH"])
    with tempfile.TemporaryDirectory() as folder:
        status, log = run(command, variables, limit, folder)
    if status == TOO_LONG:
        raise TooLong
    figures = []
    for line in log.splitlines():
        try:
            figures.append(json.loads(line))
        except ValueError:
            continue
    skipped = re.search(r"skipped: (.*)", log, re.IGNORECASE)
    if status != 0:
        return one_case("failed", f"exit status {status}", log)
    if skipped and not figures:
        return one_case("skipped", skipped.group(1), log)
    return dict(one_case("passed", "", log), figures=figures)


def run_nccl_one_gpu(ranks, limit):
    """Not a test of Tessera: whether NCCL can be brought to it is what one wants to know."""
    if gpu_count() == 0:
        return one_case("skipped", "needs 1 GPU, found 0")
    outcome = experiment(ranks, environment({}), min(limit, 60))
    result = {"works": "passed", "refused": "skipped", "wrong": "failed"}[outcome.partition(":")[0]]
    return dict(one_case(result, "" if result == "passed" else outcome), outcome=outcome)


# ---- rows -------------------------------------------------------------------------------------------------------------


def all_rows(worlds):
    with open(f"{HERE}/tests.json", encoding="utf-8") as file:
        tests = json.load(file)
    rows = [Row(test["name"], part_of(test), functools.partial(run_test, test, worlds)) for test in tests]
    for ranks in (2, 4):
        rows.append(Row(f"nccl_one_gpu.{ranks}_ranks", "nccl", functools.partial(run_nccl_one_gpu, ranks)))
    for path in sorted(glob.glob(f"{HERE}/benchmarks/bench_*")):
        rows.append(Row(os.path.basename(path), "bench", functools.partial(run_benchmark, path)))
    for tool in SANITIZERS:
        for test in tests:
            if is_sanitized(tool, test):
                rows.append(Row(f"{tool}.{test['name']}", "sanitizer", functools.partial(run_sanitizer, tool, test)))
    return sorted(rows, key=lambda row: PARTS.index(row.part))


def result_of(row, seconds_left, args, is_first):
    """What a row gives; None where time is up, which the next call tries again."""
    begin = time.time()
    limit = min(args.timeout, seconds_left)
    try:
        found = row.run(limit)
    except TooLong:
        if limit < args.timeout and not is_first:
            return None
        found = one_case("failed", f"ran longer than {limit:.0f} s")
    return dict({"name": row.name, "part": row.part, "seconds": round(time.time() - begin, 2)}, **found)


class Results:
    """The result file. It is written after each row, so nothing is lost."""

    def __init__(self, path):
        self._path = path
        self.content = {"bundle": bundle_id(), "machine": machine(), "results": []}
        if os.path.exists(path):
            here = self.content
            with open(path, encoding="utf-8") as file:
                self.content = json.load(file)
            if self.content["bundle"] != here["bundle"]:
                sys.exit(f"run.py: {path} is of another bundle; give another --out")
            if any(self.content["machine"][what] != here["machine"][what] for what in ("gpus", "names")):
                sys.exit(f"run.py: {path} is of other GPUs; give another --out")

    def has(self, name):
        return any(result["name"] == name for result in self.content["results"])

    def add(self, result):
        kept = [other for other in self.content["results"] if other["name"] != result["name"]]
        self.content["results"] = kept + [dict(result, date=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))]
        self.write([])

    def counts(self):
        cases = [case["result"] for result in self.content["results"] for case in result["cases"]]
        return {what: cases.count(what) for what in ("passed", "failed", "skipped")}

    def write(self, left):
        with open(self._path + ".new", "w", encoding="utf-8") as file:
            json.dump(dict(self.content, **self.counts(), left=left), file, indent=1)
        os.replace(self._path + ".new", self._path)


def show(result):
    cases = [case["result"] for case in result["cases"]]
    print(f"{result['name']}: {cases.count('passed')} passed, {cases.count('failed')} failed, {cases.count('skipped')} skipped, "
          f"{result['seconds']} s", flush=True)
    for case in result["cases"]:
        if case["result"] == "failed":
            print(f"  FAILED {case['name']} {case['reason']}", flush=True)


def parsed_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results.json")
    parser.add_argument("--parts", default=",".join(PARTS), help="of these: %(default)s")
    parser.add_argument("--only", default="", help="names of rows to run, a regular expression")
    parser.add_argument("--again", action="store_true", help="also what has a result already")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all together; call it again for the rest")
    parser.add_argument("--timeout", type=float, default=300, help="of one program, in seconds")
    parser.add_argument("--worlds", default="1,2,3,4,5,6,7,8", help="world sizes of tests on several ranks")
    args = parser.parse_args()
    unknown = set(args.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return args


def main():
    args = parsed_arguments()
    end = time.time() + args.seconds
    results = Results(os.path.abspath(args.out))
    chosen = [row for row in all_rows(args.worlds) if row.part in args.parts.split(",") and re.search(args.only, row.name)
              and (args.again or not results.has(row.name))]
    left = [row.name for row in chosen]
    for row in chosen:
        if time.time() >= end:
            break
        result = result_of(row, end - time.time(), args, is_first=row is chosen[0])
        if result is None:
            break
        show(result)
        left.remove(row.name)
        results.add(result)
    results.write(left)
    counts = results.counts()
    print(", ".join(f"{count} {what}" for what, count in counts.items()) + f", {len(left)} left: {args.out}")
    return 1 if counts["failed"] else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
