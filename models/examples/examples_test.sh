#!/bin/bash
# Runs the examples: sharded over two ranks they learn, on one rank they print the same as the unsharded program, and
# ranks may be threads or processes.
#
#     examples_test.sh SHARDED PLAIN
set -eu
sharded=$1
plain=$2

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

threads=$("$sharded" --ranks 2 --launch threads)
processes=$("$sharded" --ranks 2 --launch processes)
echo "$threads"
[ "$threads" = "$processes" ] || fail "processes print something else: $processes"

# The last loss, four decimals, is below half of log(16).
last=$(echo "$threads" | tail -n 1 | sed 's/.*loss //')
awk "BEGIN { exit !($last < 1.386) }" || fail "the last loss is $last"

alone=$("$sharded" --ranks 1 --launch threads)
unsharded=$("$plain")
[ "$alone" = "$unsharded" ] || fail "one rank prints
$alone
the plain program
$unsharded"
