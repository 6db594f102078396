#!/usr/bin/env python3
"""The kernels of one training step: their time, and the bytes and operations that the hardware counted.

    tools/bench/kernel_table.py [--program bazel-bin/tools/bench/bench_gpu_train] --row gpt2-124m [--ncu ncu]

Runs the row's last step under Nsight Compute, which runs kernels one at a time, and prints one line for each kernel name and
launch shape, those with the most time first: launches, their total time in microseconds, its share, achieved GB/s of device memory, and the
part of the tensor cores' cycles that were used.
"""

import argparse
import collections
import csv
import io
import os
import re
import subprocess
import sys

TIME, READ, WRITTEN, TENSOR, ISSUE = ("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
                               "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
                               "sm__inst_issued.avg.pct_of_peak_sustained_active")


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def rows_of(text):
    """name -> {metric: value} of each launch, from ncu's CSV with raw units."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        sys.exit(text[-3000:])
    launches = collections.OrderedDict()
    for row in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        launch = launches.setdefault(row["ID"], {"name": short(row["Kernel Name"]), "grid": row["Grid Size"], "block": row["Block Size"]})
        launch[row["Metric Name"]] = number(row["Metric Value"])
    return list(launches.values())


def short(name):
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::|tessera::kernels::|tessera::cuda::|tessera::|cuda::", "", name)
    return re.sub(r"\s+", " ", name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--program", default=os.path.join(here, "bench_gpu_train"))
    parser.add_argument("--row", default="gpt2-124m")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--top", type=int, default=60)
    args = parser.parse_args()
    command = [args.ncu, "--profile-from-start", "off", "--clock-control", "none", "--csv", "--print-units", "base",
               "--metrics", ",".join([TIME, READ, WRITTEN, TENSOR, ISSUE]), args.program, "--only", args.row, "--warmup", "4", "--steps", "1",
               "--profile"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    groups = collections.defaultdict(list)
    launches = rows_of(done.stdout)
    for launch in launches:
        groups[launch["name"], launch["grid"], launch["block"]].append(launch)
    total = sum(launch.get(TIME, 0) for launch in launches) / 1e3
    print(f"{args.row}: {len(launches)} launches, {total:.0f} us in kernels")
    print("launches        us  share   GB/s  tensor%  issue%  MB  kernel")
    order = sorted(groups.items(), key=lambda item: -sum(launch.get(TIME, 0) for launch in item[1]))
    for (name, grid, block), found in order[:args.top]:
        us = sum(launch.get(TIME, 0) for launch in found) / 1e3
        size = sum(launch.get(READ, 0) + launch.get(WRITTEN, 0) for launch in found)
        mean = lambda what: sum(launch.get(what, 0) * launch.get(TIME, 0) for launch in found) / max(1, 1e3 * us)
        print(f"{len(found):8d} {us:9.1f} {100 * us / max(total, 1e-9):5.1f}% {size / max(us, 1e-9) / 1e3:6.0f} {mean(TENSOR):7.1f} {mean(ISSUE):7.1f} "
              f"{size / 1e6 / len(found):7.1f}  {name[:150]} {grid}{block}")


if __name__ == "__main__":
    main()
