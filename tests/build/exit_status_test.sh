#!/usr/bin/env bash
# The exit status of a test binary if no case ran, and if GPUs are missing.
set -uo pipefail
unset TESSERA_REQUIRE_GPUS TESTBRIDGE_TEST_ONLY XML_OUTPUT_FILE
here=$TEST_SRCDIR/$TEST_WORKSPACE/tests/build
failed=0

# expect STATUS TEXT COMMAND...
expect() {
  local status=$1 text=$2 said answer
  shift 2
  said=$("$@" 2>&1)
  answer=$?
  if [[ $answer != "$status" || $said != *"$text"* ]]; then
    echo "$*: exit status $answer, wanted $status and \"$text\" in: $said"
    failed=1
  fi
}

expect 1 "no test case ran" "$here/no_cases"
expect 0 "All tests passed" "$here/one_case"
expect 1 "no test case ran" "$here/one_case" "no case of this name"
expect 1 "no test case ran" env TESTBRIDGE_TEST_ONLY="no case of this name" "$here/one_case"
expect 0 "the only case" "$here/one_case" --list-tests
expect 0 "SKIPPED: needs 999 GPUs, found " env TESSERA_TEST_GPUS=999 "$here/one_case"
expect 1 "needs 999 GPUs, found " env TESSERA_TEST_GPUS=999 TESSERA_REQUIRE_GPUS=999 "$here/one_case"
exit $failed
