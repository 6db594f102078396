"""doc_pages: compiles the C++ blocks of the documentation, links and runs those that can run."""

load("//tools:tessera.bzl", "TESSERA_COPTS", "tessera_cc_test", "tessera_library", "tessera_rank_test")

# Whether a page compiles does not depend on sanitizers.
_TAGS = ["no-asan", "no-tsan"]

# The examples are short: compile time matters more than run time.
_COPTS = ["-O0"]

def doc_page(page, blocks = [], args = [], deps = []):
    """Describes one page.

        Args:
          page: its label.
          blocks: the kind of each C++ block, in order. "part": compiled. "program": has a main; also linked and run with
            `args`. "test" and "rank_test": Catch2 cases, also linked and run. "quote": begins with a comment that is the path
            of a file of this repository, and is compared with it by tools/check_docs.py.
          args: of programs.
          deps: of the blocks, besides //:tessera.
    """
    return struct(page = page, blocks = blocks, args = args, deps = deps)

def _page_name(page):
    return page.replace("//", "").replace("/", "_").replace(":", "_").replace(".md", "").strip("_").lower()

def _one_page(page):
    """Declares the targets of one page; returns those that fail if a block does not compile."""
    name = _page_name(page.page)
    sources = {}
    for number, kind in enumerate(page.blocks):
        if kind != "quote":
            sources[number] = "%s_%d.cc" % (name, number + 1)
    stamp = name + ".txt"
    native.genrule(
        name = name + "_blocks",
        srcs = [page.page],
        outs = [stamp] + sources.values(),
        cmd = "PYTHONPATH=$$(dirname $(location //tools:doc_pages.py)) python3 $(location extract_blocks.py) " +
              "$(location %s) '%s' $(OUTS)" % (page.page, ",".join(page.blocks)),
        tools = [
            "extract_blocks.py",
            "//tools:doc_pages.py",
        ],
    )
    common = {"copts": _COPTS, "deps": ["//:tessera"] + page.deps, "tags": _TAGS}
    parts = []
    for number, source in sources.items():
        kind, target = page.blocks[number], "%s_%d" % (name, number + 1)
        if kind == "part":
            parts.append(source)
        elif kind == "program":
            native.cc_test(
                name = target + "_test",
                srcs = [source],
                args = page.args,
                copts = TESSERA_COPTS + _COPTS,
                deps = common["deps"],
                linkstatic = True,
                size = "small",
                tags = _TAGS,
            )
        elif kind == "test":
            tessera_cc_test(name = target + "_test", srcs = [source], **common)
        elif kind == "rank_test":
            tessera_rank_test(name = target + "_test", srcs = [source], worlds = [1, 2], **common)
        else:
            fail("%s: there is no kind of block named %s" % (page.page, kind))
    if not parts:
        return [stamp]
    tessera_library(name = name + "_parts", srcs = parts, testonly = True, **common)

    # A library in a test's data would not be compiled; its files are.
    native.filegroup(name = name + "_parts_compiled", srcs = [name + "_parts"], testonly = True)
    return [stamp, name + "_parts_compiled"]

def doc_pages(name, pages):
    """A test that passes if all blocks compile, and a test for each block that can run."""
    compiled = []
    for page in pages:
        compiled += _one_page(page)
    native.sh_test(
        name = name,
        size = "small",
        srcs = ["blocks_test.sh"],
        data = compiled,
        tags = _TAGS,
    )
    native.filegroup(
        name = name + "_pages",
        srcs = [page.page for page in pages],
    )
