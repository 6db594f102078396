#!/usr/bin/env bash
# Of the rank tests here, the one that needs two GPUs carries the tags gpu, multi-gpu and exclusive, and no other does.
#
#     gpu_tags_test.sh FILE      FILE: what a query for these tags found
set -euo pipefail
found=$(<"$1")
if [[ $found != //tests/build:rank_environment_gpu_test_local ]]; then
  echo "with the tags gpu, multi-gpu and exclusive: $found"
  exit 1
fi
