"""tessera_cuda_library: CUDA sources compiled by nvcc, linked like any C++ library."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@tessera_cuda//:defs.bzl", "CUDA_FOUND", "CUDA_ROOT")
load("//tools:header_prefix.bzl", "header_prefix")

_NEVER = str(Label("//tools/cuda:never"))

_NVCC_FLAGS = [
    "-std=c++20",
    "-O3",
    # Products are fused with sums only where the source says fma(): so a GPU computes the CPU's bits.
    "-fmad=false",
    "--expt-relaxed-constexpr",
    "--extended-lambda",
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror",
]

def if_cuda(present, absent = []):
    """`present` where a CUDA toolkit was found, else `absent`."""
    return present if CUDA_FOUND else absent

def _compile(ctx, source, context, headers, cc_toolchain):
    output = ctx.actions.declare_file("_objs/%s/%s.o" % (ctx.label.name, source.basename))
    arguments = ctx.actions.args()
    arguments.add_all(_NVCC_FLAGS)
    arguments.add("-ccbin", cc_toolchain.compiler_executable)
    arguments.add_all(context.defines, before_each = "-D")
    arguments.add_all(ctx.attr.local_defines, before_each = "-D")
    arguments.add_all(context.quote_includes, format_each = "-Xcompiler=-iquote,%s")
    arguments.add_all(context.includes, before_each = "-I")
    arguments.add_all(context.system_includes, before_each = "-isystem")
    arguments.add("-c", source)
    arguments.add("-o", output)
    ctx.actions.run(
        executable = CUDA_ROOT + "/bin/nvcc",
        arguments = [arguments],
        inputs = depset([source, ctx.file._version], transitive = [headers, cc_toolchain.all_files]),
        outputs = [output],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s" % source.short_path,
    )
    return output

def _cuda_objects_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    infos = [dep[CcInfo] for dep in ctx.attr.deps]
    merged = cc_common.merge_cc_infos(cc_infos = infos)
    context = merged.compilation_context
    objects = [_compile(ctx, source, context, context.headers, cc_toolchain) for source in ctx.files.srcs]
    linking_context, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = features,
        cc_toolchain = cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        linking_contexts = [info.linking_context for info in infos],
        disallow_dynamic_library = True,
    )
    return [
        DefaultInfo(files = depset(objects)),
        CcInfo(compilation_context = context, linking_context = linking_context),
    ]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "local_defines": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_version": attr.label(default = "@tessera_cuda//:version.txt", allow_single_file = True),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)

def tessera_cuda_library(name, srcs = [], hdrs = [], deps = [], local_defines = [], visibility = None, **kwargs):
    """CUDA sources (srcs, .cu) and their headers; without a toolkit the target is incompatible and left out of //...

    Args:
      name: of the library.
      srcs: .cu files. Keep Eigen and fmt out of what they include.
      hdrs: headers, included as tessera/<package>/<file>.h.
      deps: C++ libraries; the CUDA runtime is always among them.
      local_defines: preprocessor definitions for srcs.
      visibility: of the library.
      **kwargs: passed on.
    """
    compatible = [] if CUDA_FOUND else [_NEVER]
    native.cc_library(
        name = name + "_headers",
        hdrs = hdrs,
        deps = deps + [str(Label("//tools/third_party:cuda_runtime"))],
        include_prefix = header_prefix(),
        linkstatic = True,
        target_compatible_with = compatible,
        visibility = ["//visibility:private"],
        **kwargs
    )
    _cuda_objects(
        name = name,
        srcs = srcs,
        deps = [name + "_headers"],
        local_defines = local_defines,
        target_compatible_with = compatible,
        visibility = visibility,
        **kwargs
    )
