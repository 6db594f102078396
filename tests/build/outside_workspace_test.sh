#!/usr/bin/env bash
# A user's workspace, outside of this one: it depends on Tessera by local_repository and tessera_dependencies(), has its
# own folders nn/ and tools/ with headers named like Tessera's, and is built and run by its own Bazel. All of Tessera is
# analysed from there; only the program's dependencies are compiled, without optimisation and without CUDA, because that
# takes minutes already. At the end a precompiled header changes.
set -euo pipefail
sources=$TEST_SRCDIR/$TEST_WORKSPACE/tests/build/outside_workspace
tessera=$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")
work=$(mktemp -d "$TEST_TMPDIR/outside.XXXXXX")
outside=$work/workspace

bazel() {
  (cd "$outside" && /usr/bin/bazel-4 --output_user_root="$work/user" --output_base="$work/output" \
    --host_jvm_args=-Xmx1g ${TESSERA_BAZELRC:+"--bazelrc=$TESSERA_BAZELRC"} "$@")
}
finish() {
  bazel shutdown >/dev/null 2>&1 || true
  chmod -R u+w "$work" && rm -rf "$work"
}
trap finish EXIT

fail() {
  echo "$*" >&2
  exit 1
}

while read -r -d '' file; do
  path=${file#"$sources/"}
  mkdir -p "$(dirname "$outside/${path%.in}")"
  sed "s|@TESSERA@|$tessera|" "$file" >"$outside/${path%.in}"
done < <(find -L "$sources" -type f -print0)

options=(--compilation_mode=fastbuild --repo_env=TESSERA_CUDA=0 --nosandbox_debug --symlink_prefix=/ --curses=no --color=no --show_progress_rate_limit=60)
bazel build "${options[@]}" --nobuild @tessera//:tessera
bazel build "${options[@]}" //:train
said=$(bazel run "${options[@]}" --ui_event_filters=-info --noshow_progress //:train)
expected="the user's loss, version 7: 2 x 3 outputs, 12 gradients"
[[ $said == *"$expected"* ]] || fail "the program said: $said, expected: $expected"
bazel test "${options[@]}" --test_output=errors //nn:loss_test

# Bazel must know the headers inside a precompiled one: a change in one of them rebuilds the objects compiled with it.
precompiling=("${options[@]}" --compilation_mode=opt --force_pic --ui_event_filters=-info --noshow_progress)
for value in 1 2; do
  sed -i "s/return [0-9]/return $value/" "$outside/precompiled/value.h"
  said=$(bazel run "${precompiling[@]}" //precompiled:value)
  [[ $said == "value $value" ]] || fail "a header inside a precompiled one says $value, and the program: $said"
done
