"""The include path of a package's headers."""

_HERE = "@" + Label("//:WORKSPACE").workspace_name

def header_prefix():
    """`tessera/<package>` for Tessera's own packages, None (the package's path) for those of a workspace that uses it.

        So a user's `models/nets/gpt.h` and ours are never confused.
    """
    if native.repository_name() != _HERE:
        return None
    return "/".join(["tessera"] + ([native.package_name()] if native.package_name() else []))
