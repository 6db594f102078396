"""Queries of .ci/run and tools/nightly to git."""

import os
import subprocess


class GitError(Exception):
    """Why git cannot give the result."""


class Git:
    """One checkout. Every function throws GitError if git is missing or `root` is not the top folder of a repository."""

    def __init__(self, root):
        self.root = root

    def _run(self, *words):
        try:
            return subprocess.run(["git", *words], cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        except FileNotFoundError:
            raise GitError("git is not installed") from None

    def _ask(self, *words):
        done = self._run(*words)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise GitError(f"git {' '.join(words)}: {said[0]}")
        return done.stdout

    def commit(self):
        """The hash of the current commit."""
        if self._ask("rev-parse", "--show-prefix").strip():
            raise GitError(f"{os.path.basename(self.root)} is not the top folder of a git repository")
        return self._ask("rev-parse", "HEAD").strip()

    def _demand_history(self):
        if self._ask("rev-parse", "--is-shallow-repository").strip() == "true":
            raise GitError("this clone is shallow, so its commits cannot be counted")

    def number(self):
        """The number of the commit that is checked out: 1 for the first. A merge counts as one commit, however many commits
        it brings. GitError in a shallow clone."""
        self.commit()
        self._demand_history()
        return int(self._ask("rev-list", "--count", "--first-parent", "HEAD"))

    def commits_after(self, commit):
        """The number of commits since `commit`, counted as by number(); None if `commit` is not in the history. GitError in a
        shallow clone."""
        self.commit()
        self._demand_history()
        if self._run("merge-base", "--is-ancestor", commit, "HEAD").returncode != 0:
            return None
        return int(self._ask("rev-list", "--count", "--first-parent", f"{commit}..HEAD"))

    def changed_files(self):
        """The files that differ from the commit, and those that git neither tracks nor ignores."""
        self.commit()
        entries = self._ask("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all").split("\0")
        return sorted(entry[3:] for entry in entries if entry)
