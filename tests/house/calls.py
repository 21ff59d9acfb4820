"""Finds calls of our own C++ functions that pass a bare true or false.

A call is a name before a bracket, so the limits are those of source.py. Two
functions of one name are one here, a call through a variable is none, and
neither is one of a name that begins in lower case: that may be a library's.
A name that ends in Or, as BoolOr, says itself what the value is.
"""

import dataclasses
import re

import source

BOOLEAN = re.compile(r"\b(?:true|false)\b(?=\s*[,)}])")
TEMPLATED = r"(?:<[\w:,<>\s*&]*>)?"
NAME = re.compile(rf"(?P<name>[A-Za-z_]\w*)\s*(?P<made>{TEMPLATED})\s*$")
MAKES = ("make_unique", "make_shared")
# `Lease lease(true)` calls the constructor of Lease.
DECLARED = re.compile(rf"(?P<type>[A-Z]\w*)\s*{TEMPLATED}[&\s]+"
                      r"[a-z_]\w*\s*$")
LAMBDA = re.compile(r"\bauto\s+([a-z_]\w*)\s*=\s*\[")
FURTHEST = 200  # characters of a name with what it is made of


@dataclasses.dataclass(frozen=True)
class Boolean:
    """A bare true or false that a call of name passes."""

    name: str
    line: int
    value: str


def names(reader):
    """The names in a file that a call can have."""
    found = {function.name.rpartition("::")[2].strip()
             for function in reader.functions}
    found.update(kind.name.rpartition("::")[2] for kind in reader.types)
    return {name for name in found
            if re.match(r"[A-Z]|set_", name) and not name.endswith("Or")}


def booleans(text, ours):
    """[Boolean] of the calls in text of what ours names, and of the lambdas
    that text declares."""
    code = source.blank(text)
    lines = source.Lines(text)
    ours = ours | set(LAMBDA.findall(code))
    found = []
    for match in BOOLEAN.finditer(code):
        bracket = opening(code, match.start())
        if bracket is None:
            continue
        name = called(code[max(0, bracket - FURTHEST):bracket], ours)
        if name:
            found.append(Boolean(name, lines.of(match.start()), match[0]))
    return found


def opening(code, at):
    """The bracket of the call whose argument begins at this offset; None if
    the value stands elsewhere, as in `.name = true`."""
    before = code[:at].rstrip()
    if before[-1:] not in ("(", "{", ","):
        return None
    depth = 0
    for place in range(len(before) - 1, -1, -1):
        character = before[place]
        if character in ")}]":
            depth += 1
        elif character in "({[":
            if depth == 0:
                return None if character == "[" else place
            depth -= 1
        elif character == ";" and depth == 0:
            return None
    return None


def called(before, ours):
    """The name of ours that a bracket after this text calls, or None."""
    match = NAME.search(before)
    if not match:
        return None
    name = match["name"]
    if name in MAKES and match["made"]:
        name = re.search(r"(\w+)\W*$", match["made"].partition(",")[0])[1]
    if name in ours:
        return name
    declared = DECLARED.search(before)
    if declared and declared["type"] in ours:
        return declared["type"]
    return None
