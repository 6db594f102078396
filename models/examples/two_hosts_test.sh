#!/bin/bash
# Two launchers on this host simulate two hosts: they form one run, which trains like one host with as many ranks.
#
#     two_hosts_test.sh SOURCE PROGRAM
set -eu
source=$1
program=$2

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

lines=$(wc -l < "$source")
[ "$lines" -lt 100 ] || fail "$source has $lines lines, expected fewer than 100"

# A port that is free now.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
host() {
  "$program" --ranks 2 --nnodes 2 --rdzv-endpoint "127.0.0.1:$port" --node-rank "$1"
}
host 1 > "$TEST_TMPDIR/host1" &
other=$!
first=$(host 0) || fail "host 0 ends with $?"
wait "$other" || fail "host 1 ends with $?"
echo "$first"
cat "$TEST_TMPDIR/host1"
[ "$(cat "$TEST_TMPDIR/host1")" = "host 1 of 2: ranks 2 to 3" ] || fail "host 1 prints something else"
[ "$(echo "$first" | head -n 1)" = "host 0 of 2: ranks 0 to 1" ] || fail "host 0 prints something else"

alone=$("$program" --ranks 4) || fail "one host ends with $?"
[ "$(echo "$alone" | head -n 1)" = "host 0 of 1: ranks 0 to 3" ] || fail "one host prints something else"
"$(dirname "$0")/same_numbers.sh" "$(echo "$first" | tail -n +2)" "$(echo "$alone" | tail -n +2)" ||
  fail "two hosts train differently"
