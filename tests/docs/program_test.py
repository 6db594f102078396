#!/usr/bin/env python3
"""Compares the pages with the program. (Its options: //tests/program:config_test.)

Data: every page, the program, and what writes the workspace that //tests/build:outside_workspace_test builds.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
sys.path.insert(0, os.path.join(ROOT, "tools"))
sys.path.insert(0, os.path.join(ROOT, "tests", "build"))

from doc_pages import commands_of, pages_below  # pylint: disable=wrong-import-position
from own_project import main as write_own_project  # pylint: disable=wrong-import-position

THE_TWO_COMMANDS = (
    "tools/bazel run //tools:tessera -- train transformer",
    "tools/bazel test //...",
)
# "  --ranks N ...  what it is"
OPTION = re.compile(r"^  (?:-\w, ?)?(--[\w-]+)")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def program(*words):
    """The output of the program."""
    done = subprocess.run([os.path.join(ROOT, "tools/tessera"), *words], stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout


def options_of(*command):
    """The options in --help."""
    matches = (OPTION.match(line) for line in program(*command, "--help").splitlines())
    return [match.group(1) for match in matches if match]


def arguments_of_tessera(words):
    """The arguments that a command passes to tessera, or None if it runs something else."""
    if words[:3] == ["tools/bazel", "run", "//tools:tessera"]:
        return words[words.index("--") + 1:] if "--" in words else []
    return words[1:] if words[0] == "tessera" else None


class ProgramTest(unittest.TestCase):

    def test_the_two_commands(self):
        commands = [" ".join(words) for _, words in commands_of(read("README.md"))]
        for command in THE_TWO_COMMANDS:
            self.assertIn(command, commands)

    def test_commands_use_options_that_exist(self):
        found = 0
        for page in pages_below(ROOT):
            for line, words in commands_of(read(page)):
                arguments = arguments_of_tessera(words)
                if arguments is None:
                    continue
                found += 1
                first_option = next((i for i, word in enumerate(arguments) if word.startswith("-")), len(arguments))
                known = options_of(*arguments[:first_option])
                for word in arguments[first_option:]:
                    if word.startswith("-"):
                        self.assertIn(word.partition("=")[0], known, f"{page}:{line}")
        self.assertGreater(found, 0)

    def test_version(self):
        newest = re.search(r"^## ([\d.]+)", read("CHANGELOG.md"), re.MULTILINE).group(1)
        self.assertEqual(program("--version"), f"tessera {newest}\n")

    def test_workspace_of_a_user(self):
        """The page has the files of a workspace, which //tests/build:outside_workspace_test builds."""
        with tempfile.TemporaryDirectory() as parent:
            folder = os.path.join(parent, "own")
            write_own_project(os.path.join(ROOT, "README.md"), "/where/it/is", folder)
            self.assertEqual(sorted(os.listdir(folder)), [".bazelrc", "BUILD", "CMakeLists.txt", "WORKSPACE", "train.cc"])
            with open(os.path.join(folder, "WORKSPACE"), encoding="utf-8") as file:
                self.assertIn('path = "/where/it/is"', file.read())
            with open(os.path.join(folder, "train.cc"), encoding="utf-8") as file:
                self.assertIn("int main(", file.read())


if __name__ == "__main__":
    unittest.main()
