#!/usr/bin/env python3
"""The long jobs. Each run of .ci/run includes one of them, and tools/nightly runs them all.

    tools/ci_jobs.py list             the jobs
    tools/ci_jobs.py choose           prints the names of the jobs for this run of .ci/run; why, on standard error
    tools/ci_jobs.py arguments JOB    prints what follows `tools/bazel test`, one argument per line
    tools/ci_jobs.py toolkit          exit status 0 if a CUDA toolkit is installed

The number of commits in the history chooses the job, so that 14 successive commits run all 14; a merge counts as one commit.
Where git cannot count them (no git, a shallow clone), the date chooses: another job each day. TESSERA_CI_JOBS replaces the
choice: names with spaces between them, or "none". A job that needs a CUDA toolkit is left out where there is none; if the
rotation had chosen it, the next job of the rotation that can run takes its place.
"""

import datetime
import os
import shutil
import sys
from dataclasses import dataclass

from ci_git import Git, GitError

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CUDA_FOLDERS = ["/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-13.0", "/usr/lib/cuda"]
NO_TOOLKIT = "no CUDA toolkit"


@dataclass(frozen=True)
class Job:
    name: str
    runs: str  # tests/STATUS.md shows it
    targets: tuple
    options: tuple = ()
    tags: str = ""  # the value of --test_tag_filters
    needs_toolkit: bool = False
    rotates: bool = True  # False: only tools/nightly runs it


def _asan(name, runs, *targets):
    return Job(name, f"{runs} under asan", targets, ("--config=asan",), "-no-asan,-exclusive")


def _tsan(name, runs, *targets):
    return Job(name, f"{runs} under tsan", targets, ("--config=tsan",),
               "transport-local,tsan,-no-tsan,-exclusive")


def _gpu(name, runs, *targets, tags="gpu"):
    return Job(name, f"{runs} on the emulated GPU", targets, ("--config=emulated_gpu",), tags, needs_toolkit=True)


TENSOR, AUTOGRAD, NN, SUPPORT, DISTRIBUTED, FSDP = FLOORS = tuple(
    f"//tests/{folder}/..." for folder in ("tensor", "autograd", "nn", "support", "distributed", "fsdp"))
ALL_OTHERS = ("//...", *(f"-{floor}" for floor in FLOORS))
# All of fsdp takes too long on the emulated GPU.
FSDP_ON_GPU = tuple(f"//tests/fsdp{name}" for name in (
    "/precision:clip_test_cuda", "/training:composition_test_cuda", "/training:training_test_cuda",
    "/precision:clip_test_nccl", ":fsdp_test_nccl", "/training:training_test_nccl", "/memory:sizes_test_cuda",
    ":places_test_nccl", "/state:state_test_cuda", "/wrap:policy_test_cuda"))

JOBS = (
    _asan("asan_below", "tests of tensor and autograd", TENSOR, AUTOGRAD),
    _asan("asan_nn", "tests of nn and of the test support", NN, SUPPORT),
    _asan("asan_ranks", "tests of distributed", DISTRIBUTED),
    _asan("asan_fsdp", "tests of fsdp", FSDP),
    _asan("asan_program", "all other tests", *ALL_OTHERS),
    _tsan("tsan_ranks", "tests of tensor, autograd, nn, the test support and distributed",
          TENSOR, AUTOGRAD, NN, SUPPORT, DISTRIBUTED),
    _tsan("tsan_fsdp", "tests of fsdp", FSDP),
    _tsan("tsan_program", "all other tests", *ALL_OTHERS),
    _gpu("gpu_kernels", "CUDA kernels compared with CPU kernels, tensor, small benchmarks", "//tests/gpu/...", TENSOR,
         "//tests/build/...", "//tests/tools/emulated_gpu/...", "//tests/tools/gpu_benchmarks/...", tags="gpu,emulated"),
    _gpu("gpu_below", "autograd and nn", AUTOGRAD, NN),
    # One suite trains mixtures of experts for too long on the emulated GPU.
    _gpu("gpu_ranks", "distributed, models and the program", DISTRIBUTED, "//tests/models/...", "//tests/program/...",
         "-//tests/models:mixture_of_experts_ranks_test_cuda"),
    _gpu("gpu_fsdp", "a part of fsdp", *FSDP_ON_GPU),
    Job("outside", "a workspace of its own that uses Tessera", ("//tests/build:outside_workspace_test",)),
    Job("wide", "tests that take too long for the suite",
        ("//tests/distributed/launch:pairs_nightly_test", "//tests/fsdp/seeds:nested_sweep", "//tests/fsdp/training:matrix_wide_test",
         "//tests/fsdp/training:random_programs_nightly_test", "//tests/models/language:curve_sweep_test_gloo",
         "//tests/models/language:curve_sweep_test_local")),
    # More than half an hour, most of which is waiting for deadlines.
    Job("faults", "each fault of a rank 20 times, 200 times while groups overlap", ("//tests/fsdp/faults:faults_nightly_test",),
        rotates=False),
)
ROTATED = tuple(job for job in JOBS if job.rotates)
# The arguments for the test suite, which .ci/run always runs.
SUITE = Job("tests", "the whole suite", ("//...",))

# From one commit to the next, the rotation goes this far in ROTATED. Steps of 5 reach all 14 jobs and never put two jobs that
# need a toolkit next to each other: without a toolkit, four different jobs take their places.
STEP = 5


def names():
    return [job.name for job in JOBS]


def job_named(name):
    """Throws ValueError for an unknown name."""
    for job in (*JOBS, SUITE):
        if job.name == name:
            return job
    raise ValueError(f"there is no job {name}; the jobs are {' '.join(names())}")


def arguments(job):
    """The arguments of `tools/bazel test`."""
    only_these = () if job is SUITE else ("--build_tests_only", f"--test_tag_filters={job.tags}")
    return ["--keep_going", "--curses=no", "--color=no", "--show_progress_rate_limit=60", *job.options, *only_these, "--",
            *job.targets]


def toolkit_here():
    """Whether a CUDA toolkit is installed. The build searches separately (tools/cuda/); .ci/run compares."""
    folders = [*CUDA_FOLDERS, os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    compilers = [os.path.join(folder, "bin", "nvcc") for folder in folders if folder]
    return shutil.which("nvcc") is not None or any(os.access(path, os.X_OK) for path in compilers)


def rotation(number):
    """The jobs that rotate, beginning with the one of the commit that has this number."""
    return [ROTATED[STEP * (number + later) % len(ROTATED)] for later in range(len(ROTATED))]


def number_of_commit(git, today, say):
    try:
        number = git.number()
        say(f"commit {number} of this history")
        return number
    except GitError as error:
        say(f"the date chooses the job: {error}")
        return today.toordinal()


def choose_by_rotation(git, has_toolkit, today, say):
    candidates = rotation(number_of_commit(git, today, say))
    chosen = next(job for job in candidates if has_toolkit or not job.needs_toolkit)
    for job in candidates[:candidates.index(chosen)]:
        say(f"{job.name}: left out, {NO_TOOLKIT} here; {chosen.name} takes its place")
    return [chosen]


def choose(wanted, git, has_toolkit, today, say):
    """The jobs of one run of .ci/run.

        `wanted` is the text of TESSERA_CI_JOBS, empty for the rotation. `say` is called with each line to print.
        Throws ValueError for an unknown name.
    """
    if not wanted.split():
        return choose_by_rotation(git, has_toolkit, today, say)
    listed = [job_named(name) for name in dict.fromkeys(wanted.split()) if name != "none"]
    if SUITE in listed:
        raise ValueError(f"{SUITE.name} is part of every run; the jobs are {' '.join(names())}")
    able = [job for job in listed if has_toolkit or not job.needs_toolkit]
    for job in listed:
        if job not in able:
            say(f"{job.name}: left out, {NO_TOOLKIT} here")
    return able


def main(words):
    def say(line):
        print(f"=== {line}", file=sys.stderr)

    try:
        if words == ["list"]:
            for job in JOBS:
                print(f"{job.name:13} {job.runs}")
        elif words == ["choose"]:
            wanted = os.environ.get("TESSERA_CI_JOBS", "")
            today = datetime.datetime.now(datetime.timezone.utc).date()
            chosen = choose(wanted, Git(ROOT), toolkit_here(), today, say)
            say(f"jobs of this run: {' '.join(job.name for job in chosen) or 'none'}")
            print("\n".join(job.name for job in chosen))
        elif len(words) == 2 and words[0] == "arguments":
            print("\n".join(arguments(job_named(words[1]))))
        elif words == ["toolkit"]:
            return 0 if toolkit_here() else 1
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except ValueError as error:
        print(f"TESSERA_CI_JOBS: {error}" if words == ["choose"] else f"ci_jobs: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
