"""Everything Tessera needs from outside, as found on this machine. Nothing is downloaded.

A workspace that uses Tessera loads and calls the one macro:

    load("@tessera//tools:dependencies.bzl", "tessera_dependencies")
    tessera_dependencies()
    tessera_dependencies(find_cuda = True)  # with the CUDA half, if a toolkit is installed
"""

load("//tools/cuda:detect.bzl", "cuda_toolkit")
load("//tools/third_party:system_library.bzl", "SYSTEM_LIBRARIES", "system_library")

def _written_repository_impl(ctx):
    for path, content in ctx.attr.files.items():
        ctx.file(path, content)

_written_repository = repository_rule(
    implementation = _written_repository_impl,
    attrs = {"files": attr.string_dict()},
    doc = "A repository whose files are given in the attribute: path -> content.",
)

_CC_RULES = ["cc_binary", "cc_import", "cc_library", "cc_test", "cc_toolchain", "cc_toolchain_suite"]

# Bazel's own tools load these names from @rules_cc; here they are the rules built into Bazel.
_RULES_CC = {
    "cc/BUILD": 'exports_files(["defs.bzl"])\n',
    "cc/defs.bzl": "\n".join(["%s = native.%s" % (rule, rule) for rule in _CC_RULES]) + "\n",
}

# Every test rule refers to it; only `bazel coverage` would use it.
_COVERAGE_TOOLS = {
    "BUILD": """filegroup(
    name = "coverage_report_generator",
    visibility = ["//visibility:public"],
)
""",
}

# Bazel's own repositories, from the Debian packages bazel-platforms, bazel-skylib, bazel-rules-java and bazel-rules-proto.
_BAZEL_REPOSITORIES = {
    "bazel_skylib": "/usr/share/bazel/tools/skylib",
    "platforms": "/usr/share/bazel/tools/platforms",
    "rules_java": "/usr/share/bazel/rules/java",
    "rules_proto": "/usr/share/bazel/rules/proto",
}

def tessera_dependencies(find_cuda = False):
    """Declares the repositories that Tessera's targets refer to, unless the workspace already has one of that name.

    Args:
      find_cuda: whether a CUDA toolkit is used if one is installed: compiling the CUDA kernels takes minutes. The environment
        variable TESSERA_CUDA goes before it: 1 needs a toolkit, 0 ignores it.
    """
    for name, path in _BAZEL_REPOSITORIES.items():
        if not native.existing_rule(name):
            native.local_repository(name = name, path = path)
    if not native.existing_rule("rules_cc"):
        _written_repository(name = "rules_cc", files = _RULES_CC)
    if not native.existing_rule("remote_coverage_tools"):
        _written_repository(name = "remote_coverage_tools", files = _COVERAGE_TOOLS)
    for name, library in SYSTEM_LIBRARIES.items():
        system_library(
            name = "tessera_" + name,
            library = name,
            headers = library.headers,
            libraries = library.libraries,
            defines = library.defines,
            linkopts = library.linkopts,
            libraries_needed = library.deps,
            programs = library.programs,
        )
    cuda_toolkit(name = "tessera_cuda", find = find_cuda)
