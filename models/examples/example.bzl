"""The macro for examples: a program of one file, and the test that runs it."""

load("//tools:tessera.bzl", "TESSERA_COPTS", "tessera_program")

def example_program(name, **kwargs):
    """An example without a test of its own: a program as users build theirs, with our warnings."""
    tessera_program(
        name = name,
        srcs = [name + ".cc"],
        copts = TESSERA_COPTS,
        **kwargs
    )

def example(name, runs, same = False):
    """Declares <name> and <name>_test.

    Args:
      name: of the program, whose one file is NAME.cc.
      runs: arguments of each run of the test, as one string each.
      same: all runs print the same numbers, up to rounding.
    """
    example_program(name)
    native.sh_test(
        name = name + "_test",
        size = "small",
        srcs = ["run_test.sh"],
        args = [
            "$(rootpath %s.cc)" % name,
            "$(rootpath %s)" % name,
            "same" if same else "any",
        ] + ["'%s'" % run for run in runs],
        data = [
            name,
            name + ".cc",
            "same_numbers.sh",
        ],
    )
