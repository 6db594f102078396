"""Finds the CUDA toolkit, cuDNN and NCCL if they are installed; never downloads them.

TESSERA_CUDA=1 (`--config=cuda`) makes a missing toolkit an error, TESSERA_CUDA=0 (`--config=nocuda`) ignores an installed
one, TESSERA_CUDA=emulated (`--config=emulated_gpu`) uses the toolkit's headers and runs everything on the CPU; otherwise
the toolkit is used if there is one and the workspace wants it (`tessera_dependencies(find_cuda = True)`). A library that is too old is left out, with a message. The repository `@tessera_cuda`
has the results:

    //:defs.bzl       CUDA_FOUND, CUDA_ROOT, CUDA_EMULATED, CUDNN_FOUND, NCCL_FOUND
    //:cuda_runtime   headers and libcudart (also :cudnn, :nccl), or their counterparts in //tests/support/emulated_gpu;
                      headers only: //:cuda_runtime_headers
    //:cublas         headers, and the search path of the library, which the program loads itself; for the emulated GPU
                      the library linked in its place
"""

load(":versions.bzl", "version_problem")

# Values of TESSERA_CUDA; those that need a toolkit are named after their configuration.
_WANTED = {
    "": None,
    "0": None,
    "1": "--config=cuda",
    "emulated": "--config=emulated_gpu",
}

_PLACES = ["/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-13.0", "/usr/lib/cuda"]
_INCLUDES = ["{root}/include", "/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/local/include"]
_LIBRARY_FOLDERS = ["{root}/lib64", "{root}/lib", "/usr/lib/x86_64-linux-gnu", "/usr/local/lib"]

# name -> the header and the libraries that must exist. The emulated GPU's libraries are named after these components.
_COMPONENTS = {
    "cuda_runtime": ("cuda_runtime.h", ["libcudart.so"]),
    "cublas": ("cublasLt.h", ["libcublasLt.so"]),
    "cudnn": ("cudnn.h", ["libcudnn.so"]),
    "nccl": ("nccl.h", ["libnccl.so"]),
}

# Not linked: a program loads it when it first needs it (tensor/kernels/cuda/cublas/cublas_library.h). The loader would
# need 0.1 s for the library before every main(), and some milliseconds for each of the others.
_LOADED_BY_PROGRAMS = ["cublas"]

# The oldest version whose header has the functions that Tessera calls: for NCCL symmetric windows and names of
# communicators.
_LEAST_VERSIONS = {
    "nccl": ("NCCL", (2, 27)),
}

_EMULATED_TARGETS = {"cuda_runtime": "runtime"}

def _toolkit_root(ctx):
    """The folder that contains bin/nvcc, or None."""
    candidates = [ctx.os.environ[name] for name in ["CUDA_HOME", "CUDA_PATH"] if ctx.os.environ.get(name)]
    nvcc = ctx.which("nvcc")
    if nvcc:
        candidates.append(str(nvcc.realpath.dirname.dirname))
    for root in candidates + _PLACES:
        if ctx.path(root + "/bin/nvcc").exists:
            return str(ctx.path(root).realpath)
    return None

def _first(ctx, root, folders, name):
    for folder in folders:
        path = ctx.path(folder.format(root = root) + "/" + name)
        if path.exists:
            return path
    return None

def _component_target(ctx, root, name, emulated):
    """Links one component's files into the repository and returns its target, or None if it is not installed or too old."""
    header, libraries = _COMPONENTS[name]
    libraries = [] if emulated else libraries
    found_header = _first(ctx, root, _INCLUDES, header)
    found = [_first(ctx, root, _LIBRARY_FOLDERS, library) for library in libraries]
    if not found_header or None in found:
        return None
    if name in _LEAST_VERSIONS:
        prefix, least = _LEAST_VERSIONS[name]
        problem = version_problem(ctx.read(found_header), prefix, least)
        if problem:
            # buildifier: disable=print
            print("%s is left out: %s" % (found_header, problem))
            return None
    linked = [] if name in _LOADED_BY_PROGRAMS else found
    for path in linked:
        ctx.symlink(path, "%s/%s" % (name, path.basename))
    in_toolkit = str(found_header.dirname.realpath) == str(ctx.path(root + "/include").realpath)
    if not in_toolkit:
        for entry in found_header.dirname.readdir():
            if entry.basename.startswith(header.partition(".")[0]):
                ctx.symlink(entry, "%s/include/%s" % (name, entry.basename))
    return """cc_library(
    name = "{name}_headers",
    hdrs = glob(["{name}/include/**"]),
    includes = {includes},
    deps = [":headers"],
)

cc_library(
    name = "{name}",
    srcs = {libraries},
    linkopts = {linkopts},
    deps = {deps},
)
""".format(
        name = name,
        libraries = repr(["%s/%s" % (name, path.basename) for path in linked]),
        linkopts = repr(["-Wl,-rpath,%s" % path.dirname for path in found[:1]]),
        deps = repr([":%s_headers" % name] + ([emulated + _EMULATED_TARGETS.get(name, name)] if emulated else [])),
        includes = repr([] if in_toolkit else [name + "/include"]),
    )

def _version(ctx, root):
    result = ctx.execute([root + "/bin/nvcc", "--version"])
    if result.return_code != 0:
        fail("%s/bin/nvcc does not run: %s" % (root, result.stderr))
    return result.stdout

_ABSENT_TARGET = """[
    cc_library(
        name = name,
        target_compatible_with = ["{never}"],
    )
    for name in ["{name}", "{name}_headers"]
]
"""

_PACKAGE = """package(default_visibility = ["//visibility:public"])

exports_files(["version.txt"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = {includes},
)
"""

def _cuda_toolkit_impl(ctx):
    wanted = ctx.os.environ.get("TESSERA_CUDA", "")
    if wanted not in _WANTED:
        fail("TESSERA_CUDA is \"%s\"; it must be 0, 1, emulated or unset" % wanted)
    ignored = wanted == "0" or (wanted == "" and not ctx.attr.find)
    root = None if ignored else _toolkit_root(ctx)
    if _WANTED[wanted] and not root:
        fail("%s (TESSERA_CUDA=%s) needs the CUDA toolkit: no bin/nvcc on PATH, in CUDA_HOME, CUDA_PATH or %s" %
             (_WANTED[wanted], wanted, ", ".join(_PLACES)))
    here = "@%s//%s" % (ctx.attr.never.workspace_name, ctx.attr.never.package)
    never = "%s:%s" % (here, ctx.attr.never.name)
    emulated = "@%s//tests/support/emulated_gpu:" % ctx.attr.never.workspace_name if wanted == "emulated" else None
    targets = []
    found = []
    if root:
        ctx.symlink(root + "/include", "include")
        ctx.file("version.txt", _version(ctx, root))
    else:
        ctx.file("version.txt", "no CUDA toolkit\n")
    for name in _COMPONENTS:
        target = _component_target(ctx, root, name, emulated) if root else None
        if target:
            found.append(name)
        targets.append(target or _ABSENT_TARGET.format(name = name, never = never))
    ctx.file("BUILD", _PACKAGE.format(includes = repr(["include"] if root else [])) + "\n" + "\n".join(targets))
    ctx.file("defs.bzl", "CUDA_FOUND = %r\nCUDA_ROOT = %r\nCUDA_EMULATED = %r\nCUDNN_FOUND = %r\nNCCL_FOUND = %r\n" %
                         (bool(root), root or "", bool(emulated), "cudnn" in found, "nccl" in found))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    local = True,
    configure = True,
    environ = ["TESSERA_CUDA", "CUDA_HOME", "CUDA_PATH", "PATH"],
    attrs = {
        "find": attr.bool(doc = "whether an installed toolkit is used without TESSERA_CUDA"),
        "never": attr.label(default = "//tools/cuda:never"),
    },
)
