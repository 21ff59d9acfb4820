"""Seeded mutations of each kind of file that a dataset may be, read without a
tokenizer. Whatever comes of one must be rows or a DataError; where Python's own
modules read the kind, the same rows.

ROUNDHOUSE_FUZZ_RUNS (of each reader) and ROUNDHOUSE_FUZZ_SEED choose more or
others. The input that failed, or ended the process, is left as fuzz_case.json
in the test's undeclared outputs.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import pathlib
import random
import resource
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import pyarrow  # noqa: E402  found by the line before
import pyarrow.parquet  # noqa: E402
from common.reporting import DataError, speaker, unique_object  # noqa: E402
from prepare_fuzz_test import (ROWS, change_bytes, change_value,  # noqa: E402
                               json_array, json_lines, parquet, table, write,
                               zstd)
from rows import json_rows  # noqa: E402
from rows.dataset import READERS, Choice, open_reader  # noqa: E402
from rows.formats import COLUMNS, FORMAT_NAMES  # noqa: E402
from rows.sources import Budget, look_at  # noqa: E402

RUNS = int(os.environ.get("ROUNDHOUSE_FUZZ_RUNS", 400))
SEED = int(os.environ.get("ROUNDHOUSE_FUZZ_SEED", 1))
# As the daemon gives the helper, and as much for the tests.
MEMORY_BYTES = 4 << 30

# What is put into text, beside what change_bytes knows.
PIECES = [b"\xef\xbb\xbf", b"\r\n", b"\r", b"\"\"", b",", b"\t", b";", b"\0",
          b"\\ud83d", b"\\u0000", b"\xed\xa0\x80", b"\xc3", b"\xff\xfe", b"{}",
          b"[{\"role\": 1}]", b"null", b"-Infinity", b"1e999", b"\"text\": 1,",
          b"/* */", b"'", b"\xe2\x80\xa8", b"[]", b"\n\n", b"\x1a", b"# ",
          b"9" * 5000]
TYPES = [pyarrow.string(), pyarrow.large_string(), pyarrow.binary(),
         pyarrow.bool_(), pyarrow.int8(), pyarrow.uint64(), pyarrow.float16(),
         pyarrow.float64(), pyarrow.decimal128(30, 3), pyarrow.date32(),
         pyarrow.timestamp("ns"), pyarrow.timestamp("us", "UTC"),
         pyarrow.timestamp("s"), pyarrow.time64("ns"), pyarrow.duration("ns"),
         pyarrow.null(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())]
MESSAGE = pyarrow.struct([("role", pyarrow.string()),
                          ("content", pyarrow.string())])


# --- Mutations ---------------------------------------------------------------


def some_rows(source):
    row = source.choice(ROWS)
    return [json.loads(json.dumps(row))
            for _ in range(source.choice((1, 2, 9)))]


def changed_rows(source):
    rows = some_rows(source)
    if source.random() < 0.6:
        change_value(source, rows)
    return [row for row in rows if isinstance(row, dict)] or [{}]


def changed_text(source, data):
    kind = source.random()
    if kind < 0.3:
        return data
    if kind < 0.4:
        return data[:source.randrange(len(data) + 1)]
    if kind < 0.7:
        return change_bytes(source, data)
    for _ in range(source.choice((1, 1, 2, 4))):
        place = source.randrange(len(data) + 1)
        data = data[:place] + source.choice(PIECES) + data[place:]
    return data


def changed_packed(source, pack, data):
    """What was packed, changed; or parts of it that follow each other."""
    kind = source.random()
    if kind < 0.3:
        return pack(changed_text(source, data))
    if kind < 0.6:
        cut = source.randrange(len(data) + 1)
        parts = [pack(data[:cut]), pack(data[cut:])]
        if source.random() < 0.5:
            parts.insert(source.randrange(3), source.choice(
                (b"", b"\0" * 9, pack(b""), b"\x1f\x8b", b"x")))
        return b"".join(parts)
    return changed_text(source, pack(data))


def random_type(source, depth=2):
    kind = source.random()
    if depth == 0 or kind < 0.6:
        return source.choice(TYPES)
    inner = random_type(source, depth - 1)
    return source.choice((
        pyarrow.list_(inner), pyarrow.list_(MESSAGE), pyarrow.list_(inner, 2),
        pyarrow.map_(pyarrow.string(), inner),
        pyarrow.struct([("a", inner), ("content", pyarrow.string())])))


def random_value(source, kind):
    if source.random() < 0.15 or pyarrow.types.is_null(kind):
        return None
    if pyarrow.types.is_map(kind):
        return [(name, random_value(source, kind.item_type))
                for name in source.choice(("", "a", "ab"))]
    if pyarrow.types.is_fixed_size_list(kind):
        return [random_value(source, kind.value_type) for _ in range(2)]
    if pyarrow.types.is_list(kind):
        return [random_value(source, kind.value_type)
                for _ in range(source.randrange(4))]
    if pyarrow.types.is_struct(kind):
        return {field.name: random_value(source, field.type) for field in kind}
    if pyarrow.types.is_dictionary(kind) or pyarrow.types.is_string(kind) or \
            pyarrow.types.is_large_string(kind):
        return source.choice(("", "one two", "\U0010fffe\0", "user", "[{", "a"))
    if pyarrow.types.is_binary(kind):
        return source.choice((b"", b"\xff\0"))
    if pyarrow.types.is_boolean(kind):
        return source.random() < 0.5
    return pyarrow.scalar(source.choice((0, 1, 99)), pyarrow.int64()).cast(
        pyarrow.int32() if pyarrow.types.is_date32(kind) else pyarrow.int64()
    ).cast(kind)


def random_parquet(source):
    """A table of any types; of some that can be none, pyarrow can't write."""
    while True:
        with contextlib.suppress(pyarrow.ArrowException):
            return written_parquet(source)


def written_parquet(source):
    count = source.choice((1, 2, 40))
    names = source.sample(("text", "prompt", "completion", "messages", "tools",
                           "id", "when", "conversations"), source.randint(1, 4))
    columns = {}
    for name in names:
        kind = (pyarrow.list_(MESSAGE) if source.random() < 0.3 else
                random_type(source))
        columns[name] = pyarrow.array(
            [random_value(source, kind) for _ in range(count)], kind)
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(
        pyarrow.table(columns), sink, row_group_size=source.choice((1, 7, 99)),
        compression=source.choice(("none", "snappy", "zstd", "gzip")),
        data_page_version=source.choice(("1.0", "2.0")),
        use_dictionary=source.random() < 0.5)
    return sink.getvalue().to_pybytes()


# --- What others read --------------------------------------------------------


def array_of(data):
    """The rows of a JSON array as json has them; None where it is none."""
    try:
        rows = json.loads(data.decode().removeprefix("\ufeff"),
                          object_pairs_hook=unique_object)
    except (ValueError, RecursionError):
        return None
    fit = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    return rows if fit else None


def lines_of(data):
    """The same of JSON Lines."""
    rows = []
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line.strip():
            found = array_of(b"[" + line + b"]") if \
                line[:3] != b"\xef\xbb\xbf" else None
            if found is None or len(found) != 1:
                return None
            rows += found
    return rows


def records_of(data, separator):
    """The same of a table."""
    try:
        text = data.decode().removeprefix("\ufeff")
        records = list(filter(None, csv.reader(
            io.StringIO(text, newline=""), strict=True, delimiter=separator)))
    except (ValueError, csv.Error):
        return None
    header, *records = records or [[]]
    if any(len(record) != len(header) for record in records):
        return None
    fit = all(map(str.strip, header)) and len(set(header)) == len(header)
    return [dict(zip(header, record)) for record in records] if fit else None


def unpacked(data):
    """The contents of a gzip file as the module has them."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, ValueError):
        return None
    except Exception as error:  # zlib.error is not named the same everywhere
        if type(error).__name__ == "error":
            return None
        raise


class ReadersFuzzTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(
            dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.case = pathlib.Path(os.environ.get(
            "TEST_UNDECLARED_OUTPUTS_DIR", cls.folder)) / "fuzz_case.json"
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, limits[1]))
        cls.addClassCleanup(resource.setrlimit, resource.RLIMIT_AS, limits)

    def setUp(self):
        for name in ("say", "still"):
            patch = mock.patch.object(speaker, name, lambda *a, **b: None)
            patch.start()
            self.addCleanup(patch.stop)

    def place(self, files):
        write(self.case, json.dumps([(name, data.decode("latin-1"))
                                     for name, data in files]).encode())
        for name, data in files:
            write(self.folder / name, data)
        return ([str(self.folder / name) for name, _ in files],
                [name for name, _ in files])

    def attempt(self, names, read):
        """What reading gives; None where it is refused."""
        try:
            return read()
        except DataError as error:
            self.assertTrue(str(error))
            self.assertIn(error.file, names)
            self.assertLess(len(json.loads(error.as_json())["error"]), 1001)
            return None

    def raw(self, name, data):
        """The fields of a file's rows, or None."""
        (path,), names = self.place([(name, data)])

        def read():
            source = look_at(path, name)
            reader = READERS[source.kind](source, Budget())
            return [fields for _, fields, _ in reader.rows()]
        return self.attempt(names, read)

    def rows(self, *files, **choice):
        """How many rows the files have as a dataset, or None."""
        paths, names = self.place(files)

        def read():
            reader = open_reader(paths, names, Choice(**choice))
            reader.check_start()
            rows = [row for batch, _ in reader.batches() for row in batch]
            for row in rows:
                name, line = reader.place(row.line)
                self.assertIn(name, names)
                self.assertGreater(line, 0)
            self.assertEqual(len(rows), reader.rows)
            self.assertLessEqual(reader.done, reader.total)
            reader.warnings(), reader.sha256(), reader.described()
            return len(rows)
        return self.attempt(names, read)

    def check(self, change):
        """`change`, of a source of chance, reads one; whether it was taken.
        Both ends must be met, or the mutations say nothing."""
        ends = {False: 0, True: 0}
        for number in range(max(20, RUNS)):
            source = random.Random(f"{SEED} {self.id()} {number}")
            with self.subTest(number=number):
                ends[change(source)] += 1
        print(f"{sum(ends.values())} runs: {ends[False]} refused",
              file=sys.stderr)
        self.assertTrue(ends[True] and ends[False], ends)
        self.case.unlink()

    def compare(self, source, name, data, wanted):
        """What a reader has is what another module has, and its rows are a
        dataset or none. repr() tells NaN and 1 from 1.0."""
        found = self.raw(name, data)
        self.assertEqual(repr(found), repr(wanted))
        return self.rows((name, data)) is not None

    def test_json_lines(self):
        def change(source):
            data = changed_text(source, json_lines(changed_rows(source)))
            if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[" or \
                    b"\0" in data[:2] or data[:2] in (b"\xff\xfe",):
                return self.rows(("a.jsonl", data)) is not None
            return self.compare(source, "a.jsonl", data, lines_of(data))
        self.check(change)

    def test_json_arrays(self):
        def change(source):
            data = json_array(changed_rows(source))
            if source.random() < 0.3:
                data = json.dumps(json.loads(data), indent=1).encode()
            data = changed_text(source, data)
            begin = data.removeprefix(b"\xef\xbb\xbf").lstrip()
            if begin[:1] != b"[":
                return self.rows(("a.json", data)) is not None
            with mock.patch.object(json_rows, "WINDOW_BYTES",
                                   source.choice((1, 7, 64, 1 << 20))):
                return self.compare(source, "a.json", data, array_of(data))
        self.check(change)

    def test_tables(self):
        def change(source):
            end, separator = source.choice(((".csv", ","), (".tsv", "\t")))
            rows = some_rows(source)
            data = changed_text(source, table(rows, separator))
            name = "t" + end
            if b"\r" in data.replace(b"\r\n", b"") or \
                    data[:2] == b"\xff\xfe" or b"\0" in data:
                return self.rows((name, data)) is not None
            found, wanted = self.raw(name, data), records_of(data, separator)
            if found is not None:  # more is refused than csv does
                self.assertEqual(found, wanted)
            return self.rows((name, data)) is not None
        self.check(change)

    def test_gzip(self):
        def change(source):
            def pack(data):
                return gzip.compress(data, mtime=0)
            data = changed_packed(source, pack, source.choice((
                json_lines, json_array))(some_rows(source)))
            inner = unpacked(data)
            taken = self.rows(("a.json.gz", data))
            if data[:2] == b"\x1f\x8b":
                self.assertEqual(taken, None if inner is None else
                                 self.rows(("a.json", inner)))
            return taken is not None
        self.check(change)

    def test_zstd(self):
        def change(source):
            data = changed_packed(source, zstd, source.choice((
                json_lines, json_array))(some_rows(source)))
            return self.rows(("a.json.zst", data)) is not None
        self.check(change)

    def test_parquet(self):
        def change(source):
            if source.random() < 0.5:
                data = random_parquet(source)
            else:
                data = parquet(some_rows(source), compression=source.choice(
                    ("none", "zstd", "snappy")))
            if source.random() < 0.6:
                data = change_bytes(source, data)
            return self.rows(("a.parquet", data)) is not None
        self.check(change)

    def test_columns_and_formats(self):
        def change(source):
            rows = changed_rows(source)
            theirs = sorted({name for row in rows for name in row}) + ["none"]
            columns = {source.choice(COLUMNS): source.choice(theirs)
                       for _ in range(source.choice((0, 0, 1, 2)))}
            name, data = source.choice((
                ("a.jsonl", json_lines(rows)), ("a.json", json_array(rows))))
            return self.rows(
                (name, data), columns=columns, seed=source.randrange(9),
                format=source.choice((None, None, *FORMAT_NAMES)),
                most=source.choice((None, 1, 3)), validation=source.random() <
                0.5, held_out=source.choice((0.0, 0.3))) is not None
        self.check(change)

    def test_several_files(self):
        def change(source):
            rows = some_rows(source)
            files = []
            for number in range(source.choice((2, 3, 5))):
                kind, data = source.choice((
                    ("jsonl", json_lines(rows)), ("json", json_array(rows)),
                    ("jsonl.gz", gzip.compress(json_lines(rows), mtime=0)),
                    ("csv", table(rows, ",")), ("parquet", parquet(rows))))
                if source.random() < 0.2:
                    data = changed_text(source, data)
                files.append((f"{number}.{kind}", data))
            return self.rows(*files, most=source.choice((None, 2, 9))
                             ) is not None
        self.check(change)


if __name__ == "__main__":
    unittest.main()
