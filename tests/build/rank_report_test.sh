#!/usr/bin/env bash
# The report of a program of rank cases with processes: the failed case, its rank and world, and the command to repeat
# it.
#
#     rank_report_test.sh PROGRAM
set -eu
unset XML_OUTPUT_FILE
export TESSERA_TEST_TRANSPORT=gloo TESSERA_TEST_WORLDS=1,2,3 TESSERA_TEST_ONLY_WORLDS=2 TEST_TARGET=//a:b_gloo
failed=0
report=$("$1" 2>&1) && status=0 || status=$?
all=$(tr -s '\n ' ' ' <<<"$report")  # Catch2 breaks lines

expect() {
  grep -qF -- "$1" <<<"$all" || { echo "not in the report: $1"; failed=1; }
}
refuse() {
  if grep -qF -- "$1" <<<"$all"; then echo "in the report: $1"; failed=1; fi
}

[[ $status == 3 ]] || { echo "exit status $status for 3 failed cases"; failed=1; }
expect "test cases: 10 | 7 passed | 3 failed"
expect "world 2 (gloo), rank 1: what was found is 17"
expect "repeat it: tools/bazel test //a:b_gloo --test_filter='a check fails\, on one rank' --test_env=TESSERA_TEST_ONLY_WORLDS=2"
expect "world 2 (gloo), rank 0: thrown on purpose"
expect "--test_filter='throws\, on one rank'"
expect "--test_filter='leaves\, on one rank'"
for passing in "passes first" "shares the launch" "goes on after a failed check" "is launched anew after an exception" \
  "has a launch of its own" "runs in its smallest world" "passes last"; do
  refuse "--test_filter='$passing'"
done

# The printed filter runs only that case.
one=$(TESTBRIDGE_TEST_ONLY='throws\, on one rank' "$1" 2>&1) && status=0 || status=$?
[[ $status == 1 ]] && grep -q "test cases: 1 | 1 failed" <<<"$one" || { echo "the filter ran: $one"; failed=1; }

[[ $failed == 0 ]] || { echo "--- the report:"; echo "$report"; }
exit $failed
