"""What the dataset helper's modules share: its error, its words, JSON."""

import hashlib
import json
import time

NAMED_LINES = 5  # of truncated and dropped rows and of warnings, each


SILENT_SECONDS = 10  # a longer silence might be taken for a hang
HASHED_BYTES = 1 << 20  # at once


def json_line(record):
    """As JSON. Half of a surrogate pair, which a name in the data may have and
    UTF-8 can't, becomes '?'."""
    text = json.dumps(record, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


class DataError(Exception):
    """What is wrong with the input, and where."""

    def __init__(self, message, file=None, line=None):
        super().__init__(message)
        self.file = file
        self.line = line

    def as_json(self):
        record = {"error": str(self)}
        if self.file is not None:
            record["file"] = str(self.file)
        if self.line is not None:
            record["line"] = self.line
        return json_line(record)


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


speaker = Speaker()


def file_sha256(path):
    """None when there is no such file."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(HASHED_BYTES):
                digest.update(chunk)
                speaker.still("hashing")
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def read_json_object(path):
    """The JSON object in a file; None when there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"unreadable: {error}", path) from error
    if not isinstance(value, dict):
        raise DataError("is not a JSON object", path)
    return value


def unique_object(pairs):
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"the field {twice!r} is there twice")
    return value


def json_type(value):
    names = {dict: "an object", list: "an array", str: "a string",
             bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def name_line(lines, line):
    if len(lines) < NAMED_LINES:
        lines.append(line)
