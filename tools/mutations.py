"""The list of defects for tools/mutate: reading it, inserting a defect into a text, and checks of the list."""

import hashlib
import os
import re
from dataclasses import dataclass, field

from check_docs import target_exists

HEADING = re.compile(r"^== ([a-z]+-\d\d\d?): (\S+)$")
MOST_TESTS = 3


class ListError(Exception):
    """A list or one of its defects cannot be used."""


@dataclass
class Defect:
    id: str
    file: str
    sentence: str = ""
    tests: list = field(default_factory=list)
    old: list = field(default_factory=list)
    new: list = field(default_factory=list)

    @property
    def floor(self):
        return self.id.partition("-")[0]

    @property
    def digest(self):
        """Identifies the change, so that results of an earlier version of the defect are not reused."""
        text = "\n".join([self.file, *self.old, "", *self.new])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def apply(self, text):
        """`text`, the content of the file, with the defect inserted."""
        lines, size = text.split("\n"), len(self.old)
        places = [at for at in range(len(lines)) if lines[at:at + size] == self.old]
        if len(places) != 1:
            raise ListError(f"{self.id}: {self.file} contains its lines {len(places)} times instead of once")
        return "\n".join(lines[:places[0]] + self.new + lines[places[0] + size:])

    def add_line(self, line):
        """Adds a line of the list: first the sentence, then the tests, then the change."""
        if line.startswith("tests: ") and not self.tests:
            self.tests = line.split()[1:]
        elif not self.tests:
            self.sentence = f"{self.sentence} {line}".strip()
        elif line[0] not in " -+":
            raise ListError(f"{self.id}: a changed line must start with a blank, - or +: {line}")
        else:
            if line[0] in " -":
                self.old.append(line[1:])
            if line[0] in " +":
                self.new.append(line[1:])

    def check(self):
        if not self.sentence.endswith("."):
            raise ListError(f"{self.id}: the description must end with a full stop")
        if not 0 < len(self.tests) <= MOST_TESTS or not all(test.startswith("//") for test in self.tests):
            raise ListError(f"{self.id}: needs 1 to {MOST_TESTS} test labels")
        if not self.old or self.old == self.new:
            raise ListError(f"{self.id}: changes nothing")


def read_defects(path):
    """The defects of the list at `path`, in order."""
    defects = []
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for number, line in enumerate(lines, 1):
        heading = HEADING.match(line)
        if heading:
            defects.append(Defect(*heading.groups()))
        elif not line or line.startswith("#"):
            continue
        elif line.startswith("==") or not defects:
            raise ListError(f"{path}:{number}: expected a heading like `== fsdp-01: fsdp/runtime/root_state.cc`: {line}")
        else:
            defects[-1].add_line(line)
    for defect in defects:
        defect.check()
    repeated = {defect.id for defect in defects if sum(other.id == defect.id for other in defects) > 1}
    if repeated:
        raise ListError(f"repeated: {', '.join(sorted(repeated))}")
    return defects


def choose(defects, names):
    """The defects whose id starts with one of `names`; all if there are no names."""
    for name in names:
        if not any(defect.id.startswith(name) for defect in defects):
            raise ListError(f"no defect starts with {name}; see --list")
    return [defect for defect in defects if not names or defect.id.startswith(tuple(names))]


def read_text(root, path):
    # newline="" keeps the line ends, so that writing the text back restores the file exactly.
    with open(os.path.join(root, path), encoding="utf-8", newline="") as file:
        return file.read()


def misplaced(root, defects):
    """An error for each defect that cannot be inserted into the tree."""
    for defect in defects:
        try:
            defect.apply(read_text(root, defect.file))
        except FileNotFoundError:
            yield f"{defect.id}: there is no file {defect.file}"
        except ListError as error:
            yield str(error)


def missing_tests(root, defects):
    """An error for each listed test that the tree does not have."""
    for defect in defects:
        for label in (f"//tests/{defect.floor}/...", *defect.tests):
            if not target_exists(root, label):
                yield f"{defect.id}: there is no target {label}"
