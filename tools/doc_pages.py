"""Reads the pages of the documentation: fenced code blocks, tables, links, code spans."""

import os
import re
import shlex
from dataclasses import dataclass

_FENCE = re.compile(r"^( *)(`{3,})(\w*)\s*$")
_SOURCE_PATH = re.compile(r"// ((?:\w[\w.-]*/)+[\w.-]+\.(?:h|cc|cu))$")


@dataclass
class Block:
    language: str  # the word after the opening fence
    line: int  # of the first line of the text, from 1
    text: str

    @property
    def quoted_path(self):
        """The file that a block quotes, if its first line is a comment with a path; else None."""
        match = _SOURCE_PATH.match(self.text.partition("\n")[0])
        return match and match.group(1)


def _parts_of(text):
    """The blocks of a page, and its other lines."""
    blocks, prose, fence, first, lines = [], [], None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if fence is None and match:
            fence, first, lines = match, number + 1, []
        elif fence is None:
            prose.append(line)
        elif line.strip() == fence.group(2):
            indent = len(fence.group(1))
            blocks.append(Block(fence.group(3), first, "".join(part[indent:] + "\n" for part in lines)))
            fence = None
        else:
            lines.append(line)
    if fence is not None:
        raise ValueError(f"the block of line {first} is not closed")
    return blocks, "\n".join(prose)


def blocks_of(text, language=None):
    """The fenced blocks of a page, or those of one language."""
    return [block for block in _parts_of(text)[0] if language in (None, block.language)]


def prose_of(text):
    """The page without its fenced blocks."""
    return _parts_of(text)[1]


def code_spans_of(text):
    return re.findall(r"`([^`\n]+)`", prose_of(text))


def links_of(text):
    return re.findall(r"\]\(([^)\s]+)\)", prose_of(text))


def anchors_of(text):
    """The valid #fragments: the headings, in the form that web front ends use."""
    headings = re.findall(r"^#+ +(.*)$", prose_of(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def table_of(text, first_header):
    """The rows of the table whose first column is headed `first_header`, as lists of cells."""
    rows, inside = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            inside = False
        elif inside and not set(cells[0]) <= set("-: "):
            rows.append(cells)
        elif cells[0] == first_header:
            inside = True
    return rows


def commands_of(text):
    """(line, words) of each command in the sh blocks: assignments before it and comments are left out."""
    commands = []
    for block in blocks_of(text, "sh"):
        joined = block.text.replace("\\\n", " " * 2)
        for offset, line in enumerate(joined.splitlines()):
            words = shlex.split(line, comments=True)
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words:
                commands.append((block.line + offset, words))
    return commands


def pages_below(root):
    """The paths of all pages of a checkout, from its root."""
    pages = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "bazel-", "__")))
        pages += [os.path.relpath(os.path.join(folder, name), root) for name in sorted(files) if name.endswith(".md")]
    return pages
