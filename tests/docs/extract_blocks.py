#!/usr/bin/env python3
"""Writes the C++ blocks of a page as source files:

    extract_blocks.py PAGE KINDS STAMP [FILE...]

KINDS, separated by commas, are the kinds in tests/docs/BUILD; quotes of files have no FILE. Fails if the page has other
blocks.
"""

import os
import re
import sys

from doc_pages import blocks_of

PRELUDE = '#include "tessera/tessera.h"\nusing namespace tessera;\n'


def kind_of(block):
    if block.quoted_path:
        return "quote"
    if "TESSERA_RANK_TEST" in block.text:
        return "rank_test"
    if "TEST_CASE" in block.text:
        return "test"
    return "program" if re.search(r"^int main\(", block.text, re.MULTILINE) else "part"


def source_of(page, block):
    prelude = "" if re.search(r"^#include", block.text, re.MULTILINE) else PRELUDE
    return f'{prelude}#line {block.line} "{page}"\n{block.text}'


def main(path, expected, stamp, *files):
    page = os.path.normpath(path)
    with open(path, encoding="utf-8") as file:
        blocks = blocks_of(file.read(), "cpp")
    kinds = [kind_of(block) for block in blocks]
    if kinds != [kind for kind in expected.split(",") if kind]:
        sys.exit(f"{page} has the C++ blocks [{', '.join(kinds)}], tests/docs/BUILD says [{expected}]; correct one of them")
    written = [block for block, kind in zip(blocks, kinds) if kind != "quote"]
    for block, source in zip(written, files, strict=True):
        with open(source, "w", encoding="utf-8") as file:
            file.write(source_of(page, block))
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(f"{page}: {len(kinds)} C++ blocks\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
