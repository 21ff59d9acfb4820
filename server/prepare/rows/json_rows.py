"""Rows of JSON: one object a line, or the objects of one array."""

import codecs
import hashlib
import itertools
import json
import re

from common.reporting import (DataError, json_place, json_problem, json_type,
                              refusal, size_text, unique_object)
from rows.sources import BYTE_ORDER_MARK, Stream, source_sha256

MAX_LINE_BYTES = 16 << 20  # of a line; of an array's element its characters
WINDOW_BYTES = 1 << 20  # of an array, read at once
SPACES = re.compile(r"[ \t\r\n]*")
DECODER = json.JSONDecoder(object_pairs_hook=unique_object)


class JsonLines:
    """Blank lines are skipped; a line's number is its row's."""

    def __init__(self, source, budget):
        self.source, self.budget = source, budget
        self.hash = hashlib.sha256()
        self.done = 0
        self.whole = False  # whether all was read, and hashed

    def rows(self):
        """(number, fields, bytes) of each."""
        with Stream(self.source, self.budget) as stream:
            for number in itertools.count(1):
                raw = self._line(stream, number)
                if not raw:
                    self.whole = self.source.packing is None
                    return
                if self.source.packing is None:
                    self.done += len(raw)
                    self.hash.update(raw)
                else:
                    self.done = stream.done()
                stream.row()
                if number == 1:
                    raw = raw.removeprefix(BYTE_ORDER_MARK)
                if raw.strip():
                    yield number, self._fields(raw, number), len(raw)

    def check_start(self):
        """The first line alone."""
        with Stream(self.source, self.budget) as stream:
            raw = self._line(stream, 1).removeprefix(BYTE_ORDER_MARK)
        if raw.strip():
            self._fields(raw, 1)

    def _fields(self, raw, number):
        try:
            return parse_object(raw)
        except ValueError as error:
            raise DataError(str(error) + hint(raw, number, error),
                            self.source.name, number) from error
        except Exception as error:
            raise refusal(error, self.source.name, number) from error

    def _line(self, stream, number):
        try:
            raw = stream.readline(MAX_LINE_BYTES + 1)
        except OSError as error:
            raise DataError(f"cannot read: {error.strerror}",
                            self.source.name, number) from error
        if len(raw) > MAX_LINE_BYTES:
            raise DataError("the line is longer than "
                            f"{size_text(MAX_LINE_BYTES)}; make several rows "
                            "of it",
                            self.source.name, number)
        return raw

    def sha256(self):
        """The hash of what was read."""
        return (self.hash.hexdigest() if self.whole else
                source_sha256(self.source))


def hint(raw, number, error):
    """What to do about a line that is no JSON object, where it can be told."""
    raw = raw.strip()
    cause = error.__cause__
    if b"\0" in raw:
        return ("; it has bytes that are zero: is it UTF-16, or was it not "
                "written to its end?")
    if raw.startswith(BYTE_ORDER_MARK):
        return ("; it begins with the mark of a file's begin: were files put "
                "together? Take it out, or name them as several")
    if b"\r" in raw:
        return "; do its lines end with CR alone? tr '\\r' '\\n' writes others"
    if not isinstance(cause, json.JSONDecodeError):
        return ""
    if raw.startswith(b"{'"):
        return "; Python writes it so: json.dumps writes JSON"
    if raw.startswith(b"{") and cause.msg == "Extra data":
        return "; a line must be one object, with nothing behind it"
    if raw.startswith(b"{") and cause.pos >= len(cause.doc.rstrip()):
        return ("; a line must be a whole object: jq -c . FILE writes it so, "
                "unless it was cut short")
    if number == 1 and not raw.startswith((b"{", b"[")):
        return ("; each line must be an object, such as {\"text\": \"...\"}; "
                "tables end with .csv or .tsv")
    return ""


def parse_object(raw):
    """One line's JSON object; ValueError says what is wrong with it."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"not UTF-8: byte {error.start + 1} of the line is "
            f"0x{raw[error.start]:02x}") from error
    try:
        value = json.loads(text, object_pairs_hook=unique_object)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {json_place(error)}") from error
    except RecursionError as error:
        raise ValueError("not usable JSON: nested too deeply") from error
    except ValueError as error:
        raise ValueError(json_fault(error)) from error
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, not {json_type(value)}")
    return value


def json_fault(error):
    """What is wrong with JSON that is well-formed: a field that is there
    twice, or a number that Python does not take."""
    text = str(error)
    return ("not usable JSON: has a whole number of more than 4300 digits"
            if "integer string conversion" in text else text)


class JsonArray:
    """One array of objects, which are numbered from 1 in place of lines. Of
    the file no more is in memory than a window and the longest element."""

    def __init__(self, source, budget):
        self.source, self.budget = source, budget
        self.done = 0

    def rows(self):
        """(number, fields, characters) of each."""
        with Stream(self.source, self.budget) as stream:
            window = Window(stream, self.source.name)
            window.take()  # its "["
            if window.peek() == "]":
                window.take()
                return self._end(window)
            for number in itertools.count(1):
                window.number = number
                fields, size = window.object()
                self.done = stream.done()
                stream.row()
                yield number, fields, size
                follows = window.take()
                if follows == "]":
                    return self._end(window)
                if not follows:
                    window.refuse("the array is not closed: no ] follows "
                                  f"element {number}")
                if follows != ",":
                    window.refuse("not a JSON array: no comma or ] follows "
                                  f"element {number}")

    def _end(self, window):
        if window.peek():
            window.refuse("not a JSON array: something follows its end")

    def check_start(self):
        """Its first element alone."""
        for _ in self.rows():
            return

    def sha256(self):
        return source_sha256(self.source)


class Window:
    """A part of the array's text; `at` is what comes next."""

    def __init__(self, stream, name):
        self.stream, self.name = stream, name
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.text, self.at = "", 0
        self.number = 1  # of the element
        self.line = 1  # of the file, where the text begins
        self.read = 0  # bytes
        self.ended = False
        self.fill(max(WINDOW_BYTES, len(BYTE_ORDER_MARK)))
        self.text = self.text.removeprefix("\ufeff")

    def refuse(self, text, place=None):
        raise DataError(f"{text} (line {self.line_at(place)} of the file)",
                        self.name, self.number)

    def line_at(self, place=None):
        """The file's line of a place in the text, by default of `at`."""
        return self.line + self.text.count(
            "\n", 0, self.at if place is None else place)

    def refuse_json(self, error):
        """For what is no JSON, with all there is of the file in the text."""
        if self.ended and self.is_cut(error):
            raise DataError(
                f"the array is not closed: element {self.number} (line "
                f"{self.line_at()}) is missing or cut short", self.name,
                self.number)
        self.refuse(f"not JSON: {json_problem(error)}", error.pos)

    def is_cut(self, error):
        """Whether the text ended before the element did."""
        return (error.pos >= len(self.text.rstrip()) or
                error.msg.startswith("Unterminated string"))

    def fill(self, size):
        """Lets go of what was taken, and reads `size` bytes more."""
        self.line += self.text.count("\n", 0, self.at)
        try:
            data = self.stream.read(size)
        except OSError as error:
            raise DataError(f"cannot read: {error.strerror}", self.name,
                            self.number) from error
        self.ended = not data
        pending = len(self.decoder.getstate()[0])
        try:
            text = self.decoder.decode(data, final=self.ended)
        except UnicodeDecodeError as error:
            place = self.read - pending + error.start + 1
            raise DataError(f"not UTF-8: byte {place} of the file",
                            self.name, self.number) from error
        self.read += len(data)
        self.text = self.text[self.at:] + text
        self.at = 0

    def peek(self):
        """The next character that is no white space; "" at the end."""
        while True:
            self.at = SPACES.match(self.text, self.at).end()
            if self.at < len(self.text) or self.ended:
                return self.text[self.at:self.at + 1]
            self.fill(WINDOW_BYTES)

    def take(self):
        found = self.peek()
        self.at += 1
        return found

    def object(self):
        """The next element and how long it is."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self.text, self.at)
                break
            except json.JSONDecodeError as error:
                left = len(self.text) - self.at
                if self.text[self.at:self.at + 1] != "{" or self.ended:
                    self.refuse_json(error)
                if left > MAX_LINE_BYTES:
                    self.refuse(f"the element is longer than {MAX_LINE_BYTES} "
                                "characters, or not JSON: "
                                f"{json_problem(error)}",
                                error.pos)
                self.fill(max(left, WINDOW_BYTES))
            except RecursionError:
                self.refuse("not usable JSON: nested too deeply")
            except ValueError as error:
                self.refuse(json_fault(error))
            except Exception as error:
                raise refusal(error, self.name, self.number) from error
        if not isinstance(value, dict):
            self.refuse(f"must be a JSON object, not {json_type(value)}")
        size = end - self.at
        if size > MAX_LINE_BYTES:
            self.refuse(f"the element is longer than {MAX_LINE_BYTES} "
                        "characters")
        self.at = end
        return value, size
