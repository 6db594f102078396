"""Shared by the tests of the checkers: a small tree written for one test, and a checker run on it."""

import os
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "tools")


class CheckerTestCase(unittest.TestCase):
    """`run_checker` writes files and symbolic links into a new folder and returns the checker's exit status and output."""

    checker = ()

    def run_checker(self, files, links=None):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as root:
            for path, text in files.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(text)
            for path, target in (links or {}).items():
                os.symlink(target, os.path.join(root, path))
            command = [sys.executable] if self.checker[0].endswith(".py") else []
            command += [os.path.join(TOOLS, self.checker[0]), *self.checker[1:], root]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            return done.returncode, done.stdout

    def assert_green(self, files):
        status, output = self.run_checker(files)
        self.assertEqual(status, 0, output)
        return output

    def assert_red(self, files, message, links=None):
        status, output = self.run_checker(files, links)
        self.assertNotEqual(status, 0, output)
        self.assertIn(message, output)
