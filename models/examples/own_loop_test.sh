#!/bin/bash
# own_loop_example trains, leaves the files of a run, and puts a head on a run that tessera trained; a folder that holds no
# run is an error.
#
#     own_loop_test.sh SOURCE PROGRAM TESSERA
set -eu
source=$1
program=$2
tessera=$3
own=$TEST_TMPDIR/own
run=$TEST_TMPDIR/run

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

lines=$(wc -l < "$source")
[ "$lines" -lt 100 ] || fail "$source has $lines lines, expected fewer than 100"

for i in $(seq 200); do echo "Line $i of a text: the quick brown fox jumps over the lazy dog."; done > "$TEST_TMPDIR/text.txt"
"$tessera" train gpt --preset tiny --steps 5 --data "$TEST_TMPDIR/text.txt" --out "$run" --ranks 1 --launch threads
output=$("$program" "$own" "$run") || fail "it ends with $?:
$output"
echo "$output"
[ "$(echo "$output" | wc -l)" = 2 ] || fail "expected 2 lines"
for file in metrics.jsonl report.html loss.svg; do
  [ -s "$own/$file" ] || fail "there is no $file"
done
[ "$(wc -l < "$own/metrics.jsonl")" = 204 ] || fail "expected 200 steps and 4 evaluations"
compgen -G "$own/events.out.tfevents.*" > /dev/null || fail "there is no event file"

! "$program" "$own" "$TEST_TMPDIR" > "$TEST_TMPDIR/none" 2>&1 || fail "it opens a folder without a run"
grep -q "holds no run" "$TEST_TMPDIR/none" || fail "it does not say that there is no run"
