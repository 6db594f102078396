"""Finds the functions of a C++ or CUDA file and their length in lines, without a compiler.

Comments, literals and preprocessor lines are blanked; then braces are matched, and the text before an opening brace
distinguishes a function from a class, a namespace or data. Lambdas belong to the function that contains them.
"""

import re

_BLANKED = re.compile(
    r"""
    //[^\n]*(?:\\\n[^\n]*)*                        # line comment
    | /\*.*?\*/                                    # block comment
    | R"(?P<delimiter>[^()\s\\]{0,16})\(.*?\)(?P=delimiter)"   # raw string
    | "(?:\\.|[^"\\\n])*"                          # string
    | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'          # character (not a digit separator)
    | ^[ \t]*\#[^\n]*(?:\\\n[^\n]*)*               # preprocessor line, continued ones included
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_CLASS = re.compile(r"^(?:typedef |static |constexpr |inline |const |export )*(?:class|struct|union|enum)\b(?!.*\)$)", re.DOTALL)
_NAMESPACE = re.compile(r"^(?:inline )?(?:namespace\b|extern$)")
_AFTER_PARAMETERS = re.compile(
    r"\)\s*(?:(?:const|volatile|noexcept|override|final|mutable|try|&&?)\s*)*(?:->[^;={}]*|requires\b.*)?$", re.DOTALL)
_INITIALISERS = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:)")


def _blank(match):
    """Keeps the line breaks of removed text, so that line numbers stay correct."""
    text = match.group(0)
    return '""' + "\n" * text.count("\n") if text.startswith(('"', "R")) else "\n" * text.count("\n")


def without_comments(text):
    """The code alone, line for line: strings are empty."""
    return _BLANKED.sub(_blank, text)


def _without_template(head):
    """`head` without leading template<...> and attributes."""
    head = re.sub(r"\[\[[^\]]*\]\]|alignas\s*\([^)]*\)", " ", head).strip()
    while head.startswith("template"):
        depth, position = 0, head.find("<")
        if position < 0:
            return head
        while position < len(head):
            depth += {"<": 1, ">": -1}.get(head[position], 0)
            position += 1
            if depth == 0:
                break
        head = head[position:].strip()
    return head


def _kind(head):
    """The kind of block that a brace after `head` opens: 'function', 'scope' (namespace, class) or 'data'."""
    head = _without_template(head.replace('""', " "))
    if not head or _NAMESPACE.match(head) or _CLASS.match(head):
        return "scope"
    if "(" not in head or head.endswith(("=", ",", "(", "return")):
        return "data"
    if _INITIALISERS.search(head):
        return "function" if head.endswith((")", "}")) else "data"
    return "function" if _AFTER_PARAMETERS.search(head) else "data"


def _name(head):
    head = _without_template(head)
    call = re.search(r"((?:~|operator\s*)?[\w:~<>,\s]*?[^\s(\w]*)\s*\(", head)
    words = (call.group(1) if call else head).split()
    return words[-1].lstrip("*&") if words else "(unnamed)"


def cpp_functions(text):
    """(name, first line, lines) of each function."""
    text = without_comments(text)
    found, stack = [], []
    head, head_line, line, parentheses = "", 1, 1, 0
    for character in text:
        if character == "{" and not parentheses:
            inside = any(kind == "function" for kind, *_ in stack)
            stack.append(("block" if inside else _kind(head), head, head_line))
            head = ""
        elif character == "}" and not parentheses and stack:
            kind, opened_by, first = stack.pop()
            if kind == "function":
                found.append((_name(opened_by), first, line - first + 1))
            head, head_line = (opened_by + "{}", first) if kind == "data" else ("", line)
        elif character == ";" and not parentheses:
            head = ""
        else:
            parentheses = max(0, parentheses + {"(": 1, ")": -1}.get(character, 0))
            if not head.strip():
                head_line = line
            head += character
        line += character == "\n"
    return found
