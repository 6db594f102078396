#!/usr/bin/env python3
"""tests/STATUS.md: reads it, changes rows in place, and prints a warning for each long job that has not passed lately.

    tools/ci_status.py

The exit status is 0 whatever the warnings are.
"""

import os
import re
import sys
from dataclasses import astuple, dataclass

from ci_git import Git, GitError
from ci_jobs import ROOT, names

PAGE = "tests/STATUS.md"
COLUMNS = ["job", "what it runs", "last passed on commit", "date", "minutes", "last run failed", "remarks"]
NEVER, NOTHING = "never", "-"
MOST_COMMITS = 20  # a row older than this is worth a warning


@dataclass
class Row:
    job: str
    runs: str
    commit: str = NEVER  # where the job last passed: 7 to 40 hex digits, or NEVER
    date: str = NOTHING
    minutes: str = NOTHING
    failed: str = NOTHING  # where and how the job failed, if that was after it last passed
    remarks: str = NOTHING


def cells_of(line):
    """The cells of a line of a table; None if it is something else. A bar in a cell is written with a backslash."""
    if not re.fullmatch(r"\|.*\|\s*", line):
        return None
    cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
    return [cell.strip().replace("\\|", "|") for cell in cells]


def line_of(row):
    cells = [f"`{row.job}`", row.runs, row.commit if row.commit == NEVER else f"`{row.commit}`", *astuple(row)[3:]]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def row_of(cells, where):
    if len(cells) != len(COLUMNS):
        raise ValueError(f"{where}: {len(cells)} cells, expected {len(COLUMNS)}")
    row = Row(cells[0].strip("`"), cells[1], cells[2].strip("`"), *cells[3:])
    if row.job not in names():
        raise ValueError(f"{where}: there is no job {row.job}")
    if not re.fullmatch(f"{NEVER}|[0-9a-f]{{7,40}}", row.commit):
        raise ValueError(f"{where}: {row.commit} is no commit")
    return row


def rows_by_line(text):
    """The number of the line, from 0, and the row, of each job. Throws ValueError for a page that has not one row for each."""
    found, inside = {}, False
    for number, line in enumerate(text.splitlines()):
        cells = cells_of(line)
        if cells == COLUMNS:
            inside = True
        elif cells is None:
            inside = False
        elif inside and not set("".join(cells)) <= set("-: "):
            found[number] = row_of(cells, f"{PAGE}, line {number + 1}")
    listed = [row.job for row in found.values()]
    for name in names():
        if listed.count(name) != 1:
            raise ValueError(f"{PAGE}: {listed.count(name)} rows for {name}, expected 1")
    return found


def rows_of(text):
    """The row of each job, by its name."""
    return {row.job: row for row in rows_by_line(text).values()}


def with_rows(text, rows):
    """The page with these rows (by name) in the places of the old ones; everything else stays."""
    lines = text.splitlines(keepends=True)
    for number, old in rows_by_line(text).items():
        if old.job in rows:
            lines[number] = line_of(rows[old.job])
    return "".join(lines)


def age_of(row, git):
    """The warning for a row's age; None if the row is recent."""
    if row.commit == NEVER:
        return "has never passed"
    after = git.commits_after(row.commit)
    if after is None:
        return f"last passed on {row.commit}, which is not in this history"
    return f"last passed {after} commits ago, on {row.commit}" if after > MOST_COMMITS else None


def warnings(text, git):
    """The warnings that .ci/run prints before its last line."""
    try:
        rows = rows_of(text).values()
    except ValueError as error:
        return [f"warning: {error}"]
    old, lines, reason = [], [], None
    for row in rows:
        try:
            age = age_of(row, git)
        except GitError as error:
            age, reason = None, error
        if age:
            old.append(row.job)
            lines.append(f"warning: {row.job} {age} ({PAGE})")
    if reason:
        lines.append(f"warning: cannot tell how old the rows of {PAGE} are: {reason}")
    if old:
        lines.append(f"to run what has not passed in the last {MOST_COMMITS} commits: tools/nightly {' '.join(old)} --record")
    return lines


def read_page(root):
    with open(os.path.join(root, PAGE), encoding="utf-8") as file:
        return file.read()


def main():
    try:
        lines = warnings(read_page(ROOT), Git(ROOT))
    except OSError as error:
        lines = [f"warning: {PAGE}: {error.strerror}"]
    print("".join(line + "\n" for line in lines), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
