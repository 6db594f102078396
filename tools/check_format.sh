#!/usr/bin/env bash
# Checks that every C++ and CUDA file is formatted as .clang-format says.
#
#     tools/check_format.sh [ROOT]     prints the differences; tools/check_format.sh --fix corrects them
set -euo pipefail
action=(--dry-run --Werror)
if [[ ${1:-} == --fix ]]; then
  action=(-i)
  shift
fi
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
mapfile -d '' files < <(find . -name '.?*' -prune -o -path './bazel-*' -prune -o \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) -type f -print0)
if [[ ${#files[@]} == 0 ]]; then
  echo "check_format: no files"
  exit 0
fi
printf '%s\0' "${files[@]}" | xargs -0 --max-procs="$(nproc)" --max-args=16 clang-format --style=file "${action[@]}"
echo "check_format: ${#files[@]} files"
