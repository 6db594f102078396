#!/usr/bin/env bash
# Two workspaces of users, outside of this one, built by a Bazel of their own. The first is what the README prints, and nothing
# more: it is built and run, and its package starts in another folder. The second has folders nn/ and tools/ of its own, with headers
# named like Tessera's, and at the end a precompiled header changes. Neither asks for CUDA.
set -euo pipefail
here=$TEST_SRCDIR/$TEST_WORKSPACE
sources=$here/tests/build/outside_workspace
tessera=$(dirname "$(readlink -f "$here/WORKSPACE")")
work=$(mktemp -d "$TEST_TMPDIR/outside.XXXXXX")
page=$work/page
outside=$work/workspace

# bazel_in WORKSPACE ARGUMENTS...
bazel_in() {
  local workspace=$1
  shift
  (cd "$workspace" && /usr/bin/bazel-4 --output_user_root="$work/user" --output_base="$workspace.output" \
    --host_jvm_args=-Xmx1g ${TESSERA_BAZELRC:+"--bazelrc=$TESSERA_BAZELRC"} "$@")
}
bazel() { bazel_in "$outside" "$@"; }
finish() {
  for workspace in "$page" "$outside"; do
    [[ -d $workspace.output ]] && bazel_in "$workspace" shutdown >/dev/null 2>&1
  done
  chmod -R u+w "$work" && rm -rf "$work"
}
trap finish EXIT

fail() {
  echo "$*" >&2
  exit 1
}

# The page.
PYTHONPATH=$here/tools python3 "$here/tests/build/own_project.py" "$here/README.md" "$tessera" "$page"
quiet=(--curses=no --color=no --show_progress_rate_limit=60)
bazel_in "$page" build "${quiet[@]}" //:train //:train_package 2>&1 | tee "$work/said"
(($(wc -l <"$work/said") <= 60)) || fail "the build of the page's workspace says $(wc -l <"$work/said") lines"
grep -q 'CUDA_FOUND = False' "$page.output/external/tessera_cuda/defs.bzl" || fail "the page's workspace uses CUDA unasked"
said=$(bazel_in "$page" run "${quiet[@]}" --ui_event_filters=-info --noshow_progress //:train -- --ranks 2)
[[ $said == *loss* ]] || fail "the page's program said: $said"
cp -r "$(bazel_in "$page" info bazel-bin)/train_package" "$work/elsewhere"
bazel_in "$page" shutdown
mv "$page.output" "$page.gone" # nothing may be found there
packaged=$(cd / && env -i "$work/elsewhere/train" --ranks 2)
[[ $packaged == "$said" ]] || fail "in the package the program said: $packaged, before: $said"
rm -rf "$page" "$page.gone"

# A workspace with names of its own. Commands for a debug build and for a build that asks for nothing are only looked at.
while read -r -d '' file; do
  path=${file#"$sources/"}
  mkdir -p "$(dirname "$outside/${path%.in}")"
  sed "s|@TESSERA@|$tessera|" "$file" >"$outside/${path%.in}"
done < <(find -L "$sources" -type f -print0)

# Without --force_pic, sources read the text of the precompiled header; one target shows that they find it. The rest is built with it,
# because those objects are in the disk cache by now.
options=(--compilation_mode=opt --nosandbox_debug --symlink_prefix=/ "${quiet[@]}")
bazel build "${options[@]}" @tessera//tensor:check
options+=(--force_pic)
bazel build "${options[@]}" --nobuild @tessera//:tessera
for mode in fastbuild dbg; do
  bazel aquery "${options[@]}" --compilation_mode=$mode 'mnemonic("CppCompile", @tessera//tensor:check)' >"$work/commands"
  optimised=$(grep -q -e '-O2' "$work/commands" && echo yes || echo no)
  expected=$([[ $mode == dbg ]] && echo no || echo yes)
  [[ $optimised == "$expected" ]] || fail "Tessera is optimised in mode $mode: $optimised, expected: $expected"
done
bazel build "${options[@]}" //:train
said=$(bazel run "${options[@]}" --ui_event_filters=-info --noshow_progress //:train)
expected="the user's loss, version 7: 2 x 3 outputs, 12 gradients"
[[ $said == *"$expected"* ]] || fail "the program said: $said, expected: $expected"
bazel test "${options[@]}" --test_output=errors //nn:loss_test

# Bazel must know the headers inside a precompiled one: a change in one of them rebuilds the objects compiled with it.
precompiling=("${options[@]}" --ui_event_filters=-info --noshow_progress)
for value in 1 2; do
  sed -i "s/return [0-9]/return $value/" "$outside/precompiled/value.h"
  said=$(bazel run "${precompiling[@]}" //precompiled:value)
  [[ $said == "value $value" ]] || fail "a header inside a precompiled one says $value, and the program: $said"
done
