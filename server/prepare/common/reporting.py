"""What the dataset helper's modules share: its error, its words, JSON."""

import collections
import hashlib
import json
import time

from common.limits import memory_text

NAMED_LINES = 5  # of truncated and dropped rows and of warnings, each
SILENT_SECONDS = 10  # a longer silence might be taken for a hang
HASHED_BYTES = 1 << 20  # at once
MESSAGE_LETTERS = 500  # of an error that is not ours
ERROR_LETTERS = 1000  # of any; the daemon keeps the end of what is said
NAME_LETTERS = 120  # of a field


def json_line(record):
    """As JSON. Half of a surrogate pair, which a name in the data may have and
    UTF-8 can't, becomes '?'."""
    text = json.dumps(record, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def shown(text, most=NAME_LETTERS):
    """A text of the data as messages and counts have it: names and values may
    be as long as a line. What to do stands at a message's end."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[:most - end - 5]} ... {text[-end:]}"


def size_text(size):
    """A number of bytes as people say it; exact where it is a whole number of
    the unit."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            count, rest = divmod(size, 1 << shift)
            return f"{size / (1 << shift):.1f} {unit}" if rest else \
                f"{count} {unit}"
    return f"{size} bytes"


def json_place(error):
    """What a JSONDecodeError says and where; some of its messages end with
    "at"."""
    return f"{json_problem(error)} at character {error.pos + 1}"


def json_problem(error):
    """The same without the place."""
    return error.msg.removesuffix(" at")


class DataError(Exception):
    """What is wrong with the input, and where."""

    def __init__(self, message, file=None, line=None):
        super().__init__(shown(message, ERROR_LETTERS))
        self.file = file
        self.line = line

    def as_json(self):
        record = {"error": str(self)}
        if self.file is not None:
            record["file"] = str(self.file)
        if self.line is not None:
            record["line"] = self.line
        return json_line(record)


# What is no fault of the input.
OUR_EXITS = (KeyboardInterrupt, SystemExit, GeneratorExit)


def refusal(error, file=None, line=None, doing="reading it"):
    """The DataError for whatever the input made Python, a template or the
    tokenizer raise (its panics are no Exception)."""
    if isinstance(error, OUR_EXITS):
        raise error
    if isinstance(error, DataError):
        return error
    return DataError(fault_text(error, doing), file, line)


def fault_text(error, doing):
    if isinstance(error, MemoryError):
        return f"{doing} needs more memory than {memory_text()}"
    if isinstance(error, RecursionError):
        return f"{doing} failed: it is nested too deeply"
    name = type(error).__name__
    return f"{doing} failed: {name}: {str(error)[:MESSAGE_LETTERS]}"


class Speaker:
    """Standard output, a JSON object a line."""

    def __init__(self):
        self.last = time.monotonic()

    def say(self, **record):
        print(json_line(record), flush=True)
        self.last = time.monotonic()

    def still(self, doing):
        """Says so when nothing was said for long; call it often."""
        if time.monotonic() - self.last >= SILENT_SECONDS:
            self.say(still=doing)

    def at(self, doing, line, file=None):
        """Says what comes now: should the kernel end this process, the daemon
        names it."""
        self.say(at=doing, line=line, **({"file": file} if file else {}))


speaker = Speaker()


def file_sha256(path):
    """A hash of a file of our own; None when there is no such file."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(HASHED_BYTES):
                digest.update(chunk)
                speaker.still("hashing")
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def unique_object(pairs):
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice, _ = collections.Counter(names).most_common(1)[0]
        raise ValueError(f"the field {twice!r} is there twice")
    return value


class Unread:
    """What stands for a value that Python has none for."""

    def __init__(self, reason):
        self.reason = shown(reason)


def json_type(value):
    """What a value is, also one of those that only Parquet has."""
    if isinstance(value, Unread):
        return f"a value that cannot be read ({value.reason})"
    names = {dict: "an object", list: "an array", str: "a string",
             bool: "a boolean", type(None): "null", int: "a number",
             float: "a number"}
    return names.get(type(value),
                     f"a value of the type {type(value).__name__}")


def name_line(lines, line):
    if len(lines) < NAMED_LINES:
        lines.append(line)
