"""The rows of a dataset file, checked, in order: JSON Lines or Parquet."""

import hashlib
import itertools
import json
import sys

from prepare_common import DataError, json_type, refusal, unique_object
from prepare_files import MAX_DATA_BYTES, open_regular, user_file_sha256
from prepare_formats import NAMED_FIELDS, row_format

MAX_LINE_BYTES = 16 << 20  # of a line; of a Parquet row its text
BATCH_ROWS = 512
# A token of one character takes about 480 bytes while a batch is tokenized.
BATCH_BYTES = 1 << 20
# Rows that Parquet unpacks at once; each may be as large as a line.
PARQUET_ROWS = 32
PARQUET_MAGIC = b"PAR1"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def open_reader(path, name):
    """A JsonLines or a Parquet, by the file's first bytes."""
    try:
        file = open_regular(path, MAX_DATA_BYTES, name)
        magic = file.read(len(PARQUET_MAGIC))
        file.seek(0)
    except OSError as error:
        raise DataError(f"cannot open: {error.strerror}", name) from error
    return (Parquet if magic == PARQUET_MAGIC else JsonLines)(file, path, name)


class Reader:
    """What both kinds share. `done` of `total` is how far it is."""

    def __init__(self, file, path, name):
        self.file = file
        self.path = path
        self.name = name
        self.format = None
        self.done = 0
        self.rows = 0
        self.ignored = {}
        self.first_line = None
        self.total = file.seek(0, 2)
        file.seek(0)

    def batches(self):
        """Lists of rows (prepare_formats) of bounded size."""
        rows, size = [], 0
        for row, row_bytes in self.read():
            rows.append(row)
            size += row_bytes
            if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield rows
                rows, size = [], 0
        if rows:
            yield rows

    def row(self, number, fields):
        nulls = [name for name, value in fields.items() if value is None]
        fields = without_nulls(fields)
        found = row_format(fields, nulls)
        if self.format is None:
            self.format, self.first_line = found, number
        elif found is not self.format:
            raise ValueError(
                f"this line is of the format {found.name}, those before are "
                f"of the format {self.format.name}; a file has one format")
        for name in fields.keys() - set(found.required) - set(found.optional):
            if name in self.ignored or len(self.ignored) < NAMED_FIELDS:
                self.ignored[name] = self.ignored.get(name, 0) + 1
        self.rows += 1
        return found.convert(number, fields)


class JsonLines(Reader):
    """Blank lines are skipped; a line's number is its row's."""

    def __init__(self, file, path, name):
        super().__init__(file, path, name)
        self.hash = hashlib.sha256()

    def read(self):
        with self.file as file:
            for number in itertools.count(1):
                raw = self._line(file, number)
                if not raw:
                    return
                self.done += len(raw)
                self.hash.update(raw)
                if number == 1:
                    raw = raw.removeprefix(BYTE_ORDER_MARK)
                if raw.strip():
                    yield self._row(raw, number), len(raw)

    def check_start(self):
        """The first line alone: what is no JSON Lines at all says so before
        the whole file is hashed."""
        with_mark = self._line(self.file, 1)
        raw = with_mark.removeprefix(BYTE_ORDER_MARK)
        if raw.strip():
            try:
                parse_object(raw)
            except ValueError as error:
                raise DataError(str(error), self.name, 1) from error
        self.file.seek(0)

    def _row(self, raw, number):
        try:
            return self.row(number, parse_object(raw))
        except ValueError as error:
            raise DataError(str(error), self.name, number) from error
        except Exception as error:
            raise refusal(error, self.name, number) from error

    def _line(self, file, number):
        try:
            raw = file.readline(MAX_LINE_BYTES + 1)
        except OSError as error:
            raise DataError(f"cannot read: {error.strerror}", self.name,
                            number) from error
        if len(raw) > MAX_LINE_BYTES:
            raise DataError(f"the line is longer than {MAX_LINE_BYTES} bytes",
                            self.name, number)
        return raw

    def sha256(self):
        """Of what was read."""
        return self.hash.hexdigest()


class Parquet(Reader):
    """Rows are numbered from 1 in place of lines. Columns and message fields
    that are null count as absent: a column has one type for all rows."""

    def __init__(self, file, path, name):
        super().__init__(file, path, name)
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise DataError(
                "is a Parquet file, and reading those needs pyarrow, which "
                f"{sys.executable} does not have ({error}); install it there "
                "or convert the file to JSON Lines", name) from error
        try:
            self.parquet = pyarrow.parquet.ParquetFile(file)
            self.total = self.parquet.metadata.num_rows
        except MemoryError as error:  # ArrowMemoryError is one
            raise refusal(error, name) from error
        except Exception as error:  # pyarrow has errors of many classes
            raise DataError(f"unreadable Parquet: {error}", name) from error

    def read(self):
        for number, fields in enumerate(self._fields(), 1):
            self.done = number
            yield self._row(fields, number)

    def _row(self, fields, number):
        """The row, and how much text it has."""
        try:
            size = sum(map(text_size, fields.values()))
            if size > MAX_LINE_BYTES:
                raise ValueError(f"the row has {size} characters; the limit "
                                 f"is {MAX_LINE_BYTES}")
            return self.row(number, fields), size
        except ValueError as error:
            raise DataError(str(error), self.name, number) from error
        except Exception as error:
            raise refusal(error, self.name, number) from error

    def check_start(self):
        """Its footer has been read."""

    def _fields(self):
        batches = self.parquet.iter_batches(batch_size=PARQUET_ROWS,
                                            use_threads=False)
        while True:
            try:
                batch = next(batches, None)
                rows = [] if batch is None else batch.to_pylist()
            except MemoryError as error:
                raise refusal(error, self.name, self.done + 1,
                              "unpacking the rows from here") from error
            except Exception as error:
                raise DataError(f"unreadable Parquet after row {self.done}: "
                                f"{error}", self.name) from error
            if batch is None:
                return
            yield from rows

    def sha256(self):
        return user_file_sha256(self.path, MAX_DATA_BYTES)


def without_nulls(value):
    """A null is what is absent: tables and those who write them as JSON have
    one for each field that another row has. Templates tell a message's null
    content from none."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items()
                if inner is not None or name == "content"}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value


def text_size(value):
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(text_size, value.values()))
    return sum(map(text_size, value)) if isinstance(value, list) else 8


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
        raise ValueError(
            f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise ValueError("not usable JSON: nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, not {json_type(value)}")
    return value
