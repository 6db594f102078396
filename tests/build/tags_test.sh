#!/usr/bin/env bash
# Tests carry the tags by which they are chosen.
#
#     tags_test.sh [FILE LABEL]...      FILE: what a query for tags found, which has to be LABEL alone
set -euo pipefail
failed=0
while [[ $# -gt 0 ]]; do
  found=$(<"$1")
  if [[ $found != "$2" ]]; then
    echo "$1 says '$found', expected $2"
    failed=1
  fi
  shift 2
done
exit $failed
