#!/usr/bin/env bash
# A packaged program starts in any folder, and finds the kernels beside itself.
#
#     package_test.sh PACKAGE
set -euo pipefail

fail() {
  echo "$*" >&2
  exit 1
}

elsewhere="$TEST_TMPDIR/else where"
cp -rL "$1" "$elsewhere"
# The sum of the product of [[0, 1, 2], [3, 4, 5]] with its transpose: the squared column sums, 9 + 25 + 49.
said=$(cd / && env -i "$elsewhere/packaged_program")
[[ $said == 83 ]] || fail "the packaged program said: $said"

for isa in v3 v4; do
  object=libtensor_kernels_cpu_$isa.so
  found=$(env -i ldd "$elsewhere/packaged_program" | grep "$object") || fail "the program does not need $object"
  [[ $found == *"=> $elsewhere/$object "* ]] || fail "the program finds another $object: $found"
done

mkdir "$TEST_TMPDIR/alone"
cp "$elsewhere/packaged_program" "$TEST_TMPDIR/alone/"
if (cd / && env -i "$TEST_TMPDIR/alone/packaged_program" 2>/dev/null); then
  fail "the program starts without its kernels, so this test shows nothing"
fi
