#!/usr/bin/env python3
"""Checks the documentation against the repository.

    tools/check_docs.py [ROOT]

On every page: links lead to files and headings, paths in code spans exist, a code block that begins with a path equals a
part of that file, the commands of sh blocks use existing files, targets and configs, and tests/docs/BUILD compiles the
page. Each folder has a README.md that the README of the root links; the root's dependency table matches tools/packages.txt.
//tests/docs checks options of commands by running the program.
"""

import fnmatch
import functools
import glob
import os
import re
import sys

from build_graph import FLOORS
from doc_pages import anchors_of, blocks_of, code_spans_of, commands_of, links_of, pages_below, table_of

FOLDERS = (*FLOORS, "tests", "tools")
MUST_HAVE_A_README = (*FOLDERS, "tensor/kernels")
# Programs of every Debian system that commands may start with; `tessera` stands for //tools:tessera.
KNOWN_PROGRAMS = {"bash", "cat", "cd", "python3", "tessera"}
SOURCE_PATH = re.compile(r"^[\w./*-]+\.(h|cc|cu|py|sh|bzl|txt|md)$")


def page_text(root, page):
    with open(os.path.join(root, page), encoding="utf-8") as file:
        return file.read()


def check_links(root, page, text):
    for link in links_of(text):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(root, target)):
            yield f"the link {link} leads nowhere"
        elif anchor and anchor not in anchors_of(page_text(root, target)):
            yield f"the link {link} names no heading of {target}"


@functools.cache
def paths_below(folder):
    """Of all files and folders. Links to folders are not followed: Bazel's lead to its outputs, which are many."""
    return [os.path.join(here, name) for here, folders, files in os.walk(folder) for name in (*folders, *files)]


def exists_somewhere(root, page, path):
    """Whether a path of a code span exists: from the root, from the page, as an include, or as the end of a path in the page's top
    folder."""
    places = (path, os.path.join(os.path.dirname(page), path), path.removeprefix("tessera/"))
    if any(glob.glob(os.path.join(root, place)) for place in places):
        return True
    top = page.split("/")[0] if "/" in page else ""
    return bool(fnmatch.filter(paths_below(os.path.join(root, top)), f"*/{path}"))


def check_paths(root, page, text):
    for span in code_spans_of(text):
        in_a_folder = span.startswith(tuple(f"{folder}/" for folder in FOLDERS)) and re.match(r"^[\w./*-]+$", span)
        if (in_a_folder or SOURCE_PATH.match(span)) and not exists_somewhere(root, page, span):
            yield f"there is no file {span}"


def spaceless(text):
    return "".join(text.split())


def check_quotes(root, _, text):
    """A quoted file contains the block; white space is ignored."""
    for block in blocks_of(text, "cpp"):
        path = block.quoted_path
        if path is None:
            continue
        if not os.path.exists(os.path.join(root, path)):
            yield f"line {block.line} quotes {path}, which is not there"
        elif spaceless(block.text.partition("\n")[2]) not in spaceless(page_text(root, path)):
            yield f"the block of line {block.line} is not in {path}; quote it again"


def target_exists(root, label):
    """Whether the BUILD file of a label's package has it. A rank test stands for one target per transport."""
    package, _, name = label.removeprefix("//").partition(":")
    if package.endswith("..."):
        return os.path.isdir(os.path.join(root, package.removesuffix("...")))
    if not os.path.exists(os.path.join(root, package, "BUILD")):
        return False
    text = page_text(root, os.path.join(package, "BUILD"))
    name = name or os.path.basename(package)
    return any(f'"{short}"' in text for short in (name, name.removesuffix("_local"), name.removesuffix("_gloo")))


def check_word(root, word, configs):
    if word.startswith("//"):
        if not target_exists(root, word):
            yield f"there is no target {word}"
    elif word.startswith("--config="):
        if word.removeprefix("--config=") not in configs:
            yield f".bazelrc has no {word}"
    elif "/" in word and not word.startswith(("/", "-")) and not os.path.exists(os.path.join(root, word)):
        yield f"there is no file {word}"


def check_commands(root, _, text):
    commands = commands_of(text)
    configs = re.findall(r"^\w+:(\w+) ", page_text(root, ".bazelrc"), re.MULTILINE) if commands else []
    for line, words in commands:
        program = words[0]
        path = os.path.join(root, program)
        if "/" not in program and program not in KNOWN_PROGRAMS:
            yield f"line {line} runs {program}, which is no program of this tree"
        if "/" in program and os.path.isfile(path) and not os.access(path, os.X_OK):
            yield f"line {line} runs {program}, which is not executable"
        for word in words:
            for error in check_word(root, word, configs):
                yield f"line {line}: {error}"


def label_of(root, page):
    """The label of a page: its package is the nearest folder with a BUILD file."""
    package = os.path.dirname(page)
    while package and not os.path.exists(os.path.join(root, package, "BUILD")):
        package = os.path.dirname(package)
    return f"//{package}:{os.path.relpath(page, package or '.')}"


def check_listed(root, page, _):
    label = label_of(root, page)
    if f'"{label}"' not in page_text(root, "tests/docs/BUILD"):
        yield f"tests/docs/BUILD does not list {label}"


def check_root_page(root):
    """Checks of the root's README only."""
    text = page_text(root, "README.md")
    links = links_of(text)
    for folder in FOLDERS:
        if f"{folder}/README.md" not in links:
            yield f"README.md: no link to {folder}/README.md"
    packages = set(re.findall(r"^([\w.+-]+) ", page_text(root, "tools/packages.txt"), re.MULTILINE))
    shown = {name for row in table_of(text, "Debian package") for name in re.findall(r"`([^`]+)`", row[0])}
    for name in sorted(packages - shown):
        yield f"README.md: the dependency table lacks {name} of tools/packages.txt"
    for name in sorted(shown - packages):
        yield f"README.md: the dependency table has {name}, which tools/packages.txt lacks"


# The page of PyTorch's names, and the headers whose names it speaks of.
PYTORCH_PAGE = "nn/PYTORCH.md"
DECLARED = re.compile(r"\b(\w+)(?:<F>)?\(|\b(?:class|struct|using)\s+(\w+)")


def names_declared(root):
    """The names of functions and types in public headers."""
    paths = [path for floor in FLOORS for path in glob.glob(os.path.join(root, floor, "**", "*.h"), recursive=True)]
    public = [path for path in paths if not re.search(r"/(kernels|internal|composed)/", path)]
    return {name for path in public for names in DECLARED.findall(page_text(root, path)) for name in names if name}


def check_pytorch_names(root):
    """What the page calls missing is not declared; the other names that it gives are."""
    if not os.path.exists(os.path.join(root, PYTORCH_PAGE)):
        return
    declared = names_declared(root)
    others, _, missing = page_text(root, PYTORCH_PAGE).partition("\n## Missing operations\n")
    spans = code_spans_of("\n".join(re.findall(r"^\|.*\| (.*) \|$", others, re.MULTILINE)))
    for span in (span for span in spans if "/" not in span):
        for name in re.findall(r"(\w+)(?:<\w+>)?\(", span) or re.findall(r"(\w+)(?:<\w+>)?$", span):
            if name not in declared:
                yield f"{PYTORCH_PAGE}: no header declares {name}"
    table, _, layers = missing.partition("\n## ")
    lacking = [row.split(" | ")[1] for row in table.splitlines() if row.startswith("| ")]
    for span in code_spans_of("\n".join([*lacking, layers])):
        if re.fullmatch(r"\w+", span) and span in declared:
            yield f"{PYTORCH_PAGE}: {span} is not missing"


CHECKS = (check_links, check_paths, check_quotes, check_commands, check_listed)


def errors_of(root):
    for folder in MUST_HAVE_A_README:
        if not os.path.exists(os.path.join(root, folder, "README.md")):
            yield f"{folder}/README.md is missing"
    yield from check_root_page(root)
    yield from check_pytorch_names(root)
    for page in pages_below(root):
        try:
            text = page_text(root, page)
            for check in CHECKS:
                yield from (f"{page}: {error}" for error in check(root, page, text))
        except ValueError as error:
            yield f"{page}: {error}"


def main(arguments):
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    errors = list(dict.fromkeys(errors_of(root)))
    for error in errors:
        print(f"check_docs: {error}")
    if not errors:
        print(f"check_docs: {len(pages_below(root))} pages")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
