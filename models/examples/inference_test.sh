#!/bin/bash
# inference_example loads the file that transformer_plain_example saves and continues counting; without a file, or with
# a bad one, it prints an error.
#
#     inference_test.sh SOURCE TRAINER PROGRAM
set -eu
source=$1
trainer=$2
program=$3
model=$TEST_TMPDIR/counting.safetensors

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

lines=$(wc -l < "$source")
[ "$lines" -lt 100 ] || fail "$source has $lines lines, expected fewer than 100"

"$trainer" "$model"
output=$("$program" "$model") || fail "it ends with $?:
$output"
echo "$output"
[ "$(echo "$output" | wc -l)" = 18 ] || fail "expected 18 lines"

code=0
"$program" 2> "$TEST_TMPDIR/usage" || code=$?
[ "$code" = 2 ] || fail "without a file it ends with $code"
grep -q "usage: " "$TEST_TMPDIR/usage" || fail "it does not say how it is used"
