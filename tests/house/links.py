"""What documents point at: links, and files that are named by their paths."""

import fnmatch
import posixpath
import re

import words

# A name that begins with one of these is meant as a file from the root.
FOLDERS = (".ci", "base", "bazel", "client", "deploy", "docs", "proto",
           "scheduler", "server", "tests", "worker")
STEMS = (".h", ".cc", ".py")
# Before a paragraph or list: it names files of another commit.  It ends at
# the next empty line.
MARK = "<!-- not in this tree -->"
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?([^\s>]+)")
ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
SPAN = re.compile(r"(`+)(.+?)\1")
NAMED = re.compile(rf"(?<![\w/.:@$<>{{}}~-])"
                   rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*")
HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*\s*$")
ANCHOR = re.compile(r"<a\s+(?:id|name)=[\"']([^\"']+)[\"']")


class Targets:
    """The files of a tree, their folders, and the anchors of documents."""

    def __init__(self, paths, texts):
        """Args:
          paths: of all files, from the root.
          texts: {path: text} of those that can be read as text.
        """
        self._texts = texts
        self._paths = set(paths)
        for path in paths:
            while path := posixpath.dirname(path):
                self._paths.add(path)
        self._paths.add("")  # the root itself
        self._anchors = {}

    def has(self, path):
        """Whether it is a file or a folder."""
        return path.rstrip("/") in self._paths

    def has_named(self, name):
        """Whether a name means something: a file, a folder, a file without
        its ending, or a pattern of such."""
        if "*" in name:
            return bool(fnmatch.filter(self._paths, name))
        return self.has(name) or any(name + stem in self._paths
                                     for stem in STEMS)

    def anchors(self, path):
        if path not in self._anchors:
            self._anchors[path] = set(anchors(self._texts.get(path, "")))
        return self._anchors[path]


def lines(markdown):
    """(number, line, number of the mark that it is under, or 0) of all lines
    that are no code."""
    fence, mark = "", 0
    for number, line in enumerate(markdown.splitlines(), 1):
        found = words.FENCE.match(line)
        if found and (not fence or found[1] == fence):
            fence = "" if fence else found[1]
        elif not fence:
            if line.strip() == MARK:
                mark = number
            elif not line.strip():
                mark = 0
            yield number, line, mark


def anchors(markdown):
    """The anchors of a document, as GitHub makes them of its headings."""
    seen = {}
    for _, line, _ in lines(markdown):
        yield from ANCHOR.findall(line)
        heading = HEADING.match(line)
        if heading:
            text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            count = seen[slug] = seen.get(slug, -1) + 1
            yield f"{slug}-{count}" if count else slug


def missing(path, text, targets):
    """(line, what) of each link or name in a document that leads nowhere, and
    of each MARK under which nothing is missing."""
    unused = {}
    for number, line, mark in lines(text):
        if number == mark:
            unused[mark] = f"nothing is missing under {MARK}"
        found = [*missing_links(path, line, targets),
                 *missing_names(line, targets)]
        if mark and found:
            unused.pop(mark, None)
        elif not mark:
            for what in found:
                yield number, what
    yield from unused.items()


def missing_links(path, line, targets):
    bare = SPAN.sub("", line)
    for target in LINK.findall(bare) + DEFINITION.findall(bare):
        if ELSEWHERE.match(target):
            continue
        name, _, anchor = target.partition("#")
        place = path if not name else posixpath.normpath(
            posixpath.join(posixpath.dirname(path), name))
        if not targets.has("" if place == "." else place):
            yield f"the link {target} leads nowhere"
        elif anchor and place.endswith(".md") and (
                anchor not in targets.anchors(place)):
            yield f"{place} has no anchor {anchor}"


def missing_names(line, targets):
    for name in NAMED.findall(LINK.sub("]", line)):
        name = re.sub(r"(\.|\*\*)+$", "", name)  # of a sentence, of bold type
        if not targets.has_named(name):
            yield f"{name} is not in the repository"
