#!/usr/bin/env bash
# The report of a program of rank cases with processes: the failed case, its rank and world, and the command to repeat
# it.
#
#     rank_report_test.sh PROGRAM
set -eu
unset XML_OUTPUT_FILE TESSERA_TEST_CONFIG
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

[[ $status == 4 ]] || { echo "exit status $status for 4 failed cases"; failed=1; }
expect "test cases: 12 | 8 passed | 4 failed"
expect "world 2 (gloo), rank 1: what was found is 17"
expect "repeat it: tools/bazel test //a:b_gloo --test_filter='a check fails\, on one rank' --test_env=TESSERA_TEST_WORLDS=2"
expect "world 2 (gloo), rank 0: thrown on purpose"
expect "--test_filter='throws\, on one rank'"
expect "--test_filter='leaves\, on one rank'"
for passing in "passes first" "shares the launch" "goes on after a failed check" "is launched anew after an exception" \
  "has a launch of its own" "runs in its smallest world" "prefers several ranks" "passes last"; do
  refuse "--test_filter='$passing'"
done

# repeat LINE: runs what a line "repeat it: ..." says, with the settings of a target of rank processes.
repeat() {
  local word
  local -a settings=(TESSERA_TEST_WORLDS=1,2,3 TESSERA_TEST_ONLY_WORLDS=2)
  eval "set -- ${1#repeat it: }"
  for word; do
    case $word in
      --test_filter=*) settings+=("TESTBRIDGE_TEST_ONLY=${word#*=}") ;;
      --test_env=*) settings+=("${word#*=}") ;;
    esac
  done
  env "${settings[@]}" "$program"
}

# Each printed command runs its case and no other, in the world in which the case failed.
program=$1
for world in 2 4; do
  commands=$(TESSERA_TEST_WORLDS=$world TESSERA_TEST_ONLY_WORLDS=3,$world "$program" 2>&1 | grep "^repeat it: ")
  while IFS= read -r line; do
    expected=$world
    [[ $line == *three* ]] && expected=3
    one=$(repeat "$line" 2>&1 | tr -s '\n ' ' ')
    if [[ $one != *"test cases: 1 | 1 failed"* || $one != *"world $expected (gloo), "* ]]; then
      echo "$line"
      echo "ran: $one"
      failed=1
    fi
  done <<<"$commands"
done

# With ranks as threads, the command names the worlds likewise.
export TESSERA_TEST_TRANSPORT=local TEST_TARGET=//a:b_local
commands=$(TESSERA_TEST_WORLDS=2 TESSERA_TEST_ONLY_WORLDS=3,2 TESTBRIDGE_TEST_ONLY='a check fails\, on one rank' "$program" 2>&1 |
  grep "^repeat it: ")
[[ $commands == "repeat it: tools/bazel test //a:b_local "* ]] || { echo "threads: $commands"; failed=1; }
one=$(repeat "$commands" 2>&1 | tr -s '\n ' ' ')
[[ $one == *"test cases: 1 | 1 failed"* && $one == *"world 2 (local), rank 1: "* ]] || { echo "ran: $one"; failed=1; }
export TESSERA_TEST_TRANSPORT=gloo TEST_TARGET=//a:b_gloo

# Under a sanitizer the command says so.
all=$(TESSERA_TEST_CONFIG=asan TESTBRIDGE_TEST_ONLY='throws\, on one rank' "$program" 2>&1 | tr -s '\n ' ' ')
expect "repeat it: tools/bazel test --config=asan //a:b_gloo --test_filter="

[[ $failed == 0 ]] || { echo "--- the report:"; echo "$report"; }
exit $failed
