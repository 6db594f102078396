#!/usr/bin/env bash
# Runs the given tests with the kernels for x86-64-v3, and one test with an unknown instruction set.
set -eu
# The results are this script's: the tests would overwrite each other's report, and the last one fails on purpose.
unset XML_OUTPUT_FILE

for test in "$@"; do
  echo "$test with TESSERA_CPU_ISA=v3"
  TESSERA_CPU_ISA=v3 "$test"
done

if output=$(TESSERA_CPU_ISA=v9 "$1" 2>&1); then
  echo "a test passed with TESSERA_CPU_ISA=v9" >&2
  exit 1
fi
grep -q '\[cpu_table\] TESSERA_CPU_ISA is "v9"; say v3 or v4, or unset it' <<<"$output"
