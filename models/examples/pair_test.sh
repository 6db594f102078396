#!/bin/bash
# The unsharded and the sharded program differ in few lines and train alike: on one rank they print the same, on two
# ranks the losses are close.
#
#     pair_test.sh PLAIN SHARDED PLAIN_SOURCE SHARDED_SOURCE
set -eu
plain=$1
sharded=$2

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

for source in "$3" "$4"; do
  lines=$(wc -l < "$source")
  [ "$lines" -lt 100 ] || fail "$source has $lines lines, expected fewer than 100"
done

# A changed line counts once: at each place that differs, the larger number of lines.
changes=$(diff -b "$3" "$4" || true)
changed=$(echo "$changes" | awk '
  /^[0-9]/ { total += (removed > added ? removed : added); removed = added = 0 }
  /^</ { ++removed }
  /^>/ { ++added }
  END { print total + (removed > added ? removed : added) }')
echo "$changed changed lines"
[ "$changed" -gt 0 ] || fail "the two sources are equal"
[ "$changed" -le 10 ] || fail "$changed changed lines, expected at most 10:
$changes"

alone=$("$plain")
echo "$alone"
one=$("$sharded" --ranks 1 --launch threads)
[ "$alone" = "$one" ] || fail "one rank prints
$one"

two=$("$sharded" --ranks 2 --launch threads)
[ "$(echo "$two" | wc -l)" = "$(echo "$alone" | wc -l)" ] || fail "two ranks print
$two"
paste <(echo "$alone" | sed 's/.*loss //') <(echo "$two" | sed 's/.*loss //') | awk '
  { difference = $1 - $2; if (difference < 0) difference = -difference }
  !($1 > 0) || difference > 0.002 { print "losses " $1 " and " $2; bad = 1 }
  END { exit bad }' || fail "two ranks train differently:
$two"

# The program learns: the last loss is below half of the first one printed.
echo "$alone" | sed 's/.*loss //' | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first / 2) }' ||
  fail "the loss does not go down"
