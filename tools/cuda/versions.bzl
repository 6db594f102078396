"""Versions of libraries, read from their headers. A test runs these functions as Python, which they also are."""

def header_version(text, prefix):
    """(major, minor) from the macros PREFIX_MAJOR and PREFIX_MINOR of a header; None if it does not define them."""
    found = {}
    for line in text.split("\n"):
        words = [word for word in line.strip().split(" ") if word]
        if len(words) >= 3 and words[0] == "#define" and words[2].isdigit():
            found[words[1]] = int(words[2])
    major = found.get(prefix + "_MAJOR")
    minor = found.get(prefix + "_MINOR")
    return (major, minor) if major != None and minor != None else None

def version_problem(text, prefix, least):
    """Why the library with this header cannot be used; None if it can.

        Args:
          text: the text of the header.
          prefix: of its macros: the library's name.
          least: (major, minor) of the oldest usable version.
    """
    wanted = "Tessera needs %d.%d or newer" % least
    version = header_version(text, prefix)
    if version == None:
        return "its header does not tell which %s it is, and %s" % (prefix, wanted)
    if version < least:
        return "it is %s %d.%d, and %s" % (prefix, version[0], version[1], wanted)
    return None
