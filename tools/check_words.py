#!/usr/bin/env python3
"""Finds words in pages and comments for which this field has a better one.

    tools/check_words.py [--root ROOT] [PATH ...]

Reads Markdown, the comments of C++, CUDA, Python, Bazel and shell files, and the messages in C++ and CUDA files outside tests (string
literals with a blank), below each PATH (by default everywhere). Text in backticks, in quotation marks and in code blocks is
skipped: it is code, or output of a program.
"""

import argparse
import io
import os
import re
import sys
import tokenize

# A pattern, and what to write instead.
WORDS = [
    (r"answer(s|ed|ing)?", "a function returns a value; a process replies to a request"),
    (r"who|whom|whoever|nobody|somebody|anybody|everybody|whosoever", "name the caller, the function, the rank, the thread or the user"),
    (r"team|teams", "communicator, or its ranks"),
    (r"culprits?", "failed work, or failed rank"),
    (r"witness(es)?", "host-wait callback"),
    (r"(give|gives|given|gave|giving) up", "abort"),
    (r"twins?", "unsharded reference, counterpart, or the same operation in another folder"),
    (r"the seeds|of the seeds|seeds' \w+|seed 0\d\d", "PyTorch's FSDP tests"),
    (r"[RTL]\d{1,3}", "state the rule; readers do not have the list"),
    (r"travel(s|led|ling|ed|ing)?", "is sent, is copied"),
    (r"meetings?", "rendezvous barrier, exchange"),
    (r"floors?(?!\()", "layer (of the code)"),
    (r"of what|to what|from what|for what|what has|what have|that there (is|are)|those alone", "a clause needs a noun: say what it is"),
    (r"is meant|are meant", "say what it is"),
    (r"heed(s|ed)?|betray(s|ed)?|mends?|mended|alas|thereof|lest|hither|thither|whither|wherein", "plain English: notices, fixes, because, where"),
]
COMPILED = [(re.compile(r"(?<![\w./-])(?:%s)(?![\w/-])" % pattern, re.IGNORECASE if pattern[0] != "[" else 0), advice)
            for pattern, advice in WORDS]

# Words in their ordinary meaning: path (regular expression) and text of the line.
ALLOWED = [
    (r"", r"\bfloor(ed|s)? (of|division|to)\b|\bthe floor (of|function)\b|rounded? (down|to the floor)"),
    (r"", r"\b[LRT]\d\b.*(cache|norm|loss)|L[12]\b"),
]

C_FILES = (".h", ".cc", ".cu", ".c")
HASH_FILES = (".bzl", ".sh", "BUILD", ".in")


def c_comments(text, messages):
    """(line number, text) of each comment line of C++, and of each string literal with a blank if `messages`."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
    for match in pattern.finditer(text):
        if match[0].startswith("/"):
            first = text.count("\n", 0, match.start()) + 1
            for offset, line in enumerate(match[0].split("\n")):
                yield first + offset, line
        elif messages and match[0].startswith('"') and " " in match[0]:
            yield text.count("\n", 0, match.start()) + 1, match[0][1:-1].replace('\\"', "'")


def python_comments(text):
    """(line number, text) of each line of comments and docstrings of Python."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return
    for token in tokens:
        doc = token.type == tokenize.STRING and token.string.lstrip("rRuU").startswith('"""')
        if token.type == tokenize.COMMENT or doc:
            for offset, line in enumerate(token.string.split("\n")):
                yield token.start[0] + offset, line


def hash_comments(text):
    for number, line in enumerate(text.split("\n"), 1):
        match = re.search(r"(?:^|\s)#(?!!)(.*)", line)
        if match:
            yield number, match[1]


def page_lines(text):
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def prose_of(path, text):
    name = os.path.basename(path)
    if name.endswith(".md"):
        return page_lines(text)
    if name.endswith(C_FILES):
        return c_comments(text, messages=not path.startswith("tests/"))
    if name.endswith(".py") or text.startswith("#!/usr/bin/env python3"):
        return python_comments(text)
    if name.endswith(HASH_FILES) or text.startswith("#!"):
        return hash_comments(text)
    return []


def without_quotes(line):
    return re.sub(r'`[^`]*`|"[^"]*"|\]\([^)]*\)', " ", line)


def found_in(path, text):
    """(line number, word, advice) for each word in a file's prose."""
    for number, line in prose_of(path, text):
        plain = without_quotes(line)
        if any(re.search(where, path) and re.search(words, plain) for where, words in ALLOWED):
            continue
        for pattern, advice in COMPILED:
            for match in pattern.finditer(plain):
                yield number, match[0], advice


def files_below(root, paths):
    for path in paths or ["."]:
        full = os.path.join(root, path)
        if os.path.isfile(full):
            yield full
        for folder, folders, files in os.walk(full):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "bazel-")))
            yield from (os.path.join(folder, name) for name in sorted(files))


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))), help="the tree")
    parser.add_argument("--count", action="store_true", help="print a number for each folder")
    parser.add_argument("paths", nargs="*", help="files and folders, from the tree's root")
    options = parser.parse_args(arguments)
    counts = {}
    for full in files_below(options.root, options.paths):
        path = os.path.relpath(full, options.root)
        if os.path.basename(path) == "check_words.py":
            continue
        try:
            with open(full, encoding="utf-8") as file:
                text = file.read()
        except (UnicodeDecodeError, OSError):
            continue
        for number, word, advice in found_in(path, text):
            counts[os.path.dirname(path)] = counts.get(os.path.dirname(path), 0) + 1
            if not options.count:
                print(f"check_words: {path}:{number}: {word}: {advice}")
    if options.count:
        for folder, count in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"{count:5} {folder}")
    total = sum(counts.values())
    print(f"check_words: {total} words")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
