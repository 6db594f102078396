"""The C++ libraries Tessera uses, as Debian 12 installs them.

Each becomes a repository of its own, `@tessera_<name>`, whose files are listed one by one: headers and shared objects are
inputs of the targets built with them, so a package upgrade rebuilds these targets. Depend on `//tools/third_party:<name>`.
"""

_ARCH = "/usr/lib/x86_64-linux-gnu/"

def _library(headers = [], libraries = [], defines = [], linkopts = [], deps = [], programs = []):
    """Describes one library: header files or folders (path = include path), the libraries to link, programs."""
    return struct(
        headers = headers,
        libraries = libraries,
        defines = defines,
        linkopts = linkopts,
        deps = deps,
        programs = programs,
    )

# Headers are written "FOLDER//NAME": FOLDER is the include path and NAME what lies in it.
SYSTEM_LIBRARIES = {
    # FAST_COMPILE: an exception in a CHECK ends the case, so the compiler need not handle it in each CHECK.
    "catch2": _library(headers = ["/usr/include//catch2"], defines = ["CATCH_CONFIG_FAST_COMPILE"]),
    "cli11": _library(headers = ["/usr/include//CLI"]),
    # EIGEN_FAST_MATH=0: with fast maths, the bits of a result depend on where an array is split (body or tail).
    "eigen": _library(
        headers = ["/usr/include/eigen3//Eigen", "/usr/include/eigen3//unsupported"],
        defines = ["EIGEN_FAST_MATH=0", "EIGEN_MPL2_ONLY", "EIGEN_DONT_PARALLELIZE"],
    ),
    "fmt": _library(headers = ["/usr/include//fmt"], libraries = [_ARCH + "libfmt.so.9"]),
    "gloo": _library(headers = ["/usr/include//gloo"], libraries = ["/usr/lib/libgloo.so.0"], linkopts = ["-pthread"]),
    "json": _library(headers = ["/usr/include//nlohmann"]),
    "onednn": _library(
        headers = ["/usr/include//" + name for name in [
            "dnnl.h",
            "dnnl.hpp",
            "dnnl_config.h",
            "dnnl_debug.h",
            "dnnl_threadpool.h",
            "dnnl_threadpool.hpp",
            "dnnl_threadpool_iface.hpp",
            "dnnl_types.h",
            "dnnl_version.h",
            "oneapi",
        ]],
        libraries = [_ARCH + "libdnnl.so.2"],
        deps = ["openmp"],
    ),
    # For oneDNN, which computes with its threads. <omp.h> is the compiler's own.
    "openmp": _library(libraries = [_ARCH + "libgomp.so.1"], linkopts = ["-pthread"]),
    # The runtime for messages with `optimize_for = LITE_RUNTIME`, and the compiler of .proto files. It is the static
    # library with hidden symbols: Debian's libsentencepiece.so exports symbols of another protobuf version, and a
    # program that mixes the two crashes.
    "protobuf": _library(
        headers = ["/usr/include//google/protobuf"],
        libraries = [_ARCH + "libprotobuf-lite.a"],
        linkopts = ["-Wl,--exclude-libs,libprotobuf-lite.a", "-pthread"],
        programs = ["/usr/bin/protoc"],
    ),
    "rapidcheck": _library(
        headers = ["/usr/include//rapidcheck", "/usr/include//rapidcheck.h"],
        libraries = [_ARCH + "librapidcheck.a"],
    ),
    "sentencepiece": _library(
        headers = ["/usr/include//sentencepiece_processor.h", "/usr/include//sentencepiece_trainer.h"],
        libraries = [_ARCH + "libsentencepiece_train.so.0", _ARCH + "libsentencepiece.so.0"],
    ),
    "sodium": _library(
        headers = ["/usr/include//sodium.h", "/usr/include//sodium"],
        libraries = [_ARCH + "libsodium.so.23"],
    ),
    "xxhash": _library(headers = ["/usr/include//xxhash.h", "/usr/include//xxh3.h"], libraries = [_ARCH + "libxxhash.so.0"]),
    "zlib": _library(
        headers = ["/usr/include//zlib.h", "/usr/include//zconf.h"],
        libraries = [_ARCH + "libz.so.1"],
    ),
}

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "{name}",
    hdrs = glob(["include/**"]),
    srcs = {libraries},
    includes = {includes},
    defines = {defines},
    linkopts = {linkopts},
    deps = {deps},
)

exports_files({programs})
"""

def _required(ctx, path):
    found = ctx.path(path)
    if not found.exists:
        fail(("%s is missing. Tessera's tools/bazel installs what is missing on Debian 12; " +
              "elsewhere install the packages listed in Tessera's tools/packages.txt") % path)
    return found

def _system_library_impl(ctx):
    for header in ctx.attr.headers:
        folder, _, name = header.rpartition("//")
        ctx.symlink(_required(ctx, folder + "/" + name), "include/" + name)
    libraries = []
    for library in ctx.attr.libraries:
        name = "lib/" + library.rpartition("/")[2]
        ctx.symlink(_required(ctx, library), name)
        libraries.append(name)
    programs = []
    for program in ctx.attr.programs:
        name = "bin/" + program.rpartition("/")[2]
        ctx.symlink(_required(ctx, program), name)
        programs.append(name)
    ctx.file("BUILD", _BUILD.format(
        name = ctx.attr.library,
        libraries = repr(libraries),
        includes = repr(["include"] if ctx.attr.headers else []),
        defines = repr(ctx.attr.defines),
        linkopts = repr(ctx.attr.linkopts),
        deps = repr(["@tessera_%s//:%s" % (dep, dep) for dep in ctx.attr.libraries_needed]),
        programs = repr(programs),
    ))

system_library = repository_rule(
    implementation = _system_library_impl,
    local = True,
    attrs = {
        "library": attr.string(mandatory = True),
        "headers": attr.string_list(),
        "libraries": attr.string_list(),
        "defines": attr.string_list(),
        "linkopts": attr.string_list(),
        "libraries_needed": attr.string_list(),
        "programs": attr.string_list(),
    },
)
