"""The rows of a dataset, checked, in order: of one file or of several."""

import bisect
import hashlib
import json
import math
import os
import random

from common.reporting import NAME_LETTERS, DataError, refusal, shown
from rows.formats import (FORMAT_NAMES, NAMED_FIELDS, TEXT, NoKnownField,
                          row_format, some_names, with_columns)
from rows.json_rows import JsonArray, JsonLines
from rows.messages import present, read_cells
from rows.sources import (CSV, JSON_ARRAY, JSON_LINES, PARQUET, TSV, Budget,
                          look_at, source_sha256)
from rows.tables import Csv, Map, Parquet, looks_like_row

BATCH_ROWS = 512
# A token of one character takes about 480 bytes while a batch is tokenized.
BATCH_BYTES = 1 << 20
MAX_LINES = (1 << 32) - 1  # lines.u32 has their numbers
READERS = {JSON_LINES: JsonLines, JSON_ARRAY: JsonArray, PARQUET: Parquet,
           CSV: Csv, TSV: Csv}


class Choice:
    """Which rows are read, and as what. format: a name of FORMAT_NAMES, or
    None. columns: {our name: the file's}. most: only so many rows, the first.
    held_out: of which this share is for validation; `validation` says whether
    those are read or the others."""

    def __init__(self, format=None, columns=None, most=None, held_out=0.0,
                 validation=False, seed=0):
        self.format = FORMAT_NAMES[format] if format else None
        self.columns = columns or {}
        self.most = most
        self.held_out = HeldOut(held_out, seed) if held_out else None
        self.validation = validation

    def takes(self, row):
        """Whether the row of this number, from 0, is read."""
        return self.held_out is None or \
            self.held_out.has(row) == self.validation


class HeldOut:
    """One row by chance (`seed`) of each 1 / share rows that follow each
    other, so that no pass over the rows is needed to choose."""

    def __init__(self, share, seed):
        self.share, self.seed = share, seed
        self.block, self.end, self.chosen = -1, 0, None

    def has(self, row):
        """REQUIRES: calls in order, from 0."""
        if row >= self.end:
            self.block += 1
            start, self.end = self.end, math.ceil((self.block + 1) / self.share)
            source = random.Random(f"{self.seed} held out {self.block}")
            self.chosen = source.randrange(start, self.end)
        return row == self.chosen


def open_reader(paths, names, choice=None):
    """The Rows of these files, which messages call by `names`."""
    sources = [look_at(path, name) for path, name in zip(paths, names)]
    return Rows(sources, choice or Choice())


class Rows:
    """Rows of all files, numbered through: a file's first line follows the
    last of the file before. `done` of `total` is how far it is, in bytes."""

    def __init__(self, sources, choice):
        self.sources = sources
        self.choice = choice
        self.seen = 0  # rows, of which `rows` were taken
        self.ended_at = None  # the line that choice.most ended it at
        budget = Budget()
        for source in sources:
            if source.packing is None and source.kind != PARQUET:
                budget.take(source.size, source.name)
        self.parts = [READERS[source.kind](source, budget)
                      for source in sources]
        self.starts = [0]  # per file that was begun, the lines before it
        self.format = None
        self.done = 0
        self.rows = 0
        self.ignored = {}
        self.total = sum(source.size for source in sources)
        self.short_names = short_names([source.name for source in sources])

    @property
    def name(self):
        """The name of the file that is read."""
        return self.sources[len(self.starts) - 1].name

    @property
    def kind(self):
        """What kind the file is that is read."""
        return self.sources[len(self.starts) - 1].kind

    def place(self, line):
        """The file and the line within it."""
        index = bisect.bisect_left(self.starts, line) - 1
        return self.sources[index].name, line - self.starts[index]

    def places(self, lines):
        """For people, where there are several files: "b.jsonl:3"."""
        found = []
        for line in lines:
            index = bisect.bisect_left(self.starts, line) - 1
            found.append(f"{self.short_names[index]}:"
                         f"{line - self.starts[index]}")
        return found

    def warnings(self):
        """Whole files that max_samples left unread; said once where rows of
        the same files are held out."""
        left = len(self.parts) - len(self.starts)
        said = self.choice.held_out is not None and self.choice.validation
        if self.ended_at is None or not left or said:
            return []
        return [{"kind": "files_not_read", "rows": 1, "lines": [self.ended_at],
                 "warning": f"{left} of {len(self.parts)} files were not read "
                 f"at all: max_samples ({self.choice.most}) ends the dataset "
                 "before them, with this row"}]

    def check_start(self):
        """What is no dataset at all says so before all of it is hashed."""
        # Which must not count in the dataset's budget.
        READERS[self.sources[0].kind](self.sources[0], Budget()).check_start()

    def sha256(self):
        """The hash of what was read."""
        return joined([part.sha256() for part in self.parts])

    def described(self):
        """What results depend on beside the bytes of the files: as what they
        are read, and the names that warnings and the manifest call several by,
        which nobody else is to be told."""
        names = self.short_names if len(self.sources) > 1 else []
        return [[source.kind for source in self.sources], names]

    def hashed_as_read(self):
        """Whether sha256() is of the bytes that became rows; else the file was
        hashed on its own, and somebody may have changed it in between."""
        return (len(self.parts) == len(self.sources) and
                all(getattr(part, "whole", False) for part in self.parts))

    def sha256_now(self):
        return joined([source_sha256(source) for source in self.sources])

    def batches(self, few=None):
        """(rows of rows/formats.py, their bytes), of bounded size; each of
        `few` rows of the files at most, where one of those is taken."""
        rows, size, before = [], 0, 0
        for row, row_bytes in self.read():
            rows.append(row)
            size += row_bytes
            if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES or \
                    (few and self.seen - before >= few):
                yield rows, size
                rows, size, before = [], 0, self.seen
        if rows:
            yield rows, size

    def read(self):
        before = 0
        for index, part in enumerate(self.parts):
            start = self.starts[index]
            number = 0
            for number, fields, size in part.rows():
                self.done = before + part.done
                self.seen += 1
                if start + number > MAX_LINES:
                    raise DataError(
                        f"the dataset has more than {MAX_LINES} lines or rows; "
                        "max_samples leaves out what is behind them",
                        self.name, number)
                if self.choice.takes(self.seen - 1):
                    yield self._row(fields, start, number), size
                if self.seen == self.choice.most:
                    self.ended_at = start + number
                    return
            before += self.sources[index].size
            self.done = before
            if index + 1 < len(self.parts):
                self.starts.append(start + number)

    def _row(self, fields, start, number):
        try:
            return self.row(start + number, fields)
        except NoKnownField as error:
            self._check_header(fields)
            raise DataError(str(error), self.name, number) from error
        except ValueError as error:
            raise DataError(str(error), self.name, number) from error
        except Exception as error:
            raise refusal(error, self.name, number) from error

    def _check_header(self, fields):
        """Refuses a table whose first record looks like a row: without a
        header it would name the columns."""
        if self.kind in (CSV, TSV) and looks_like_row(fields):
            raise DataError(
                f"names the columns {some_names(fields)}: is its header "
                "missing? Write one, such as prompt,completion", self.name,
                self.parts[len(self.starts) - 1].header_line)

    def row(self, line, fields):
        if self.choice.columns:
            fields = with_columns(fields, self.choice.columns)
        nulls = [name for name, value in fields.items() if value is None]
        fields = present(fields)
        if self.kind == PARQUET:
            fields = {name: filled_only(value)
                      for name, value in fields.items()}
        elif self.kind in (CSV, TSV):
            fields = read_cells(fields, self.choice.format is TEXT)
        found = row_format(fields, nulls, self.choice)
        if self.format is None:
            self.format = found
        elif found is not self.format:
            raise ValueError(
                f"this line is of the format {found.name}, those before are "
                f"of the format {self.format.name}; make two datasets, or "
                "write all rows in one format")
        for name in fields:  # in their order, whatever strings' hashes are
            if name in found.required or name in found.optional:
                continue
            if len(name) > NAME_LETTERS:
                name = shown(name)
            if name in self.ignored or len(self.ignored) < NAMED_FIELDS:
                self.ignored[name] = self.ignored.get(name, 0) + 1
        self.rows += 1
        return found.convert(line, fields)


def joined(hashes):
    """One file's own; of several, of the list."""
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def short_names(names):
    """Without the folder that all are in."""
    if len(names) == 1:
        return [os.path.basename(names[0])]
    names = [os.path.abspath(name) for name in names]
    common = os.path.commonpath([os.path.dirname(name) for name in names])
    return [os.path.relpath(name, common) for name in names]


def filled_only(value):
    """A field's value as Parquet has it, whose objects have a null at any depth
    for each field that another row has: those are absent. Templates tell a
    message's null content from none. A map has only what is in it."""
    if isinstance(value, list):
        return [without_nulls(inner, "content") for inner in value]
    return without_nulls(value)


def without_nulls(value, *kept):
    if isinstance(value, Map):
        return {name: without_nulls(inner) for name, inner in value.items()}
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items()
                if inner is not None or name in kept}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value
