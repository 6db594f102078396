#!/usr/bin/env bash
# The thread sanitizer sees a missing barrier in a kernel, and nothing where it is there:  races_test.sh PROGRAM
set -euo pipefail
export TSAN_OPTIONS=exitcode=66
"$1" barrier
status=0
"$1" none 2>report.txt || status=$?
[[ $status == 66 ]] || { echo "a missing barrier gave the exit status $status, not 66"; exit 1; }
grep -q "data race .*neighbours_kernel" report.txt || { cat report.txt; exit 1; }
