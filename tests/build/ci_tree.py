"""A small tree with the real .ci/run and tools/nightly, and scripts in place of Bazel, the checks and git."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from checker_test_case import TOOLS

sys.path.insert(0, TOOLS)

SOURCE = os.path.dirname(TOOLS)
COPIED = ("tools/ci_git.py", "tools/ci_jobs.py", "tools/ci_status.py", "tools/ci_summary.py", "tools/nightly",
          "tests/STATUS.md")
PROGRAMS = "bash cat dirname env find grep mktemp python3 rm sleep tee wc"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

# Records each call. A file in the folder `state` changes the behaviour of a job: it contains words of the command.
BAZEL = """#!/bin/bash
cd "$(dirname "$0")/../state" || exit 9
echo "$*" >>calls
[ "$1" = info ] && echo /nowhere
[ "$1" = test ] || exit 0
does() { [ -e "$1" ] && [[ "$*" == *"$(cat "$1")"* ]]; }
for word; do [[ $word == --build_event_json_file=* ]] && events=${word#*=}; done
result() { echo "{\\"id\\":{\\"testResult\\":{\\"label\\":\\"//$1\\"}},\\"testResult\\":{\\"status\\":\\"$2\\"}}" >>"$events"; }
if does waits "$@"; then
  trap 'echo cancelled >>calls; exit 8' INT
  : >is_waiting
  for _ in {1..3000}; do sleep 0.02; done
fi
if does moves "$@"; then echo ffffffffff >commit; fi
result good:a_test PASSED
result good:b_test PASSED
if does fails "$@"; then
  result bad:a_test FAILED
  result bad:b_test TIMEOUT
  exit 3
fi
exit 0
"""
GIT = """#!/bin/bash
cd "$(dirname "$0")/../state" || exit 9
case "$*" in
  "rev-parse --show-prefix") echo ;;
  "rev-parse HEAD") cat commit ;;
  "rev-parse --is-shallow-repository") cat shallow ;;
  "rev-list --count --first-parent HEAD") cat number ;;
  "merge-base --is-ancestor "*" HEAD") [ -e "after_$3" ] ;;
  "rev-list --count --first-parent "*..HEAD) cat "after_${4%..HEAD}" ;;
  "status "*) cat changed ;;
  *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""
CHECK_ALL = """#!/bin/bash
echo "check_all" >>"$(dirname "$0")/../state/calls"
echo "PASSED check_one"
"""


class CiTreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(folder.cleanup)
        self.root = os.path.join(folder.name, "tree")
        for path in COPIED:
            with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
                self.write(path, file.read(), 0o755)
        self.write("tools/bazel", BAZEL, 0o755)
        self.write("tools/check_all", CHECK_ALL, 0o755)
        self.write("bin/git", GIT, 0o755)
        for name in PROGRAMS.split():
            os.symlink(shutil.which(name), self.path(f"bin/{name}"))
        self.hide_toolkits()
        os.mkdir(self.path("temporary"))
        self.state(commit=COMMIT + "\n", number="1\n", shallow="false\n", changed="", calls="")

    def hide_toolkits(self):
        """Only the toolkit of add_toolkit is found."""
        only = f"CUDA_FOLDERS = [{self.path('cuda')!r}]"
        jobs, count = re.subn(r"(?m)^CUDA_FOLDERS = .*$", only, self.read("tools/ci_jobs.py"))
        self.assertEqual(count, 1)
        self.write("tools/ci_jobs.py", jobs, 0o755)

    def add_toolkit(self):
        self.write("cuda/bin/nvcc", "", 0o755)

    def path(self, path):
        return os.path.join(self.root, path)

    def write(self, path, text, mode=0o644):
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        with open(self.path(path), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(path), mode)

    def read(self, path):
        with open(self.path(path), encoding="utf-8") as file:
            return file.read()

    def state(self, **files):
        """Sets the file that the scripts read; None removes it."""
        for name, text in files.items():
            if text is None:
                os.remove(self.path(f"state/{name}"))
            else:
                self.write(f"state/{name}", text)

    def targets_run(self):
        """The targets of each `bazel test` since the last call of this function."""
        calls = [line for line in self.read("state/calls").splitlines() if line.startswith("test ")]
        self.state(calls="")
        return [line.partition(" -- ")[2] for line in calls]

    def environment(self, **more):
        return {"PATH": self.path("bin"), "HOME": self.path("home"), "XDG_CACHE_HOME": self.path("cache"),
                "TMPDIR": self.path("temporary"), "PYTHONDONTWRITEBYTECODE": "1", **more}

    def call(self, *command, **environment):
        """Exit status and output of a command in the tree."""
        done = subprocess.run(command, cwd=self.root, env=self.environment(**environment), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout
