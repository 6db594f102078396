"""tessera_cuda_library: CUDA sources, linked like any C++ library.

They are compiled by nvcc; for the emulated GPU (TESSERA_CUDA=emulated) by the C++ compiler, behind kernel_language.h.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@tessera_cuda//:defs.bzl", "CUDA_EMULATED", "CUDA_FOUND", "CUDA_ROOT", "CUDNN_FOUND", "NCCL_FOUND")
load("//tools:header_prefix.bzl", "header_prefix")

_NEVER = str(Label("//tools/cuda:never"))

_KERNEL_LANGUAGE = "tessera/tests/support/emulated_gpu/runtime/kernel_language.h"
_EMULATED_FLAGS = [
    "-std=c++20",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",  # unroll
    # There are many small kernels: -O2 would cost more compile time than it saves.
    "-O1",
    "-ffp-contract=off",
    "-include",
    _KERNEL_LANGUAGE,
]

_NVCC_FLAGS = [
    "-std=c++20",
    "-O3",
    # Products and sums are fused only where the source calls fma(), so that a GPU computes the same bits as the CPU.
    "-fmad=false",
    "--expt-relaxed-constexpr",
    "--extended-lambda",
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
    "--compress-mode=size",
    "-Xptxas=-v",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror",
]

def if_cuda(present, absent = []):
    """`present` if a CUDA toolkit was found, else `absent`."""
    return present if CUDA_FOUND else absent

def if_cudnn(present, absent = []):
    """`present` if cuDNN was found, else `absent`."""
    return present if CUDNN_FOUND else absent

def needs_cudnn():
    """target_compatible_with for tests of cuDNN itself."""
    return [] if CUDNN_FOUND and not CUDA_EMULATED else [_NEVER]

def if_nccl(present, absent = []):
    """`present` if a CUDA toolkit and NCCL were found, else `absent`."""
    return present if NCCL_FOUND else absent

def needs_nccl():
    """target_compatible_with for tests of NCCL itself."""
    return [] if NCCL_FOUND and not CUDA_EMULATED else [_NEVER]

def needs_cuda():
    """target_compatible_with for targets that exist only in a build with CUDA."""
    return [] if CUDA_FOUND else [_NEVER]

def needs_nvcc():
    """target_compatible_with for targets that need nvcc's own output."""
    return [] if CUDA_FOUND and not CUDA_EMULATED else [_NEVER]

def if_emulated(present, absent = []):
    """`present` in a build for the emulated GPU, else `absent`."""
    return present if CUDA_EMULATED else absent

def emulated_only():
    """target_compatible_with for targets that exist only in a build for the emulated GPU."""
    return [] if CUDA_EMULATED else [_NEVER]

def _compile(ctx, source, context, headers, cc_toolchain):
    path = source.owner.name  # from the package; tools/cuda/registers.py finds the source by it
    output = ctx.actions.declare_file("_objs/%s/%s.o" % (ctx.label.name, path))
    resources = ctx.actions.declare_file("_objs/%s/%s.ptxas" % (ctx.label.name, path))
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
    # ptxas reports registers and spills among nvcc's messages: kept beside the object, and shown if nvcc fails.
    # nvcc names its temporary files by its process, and processes of two sandboxes may have one number: each has its own folder.
    ctx.actions.run_shell(
        command = 'out=$1; shift; export TMPDIR="$out.tmp"; mkdir -p "$TMPDIR"; ' +
                  '"$@" >"$out" 2>&1 || { cat "$out" >&2; exit 1; }; rm -rf "$TMPDIR"',
        arguments = [resources.path, CUDA_ROOT + "/bin/nvcc", arguments],
        inputs = depset([source, ctx.file._version], transitive = [headers, cc_toolchain.all_files]),
        outputs = [output, resources],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s" % source.short_path,
    )
    return struct(object = output, resources = resources)

def _shared_of(linker_inputs):
    """The shared objects among the inputs, by their real paths, and the folders in which programs find them."""
    files, places = [], []
    for linker_input in linker_inputs:
        places.extend([flag for flag in linker_input.user_link_flags if flag.startswith("-Wl,-rpath,")])
        for library in linker_input.libraries:
            file = library.resolved_symlink_dynamic_library or library.dynamic_library
            if file:
                files.append(file)
    return depset(files).to_list(), depset(places).to_list()

def _shared_object(ctx, objects, deps, features, cc_toolchain):
    """Links the inputs into one shared object, which names the shared object that it needs: the CUDA runtime.

        It uses Tessera's symbols from the program that loads it, so Tessera is loaded only once.
    """
    output = ctx.actions.declare_file("lib%s_%s.so" % (ctx.label.package.replace("/", "_"), ctx.label.name))
    needed, places = _shared_of(deps.linker_inputs.to_list())
    arguments = ctx.actions.args()
    arguments.add_all(["-shared", "-Wl,-soname," + output.basename, "-o", output])
    arguments.add_all(objects)
    arguments.add("-Wl,--as-needed")
    arguments.add_all(needed)
    arguments.add_all(places)
    ctx.actions.run(
        executable = cc_toolchain.compiler_executable,
        arguments = [arguments],
        inputs = depset(objects + needed, transitive = [cc_toolchain.all_files]),
        outputs = [output],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "CudaLink",
    )
    library = cc_common.create_library_to_link(
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = cc_toolchain,
        dynamic_library = output,
    )
    return cc_common.create_linking_context(
        linker_inputs = depset([cc_common.create_linker_input(owner = ctx.label, libraries = depset([library]))]),
    )

def _static_objects(ctx, objects, _deps, features, cc_toolchain):
    linking_context, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = features,
        cc_toolchain = cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        disallow_dynamic_library = True,
    )
    return linking_context

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
    compiled = [_compile(ctx, source, context, context.headers, cc_toolchain) for source in ctx.files.srcs]
    objects = [each.object for each in compiled]
    link = _shared_object if ctx.attr.shared else _static_objects
    mine = CcInfo(
        compilation_context = context,
        linking_context = link(ctx, objects, merged.linking_context, features, cc_toolchain),
    )
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(ptxas = depset([each.resources for each in compiled])),
        cc_common.merge_cc_infos(direct_cc_infos = [mine], cc_infos = infos),
    ]

def _output_group_impl(ctx):
    files = depset(transitive = [getattr(target[OutputGroupInfo], ctx.attr.group) for target in ctx.attr.targets])
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))]

output_group = rule(
    implementation = _output_group_impl,
    attrs = {
        "targets": attr.label_list(mandatory = True),
        "group": attr.string(mandatory = True),
    },
    doc = "The files of one output group of targets: a filegroup that may be incompatible with a machine.",
)

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "local_defines": attr.string_list(),
        "shared": attr.bool(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_version": attr.label(default = "@tessera_cuda//:version.txt", allow_single_file = True),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)

def _emulated_library(name, srcs, deps, visibility, **kwargs):
    copies = []
    for source in srcs:
        copies.append(source + ".cc")
        native.genrule(
            name = name + "_copy_" + source,
            srcs = [source],
            outs = [source + ".cc"],
            cmd = "cp $< $@",
            visibility = ["//visibility:private"],
        )
    native.cc_library(
        name = name,
        srcs = copies,
        copts = _EMULATED_FLAGS,
        deps = deps + [str(Label("//tests/support/emulated_gpu:kernel_language"))],
        linkstatic = True,
        visibility = visibility,
        **kwargs
    )

def tessera_cuda_library(name, srcs = [], hdrs = [], deps = [], local_defines = [], shared = False, visibility = None, **kwargs):
    """CUDA sources (srcs, .cu) and their headers; without a toolkit the target is incompatible and left out of //...

    Args:
      name: of the library.
      srcs: .cu files. Keep Eigen and fmt out of what they include.
      hdrs: headers, included as tessera/<package>/<file>.h.
      deps: C++ libraries; the CUDA runtime is always among them.
      local_defines: preprocessor definitions for srcs.
      shared: one shared object, so that programs do not each hold a copy.
      visibility: of the library.
      **kwargs: passed on.
    """
    compatible = needs_cuda()
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
    if CUDA_EMULATED:
        _emulated_library(name, srcs, [name + "_headers"], visibility, local_defines = local_defines, **kwargs)
        return
    _cuda_objects(
        name = name,
        srcs = srcs,
        deps = [name + "_headers"],
        local_defines = local_defines,
        shared = shared,
        target_compatible_with = compatible,
        visibility = visibility,
        **kwargs
    )
