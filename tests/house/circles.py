"""Rooms that include each other in a circle."""

import re

TREES = ("server", "scheduler", "worker")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def room(path):
    """The room that a file lies in: a folder's own folders belong to it. None:
    of no tree, or what puts a program together (main.cc), which may include
    all."""
    parts = path.split("/")[:-1]
    if not parts or parts[0] not in TREES or path.endswith("/main.cc"):
        return None
    return "/".join(parts[:2])


def includes(files):
    """{room: {other room: (file, line, included file)}}, the first one of
    each; `files` is {path: text}."""
    found = {}
    for path in sorted(files):
        own = room(path)
        if own is None:
            continue
        others = found.setdefault(own, {})
        for match in INCLUDE.finditer(files[path]):
            other = room(match[1])
            if other is not None and other != own:
                line = files[path].count("\n", 0, match.start()) + 1
                others.setdefault(other, (path, line, match[1]))
    return found


def reached(found, start):
    """The rooms that lie at the end of any way from `start`."""
    seen, left = set(), [start]
    while left:
        for other in found.get(left.pop(), ()):
            if other not in seen:
                seen.add(other)
                left.append(other)
    return seen


def circles(files):
    """For each room in a circle: (room, file, line, included file), of the
    first include that leads back to it."""
    found = includes(files)
    for own in sorted(found):
        for other, (path, line, name) in found[own].items():
            if own in reached(found, other):
                yield own, path, line, name
                break
