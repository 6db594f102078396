"""tessera_package: a program with the shared objects that it needs, to copy to another machine."""

_SCRIPT = """set -eu
folder=$1 program=$2
shift 2
mkdir -p "$folder"
cp -L "$program" "$folder/"
for object in "$@"; do cp -L "$object" "$folder/"; done
chmod -R u+w "$folder"
"""

# The toolkit's libraries are large, belong to a driver version, and are found where the build found them.
_TOOLKIT = "tessera_cuda"

def _is_packed(file):
    return ".so" in file.basename and not file.owner.workspace_name.endswith(_TOOLKIT)

def _tessera_package_impl(ctx):
    program = ctx.executable.program
    objects = {}
    for file in ctx.attr.program[DefaultInfo].default_runfiles.files.to_list():
        if _is_packed(file):
            objects.setdefault(file.basename, file)
    folder = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run_shell(
        command = _SCRIPT,
        arguments = [folder.path, program.path] + [file.path for file in objects.values()],
        inputs = [program] + objects.values(),
        outputs = [folder],
        mnemonic = "Package",
        progress_message = "Packaging %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles(files = [folder]))]

tessera_package = rule(
    implementation = _tessera_package_impl,
    attrs = {"program": attr.label(executable = True, cfg = "target", mandatory = True)},
    doc = """A folder bazel-bin/<package>/NAME with the program and, beside it, the shared objects that it was linked with: Tessera's
    kernels for each instruction set and the libraries of tools/packages.txt. Programs look for them in their own folder, so it can be
    copied anywhere as a whole. It needs glibc, libstdc++ and what those libraries need themselves; a program with CUDA also
    the toolkit, where the build found it.

        tessera_package(name = "train_package", program = ":train")
    """,
)
