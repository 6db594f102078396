#!/usr/bin/env python3
"""Checks that distributed code waits for nothing without a limit.

    tools/check_waits.py [ROOT]

A rank that waits for another one forever hides that the other one has died. So each call that may wait without a limit of time, in the
folders of distributed code, needs a comment in its line or directly above with "Untimed: " and the reason why it ends: another wait,
which has a limit, comes first, or only this process can delay it.

It finds calls by their usual names. It does not find waits behind other names, loops that sleep, nor reads of sockets and pipes that
block, which is why sockets must be made with SOCK_NONBLOCK.
"""

import os
import re
import sys

from cpp_functions import without_comments

FOLDERS = ("distributed", "fsdp")
SUFFIXES = (".cc", ".h", ".cu")
REASON = re.compile(r"//.*\bUntimed: \S")
# What may wait, and how it is written with a limit.
WAITS = [
    (r"(\.|->)wait\(\s*\w*([Ll]ock|[Gg]uard)\w*\b", "wait_for and wait_until of a condition variable take a limit"),
    (r"(\.|->)join\(\)", "a thread is joined after it was told to end"),
    (r"\bwait[34]\((?![^;]*WNOHANG)", "WNOHANG"),
    (r"(?<![\w.>])(::)?wait\(\s*(nullptr|&\w+)\s*\)", "waitpid with WNOHANG"),
    (r"std::(latch|barrier|async|future|shared_future|promise|counting_semaphore|binary_semaphore)\b",
     "a condition variable takes a limit"),
    (r"\bwaitpid\((?![^;]*WNOHANG)", "WNOHANG"),
    (r"\bwaitid\((?![^;]*WNOHANG)", "WNOHANG"),
    (r"\bp?poll\([^;]*,\s*(-1|nullptr,\s*&?\w+)\)", "poll takes milliseconds"),
    (r"\bepoll_p?wait\([^;]*,\s*-1\)", "epoll_wait takes milliseconds"),
    (r"\bselect\([^;]*,\s*nullptr\)", "poll takes milliseconds"),
    (r"\bFUTEX_WAIT(_PRIVATE)?,[^,;]*,\s*nullptr\b", "FUTEX_WAIT takes a time"),
    (r"\b(sigwait|sigwaitinfo|sigsuspend|sem_wait|pthread_cond_wait|pthread_join|mq_receive|msgrcv)\(|\bpause\(\)", "the timed call"),
    (r"\bF_SETLKW\b|\bLOCK_(EX|SH)\b(?!\s*\|\s*LOCK_NB)|(?<!\w)lockf\(", "a lock that is refused at once, and tried again"),
    (r"\bgetaddrinfo\(", "the resolver has limits of its own, which the system's settings name"),
    (r"\bcuda(Stream|Device|Event)Synchronize\(", "ask whether it has finished, with a limit"),
    (r"\b(socket|accept4?)\((?![^;]*SOCK_NONBLOCK)", "SOCK_NONBLOCK, and poll"),
]
COMPILED = [(re.compile(pattern), advice) for pattern, advice in WAITS]


def has_reason(lines, first, last):
    """True for a reason in the lines of a statement (from 0), or in the comment directly above."""
    while first > 0 and lines[first - 1].lstrip().startswith("//"):
        first -= 1
    return any(REASON.search(line) for line in lines[first:last + 1])


def waits_in(text):
    """(line number, the call, advice) for each untimed wait without a reason."""
    lines, code = text.split("\n"), without_comments(text)
    for pattern, advice in COMPILED:
        for match in pattern.finditer(code):
            last = code.count("\n", 0, match.start())
            begin = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
            begin += len(code[begin:match.start()]) - len(code[begin:match.start()].lstrip())
            if not has_reason(lines, code.count("\n", 0, begin), last):
                yield last + 1, lines[last].strip(), advice


def source_files(root):
    for folder in FOLDERS:
        for at, folders, files in os.walk(os.path.join(root, folder)):
            folders.sort()
            yield from (os.path.join(at, name) for name in sorted(files) if name.endswith(SUFFIXES))


def main(arguments):
    root = os.path.abspath(arguments[0]) if arguments else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = files = 0
    for full in source_files(root):
        files += 1
        with open(full, encoding="utf-8") as file:
            text = file.read()
        for number, line, advice in sorted(waits_in(text)):
            found += 1
            print(f'check_waits: {os.path.relpath(full, root)}:{number}: "{line}" may wait without a limit; {advice}; '
                  'or say in a comment "Untimed: " and why it ends')
    print(f"check_waits: {found} waits without a limit or a reason, in {files} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
