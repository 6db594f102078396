"""The macro for examples: a program of one file, and the test that runs it."""

load("//tools:tessera.bzl", "tessera_binary")

def example(name, srcs, deps, runs, same = False):
    """Declares <name> and <name>_test.

    Args:
      name: of the program.
      srcs: its one file.
      deps: of the program.
      runs: arguments of each run of the test, as one string each.
      same: all runs print the same numbers, up to rounding.
    """
    tessera_binary(
        name = name,
        srcs = srcs,
        deps = deps,
    )
    native.sh_test(
        name = name + "_test",
        size = "small",
        srcs = ["run_test.sh"],
        args = [
            "$(rootpath %s)" % srcs[0],
            "$(rootpath %s)" % name,
            "same" if same else "any",
        ] + ["'%s'" % run for run in runs],
        data = srcs + [
            name,
            "same_numbers.sh",
        ],
        )
