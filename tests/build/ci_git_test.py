#!/usr/bin/env python3
"""tools/ci_git.py counts commits and finds changed files, in repositories made here."""

import os
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

import ci_tree  # finds the tools
from ci_git import Git, GitError

HAS_GIT = shutil.which("git") is not None


class WithoutGitTest(unittest.TestCase):
    def test_not_installed(self):
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}), self.assertRaisesRegex(GitError, "^git is not installed$"):
            Git(ci_tree.TOOLS).commit()


@unittest.skipUnless(HAS_GIT, "git is not installed")
class CiGitTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        own = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_CEILING_DIRECTORIES": self.folder}
        for who in ("AUTHOR", "COMMITTER"):
            own.update({f"GIT_{who}_NAME": "someone", f"GIT_{who}_EMAIL": "someone@example.org"})
        others = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment = mock.patch.dict(os.environ, dict(others, **own), clear=True)
        environment.start()
        self.addCleanup(environment.stop)
        self.root = os.path.join(self.folder, "repository")
        self.git("init", "--quiet", self.root, folder=self.folder)
        self.hashes = [self.commit(name) for name in ("a", "b", "c")]

    def git(self, *words, folder=None):
        done = subprocess.run(["git", *words], cwd=folder or self.root, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip()

    def write(self, name, text="text\n"):
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
            file.write(text)

    def commit(self, name):
        self.write(name)
        self.git("add", name)
        self.git("commit", "--quiet", "--message", name)
        return self.git("rev-parse", "HEAD")

    def test_counts(self):
        git = Git(self.root)
        self.assertEqual((git.commit(), git.number()), (self.hashes[2], 3))
        self.assertEqual([git.commits_after(commit[:10]) for commit in self.hashes], [2, 1, 0])

    def test_a_merge_counts_as_one_commit(self):
        main = self.git("symbolic-ref", "--short", "HEAD")
        self.git("checkout", "--quiet", "-b", "other")
        for name in ("d", "e"):
            self.commit(name)
        self.git("checkout", "--quiet", main)
        self.git("merge", "--quiet", "--no-ff", "--message", "merge", "other")
        self.assertEqual(Git(self.root).number(), 4)

    def test_a_commit_that_is_not_in_the_history(self):
        self.git("checkout", "--quiet", self.hashes[0])
        self.assertIsNone(Git(self.root).commits_after(self.hashes[2]))
        self.assertIsNone(Git(self.root).commits_after("0123456789"))

    def test_changed_files(self):
        git = Git(self.root)
        self.assertEqual(git.changed_files(), [])
        self.write(".gitignore", "*.log\n")
        self.write("x.log")
        self.write("new file")
        self.write("a", "other text\n")
        self.git("mv", "b", "d")
        self.assertEqual(git.changed_files(), [".gitignore", "a", "b", "d", "new file"])

    def test_shallow_clone(self):
        self.git("clone", "--quiet", "--depth=1", "file://" + self.root, "shallow", folder=self.folder)
        git = Git(os.path.join(self.folder, "shallow"))
        self.assertEqual(git.commit(), self.hashes[2])
        for ask in (git.number, lambda: git.commits_after(self.hashes[2])):
            with self.assertRaisesRegex(GitError, "^this clone is shallow, so its commits cannot be counted$"):
                ask()

    def test_no_repository(self):
        with self.assertRaisesRegex(GitError, "^git rev-parse --show-prefix: fatal: not a git repository"):
            Git(self.folder).number()

    def test_a_folder_of_another_repository(self):
        inner = os.path.join(self.root, "inner")
        os.mkdir(inner)
        for ask in (Git(inner).number, Git(inner).changed_files, lambda: Git(inner).commits_after(self.hashes[0])):
            with self.assertRaisesRegex(GitError, "^inner is not the top folder of a git repository$"):
                ask()


if __name__ == "__main__":
    if not HAS_GIT:
        print("SKIPPED: git is not installed")
    unittest.main()
