#!/usr/bin/env bash
# Runs a test's program with other settings:  run_with.sh NAME=VALUE... PROGRAM
# What the environment has (--test_env) stays.
while [[ ${1:-} == *=* ]]; do
  [[ -v ${1%%=*} ]] || export "$1"
  shift
done
exec "$@"
