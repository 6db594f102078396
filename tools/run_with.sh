#!/usr/bin/env bash
# Runs a test's program with other settings:  run_with.sh NAME=VALUE... PROGRAM
# Variables of the environment (--test_env) have priority.
while [[ ${1:-} == *=* ]]; do
  [[ -v ${1%%=*} ]] || export "$1"
  shift
done
exec "$@"
