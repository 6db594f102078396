"""The macros that every BUILD file of Tessera uses; a workspace that uses Tessera may load them from @tessera too.

    load("@tessera//tools:tessera.bzl", "tessera_package", "tessera_program")

A header of package `nn` is included as `tessera/nn/<file>.h`.
"""

load("//tools:compile_fail.bzl", _tessera_compile_fail_test = "tessera_compile_fail_test")
load("//tools/cuda:cuda_library.bzl", "needs_cuda", _if_cuda = "if_cuda", _if_nccl = "if_nccl", _tessera_cuda_library = "tessera_cuda_library")
load("//tools:header_prefix.bzl", "header_prefix")
load("//tools:linked_only.bzl", "linked_only")
load("//tools:package.bzl", _tessera_package = "tessera_package")
load("//tools/precompiled:precompiled_header.bzl", "precompiled_header")

if_cuda = _if_cuda
if_nccl = _if_nccl
tessera_compile_fail_test = _tessera_compile_fail_test
tessera_cuda_library = _tessera_cuda_library
tessera_package = _tessera_package

# Tessera's own sources are optimised unless a build asks for debugging: fastbuild is also the mode of a workspace that asks for
# nothing, where a training step would take three times as long.
TESSERA_COPTS = ["-std=c++20", "-Wall", "-Wextra", "-Werror"] + select({
    str(Label("//tools:fastbuild")): ["-O2", "-DNDEBUG"],
    "//conditions:default": [],
})

# Tests are compiled without optimisation: compiling takes longer than running their own code. For one test of 200 lines
# it takes 2.7 s instead of 3.3 s with -O1, and 2.3 s with Catch2's smaller checks (third_party/system_library.bzl).
TESSERA_TEST_COPTS = select({
    str(Label("//tools:fastbuild")): ["-O0"],
    str(Label("//tools:optimized")): ["-O0"],
    "//conditions:default": [],
})

# Headers that nearly every source includes, compiled once (precompiled/precompiled_header.bzl).
_STANDARD = str(Label("//tools/precompiled:tessera_standard"))
_PROGRAM = str(Label("//tools/precompiled:tessera_program"))
_TESSERA = str(Label("//:tessera"))
_TESTS_OF_FLOOR = {
    "tensor": "tensor",
    "autograd": "tensor",
    "distributed": "tensor",
    "nn": "nn",
    "fsdp": "fsdp",
    "models": "models",
    "docs": "models",
}

def _including(precompiled):
    return ["-include", precompiled.rpartition(":")[2] + ".h", "-fpch-deps"]

_TEST_MAIN = str(Label("//tests/support:test_main"))
_ASAN = str(Label("//tools/sanitizers:asan"))
_TSAN = str(Label("//tools/sanitizers:tsan"))
_TSAN_DATA = select({
    _TSAN: [str(Label("//tools/sanitizers:tsan.supp"))],
    "//conditions:default": [],
})

def _headers_of(srcs):
    return [source for source in srcs if source.endswith(".h")]

def _private_headers(name, headers, deps, testonly = False):
    """A library for headers that only one target's sources include; returns the deps to give that target."""
    if not headers:
        return deps
    tessera_library(
        name = name + "_private",
        hdrs = headers,
        deps = deps,
        testonly = testonly,
        visibility = ["//visibility:private"],
    )
    return deps + [name + "_private"]

def _library_with_hidden_deps(name, srcs, hdrs, deps, hidden_deps, copts, visibility, common, kwargs):
    """<name> with the headers `hdrs`; the headers of hidden_deps are visible to srcs only."""
    parts = dict(
        testonly = kwargs.get("testonly"),
        tags = kwargs.get("tags", []),
        target_compatible_with = kwargs.get("target_compatible_with", []),
    )
    inside = dict(visibility = ["//visibility:private"], **parts)
    headers, sources, linked = [name + "_" + part for part in ["headers", "sources", "linked"]]
    native.cc_library(
        name = headers,
        hdrs = hdrs,
        deps = deps,
        **dict(inside, **common)
    )
    native.cc_library(
        name = sources,
        srcs = srcs,
        deps = [headers] + hidden_deps,
        copts = copts,
        linkstatic = True,
        visibility = ["//visibility:private"],
        **kwargs
    )
    linked_only(name = linked, deps = [sources], **inside)
    native.cc_library(
        name = name,
        deps = [headers, linked],
        visibility = visibility,
        **parts
    )

def tessera_library(
        name,
        srcs = [],
        hdrs = [],
        deps = [],
        implementation_deps = [],
        copts = [],
        precompiled = _STANDARD,
        visibility = None,
        **kwargs):
    """A C++20 library of Tessera; its headers are included as tessera/<package>/<file>.h.

    Args:
      name: of the library.
      srcs: sources.
      hdrs: headers.
      deps: of both.
      implementation_deps: of srcs alone: no header of theirs reaches a user of this library. For toolkits, whose
          thousands of headers would otherwise be an input of everything above, and rebuild it where they change.
      copts: for srcs.
      precompiled: what srcs include first, a precompiled_header.
      visibility: of the library.
      **kwargs: passed on.
    """
    if _headers_of(srcs):
        fail("%s: headers belong in hdrs, or they cannot be included as tessera/..." % name)
    common = dict(include_prefix = header_prefix(), linkstatic = True)
    copts = TESSERA_COPTS + copts + _including(precompiled)
    if not implementation_deps:
        native.cc_library(
            name = name,
            srcs = srcs,
            hdrs = hdrs,
            deps = deps + ([precompiled] if srcs else []),
            copts = copts,
            visibility = visibility,
            **dict(kwargs, **common)
        )
        return
    _library_with_hidden_deps(name, srcs, hdrs, deps, [precompiled] + implementation_deps, copts, visibility, common, kwargs)

def tessera_binary(name, deps = [], copts = [], **kwargs):
    """A C++20 program."""
    native.cc_binary(
        name = name,
        deps = deps + [_STANDARD],
        copts = TESSERA_COPTS + copts + _including(_STANDARD),
        **kwargs
    )

def tessera_program(name, deps = [], copts = [], **kwargs):
    """A C++20 program that uses all of Tessera by #include "tessera/tessera.h".

    That header is precompiled, so that compiling a source takes about half of the time (in mode opt, with --force_pic). Programs
    that include single headers are ordinary cc_binary targets.

    Args:
      name: of the program.
      deps: what it depends on beside Tessera.
      copts: for its sources.
      **kwargs: passed on to cc_binary.
    """
    native.cc_binary(
        name = name,
        deps = deps + [_TESSERA, _PROGRAM],
        copts = ["-std=c++20"] + copts + _including(_PROGRAM),
        **kwargs
    )

def _with_test_main(deps):
    return deps + ([_TEST_MAIN] if _TEST_MAIN not in deps else [])

def _precompiled_for(copts):
    """Headers that the tests of a package may include, precompiled with the options of the tests' sources."""
    if "-O2" in copts:
        return _STANDARD
    folders = native.package_name().split("/")
    floor = _TESTS_OF_FLOOR.get(folders[1], "any") if folders[0] == "tests" and len(folders) > 1 else "any"
    return str(Label("//tests/precompiled:tessera_%s_tests" % floor))

def _test_cases(name, srcs, deps, copts, data):
    """A library of test cases, for several programs and for the bundle of //tools/gpu_check; returns the deps of these
    programs.
    """
    headers = _headers_of(srcs)
    tessera_library(
        name = name + "_cases",
        srcs = [source for source in srcs if source not in headers],
        hdrs = headers,
        deps = _with_test_main(deps),
        copts = TESSERA_TEST_COPTS + copts,
        precompiled = _precompiled_for(copts),
        data = data,
        testonly = True,
        alwayslink = True,
        tags = ["manual"],
        visibility = [str(Label("//tools/gpu_check:__pkg__"))],
    )
    return [name + "_cases"]

def _gpus_env(gpus):
    """The number of GPUs a test needs. With several, its rank threads may use NCCL: see GPUs in distributed/README.md."""
    loading = {"CUDA_MODULE_LOADING": "EAGER"} if gpus > 1 else {}
    return dict(loading, TESSERA_TEST_GPUS = str(gpus))

def _run_with(name, program, settings, data, **kwargs):
    """A test that runs the program of another one with other settings."""
    native.sh_test(
        name = name,
        srcs = [str(Label("//tools:run_with.sh"))],
        args = ["%s='%s'" % setting for setting in settings.items()] + ["$(location %s)" % program],
        data = data + [program],
        **kwargs
    )

def _run_on_cuda(name, program, settings, size, tags, data):
    """The same program with the GPU as the default device: <program>_cuda, skipped without a GPU."""
    _run_with(name, program, settings, data, size = size, tags = ["gpu"] + tags, target_compatible_with = needs_cuda())

def tessera_cc_test(name, srcs = [], deps = [], copts = [], size = "small", data = [], devices = ["cpu"], tags = [], env = {}, **kwargs):
    """A Catch2 test. A binary in which no test case ran fails.

    srcs are compiled with -O0 in optimised builds too; what they depend on is not. A test that computes much by itself
    says copts = ["-O2"].

    Args:
      name: of the test.
      srcs: sources, and headers of their own.
      deps: of srcs.
      copts: for srcs.
      size: of each target.
      data: of each target.
      devices: where tensors are made that name no device; with "cuda" there is a target <name>_cuda too, the same
          program on a GPU.
      tags: of each target; with "vendor-libraries" (it compares what CUDA's libraries say) it is in the bundle of
          //tools/gpu_check, as all tests with "gpu" are.
      env: of each target.
      **kwargs: passed on.
    """
    if "cuda" in devices:
        settings = dict(env, TESSERA_TEST_DEVICE = "cuda", **_gpus_env(1))
        _run_on_cuda(name + "_cuda", name, settings, size, tags, data)
    if srcs and ("cuda" in devices or "gpu" in tags or "vendor-libraries" in tags):
        deps = _test_cases(name, srcs, deps, copts, data)
        srcs = []
    headers = _headers_of(srcs)
    precompiled = _precompiled_for(copts)
    native.cc_test(
        name = name,
        srcs = [source for source in srcs if source not in headers],
        deps = _with_test_main(_private_headers(name, headers, deps, testonly = True)) + [precompiled],
        copts = TESSERA_COPTS + TESSERA_TEST_COPTS + copts + _including(precompiled),
        size = size,
        data = data + _TSAN_DATA,
        linkstatic = True,
        tags = tags,
        env = env,
        **kwargs
    )

def _gpu_tags(gpus):
    return ["gpu", "exclusive"] + (["multi-gpu"] if gpus > 1 else []) if gpus > 0 else []

def tessera_gpu_test(name, gpus = 1, tags = [], env = {}, **kwargs):
    """A Catch2 test that needs `gpus` GPUs: it reports itself skipped if there are fewer, and is left out in a build
    without CUDA.
    """
    tessera_cc_test(
        name = name,
        tags = _gpu_tags(gpus) + tags,
        env = dict(env, **_gpus_env(gpus)),
        **kwargs
    )

def _run_ranks_on_cuda(name, devices, env, size, tags, data):
    """The targets <name>_cuda and <name>_nccl, if `devices` requests them; returns their names."""
    targets = []
    for form, transport, gpus in [("cuda", "local", 1), ("nccl", "nccl", 2)]:
        if form not in devices:
            continue
        settings = dict(
            env,
            TESSERA_TEST_DEVICE = "cuda",
            TESSERA_TEST_TRANSPORT = transport,
            **_gpus_env(gpus)
        )
        targets.append(name + "_" + form)
        _run_on_cuda(name + "_" + form, name + "_local", settings, size, tags, data)
    return targets

def _comma_separated(numbers):
    return ",".join([str(number) for number in numbers])

def tessera_rank_test(
        name,
        srcs,
        deps = [],
        ranks = 8,
        worlds = [1, 2, 3, 5],
        process_worlds = [2],
        gpus = 0,
        tags = [],
        env = {},
        size = "medium",
        copts = [],
        devices = ["cpu"],
        data = [],
        **kwargs):
    """A Catch2 test on several ranks: <name>_local with threads; the same program with processes, <name>_gloo.

    Args:
      name: of the suite of all these targets.
      srcs: sources.
      deps: of srcs.
      ranks: the largest world run on a CPU; larger entries of worlds are left out.
      worlds: world sizes that cases run at which name none.
      process_worlds: the worlds of processes; a case that has none of them runs in its smallest of several ranks. Empty: no
        limit.
      gpus: how many GPUs the test needs; then there is <name>_nccl, a GPU for each rank, instead of <name>_gloo.
      tags: added to the targets' own.
      env: added to the targets' own.
      size: of each target.
      copts: for srcs.
      devices: with "cuda" there is <name>_cuda too, on rank threads that share one GPU; with "nccl" <name>_nccl.
      data: of each target.
      **kwargs: passed on to each target.
    """
    common = dict(env, TESSERA_TEST_WORLDS = _comma_separated([world for world in worlds if world <= ranks]))
    local = name + "_local"
    tessera_cc_test(
        name = local,
        deps = _test_cases(name, srcs, deps, copts, data),
        size = size,
        tags = ["transport-local"] + _gpu_tags(gpus) + tags,
        env = dict(common, TESSERA_TEST_TRANSPORT = "local", **_gpus_env(gpus)),
        data = data,
        **kwargs
    )
    transport = "nccl" if gpus > 0 else "gloo"
    limit = {"TESSERA_TEST_ONLY_WORLDS": _comma_separated(process_worlds)} if gpus == 0 and process_worlds else {}
    _run_with(
        name + "_" + transport,
        local,
        dict(common, TESSERA_TEST_TRANSPORT = transport, **dict(_gpus_env(gpus), **limit)),
        data,
        size = size,
        tags = ["transport-" + transport] + _gpu_tags(gpus) + tags,
        **kwargs
    )
    targets = [local, name + "_" + transport] + _run_ranks_on_cuda(name, devices, common, size, tags, data)

    # A test_suite includes tests tagged manual, and //... includes suites that are not tagged so.
    native.test_suite(name = name, tests = targets, tags = [tag for tag in tags if tag == "manual"])

_MARCH = {
    "v3": "x86-64-v3",
    "v4": "x86-64-v4",
}

def _kernel_copts(isa, copts):
    return TESSERA_COPTS + copts + [
        "-march=" + _MARCH[isa],
        "-fvisibility=hidden",
        "-fvisibility-inlines-hidden",
    ] + select({
        _ASAN: [],
        _TSAN: [],
        "//conditions:default": ["-O3"],
    })

def tessera_cpu_kernels(name, isa, srcs, hdrs = [], deps = [], entry = None, copts = [], visibility = None):
    """CPU kernels for one instruction set, in a shared object of their own.

    Two -march in one object would merge inline functions of Eigen and of the standard library: a program would then
    run the wider instructions on a CPU that lacks them. So everything is hidden but one function with C linkage,
    `entry`, which returns the table of entry points. Depend on the target like on any library.

    Args:
      name: of the library.
      isa: "v3" or "v4", the level of x86-64.
      srcs: sources and private headers.
      hdrs: headers for those who call `entry`.
      deps: third-party libraries and header-only targets of ours; anything else would be copied into the object.
      entry: the exported function; tessera_cpu_kernels_<isa> by default.
      copts: for srcs.
      visibility: of the library.
    """
    entry = entry or "tessera_cpu_kernels_" + isa
    script = name + "_exports.lds"
    native.genrule(
        name = name + "_exports",
        outs = [script],
        cmd = "echo '{ global: %s; local: *; };' > $@" % entry,
    )
    tessera_library(
        name = name + "_headers",
        hdrs = hdrs,
        deps = deps,
        visibility = ["//visibility:private"],
    )
    private = _headers_of(srcs)
    copts = _kernel_copts(isa, copts)
    precompiled = name + "_precompiled"
    precompiled_header(
        name = precompiled,
        srcs = [str(Label("//tools/precompiled:standard.h"))],
        copts = copts,
        deps = [str(Label("//tools/third_party:fmt"))],
    )
    shared_object = "lib%s_%s.so" % (native.package_name().replace("/", "_"), name)
    native.cc_binary(
        name = shared_object,
        srcs = [source for source in srcs if source not in private],
        deps = _private_headers(name, private, deps + [name + "_headers"]) + [precompiled, script],
        copts = copts + _including(precompiled),
        linkopts = ["-Wl,--version-script=$(location %s)" % script, "-Wl,-z,defs"],
        linkshared = True,
        linkstatic = True,
        visibility = ["//tests:__subpackages__"],
    )
    native.cc_library(
        name = name,
        srcs = [shared_object],
        # Programs also find it beside themselves: see package.bzl.
        linkopts = ["-Wl,-rpath,$$ORIGIN"],
        deps = [name + "_headers"],
        visibility = visibility,
    )
