#!/usr/bin/env bash
# Its data are the compiled blocks of all pages: that it can run is the proof. Says what there was.
set -euo pipefail
cat "$TEST_SRCDIR/$TEST_WORKSPACE"/tests/docs/*.txt
