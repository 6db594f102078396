#!/usr/bin/env bash
# A shared object of kernels exports one symbol, so code compiled for its instruction set cannot be linked elsewhere.
#
#     exports_test.sh ENTRY OBJECT [ENTRY OBJECT]...
set -euo pipefail
failed=0
while [[ $# -gt 0 ]]; do
  exported=$(nm --dynamic --defined-only --format=posix "$2" | cut -d' ' -f1 | sort)
  if [[ $exported != "$1" ]]; then
    echo "$2 should export $1 only, but exports:"
    echo "$exported" | head -n 20
    failed=1
  fi
  shift 2
done
exit $failed
