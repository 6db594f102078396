"""The rows of the bundle: tests, benchmarks, tests under a sanitizer, an experiment."""

import contextlib
import functools
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from typing import Callable

from machine import HERE, child_environment, environment, gpu_count, sanitizer_program
from nccl_one_gpu import experiment

# In the order in which they run: first whether anything can run, then what counts most.
PARTS = ["preflight", "bench", "libraries", "kernels", "models", "fsdp", "ops", "nn", "distributed", "nccl", "sanitizer"]
PREFLIGHT = "tests.gpu.preflight_test"
# Benchmarks, those nearest to training first; others follow.
BENCHMARKS = ["train", "train_torch", "attention", "bandwidth", "ops_torch", "launch"]
# What measures time, which other programs on the machine would change.
ALONE = re.compile(r"bench_\w+(\.py)?|tests\.fsdp\.schedule\.overlap_test_\w+")
PART_OF = {"gpu": "kernels", "tensor": "ops", "autograd": "ops", "program": "models", "support": "distributed"}  # by folder; else its name
SANITIZERS = ["memcheck", "racecheck", "initcheck"]
SANITIZER_WORLDS = "2"
# Tests that launch each of our kernels: kernels compared with the CPU's; fills, copies, sleeps and their graphs;
# collectives.
SANITIZED = re.compile(r"tests\.gpu\.(\w+_kernels?_test|(core|graph|nccl_graph)_gpu_test|local_collectives_gpus?_test_\w+)")
# Those among them in which kernels of cuBLAS and cuDNN run between ours.
WITH_LIBRARIES = re.compile(r"tests\.gpu\.(attention|conv|matmul)_kernels_test")
OUR_KERNELS = "kns=7tessera"  # part of the mangled names of all kernels in our namespace
FOUND_ERRORS = 99  # exit status of a sanitizer
TOO_LONG = 124
LAST_WORDS_SECONDS = 5


@dataclass
class Row:
    """One result of the file: of a test, a benchmark, a test under a sanitizer, or an experiment."""
    name: str
    part: str
    worlds: str  # world sizes; empty if it has none
    run: Callable  # takes the seconds that it may run


# ---- running ----------------------------------------------------------------------------------------------------------


def end_all(process):
    """Ends a program and its children. It is asked first, so that a test can name its current case and write its report."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):  # it may have ended meanwhile
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LAST_WORDS_SECONDS)


def run(command, variables, limit, folder):
    """Exit status and output; also the output so far of a program that did not end in time."""
    log = os.path.join(folder, "log")
    with open(log, "wb") as file:
        process = subprocess.Popen(command, cwd=HERE, env=variables, stdout=file, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = TOO_LONG
        if status == TOO_LONG:
            end_all(process)
    with open(log, encoding="utf-8", errors="replace") as file:
        return status, file.read()


def of_bundle(settings):
    """The environment of a program that was linked here."""
    return environment(settings, [f"{HERE}/programs"])


def one_case(result, reason="", log=""):
    return {"cases": [{"name": "", "result": result, "reason": reason}], "log": log[-6000:]}


def too_long(log, cases=(), figures=()):
    """The partial result of a program that did not end in time; the caller knows whether it may run again.

        A test that was asked to end has failed in its current case, the last one: `interrupted`.
    """
    ended = [dict(case, reason="ran when time was up", interrupted=True) if case is cases[-1] and case["result"] == "failed" else case
             for case in cases]
    return {"too_long": True, "cases": ended, "log": log[-6000:], **({"figures": list(figures)} if figures else {})}


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
    if test["name"] == PREFLIGHT:
        return "preflight"
    if test["gpus"] > 1 or test["transport"] == "nccl":
        return "nccl"
    folder = test["name"].split(".")[1]
    part = "libraries" if test["gpus"] == 0 else PART_OF.get(folder, folder)
    if part not in PARTS:  # it would never run
        sys.exit(f"run.py: {test['name']} has no part; PART_OF in rows.py needs its folder")
    return part


def worlds_left_out(test, worlds):
    """A case for the NCCL world sizes that exceed the number of GPUs: the program skips them."""
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
        return too_long(log, cases or [])
    if cases is None:
        return one_case("failed", f"left no report, exit status {status}", log)
    if status != 0 and all(case["result"] != "failed" for case in cases):
        cases.append(one_case("failed", f"exit status {status}")["cases"][0])
    failed = any(case["result"] == "failed" for case in cases)
    return {"cases": cases + worlds_left_out(test, worlds), "log": log[-6000:] if failed else ""}


def is_sanitized(tool, test):
    """Options where a tool cannot check, or misunderstands, the kernels of libraries.

        memcheck checks these too, and should: a wrong operand of ours causes an error in them. On several GPUs it runs alone,
        because NCCL's kernels wait for each other. initcheck must see every write, also those of libraries, whose kernels read
        memory that they do not use; so it gets only tests in which all kernels are ours. racecheck checks the shared memory of
        one kernel at a time, and is restricted to ours.
    """
    if not SANITIZED.fullmatch(test["name"]) or (tool != "memcheck" and part_of(test) == "nccl"):
        return False
    return tool != "initcheck" or not WITH_LIBRARIES.fullmatch(test["name"])


def run_sanitizer(tool, test, limit):
    """A test of kernels under compute-sanitizer: failed if it finds an error."""
    program = sanitizer_program()
    if program is None:
        return one_case("skipped", "compute-sanitizer is not on this machine; it comes with a CUDA toolkit")
    if gpu_count() == 0:
        return one_case("skipped", "needs 1 GPU, found 0")
    # Tests provoke some errors of runtime calls on purpose.
    command = [program, "--tool", tool, "--error-exitcode", str(FOUND_ERRORS), "--report-api-errors", "no"]
    only_ours = ["--kernel-name", OUR_KERNELS] if tool == "racecheck" else []
    return run_test(test, SANITIZER_WORLDS, limit, command + only_ours)


def figures_of(log):
    """The lines of JSON; the last line of a program that was ended may be incomplete."""
    figures = []
    for line in log.splitlines():
        with contextlib.suppress(ValueError):
            figures.append(json.loads(line))
    return figures


def run_benchmark(path, limit):
    """The figures of a benchmark, also of one that failed or did not end in time."""
    command, variables = [path], of_bundle({})
    if path.endswith(".py"):  # needs its own libraries, and Tessera's for the programs that it starts
        command = [sys.executable, path]
        variables = child_environment(TESSERA_LIBRARY_PATH=variables["LD_LIBRARY_PATH"])
    with tempfile.TemporaryDirectory() as folder:
        status, log = run(command, variables, limit, folder)
    figures = figures_of(log)
    if status == TOO_LONG:
        return too_long(log, figures=figures)
    skipped = re.search(r"skipped: (.*)", log, re.IGNORECASE)
    if status != 0:
        return dict(one_case("failed", f"exit status {status}, {len(figures)} figures", log), figures=figures)
    if skipped and not figures:
        return one_case("skipped", skipped.group(1), log)
    return dict(one_case("passed", "", log), figures=figures)


def run_nccl_one_gpu(ranks, limit):
    """Not a test of Tessera: it finds out whether NCCL can do this."""
    if gpu_count() == 0:
        return one_case("skipped", "needs 1 GPU, found 0")
    outcome = experiment(ranks, environment({}), min(limit, 60))
    result = {"works": "passed", "refused": "skipped", "wrong": "failed"}[outcome.partition(":")[0]]
    return dict(one_case(result, "" if result == "passed" else outcome), outcome=outcome)


def place_of_benchmark(path):
    name = re.sub(r"bench_(gpu_)?|\.py$", "", os.path.basename(path))
    return BENCHMARKS.index(name) if name in BENCHMARKS else len(BENCHMARKS), name


def all_rows(worlds):
    """Tests, the experiment, benchmarks, sanitizers."""
    with open(f"{HERE}/tests.json", encoding="utf-8") as file:
        tests = json.load(file)
    rows = [Row(test["name"], part_of(test), worlds, functools.partial(run_test, test, worlds)) for test in tests]
    for ranks in (2, 4):
        rows.append(Row(f"nccl_one_gpu.{ranks}_ranks", "nccl", "", functools.partial(run_nccl_one_gpu, ranks)))
    for path in sorted(glob.glob(f"{HERE}/benchmarks/bench_*"), key=place_of_benchmark):
        rows.append(Row(os.path.basename(path), "bench", "", functools.partial(run_benchmark, path)))
    for tool in SANITIZERS:
        for test in tests:
            if is_sanitized(tool, test):
                rows.append(Row(f"{tool}.{test['name']}", "sanitizer", SANITIZER_WORLDS,
                                functools.partial(run_sanitizer, tool, test)))
    return rows
