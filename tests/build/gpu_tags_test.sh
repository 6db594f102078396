#!/usr/bin/env bash
# Of the rank tests here, only the one that needs two GPUs has the tags gpu, multi-gpu and exclusive.
#
#     gpu_tags_test.sh FILE      FILE: the result of a query for these tags
set -euo pipefail
found=$(<"$1")
if [[ $found != //tests/build:rank_environment_gpu_test_local ]]; then
  echo "with the tags gpu, multi-gpu and exclusive: $found"
  exit 1
fi
