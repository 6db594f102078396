#!/bin/bash
# A rank process is killed before each of its collectives in a save and in a load. The job ends within five seconds, with a message
# that names the rank. Afterwards a complete checkpoint is there: the old one or the new one.
set -eu
program=$(realpath -s "$1")
mkdir -p "$TEST_TMPDIR/run"
cd "$TEST_TMPDIR/run"
export OMP_NUM_THREADS=1

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# whole DO STEP: without a kill; prints the number of collectives.
whole() {
  "$program" "$1" "$2" --ranks 3 | sed -n 's/collectives //p'
}

# killed DO STEP RANK CALL: the rank is killed before that collective.
killed() {
  local begin=$SECONDS
  if output=$("$program" "$1" "$2" --ranks 3 --kill-rank "$3" --kill-at "$4" 2>&1); then
    fail "$1: the job succeeds though rank $3 is killed before collective $4: $output"
  fi
  ((SECONDS - begin <= 5)) || fail "$1: the job ends after $((SECONDS - begin)) s"
  grep -q "rank $3.*\(signal 9\|SIGKILL\)" <<< "$output" || fail "$1, collective $4, rank $3: the message is: $output"
}

saves=$(whole save 1)
loads=$(whole load 1)
((saves > 4 && loads > 4)) || fail "$saves collectives in a save, $loads in a load"
for rank in 0 2; do
  for call in $(seq "$saves"); do
    rm -rf step-2
    killed save 2 "$rank" "$call"
    if [ -e step-2 ]; then whole load 2 > /dev/null; else whole load 1 > /dev/null; fi
    rm -rf .step-2.*.unfinished
    [ "$(ls -A | grep -v '^step-[12]$')" = "" ] || fail "there is more: $(ls -A)"
  done
done
rm -rf step-2
before=$(find . -type f -exec sha256sum {} + | sort)
for call in $(seq "$loads"); do killed load 1 1 "$call"; done
[ "$before" = "$(find . -type f -exec sha256sum {} + | sort)" ] || fail "a load changes files"
whole load 1
