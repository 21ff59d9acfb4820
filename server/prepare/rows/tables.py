"""Rows of tables: Parquet, and CSV or TSV with a header."""

import collections
import csv
import re

from common.reporting import (DataError, Unread, fault_text, refusal, shown,
                              size_text)
from rows.json_rows import MAX_LINE_BYTES
from rows.sources import (BYTE_ORDER_MARK, CSV, TSV, Meter, Stream,
                          import_pyarrow, opened, source_sha256)

MAX_COLUMNS = 16384
# What a first record has whose file is no such table.
JSON_BEGIN = re.compile(r"\s*(\[\s*(\{|$)|\{\s*(\"|$))")
# What looks_like_row goes by.
MAX_NAME = 60
NUMBER = re.compile(r"[-+]?[0-9]+([.,][0-9]+)?")
OTHER_SEPARATOR = {CSV: re.compile(r"[;\t|]"), TSV: re.compile(r"[;,|]")}
# Rows that Parquet unpacks at once; each may be as large as a line.
PARQUET_ROWS = 32
LARGE_BYTES = 32 << 20  # of such rows, which become objects one by one
# So much of a row group's columns is held at once, and not less of one.
COLUMNS_BYTES, COLUMN_BYTES = 4 << 20, 4096


class Parquet:
    """Rows are numbered from 1 in place of lines."""

    def __init__(self, source, budget):
        self.source = source
        self.meter = Meter(source, budget, "write its rows as JSON Lines")
        self.done = self.number = 0
        import_pyarrow(source.name, "Parquet")

    def _open(self, file):
        import pyarrow.parquet

        try:
            metadata = pyarrow.parquet.read_metadata(file)
            columns = metadata.num_columns
            # Without a size it would hold the row group's columns as a whole.
            parquet = pyarrow.parquet.ParquetFile(
                file, metadata=metadata, pre_buffer=False, buffer_size=max(
                    COLUMNS_BYTES // max(columns, 1), COLUMN_BYTES))
            names = collections.Counter(parquet.schema_arrow.names)
        except MemoryError as error:  # ArrowMemoryError is one
            raise refusal(error, self.source.name) from error
        except Exception as error:  # pyarrow has errors of many classes
            raise DataError(f"unreadable Parquet: {one_line(error)}; was it "
                            "copied whole?", self.source.name) from error
        if columns > MAX_COLUMNS:
            raise DataError(f"has {columns} columns, with those within others; "
                            f"the limit is {MAX_COLUMNS}", self.source.name)
        for name, count in names.items():
            if count > 1:
                raise DataError(f"has {count} columns that are named {name!r}",
                                self.source.name)
        return parquet

    def rows(self):
        """(number, fields, bytes of text) of each."""
        with opened(self.source.path, self.source.name) as file:
            parquet = self._open(file)
            total = max(parquet.metadata.num_rows, 1)
            for fields in self._fields(parquet):
                self.number += 1
                self.done = min(self.source.size * self.number // total,
                                self.source.size)
                yield self.number, fields, self._size(fields)

    def _size(self, fields):
        size = sum(map(text_size, fields.values()))
        if size > MAX_LINE_BYTES:
            raise DataError(f"the row has {size} characters; the limit "
                            f"is {MAX_LINE_BYTES}", self.source.name,
                            self.number)
        self.meter.take(size)
        self.meter.row()
        return size

    def check_start(self):
        """Its footer alone."""
        with opened(self.source.path, self.source.name) as file:
            self._open(file)

    def _fields(self, parquet):
        batches = parquet.iter_batches(batch_size=PARQUET_ROWS,
                                       use_threads=False)
        # To look for them in each value takes three times as long.
        maps = "map<" in str(parquet.schema_arrow.types)
        while True:
            batch = self._unpacked(lambda: next(batches, None))
            if batch is None:
                return
            step = 1 if batch.nbytes > LARGE_BYTES else PARQUET_ROWS
            for at in range(0, batch.num_rows, step):
                yield from self._unpacked(
                    lambda: rows_of(batch.slice(at, step), maps))
            del batch  # before there is the next one

    def _unpacked(self, unpack):
        try:
            return unpack()
        except MemoryError as error:
            raise DataError(
                fault_text(error, "unpacking the rows from here") +
                "; write the file anew, with pages of a MiB or so, or its "
                "rows as JSON Lines", self.source.name, self.number + 1
                ) from error
        except Exception as error:
            raise DataError(
                f"unreadable Parquet after row {self.number}: "
                f"{one_line(error)}", self.source.name) from error

    def sha256(self):
        return source_sha256(self.source)


def one_line(error):
    return " ".join(str(error).split())


class Map(dict):
    """A map of Parquet, as an object. Its nulls are values."""


def rows_of(batch, maps):
    """As to_pylist, but maps, if there are any, are Maps, and one value that
    Python cannot have (a time beyond its years) does not spoil the rest."""
    try:
        rows = batch.to_pylist()
    except MemoryError:
        raise
    except Exception:
        columns = [list(map(value_of, column)) for column in batch.columns]
        rows = [dict(zip(batch.schema.names, row)) for row in zip(*columns)]
    if maps:
        rows = [{field.name: with_maps(row[field.name], field.type)
                 for field in batch.schema} for row in rows]
    return rows


def value_of(scalar):
    try:
        return scalar.as_py()
    except MemoryError:
        raise
    except Exception as error:
        return Unread(f"{scalar.type}: {one_line(error)}")


def with_maps(value, kind):
    """A value of this type of Arrow's, whose maps are lists of pairs."""
    import pyarrow.types as types

    if value is None or isinstance(value, Unread):
        return value
    if types.is_map(kind):
        found = Map((name, with_maps(inner, kind.item_type))
                    for name, inner in value)
        if len(found) < len(value):
            return Unread("a map that has a key twice")
        return found
    if types.is_struct(kind):
        return {field.name: with_maps(value[field.name], field.type)
                for field in kind}
    if isinstance(value, list):
        return [with_maps(inner, kind.value_type) for inner in value]
    return value


class Csv:
    """The first record names the columns; a row's number is the line that its
    record begins on. All values are text."""

    def __init__(self, source, budget):
        self.source, self.budget = source, budget
        self.done = 0
        self.lines = 0  # that were read
        self.size = 0  # bytes of the record that is read
        self.header_line = 1

    def rows(self):
        """(number, fields, bytes) of each."""
        csv.field_size_limit(MAX_LINE_BYTES)
        self.lines = 0
        with Stream(self.source, self.budget) as stream:
            records = csv.reader(
                self._texts(stream), strict=True,
                delimiter="\t" if self.source.kind == TSV else ",")
            header = self._header(next(filter(None, self._records(records)),
                                       None))
            while True:
                start, self.size = self.lines + 1, 0
                record = next(self._records(records), None)
                if record is None:
                    return
                if record:
                    self.done = stream.done()
                    yield start, self._fields(header, record, start), self.size

    def _records(self, records):
        start = self.lines + 1
        try:
            yield from records
        except csv.Error as error:
            raise DataError(f"not {self.source.kind}: {csv_fault(error)}",
                            self.source.name, start) from error

    def _texts(self, stream):
        """Lines as text; a record may have several."""
        while True:
            stream.row()
            try:
                raw = stream.readline(MAX_LINE_BYTES + 1)
            except OSError as error:
                raise DataError(f"cannot read: {error.strerror}",
                                self.source.name, self.lines + 1) from error
            if not raw:
                return
            self.lines += 1
            self.size += len(raw)
            if self.size > MAX_LINE_BYTES:
                raise DataError("the record is longer than "
                                f"{size_text(MAX_LINE_BYTES)}; make several "
                                "rows of it, or look for a quote that is never "
                                "closed",
                                self.source.name, self.lines)
            if self.lines == 1:
                raw = raw.removeprefix(BYTE_ORDER_MARK)
            if b"\0" in raw:
                raise DataError(
                    "has a byte that is zero: is it UTF-16, or was it not "
                    "written to its end?", self.source.name, self.lines)
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"not UTF-8: byte {error.start + 1} of the line is "
                    f"0x{raw[error.start]:02x}; iconv -f WINDOWS-1252 -t UTF-8 "
                    "writes what spreadsheets save as UTF-8",
                    self.source.name, self.lines) from error

    def _header(self, names):
        kind, where = self.source.kind, (self.source.name, self.lines)
        self.header_line = self.lines
        if names is None:
            return []
        if JSON_BEGIN.match(names[0]):
            raise DataError(f"is JSON and named as {kind}; name it .jsonl or "
                            ".json", *where)
        if len(names) == 1 and OTHER_SEPARATOR[kind].search(names[0]):
            raise DataError(
                f"has one column, {shown(names[0])!r}: separate columns by a "
                "comma (.csv) or a tab (.tsv)", *where)
        if len(names) > MAX_COLUMNS:
            raise DataError(f"has {len(names)} columns; the limit is "
                            f"{MAX_COLUMNS}", *where)
        counts = collections.Counter(names)
        for name in names:
            if not name.strip():
                raise DataError(
                    f"the first record of {kind} names the columns, and here "
                    "one has no name; pandas writes such a column of row "
                    "numbers unless it is told index=False", *where)
            if counts[name] > 1:
                raise DataError(f"has two columns {shown(name)!r}", *where)
        return names

    def _fields(self, header, record, number):
        if len(record) != len(header):
            more = ("; a field with the separator in it needs quotes around it"
                    if len(record) > len(header) else "")
            raise DataError(f"the record has {len(record)} fields, the header "
                            f"{len(header)}{more}", self.source.name, number)
        return dict(zip(header, record))

    def check_start(self):
        """Its header and its first record."""
        for _ in self.rows():
            return

    def sha256(self):
        return source_sha256(self.source)


def looks_like_row(names):
    """Whether what a header names are hardly names of columns: numbers, or
    what is as long as a sentence, or ends as one."""
    return any(len(name) > MAX_NAME or name.strip()[-1:] in tuple(".?!") or
               NUMBER.fullmatch(name.strip()) for name in names)


def csv_fault(error):
    """The module's words, and what to do."""
    text = str(error)
    for words, remedy in (
            ("unexpected end of data", "a quote is never closed"),
            ("expected after", "within quotes a quote is written twice, \"\""),
            ("new-line character", "lines end with CR alone: tr '\\r' '\\n' "
             "writes others")):
        if words in text:
            return f"{text.split(' - ')[0]}; {remedy}"
    return text


def text_size(value):
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(text_size, value.values()))
    # Maps are lists of tuples.
    return sum(map(text_size, value)) if isinstance(value, (list, tuple)) else 8
