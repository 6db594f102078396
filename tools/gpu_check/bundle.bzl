"""tessera_gpu_bundle: test programs for a machine that has a GPU but no Bazel.

All of Tessera goes into one shared object, and each test into a small program beside it: a hundred programs that each
hold the whole library would not fit into a bundle.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@tessera_cuda//:defs.bzl", "CUDA_FOUND")
load("//tools/cuda:cuda_library.bzl", "needs_nvcc", "output_group")

def _archive(library):
    return library.pic_static_library or library.static_library

def _shared(library):
    return library.resolved_symlink_dynamic_library or library.dynamic_library

# The archives, shared objects and flags of linker inputs, each once and in their order.
def _split(linker_inputs):
    archives, shared, flags, more = [], [], [], []
    for linker_input in linker_inputs:
        for library in linker_input.libraries:
            if _archive(library):
                archives.append(_archive(library))
            elif _shared(library):
                shared.append(_shared(library))
        flags.extend(linker_input.user_link_flags)
        more.extend(linker_input.additional_inputs)
    return struct(
        archives = depset(archives).to_list(),
        shared = depset(shared).to_list(),
        flags = depset(flags).to_list(),
        more = depset(more).to_list(),
    )

# The same RUNPATH as Bazel's own binaries: LD_LIBRARY_PATH has priority, so tests and benchmarks find the same
# libraries.
def _link(ctx, cc_toolchain, output, arguments, inputs):
    ctx.actions.run(
        executable = cc_toolchain.compiler_executable,
        arguments = ["-o", output.path, "-s", "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"] + arguments,
        inputs = depset(inputs, transitive = [cc_toolchain.all_files]),
        outputs = [output],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "GpuBundleLink",
    )

# Code shared by several tests is linked into each of them; only Tessera itself and the tests' support become a library.
def _is_test(label):
    return label.package.startswith("tests/") and not label.package.startswith("tests/support")

def _inputs(targets, choose):
    chosen = {}
    for target in targets:
        for linker_input in target[CcInfo].linking_context.linker_inputs.to_list():
            if choose(linker_input.owner):
                chosen[linker_input] = True
    return _split(chosen.keys())

def _is_outside(label):
    return label.workspace_name != ""

def _is_library(label):
    return not _is_test(label) and not _is_outside(label)

def _programs_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    outside = _inputs(ctx.attr.cases, _is_outside)
    common = _inputs(ctx.attr.cases, _is_library)
    library = ctx.actions.declare_file("programs/libtessera.so")
    others = common.shared + outside.shared

    # By name, not by path: the loader would search for a shared object without a soname at its current path.
    named = [flag for each in others for flag in ["-L" + each.dirname, "-l:" + each.basename]]
    after = [each.path for each in outside.archives] + named + common.flags + outside.flags + ["-lstdc++", "-lm", "-lpthread", "-ldl"]
    after_inputs = outside.archives + others + common.more + outside.more
    _link(ctx, cc_toolchain, library, [
        "-shared",
        "-Wl,-soname," + library.basename,
        "-Wl,--whole-archive",
    ] + [each.path for each in common.archives] + ["-Wl,--no-whole-archive"] + after, common.archives + after_inputs)

    programs = []
    for target in ctx.attr.cases:
        mine = _inputs([target], _is_test)
        name = target.label.package.replace("/", ".") + "." + target.label.name[:-len("_cases")]
        program = ctx.actions.declare_file("programs/" + name)
        _link(ctx, cc_toolchain, program, [
            "-Wl,--whole-archive",
        ] + [each.path for each in mine.archives] + ["-Wl,--no-whole-archive", library.path] + after, mine.archives + [library] + after_inputs)
        programs.append(program)
    data = depset(transitive = [target[DefaultInfo].default_runfiles.files for target in ctx.attr.cases])
    return [
        DefaultInfo(files = depset([library] + programs + others)),
        OutputGroupInfo(data = data),
    ]

_programs = rule(
    implementation = _programs_impl,
    attrs = {
        "cases": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)

def _flat(label):
    return label[2:].replace("/", ".").replace(":", ".")

def tessera_gpu_bundle(name, tests, scripts, benchmarks = []):
    """<name>.tar.xz: programs of tests and benchmarks with scripts that run them and write one result file.

    Args:
      name: of the bundle.
      tests: label of a test -> struct(program, gpus, device, transport, settings); each <program>_cases is linked once.
      scripts: Python, put beside each other.
      benchmarks: binaries and scripts, taken as they are; those named bench_* are run.
    """
    if not CUDA_FOUND:
        tests, benchmarks = {}, []
    _programs(
        name = name + "_programs",
        testonly = True,
        cases = [program + "_cases" for program in {how.program: True for how in tests.values()}],
        target_compatible_with = needs_nvcc(),
    )
    output_group(
        name = name + "_data",
        testonly = True,
        targets = [name + "_programs"],
        group = "data",
        target_compatible_with = needs_nvcc(),
    )
    rows = [
        dict(
            name = _flat(label),
            program = _flat(how.program),
            gpus = how.gpus,
            device = how.device,
            transport = how.transport,
            settings = how.settings,
        )
        for label, how in tests.items()
    ]
    native.genrule(
        name = name,
        testonly = True,
        srcs = [name + "_programs", name + "_data"] + scripts + benchmarks,
        outs = [name + ".tar.xz"],
        cmd = "$(location pack.py) $@ '%s' --scripts %s --programs $(locations %s_programs) --data $(locations %s_data) --benchmarks %s" % (
            json.encode(rows),
            " ".join(["$(location %s)" % script for script in scripts]),
            name,
            name,
            " ".join(["$(locations %s)" % benchmark for benchmark in benchmarks]),
        ),
        tools = ["pack.py"],
        target_compatible_with = needs_nvcc(),
    )
