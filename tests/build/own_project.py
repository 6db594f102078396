#!/usr/bin/env python3
"""Writes the files of the README's section "In a project of your own", as they are printed there.

    own_project.py README TESSERA FOLDER

A file's text is the first block after the paragraph that begins with its name; train.cc is the first program of the page,
CMakeLists.txt the block for CMake.
The one change: the path of Tessera's sources.
"""

import os
import re
import sys

from doc_pages import blocks_of

SECTION = "## In a project of your own\n"


def block_after(section, name):
    start = section.index(f"`{name}` ")
    return blocks_of(section[start:])[0].text


def main(page, tessera, folder):
    with open(page, encoding="utf-8") as file:
        text = file.read()
    section = re.split(r"^## ", text.partition(SECTION)[2], maxsplit=1, flags=re.MULTILINE)[0]
    files = {name: block_after(section, name) for name in ["WORKSPACE", ".bazelrc", "BUILD"]}
    assert files["WORKSPACE"].count("/path/to/tessera") == 1, "the page has another path"
    files["WORKSPACE"] = files["WORKSPACE"].replace("/path/to/tessera", tessera)
    files["CMakeLists.txt"] = blocks_of(section, "cmake")[0].text
    files["train.cc"] = next(block.text for block in blocks_of(text, "cpp") if "int main(" in block.text)
    os.makedirs(folder)
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)


if __name__ == "__main__":
    main(*sys.argv[1:])
