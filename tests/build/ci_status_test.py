#!/usr/bin/env python3
"""tools/ci_status.py: the rows of tests/STATUS.md, and the warnings about old ones."""

import os
import unittest

import ci_tree  # finds the tools
from ci_git import GitError
from ci_jobs import JOBS, names
from ci_status import COLUMNS, Row, line_of, read_page, rows_of, warnings, with_rows


class AgeingGit:
    """Git in which `ages` commits came after a commit, by its hash."""

    def __init__(self, **ages):
        self.ages = ages

    def commits_after(self, commit):
        return self.ages.get(commit)


class NoGit:
    def commits_after(self, _):
        raise GitError("git is not installed")


def page(**rows):
    """A page with these rows; all other jobs passed on commit aaaaaaa."""
    lines = [rows.get(name) or line_of(Row(name, "tests", "aaaaaaa", "2026-01-02", "3.5")) for name in names()]
    table = f"| {' | '.join(COLUMNS)} |\n|{'---|' * 7}\n{''.join(lines)}"
    return f"# Jobs\n\n| a | table |\n|---|---|\n| `x` | 1 |\n\n{table}\nThe end.\n"


class RowsTest(unittest.TestCase):
    def test_the_page_of_this_tree(self):
        text = read_page(ci_tree.SOURCE)
        rows = rows_of(text)
        self.assertEqual([(row.job, row.runs) for row in rows.values()], [(job.name, job.runs) for job in JOBS])
        self.assertEqual(with_rows(text, rows), text)

    def test_a_row(self):
        row = "| `asan_nn` | tests | `0123abcd` | 2026-01-02 | 12.5 | `fff0000000`, 2026-02-03: //a (+2) | slow \\| long |\n"
        read = rows_of(page(asan_nn=row))["asan_nn"]
        self.assertEqual(read, Row("asan_nn", "tests", "0123abcd", "2026-01-02", "12.5",
                                   "`fff0000000`, 2026-02-03: //a (+2)", "slow | long"))
        self.assertEqual(line_of(read), row)

    def test_only_the_given_row_changes(self):
        old = page()
        row = Row("asan_nn", "tests", "bbbbbbb", "2026-03-04", "7")
        new = with_rows(old, {"asan_nn": row})
        self.assertEqual([line for line in new.splitlines(keepends=True) if line not in old.splitlines(keepends=True)],
                         ["| `asan_nn` | tests | `bbbbbbb` | 2026-03-04 | 7 | - | - |\n"])
        self.assertEqual(len(new.splitlines()), len(old.splitlines()))

    def test_faults(self):
        good = line_of(Row("asan_nn", "tests"))
        for row, message in {
            "": "0 rows for asan_nn, expected 1",
            good + good: "2 rows for asan_nn, expected 1",
            good.replace("asan_nn", "asan_all"): "line 10: there is no job asan_all",
            "| `asan_nn` | never |\n": "line 10: 2 cells, expected 7",
            good.replace("never", "yesterday"): "line 10: yesterday is no commit",
            good.replace("never", "--all"): "line 10: --all is no commit",
        }.items():
            with self.assertRaisesRegex(ValueError, f"tests/STATUS.md.*{message}"):
                rows_of(page(asan_nn=row or "\n"))


class WarningsTest(unittest.TestCase):
    def test_twenty_commits_are_no_warning(self):
        self.assertEqual(warnings(page(), AgeingGit(aaaaaaa=20)), [])

    def test_twenty_one_commits(self):
        old = line_of(Row("asan_nn", "tests", "bbbbbbb"))
        self.assertEqual(warnings(page(asan_nn=old), AgeingGit(aaaaaaa=20, bbbbbbb=21)), [
            "warning: asan_nn last passed 21 commits ago, on bbbbbbb (tests/STATUS.md)",
            "to run what has not passed in the last 20 commits: tools/nightly asan_nn --record",
        ])

    def test_never_and_lost(self):
        never, lost = line_of(Row("asan_nn", "tests")), line_of(Row("outside", "tests", "bbbbbbb"))
        self.assertEqual(warnings(page(asan_nn=never, outside=lost), AgeingGit(aaaaaaa=0)), [
            "warning: asan_nn has never passed (tests/STATUS.md)",
            "warning: outside last passed on bbbbbbb, which is not in this history (tests/STATUS.md)",
            "to run what has not passed in the last 20 commits: tools/nightly asan_nn outside --record",
        ])

    def test_without_git(self):
        never = line_of(Row("asan_nn", "tests"))
        self.assertEqual(warnings(page(asan_nn=never), NoGit()), [
            "warning: asan_nn has never passed (tests/STATUS.md)",
            "warning: cannot tell how old the rows of tests/STATUS.md are: git is not installed",
            "to run what has not passed in the last 20 commits: tools/nightly asan_nn --record",
        ])

    def test_a_page_with_a_fault(self):
        self.assertEqual(warnings("", AgeingGit()), ["warning: tests/STATUS.md: 0 rows for asan_below, expected 1"])


class CommandLineTest(ci_tree.CiTreeTest):
    def test_prints_warnings(self):
        self.write("tests/STATUS.md", page())
        self.state(after_aaaaaaa="21\n")
        status, output = self.call("tools/ci_status.py")
        self.assertEqual((status, len(output.splitlines())), (0, len(JOBS) + 1))
        self.state(after_aaaaaaa="20\n")
        self.assertEqual(self.call("tools/ci_status.py"), (0, ""))

    def test_no_page(self):
        os.remove(self.path("tests/STATUS.md"))
        self.assertEqual(self.call("tools/ci_status.py"), (0, "warning: tests/STATUS.md: No such file or directory\n"))


if __name__ == "__main__":
    unittest.main()
