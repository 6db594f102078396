#!/usr/bin/env python3
"""tools/train_seeds runs each seed, prints its accuracy, and fails below the required accuracy."""

import os
import subprocess
import sys
import tempfile
import unittest

from checker_test_case import TOOLS

# Replaces the program: its accuracy depends on the seed, and seed 9 cannot run.
PROGRAM = """#!/bin/bash
[ "${*:1:5}" = "train mlp --ranks 2 --seed" ] || { echo "unexpected: $*" >&2; exit 2; }
[ "$6" = 9 ] && { echo "tessera: no luck" >&2; exit 1; }
echo "trained 2350 steps in 1$6.5 s, 100 samples/s"
echo "test accuracy 88.$6 %"
"""


class TrainSeedsTest(unittest.TestCase):
    def train(self, *arguments):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            program = os.path.join(folder, "tessera")
            with open(program, "w", encoding="utf-8") as file:
                file.write(PROGRAM)
            os.chmod(program, 0o755)
            command = [sys.executable, os.path.join(TOOLS, "train_seeds"), "--program", program, *arguments]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            return done.returncode, done.stdout

    def test_each_seed_is_a_line(self):
        status, output = self.train("--seeds", "5,7")
        self.assertEqual(output.splitlines(), [
            "seed 5: accuracy 88.50 %, trained in 15.5 s",
            "seed 7: accuracy 88.70 %, trained in 17.5 s",
            "2 seeds, the worst 88.50 %, wanted 88.5 %",
        ])
        self.assertEqual(status, 0)

    def test_one_seed_below_fails_all(self):
        status, output = self.train()
        self.assertIn("5 seeds, the worst 88.10 %", output)
        self.assertEqual(status, 1)

    def test_a_run_that_fails_is_shown(self):
        status, output = self.train("--seeds", "6,9")
        self.assertIn("seed 9: exit status 1\ntessera: no luck\n", output)
        self.assertEqual(status, 1)


if __name__ == "__main__":
    unittest.main()
