"""tessera_sdk: Tessera as a folder of headers and libraries, for programs that another build system builds."""

# Third-party headers that Tessera's own include.
_THIRD_PARTY = ["fmt", "nlohmann"]

# The toolkit's libraries are large, belong to a driver version, and are found where the build found them.
_TOOLKIT = "tessera_cuda"

# Static, because Debian's static protobuf cannot be part of a shared object.
_CONFIG = """# For find_package(tessera): the target tessera::tessera.
get_filename_component(_tessera_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET tessera::tessera)
  file(STRINGS "${_tessera_root}/lib/link_flags" _tessera_flags)
  add_library(tessera::tessera INTERFACE IMPORTED)
  set_target_properties(tessera::tessera PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_tessera_root}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_COMPILE_DEFINITIONS "@DEFINES@"
    INTERFACE_LINK_DIRECTORIES "${_tessera_root}/lib"
    INTERFACE_LINK_OPTIONS "-Wl,-rpath,${_tessera_root}/lib"
    INTERFACE_LINK_LIBRARIES "${_tessera_flags}")
  unset(_tessera_flags)
endif()
unset(_tessera_root)
"""

# Arguments: the folder; files with a line for each header (source and name under include/), archive of ours, file
# that is copied to lib/, object of the toolkit, flag; the file for CMake.
_SCRIPT = """set -eu
mkdir -p "$1/include" "$1/lib/cmake/tessera"
while read -r header name; do
  mkdir -p "$1/include/${name%/*}"
  cp -L "$header" "$1/include/$name"
done < "$2"
{
  echo "CREATE $1/lib/libtessera.a"
  while read -r archive; do echo "ADDLIB $archive"; done < "$3"
  echo SAVE
} | ar -M
{
  echo "-l:libtessera.a"
  # All of them, so that the kernels' own libraries are loaded from here too.
  echo "-Wl,--push-state,--no-as-needed"
  while read -r file; do
    cp -L "$file" "$1/lib/"
    echo "-l:${file##*/}"
  done < "$4"
  echo "-Wl,--pop-state"
  while read -r object; do readlink -f "$object"; done < "$5"
  cat "$6"
} > "$1/lib/link_flags"
cp "$7" "$1/lib/cmake/tessera/tesseraConfig.cmake"
chmod -R u+w "$1"
"""

def _name_under_include(path, include_paths):
    """The name by which a header is included, or None if it is not one of ours or of _THIRD_PARTY."""
    for folder in include_paths:
        if path.startswith(folder + "/"):
            name = path[len(folder) + 1:]
            if name.split("/")[0] in ["tessera"] + _THIRD_PARTY:
                return name
    return None

def _headers_of(compilation):
    """Pairs (file, name), each name once."""
    folders = depset(transitive = [compilation.includes, compilation.system_includes, compilation.quote_includes]).to_list()
    by_length = sorted([(-len(folder), folder) for folder in folders if folder != "."])
    found = {}
    for header in compilation.headers.to_list():
        name = _name_under_include(header.path, [folder for _, folder in by_length])
        if name and name not in found:
            found[name] = header
    return [(file, name) for name, file in found.items()]

def _archive_of(library):
    return library.pic_static_library or library.static_library

def _is_of_toolkit(file):
    return file.owner.workspace_name.endswith(_TOOLKIT)

def _link_inputs(linking):
    """What a program is linked from: our archives, those of others, shared objects, flags."""
    ours, others, objects, flags = [], [], [], []
    for each in linking.linker_inputs.to_list():
        flags.extend([flag for flag in each.user_link_flags if "$ORIGIN" not in flag])
        for library in each.libraries:
            archive = _archive_of(library)
            if not archive:
                objects.append(library.resolved_symlink_dynamic_library or library.dynamic_library)
            elif archive.owner.workspace_name.startswith("tessera_"):
                others.append(archive)
            else:
                ours.append(archive)
    return struct(ours = ours, others = others, objects = objects, flags = flags)

def _list(ctx, suffix, lines):
    file = ctx.actions.declare_file(ctx.label.name + "_lists/" + suffix)
    ctx.actions.write(file, "".join([line + "\n" for line in lines]))
    return file

def _paths(files):
    return [file.path for file in files]

def _tessera_sdk_impl(ctx):
    cc = ctx.attr.dep[CcInfo]
    inputs = _link_inputs(cc.linking_context)
    headers = _headers_of(cc.compilation_context)
    packed = inputs.others + [file for file in inputs.objects if not _is_of_toolkit(file)]
    toolkit = [file for file in inputs.objects if _is_of_toolkit(file)]
    defines = ";".join(cc.compilation_context.defines.to_list())
    lists = [
        _list(ctx, "headers", ["%s %s" % (file.path, name) for file, name in headers]),
        _list(ctx, "archives", _paths(inputs.ours)),
        _list(ctx, "packed", _paths(packed)),
        _list(ctx, "toolkit", _paths(toolkit)),
        _list(ctx, "flags", depset(inputs.flags).to_list()),
        _list(ctx, "config", [_CONFIG.replace("@DEFINES@", defines)]),
    ]
    folder = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run_shell(
        command = _SCRIPT,
        arguments = [folder.path] + _paths(lists),
        inputs = [file for file, _ in headers] + inputs.ours + packed + toolkit + lists,
        outputs = [folder],
        mnemonic = "Sdk",
        progress_message = "Assembling %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles(files = [folder]))]

tessera_sdk = rule(
    implementation = _tessera_sdk_impl,
    attrs = {"dep": attr.label(providers = [CcInfo], mandatory = True)},
    doc = """A folder bazel-bin/<package>/NAME that other build systems use, and that can be copied anywhere as a whole:

        include/              headers, as #include "tessera/tessera.h"
        lib/libtessera.a      all of Tessera
        lib/*                 what a program is linked with beside it: kernels for each instruction set, third-party libraries
        lib/link_flags        the options for that, for the compiler: @lib/link_flags
        lib/cmake/tessera/    find_package(tessera) of CMake: the target tessera::tessera
    """,
)
