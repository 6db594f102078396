#!/usr/bin/env python3
"""The kernels of one training step: their time, and the bytes and instructions that the hardware counted.

    tools/bench/kernel_table.py [--program bazel-bin/tools/bench/bench_gpu_train] --row gpt2-124m [--ncu ncu]

Runs the row's last step under Nsight Compute, which runs kernels one at a time, and prints one line for each kernel name and
launch shape, those with the most time first: launches, their total time in microseconds, its share, achieved GB/s of device
memory, percent of the slots in which an instruction was issued, and megabytes of a launch.
"""

import argparse
import collections
import csv
import io
import os
import re
import subprocess
import sys

METRICS = TIME, READ, WRITTEN, ISSUE = ("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
                                        "sm__inst_issued.avg.pct_of_peak_sustained_active")


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def rows_of(text):
    """Each launch as {name, grid, block, metric: value}, from ncu's CSV in base units."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        sys.exit(text[-3000:])
    launches = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        launch = launches.setdefault(row["ID"], {"name": short(row["Kernel Name"]), "grid": row["Grid Size"], "block": row["Block Size"]})
        launch[row["Metric Name"]] = number(row["Metric Value"])
    return list(launches.values())


def short(name):
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::|tessera::kernels::|tessera::cuda::|tessera::|cuda::", "", name)
    return re.sub(r"\s+", " ", name)


def print_table(row, launches, top):
    groups = collections.defaultdict(list)
    for launch in launches:
        groups[launch["name"], launch["grid"], launch["block"]].append(launch)
    total = sum(launch[TIME] for launch in launches) / 1e3
    print(f"{row}: {len(launches)} launches, {total:.0f} us in kernels")
    print("launches        us  share   GB/s  issue%      MB  kernel")
    lines = []
    for (name, grid, block), found in groups.items():
        us = sum(launch[TIME] for launch in found) / 1e3
        size = sum(launch.get(READ, 0) + launch.get(WRITTEN, 0) for launch in found)
        issue = sum(launch.get(ISSUE, 0) * launch[TIME] for launch in found) / 1e3 / us
        lines.append((us, f"{len(found):8d} {us:9.1f} {100 * us / total:5.1f}% {size / us / 1e3:6.0f} {issue:7.1f} "
                          f"{size / 1e6 / len(found):7.1f}  {name[:150]} {grid}{block}"))
    for _, line in sorted(lines, reverse=True)[:top]:
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--program", default=os.path.join(here, "bench_gpu_train"))
    parser.add_argument("--row", default="gpt2-124m", help="of bench_gpu_train --table")
    parser.add_argument("--ncu", default="ncu", help="Nsight Compute's command line")
    parser.add_argument("--top", type=int, default=60, help="lines")
    args = parser.parse_args()
    command = [args.ncu, "--profile-from-start", "off", "--clock-control", "none", "--csv", "--print-units", "base",
               "--metrics", ",".join(METRICS), args.program, "--only", args.row, "--warmup", "4", "--steps", "1",
               "--profile"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    launches = rows_of(done.stdout)
    print_table(args.row, launches, args.top)


if __name__ == "__main__":
    main()
