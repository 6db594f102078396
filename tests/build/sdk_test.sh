#!/usr/bin/env bash
# Programs outside of Bazel use the folder //tools:sdk, from wherever it was copied to: the README's program, with its CMakeLists.txt
# and with the compiler alone.
#
#     sdk_test.sh SDK
set -euo pipefail
here=$TEST_SRCDIR/$TEST_WORKSPACE

fail() {
  echo "$*" >&2
  exit 1
}

sdk="$TEST_TMPDIR/else where/sdk"
mkdir -p "${sdk%/*}"
cp -rL "$1" "$sdk"
page=$TEST_TMPDIR/page
PYTHONPATH=$here/tools python3 "$here/tests/build/own_project.py" "$here/README.md" /nowhere "$page"

cmake -S "$page" -B "$page/build" -DCMAKE_PREFIX_PATH="$sdk"
cmake --build "$page/build"
said=$(cd / && env -i "$page/build/train" --ranks 2)
[[ $said == *"step 100: loss"* ]] || fail "the program that CMake built said: $said"

command=$(grep '^g++ .*link_flags' "$here/README.md") || fail "the README has no command of the compiler"
(cd "$page" && eval "$(sed 's|/path/to/sdk|"$sdk"|g' <<<"$command")")
again=$(cd / && env -i "$page/train" --ranks 2)
[[ $again == "$said" ]] || fail "the program that the compiler built said: $again; before: $said"

for program in "$page/build/train" "$page/train"; do
  found=$(env -i ldd "$program")
  for name in libtensor_kernels_cpu_v3.so libfmt.so.9 libdnnl.so.2; do
    [[ $found == *"$name => $sdk/lib/"* ]] || fail "$program finds another $name: $found"
  done
done
