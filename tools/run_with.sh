#!/usr/bin/env bash
# Runs a test's program with other settings:  run_with.sh NAME=VALUE... PROGRAM
exec env "$@"
