#!/usr/bin/env python3
"""The resources of CUDA kernels: registers, shared memory and spills, as ptxas reported them at compile time.

    registers.py FILE.ptxas...                          prints the table: a row for each source and architecture
    registers.py --check REGISTERS.md [--nvcc VERSION.txt] FILE.ptxas...
                                                        fails for spills that the page does not allow, and if the
                                                        page's table, made with this nvcc, differs
    registers.py --write REGISTERS.md [--nvcc VERSION.txt] FILE.ptxas...

SOURCE is a path from the root of the repository. The page allows spills by lines `- allowed to spill: SOURCE: KERNEL: why`,
where KERNEL is a name without template arguments, which stands for all its instances.
"""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass

HEAD = "| source | GPU | kernels | most registers | kernel | most static shared memory | stack | spilled |"
KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\S+)' for '(?P<arch>sm_\d+\w*)'"
    r"(?P<rest>.*?)(?=ptxas info\s+: Compiling entry function|\Z)", re.DOTALL)


@dataclass
class Kernel:
    name: str
    arch: str
    registers: int
    shared: int
    stack: int
    spilled: int  # bytes stored and bytes loaded, static instruction counts


def kernels_of(text):
    found = []
    for match in KERNEL.finditer(text):
        rest = match["rest"]

        def number(pattern, default=0):
            hit = re.search(pattern, rest)
            return int(hit.group(1)) if hit else default
        found.append(Kernel(match["name"], match["arch"], number(r"Used (\d+) registers"), number(r"(\d+) bytes smem"),
                            number(r"(\d+) bytes stack frame"),
                            # Of the kernel and the functions that it calls.
                            sum(map(int, re.findall(r"(\d+) bytes spill (?:stores|loads)", rest)))))
    return found


def plain_names(names):
    """Names without parameters, template arguments kept short."""
    if not names:
        return []
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    out = []
    for line in text.splitlines():
        line = re.sub(r"\(anonymous namespace\)::|tessera::|cuda::|^void ", "", line)
        out.append(re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)( const)?$", "", line)[:90].replace("|", "\\|"))
    return out


def source_of(path):
    """The .cu file, from the root: Bazel puts PACKAGE/FILE.cu at .../PACKAGE/_objs/LIBRARY/FILE.cu.ptxas."""
    return re.sub(r"^(?:.*/bin/)?(.*)/_objs/[^/]+/(.*)\.ptxas$", r"\1/\2", path)


def table(files):
    """The rows, and (source, kernel without template arguments) -> the most bytes that it spills."""
    rows = [HEAD, "|---|---|--:|--:|---|--:|--:|--:|"]
    spills = {}
    for path in sorted(files, key=source_of):
        with open(path, encoding="utf-8") as file:
            kernels = kernels_of(file.read())
        source = source_of(path)
        for arch in sorted({kernel.arch for kernel in kernels}):
            here = [kernel for kernel in kernels if kernel.arch == arch]
            worst = max(here, key=lambda kernel: (kernel.registers, kernel.name))
            spilling = [kernel for kernel in here if kernel.spilled]
            for kernel, name in zip(spilling, plain_names([kernel.name for kernel in spilling])):
                key = source, name.partition("<")[0]
                spills[key] = max(spills.get(key, 0), kernel.spilled)
            rows.append(f"| `{source}` | {arch} | {len(here)} | {worst.registers} | `{plain_names([worst.name])[0]}` | "
                        f"{max(kernel.shared for kernel in here)} B | {max(kernel.stack for kernel in here)} B | "
                        f"{max(kernel.spilled for kernel in here)} B |")
    return rows, spills


def release(path):
    if not path:
        return "unknown"
    with open(path, encoding="utf-8") as file:
        hit = re.search(r"V(\d+\.\d+\.\d+)", file.read())
    return hit.group(1) if hit else "unknown"


def check(page, rows, spills, nvcc):
    problems = []
    allowed = re.findall(r"^- allowed to spill: (\S+): (\S+): .+$", page, re.MULTILINE)
    for (source, kernel), spilled in spills.items():
        if (source, kernel) not in allowed:
            problems.append(f"{kernel} of {source} spills {spilled} bytes: use fewer registers, or allow it with a reason")
    for source, kernel in allowed:
        if (source, kernel) not in spills:
            problems.append(f"{kernel} of {source} is allowed to spill, but does not: delete the line")
    recorded = re.search(r"nvcc (\d+\.\d+\.\d+)", page)
    if recorded and recorded.group(1) == nvcc:
        have = [line for line in page.splitlines() if line.startswith("|")]
        problems += [f"not in the page: {row}" for row in rows if row not in have]
        problems += [f"only in the page: {row}" for row in have if row not in rows]
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check")
    parser.add_argument("--write")
    parser.add_argument("--nvcc")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    files = [path for path in args.files if path.endswith(".ptxas")]
    if not files:
        sys.exit("registers.py: no .ptxas file given")
    rows, spills = table(files)
    if args.write:
        args.write = os.path.join(os.environ.get("BUILD_WORKSPACE_DIRECTORY", ""), args.write)
        with open(args.write, encoding="utf-8") as file:
            page = file.read()
        kept = [line for line in page.splitlines() if not line.startswith("|")]
        text = re.sub(r"nvcc \d+\.\d+\.\d+", f"nvcc {release(args.nvcc)}", "\n".join(kept).rstrip("\n"))
        with open(args.write, "w", encoding="utf-8") as file:
            file.write(text + "\n" + ("" if text.endswith("\n") else "\n") + "\n".join(rows) + "\n")
    elif args.check:
        with open(args.check, encoding="utf-8") as file:
            problems = check(file.read(), rows, spills, release(args.nvcc))
        print("\n".join(problems) or f"{len(rows) - 2} rows, none spills beyond what is allowed")
        sys.exit(1 if problems else 0)
    else:
        print("\n".join(rows))


if __name__ == "__main__":
    main()
