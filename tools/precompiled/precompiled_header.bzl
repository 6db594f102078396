"""precompiled_header: headers that nearly every source includes, parsed once by the compiler."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _compile(ctx, headers, context, output, dependencies):
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    cpp = ctx.fragments.cpp
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = cc_toolchain,
        source_file = headers[0].path,
        output_file = output.path,
        user_compile_flags = cpp.copts + cpp.cxxopts + ctx.attr.copts + ["-x", "c++-header", "-MD", "-MF", dependencies.path],
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        use_pic = True,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset(headers, transitive = [context.headers, cc_toolchain.all_files]),
        outputs = [output, dependencies],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % ctx.label,
    )

def _precompiled_header_impl(ctx):
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    headers = [header]
    context = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    if ctx.var["COMPILATION_MODE"] == "opt" and "tessera_sanitizer" not in ctx.var:
        headers += ctx.files.srcs

        # Relative to this header: sources in other workspaces do not search for includes in the folder of all workspaces.
        root = "../" * len(header.dirname.split("/"))
        ctx.actions.write(header, "".join(["#include \"%s%s\"\n" % (root, source.path) for source in ctx.files.srcs]))
        precompiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
        _compile(ctx, headers, context, precompiled, ctx.actions.declare_file(ctx.label.name + ".h.d"))
        headers = headers + [precompiled]
    else:
        ctx.actions.write(header, "// Sources include what they use; this build precompiles nothing.\n")
    return [CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset(headers, transitive = [context.headers]),
        includes = context.includes,
        quote_includes = depset([header.dirname], transitive = [context.quote_includes]),
        system_includes = context.system_includes,
        defines = context.defines,
    ))]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".h"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    doc = """Compiles `srcs` for sources that are compiled with the same options.

    A source depends on the target NAME and says copts = ["-include", "NAME.h", "-fpch-deps"]. GCC then reads NAME.h.gch, or,
    where that was compiled with other options, the header's text. With -fpch-deps, and -MD for the precompiled header, GCC
    tells Bazel of all headers inside. Without these options, nothing would be compiled again when one of them changes. Under
    a sanitizer and in debug builds nothing is precompiled and the header is empty, so a source that forgot an #include does
    not compile.""",
)
