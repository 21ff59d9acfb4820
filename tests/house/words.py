"""What the figures count in comments and documents: their words."""

import re

DIALECT = re.compile(r"(?:Of|That|Those|Likewise)\b")
# Documents that were once beside the repository, by their names alone too.
OUTSIDE = re.compile(
    r"\b(?:DESIGN|SCHEDULING|CONTROL_PLANE|STYLE|BUILD_NOTES|ECOSYSTEM|"
    r"LONG_SEQUENCES|MOE|REDESIGN)(?:\.md\b|'s\b)|\bfault table\b|"
    r"\bCONTROL_PLANE\b")
DOCUMENT = re.compile(r"(?<![\w/.*{-])((?:[\w.-]+/|\.\./)*[\w-]+\.md)\b(?!\w)")
WRITTEN = {"report.md"}  # by programs of the repository
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[\"'(*_\[]*[A-Z0-9`])")
FENCE = re.compile(r"^\s*(```|~~~)")


def dialect(comment):
    """The first words of each paragraph that begins as none should, with its
    line."""
    line, fresh = comment.line, True
    for text in comment.text.split("\n"):
        if fresh and DIALECT.match(text.lstrip()):
            yield line, text.strip()
        fresh = not text.strip()
        line += 1


def paragraphs(markdown):
    """(line, text) of each paragraph, list entry and table cell; no code."""
    kept, start, fenced = [], 0, False
    markdown = re.sub(r"<!--.*?-->", lambda match: re.sub(
        r"[^\n]", " ", match[0]), markdown, flags=re.DOTALL)
    for number, line in enumerate(markdown.splitlines() + [""], 1):
        fence = FENCE.match(line)
        ends = (fence or fenced or not line.strip() or
                re.match(r"\s*([-*+]|\d+\.|\||#|>)\s?", line))
        if ends and kept:
            yield start, " ".join(kept)
            kept = []
        if fence:
            fenced = not fenced
        elif fenced or not line.strip():
            continue
        elif line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line):
                if cell.strip(" :-"):
                    yield number, cell.strip()
        else:
            start = start if kept else number
            kept.append(re.sub(r"^\s*([-*+]|\d+\.|#+|>)\s+", "", line).strip())


def sentences(markdown):
    """(line of its paragraph, words) of every sentence. Code in a line is one
    word, a link is its text."""
    for line, text in paragraphs(markdown):
        text = re.sub(r"`[^`]*`", "`code`", text)
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
        for sentence in SENTENCE_END.split(text):
            words = [word for word in sentence.split()
                     if re.search(r"\w", word)]
            if words:
                yield line, words


def missing_documents(path, text, paths, names):
    """(line, name) of each document that is named and is not there.

    Args:
      path: of the file whose text it is, from the root.
      paths, names: of the repository's files, whole and without folders.
    """
    folder = path.rpartition("/")[0]
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"https?://\S+\.md\b", line):
            continue
        named = {match[0] for match in OUTSIDE.finditer(line)
                 if match[0] not in paths and
                 f"{match[0].removesuffix(chr(39) + 's')}.md" not in names}
        for match in DOCUMENT.finditer(line):
            name = match[1]
            if not (name in paths or resolved(folder, name) in paths or
                    name in names or name in WRITTEN):
                named.add(name)
        for name in sorted(named):
            yield number, name


def resolved(folder, name):
    """The path of a name that is relative to a folder."""
    parts = [part for part in folder.split("/") if part]
    for part in name.split("/"):
        if part == "..":
            del parts[-1:]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
