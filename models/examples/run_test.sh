#!/bin/bash
# Runs an example with each of the arguments: its source is short, it succeeds and prints something; with "same" it
# prints the same numbers each time.
#
#     run_test.sh SOURCE PROGRAM same|any ARGUMENTS...
set -eu
source=$1
program=$(realpath -s "$2")
same_numbers=$(realpath -s "$(dirname "$0")/same_numbers.sh")
compare=$3
shift 3

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

lines=$(wc -l < "$source")
[ "$lines" -lt 100 ] || fail "$source has $lines lines, expected fewer than 100"

cd "$TEST_TMPDIR" # for files that an example saves
first=
for arguments in "$@"; do
  echo "$program $arguments"
  # shellcheck disable=SC2086 - several arguments in one string
  output=$("$program" $arguments) || fail "it ends with $?:
$output"
  echo "$output"
  [ -n "$output" ] || fail "it prints nothing"
  [ -n "$first" ] || first=$output
  [ "$compare" = any ] || "$same_numbers" "$first" "$output" || fail "the figures are others"
done
