"""The code blocks of README and docs/, for tests that run what they say.

A block is what stands between two lines of three backquotes; its language
says what is done with it. HTML comments right above it, which no reader sees,
are directions for tests:

    <!-- not run: REASON -->     no test runs it, and why
    <!-- before: COMMAND -->     what a reader has done by then; run first

One comment of a whole document stands in its first lines:

    <!-- no command here is run: REASON -->
"""

import dataclasses
import pathlib
import re

DIRECTION = re.compile(r"<!-- (not run|before): (.*\S) -->")
OF_ALL = re.compile(r"<!-- no command here is run: (.*\S) -->")
# How a line begins that is a command to be copied into a shell.
COMMAND = re.compile(r"\s*(?:\S+/)?(?:roundhoused?|deploy/[\w-]+|bazel|"
                     r"python3?|curl|ssh|docker|apt-get|systemctl|install|echo|"
                     r"promtool|tar|sudo)\s")


@dataclasses.dataclass
class Block:
    place: str      # "docs/guide.md:20", of its first line
    language: str
    text: str
    reason: str     # why it is not run; ""
    before: list    # commands

    def commands(self):
        """A shell block's, one a line; a backslash goes on with the next."""
        whole = self.text.replace("\\\n", " ").splitlines()
        return [line for line in whole if line.strip()]


def blocks(root, name):
    """The blocks of document `name` under `root`, in their order. A direction
    that stands above no block is an error."""
    found, directions, lines = [], [], None
    text = (pathlib.Path(root) / name).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if lines is not None:
            if line.strip() == "```":
                block.text = "".join(f"{line}\n" for line in lines)
                found.append(block)
                lines = None
            else:
                lines.append(line)
            continue
        if direction := DIRECTION.fullmatch(line.strip()):
            directions.append(direction.groups())
        elif fence := re.fullmatch(r" *```(\w*)", line):
            block = Block(f"{name}:{number + 1}", fence[1], "",
                          next((reason for kind, reason in directions
                                if kind == "not run"), ""),
                          [command for kind, command in directions
                           if kind == "before"])
            lines, directions = [], []
        elif directions:
            raise ValueError(f"{name}:{number}: a direction above no block")
    if lines is not None:
        raise ValueError(f"{name}: a block without its end")
    return found


def reason_of_all(root, name):
    """Why no command of the document is run; ""."""
    with open(pathlib.Path(root) / name, encoding="utf-8") as file:
        found = OF_ALL.search(file.read(1000))
    return found[1] if found else ""


def commands_outside(root, name):
    """Lines that look like commands, in code that no test would find: of no
    language, or indented."""
    text = (pathlib.Path(root) / name).read_text(encoding="utf-8")
    inside = False
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().startswith("```"):
            inside = not inside
        elif not inside and line.startswith("    ") and COMMAND.match(line):
            lines.append(f"{name}:{number}: {line.strip()}")
    lines += [f"{block.place}: {line}" for block in blocks(root, name)
              if block.language == "" for line in block.text.splitlines()
              if COMMAND.match(line)]
    return lines
