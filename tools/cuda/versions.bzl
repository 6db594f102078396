"""Versions of libraries, as their headers tell them. A test runs these functions as Python, which they are too."""

def header_version(text, prefix):
    """(major, minor) by the numbers that a header defines as PREFIX_MAJOR and PREFIX_MINOR; None where it does not."""
    found = {}
    for line in text.split("\n"):
        words = [word for word in line.strip().split(" ") if word]
        if len(words) >= 3 and words[0] == "#define" and words[2].isdigit():
            found[words[1]] = int(words[2])
    major = found.get(prefix + "_MAJOR")
    minor = found.get(prefix + "_MINOR")
    return (major, minor) if major != None and minor != None else None

def version_problem(text, prefix, least):
    """Why the library with this header cannot be used; None where it can.

    Args:
      text: of the header.
      prefix: of its macros, which is the library's name.
      least: (major, minor) of the oldest version that can.
    """
    wanted = "Tessera needs %d.%d or newer" % least
    version = header_version(text, prefix)
    if version == None:
        return "its header does not tell which %s it is, and %s" % (prefix, wanted)
    if version < least:
        return "it is %s %d.%d, and %s" % (prefix, version[0], version[1], wanted)
    return None
