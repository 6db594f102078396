#!/usr/bin/env python3
"""Runs Tessera's GPU tests and benchmarks on this machine, and writes one result file.

    tar xf bundle.tar.xz && gpu_check/run.py [--out results.json] [--parts kernels,ops,...] [--only REGEX] [--again]
                                             [--seconds S] [--timeout S] [--jobs N] [--worlds 1,2,...] [--require-gpu]
    gpu_check/run.py --table COMMIT [--out results.json]       # the file as Markdown; runs nothing

Needs a driver, the CUDA libraries (a toolkit, or Python's nvidia-* packages) and Python 3, nothing else. Rows with a result
in the file are not run again, so a run may be split into calls. Each test case is passed, failed, or skipped with a reason;
without a GPU all that need one are skipped. Exit status 1: something failed, now or before; 3: nothing failed, but time was
up before all had run; 0: everything chosen has run, and nothing failed; 2: it could not begin, one line says why.
"""

import argparse
import concurrent.futures
import itertools
import os
import re
import sys
import time
import traceback

from machine import gpu_count
from results import Results, goals, table, words_of
from rows import ALONE, PARTS, all_rows, one_case


def in_time(found, limit, may_try_again):
    """The result of a row; if it did not end in time, with a case that says so, and `cut` if the next call tries again."""
    if not found.pop("too_long", False):
        return found
    figures = f", {len(found['figures'])} figures" if "figures" in found else ""
    said = f"ran longer than {limit:.0f} s{figures}"
    if may_try_again:
        ended = [dict(case, result="skipped") if case.get("interrupted") else case for case in found["cases"]]
        return dict(found, cases=ended + one_case("skipped", said + "; the next call runs it again")["cases"], cut=True)
    return dict(found, cases=found["cases"] + one_case("failed", said)["cases"])


def result_of(row, seconds_left, args, is_first):
    begin = time.time()
    limit = min(args.timeout, seconds_left)
    try:
        # The first row of a call had the whole time: the next call could not give it more.
        found = in_time(row.run(limit), limit, may_try_again=limit < args.timeout and not is_first)
    except Exception as error:  # an error in one row must not lose the others' results
        found = one_case("failed", f"could not be run: {error!r}", traceback.format_exc())
    own = {"name": row.name, "part": row.part, "worlds": row.worlds, "seconds": round(time.time() - begin, 2)}
    return dict(own, **found)


def show(result):
    cases = [case["result"] for case in result["cases"]]
    print(f"{result['name']}: {cases.count('passed')} passed, {cases.count('failed')} failed, {cases.count('skipped')} skipped, "
          f"{result['seconds']} s", flush=True)
    for case in result["cases"]:
        if case["result"] == "failed":
            print(f"  FAILED {case['name']} {case['reason']}", flush=True)
    for goal in goals([result]):
        print(f"  {words_of(goal)}", flush=True)


def parsed_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results.json")
    parser.add_argument("--parts", default=",".join(PARTS), help="of these, in the order they are given: %(default)s")
    parser.add_argument("--only", default="", help="names of rows to run, a regular expression")
    parser.add_argument("--again", action="store_true", help="drop the chosen rows' results from the file, then run them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all together; call it again for the rest")
    parser.add_argument("--timeout", type=float, default=300, help="of one program, in seconds")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time; what measures time runs alone")
    parser.add_argument("--worlds", default="1,2,3,4,5,6,7,8", help="world sizes of tests on several ranks")
    parser.add_argument("--require-gpu", action="store_true", help="end with status 2 where there is none")
    parser.add_argument("--table", metavar="COMMIT", help="only print the file as Markdown; of which commit the bundle is")
    args = parser.parse_args()
    unknown = set(args.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if args.jobs < 1:
        parser.error(f"--jobs is {args.jobs}; it is at least 1")
    return args


def in_turns(chosen, jobs):
    """Lists of rows of which `jobs` run at a time; one that measures time runs alone."""
    for alone, rows in itertools.groupby(chosen, key=lambda row: ALONE.fullmatch(row.name) is not None):
        yield list(rows), 1 if alone else jobs


def run_rows(chosen, results, args, end):
    """The names of the remaining rows."""
    left = [row.name for row in chosen]
    results.write(left)  # dropped results stay dropped, however this call ends
    first = {row.name for row in chosen[:args.jobs]}

    def result_in_time(row):
        seconds = end - time.time()
        return result_of(row, seconds, args, is_first=row.name in first) if seconds > 0 else None

    for rows, jobs in in_turns(chosen, args.jobs):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            running = [pool.submit(result_in_time, row) for row in rows]
            for result in filter(None, (future.result() for future in concurrent.futures.as_completed(running))):
                show(result)
                results.add(result)
                if not result.get("cut"):
                    left.remove(result["name"])
                results.write(left)
    return left


def main():
    args = parsed_arguments()
    if args.table is not None:
        if not os.path.exists(args.out):
            sys.exit(f"run.py: there is no {args.out}; --out says where the results are")
        print(table(args.out, args.table))
        return 0
    if args.require_gpu and gpu_count() == 0:
        print("run.py: found no GPU: libcuda.so.1 was not found or offers none; see `nvidia-smi`, and set LD_LIBRARY_PATH to its folder",
              file=sys.stderr)
        return 2
    end = time.time() + args.seconds
    results = Results(os.path.abspath(args.out))
    parts = args.parts.split(",")
    chosen = [row for row in all_rows(args.worlds) if row.part in parts and re.search(args.only, row.name)]
    chosen.sort(key=lambda row: parts.index(row.part))
    if args.again:
        results.drop({row.name for row in chosen})
    left = run_rows([row for row in chosen if not results.has(row.name, row.worlds)], results, args, end)
    for goal in goals(results.content["results"]):
        print(words_of(goal))
    counts = results.counts()
    print(", ".join(f"{count} {what}" for what, count in counts.items()) + f", {len(left)} left: {args.out}")
    return 1 if counts["failed"] else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
