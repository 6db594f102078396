#!/bin/bash
# Runs the completion script in bash, like the Tab key.
set -u
program=$(realpath "$1")
failures=0

script=$("$program" completion bash) || exit 1
source /dev/stdin <<< "$script"

# Prints the completions for the words, the last of which is being typed.
offered() {
  COMP_WORDS=("$@")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMPREPLY=()
  _tessera
  echo "${COMPREPLY[*]}"
}

expect() {
  local wanted=$1
  shift
  local got
  got=$(offered "$@")
  if [ "$got" != "$wanted" ]; then
    echo "for: $*"
    echo "  offered: $got"
    echo "  wanted:  $wanted"
    failures=$((failures + 1))
  fi
}

has() {
  local wanted=$1
  shift
  if ! [[ " $(offered "$@") " == *" $wanted "* ]]; then
    echo "for: $*: no $wanted among: $(offered "$@")"
    failures=$((failures + 1))
  fi
}

expect "train" tessera tr
expect "transformer" tessera train tr
expect "llama" tessera train ll
expect "--kv-heads" tessera train llama --kv
expect "" tessera train gpt --kv
expect "auto threads processes" tessera train gpt --launch ""
expect "bf16" tessera train gpt --lr 1 --precision b
expect "tiny" tessera train gpt --preset t
expect "--temperature" tessera generate --temp
expect "bash" tessera completion ba
has "--help" tessera train gpt --
has "mlp" tessera train ""
has "--list" tessera train ""
has "generate" tessera ""
cd "$(mktemp -d "$TEST_TMPDIR/XXXXXX")" && touch notes.txt
expect "notes.txt" tessera train gpt --data not
expect "notes.txt" tessera train gpt --tokenizer not
expect "bytes" tessera train gpt --tokenizer by

# Every option of --help is completed.
for option in $("$program" train moe --help | grep -o '^  --[a-z0-9-]*'); do
  has "$option" tessera train moe "$option"
done

if ! complete -p tessera > /dev/null; then
  echo "the script registers no completion"
  failures=$((failures + 1))
fi
"$program" completion zsh | grep -q bashcompinit || { echo "zsh is not told to read it"; failures=$((failures + 1)); }
exit $((failures > 0))
