"""tessera_compile_fail_test: a source file that the compiler must reject with a given message."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_COMPILE = """
if {compiler} "$@" 2> {log}; then
  echo "compiled without an error" > {log}
fi
"""

_CHECK = """#!/bin/bash
# Passes if the compiler refused the source with the expected message.
log={log}
message={message}
if grep --quiet --fixed-strings -- "$message" "$log"; then
  lines=$(wc -l <"$log")
  if (({max_lines} == 0 || lines <= {max_lines})); then exit 0; fi
  echo "the compiler should say that in at most {max_lines} lines, not in $lines"
fi
echo "{source} should be refused with: $message"
echo "but the compiler said:"
cat "$log"
exit 1
"""

def _quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"

def _compile_fail_test_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    context = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    log = ctx.actions.declare_file(ctx.label.name + ".log")
    arguments = ctx.actions.args()
    arguments.add_all(["-std=c++20", "-fsyntax-only", "-fdiagnostics-color=never", "-fmessage-length=0"])
    arguments.add_all(context.defines, before_each = "-D")
    arguments.add_all(context.quote_includes, before_each = "-iquote")
    arguments.add_all(context.includes, before_each = "-I")
    arguments.add_all(context.system_includes, before_each = "-isystem")
    arguments.add(ctx.file.src)
    ctx.actions.run_shell(
        command = "export LC_ALL=C\n" + _COMPILE.format(compiler = cc_toolchain.compiler_executable, log = log.path),
        arguments = [arguments],
        inputs = depset([ctx.file.src], transitive = [context.headers, cc_toolchain.all_files]),
        outputs = [log],
        mnemonic = "CompileFail",
        progress_message = "Compiling %s, which must fail" % ctx.file.src.short_path,
    )
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    ctx.actions.write(script, is_executable = True, content = _CHECK.format(
        log = _quoted(log.short_path),
        max_lines = ctx.attr.max_lines,
        message = _quoted(ctx.attr.message),
        source = ctx.file.src.short_path,
    ))
    return [DefaultInfo(executable = script, runfiles = ctx.runfiles(files = [log]))]

compile_fail_test = rule(
    implementation = _compile_fail_test_impl,
    test = True,
    attrs = {
        "src": attr.label(allow_single_file = [".cc"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "message": attr.string(mandatory = True),
        "max_lines": attr.int(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)

def tessera_compile_fail_test(name, src, message, deps = [], **kwargs):
    """Passes if the compiler, with `deps`, rejects `src` and its errors contain `message`.

    With max_lines, all that it says has at most so many lines.
    """
    compile_fail_test(name = name, src = src, deps = deps, message = message, size = "small", **kwargs)
