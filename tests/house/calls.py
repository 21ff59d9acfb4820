"""Reads the signatures and the calls of C++: what is hard to read at a call.

A call is a name before a parenthesis or a brace, so the same limits hold as
in source.py. Two functions of one name are one here.
"""

import dataclasses
import re

import source

NAME_BEFORE = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*(?P<made><[\w:,<>\s*]*>)?"
                         r"\s*$")
MAKES = ("make_unique", "make_shared", "MakeRef", "WrapUnique")
# A type and a name: `Lease lease(true)` calls the constructor of Lease.
DECLARED = re.compile(r"(?P<type>[A-Za-z_][\w]*)(?:<[\w:,<>\s*]*>)?[&\s]+"
                      r"[a-z_]\w*\s*$")
NOT_A_TYPE = ("return", "co_return", "throw", "new", "delete", "else", "case",
              "if", "while", "for", "switch", "const", "auto", "bool")


@dataclasses.dataclass(frozen=True)
class Boolean:
    """A bare true or false that a call of name passes."""

    name: str
    line: int
    value: str


def pieces(text):
    """What commas outside every bracket separate; nothing for nothing."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "({[") - (character in ")}]")
        if character == "," and depth == 0:
            found.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return found + [last] if last or found else []


def parameters(header):
    """How many parameters the function has whose header this is."""
    plain = source.without_annotations(header).strip()
    plain = re.sub(r"^template\s*", "", source.without_angles(plain)).strip()
    opens = plain.find("(")
    if re.search(r"operator\s*$", plain[:opens]):  # operator()(...)
        opens = plain.find("(", source.closing(plain, opens))
    return len(pieces(plain[opens + 1:source.closing(plain, opens)]))


def booleans(text, ours):
    """Calls in text of functions and constructors in ours that pass true or
    false without a name: [Boolean]."""
    code = source.blank(text)
    lines = source.Lines(text)
    found = []
    for match in re.finditer(r"\b(?:true|false)\b", code):
        if not re.match(r"\s*[,)}]", code[match.end():]):
            continue
        opens = opening(code, match.start())
        if opens is None:
            continue
        name = called(code[max(0, opens - 200):opens], ours)
        if name:
            found.append(Boolean(name, lines.of(match.start()), match[0]))
    return found


def opening(code, at):
    """The bracket whose direct argument begins at this offset; None if the
    value is a part of a larger expression."""
    before = code[:at].rstrip()
    if not before or before[-1] not in "({,":
        return None
    depth = 0
    for place in range(len(before) - 1, -1, -1):
        character = before[place]
        if character in ")}]":
            depth += 1
        elif character in "({[":
            if depth == 0:
                return place if character != "[" else None
            depth -= 1
        elif character == ";" and depth == 0:
            return None
    return None


def called(before, ours):
    """The name of ours that a bracket after this text calls, or None."""
    match = NAME_BEFORE.search(before)
    if not match:
        return None
    name = match["name"]
    if name in MAKES and match["made"]:
        name = re.search(r"(\w+)\W*$", match["made"].partition(",")[0])[1]
    if name in ours:
        return name
    declared = DECLARED.search(before)
    if declared and declared["type"] in ours and \
            declared["type"] not in NOT_A_TYPE:
        return declared["type"]
    return None
