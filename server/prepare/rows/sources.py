"""The bytes of a dataset's files: what kind each is, unpacked as it is read.

A file is JSON Lines, a JSON array, CSV or TSV, any of them also packed by gzip
or zstd, or Parquet. First bytes come before names: they say what is Parquet,
what is packed, and what else people bring, which is refused by name, with what
to do. CSV and TSV are known by their names, the rest by its first character.
"""

import collections
import gzip
import io
import os
import re
import sys
import zlib

from common.files import (LFS_MESSAGE, LFS_POINTER, MAX_DATA_BYTES,
                          open_regular, user_file_sha256)
from common.reporting import DataError, refusal, size_text

JSON_LINES, JSON_ARRAY, PARQUET = "JSON Lines", "a JSON array", "Parquet"
CSV, TSV = "CSV", "TSV"
TABLE_SUFFIXES = {".csv": CSV, ".tsv": TSV}
PACKED_SUFFIXES = (".gz", ".zst", ".zstd")
GZIP, ZSTD = "gzip", "zstd"
# pzstd begins with a frame to be skipped, of any of 16 kinds.
PACKINGS = ((b"\x1f\x8b", GZIP), (b"\x28\xb5\x2f\xfd", ZSTD),
            *((bytes([kind]) + b"\x2a\x4d\x18", ZSTD)
              for kind in range(0x50, 0x60)))
PARQUET_MAGIC = b"PAR1"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# All files of a dataset together, unpacked; each line is bounded besides.
MAX_UNPACKED_BYTES = MAX_DATA_BYTES
# What a packed file may hold, and how many lines or rows: so much, and so much
# more for each of its bytes. Small files count as read in a short time.
PACKED_BYTES, PACKED_BYTES_EACH = 256 << 20, 1024
PACKED_ROWS, PACKED_ROWS_EACH = 1 << 20, 1
HEAD_BYTES = 4096
READ_BYTES = 1 << 18  # that are unpacked at once

UNPACK = "unpack it first"
TO_PARQUET = ("write it as Parquet: datasets.load_from_disk(FOLDER)"
              ".to_parquet(FILE)")
# (first bytes, what they are, what to do).
OTHER_KINDS = (
    (b"ARROW1", "an Arrow file", TO_PARQUET),
    (b"\xff\xff\xff\xff", "an Arrow stream, as the datasets library keeps",
     TO_PARQUET),
    (b"\xff\xfe\0\0", "UTF-32", "write it as UTF-8: iconv -f UTF-32 -t UTF-8"),
    (b"\0\0\xfe\xff", "UTF-32", "write it as UTF-8: iconv -f UTF-32 -t UTF-8"),
    (b"\xff\xfe", "UTF-16", "write it as UTF-8: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16", "write it as UTF-8: iconv -f UTF-16 -t UTF-8"),
    (b"{\0", "UTF-16", "write it as UTF-8: iconv -f UTF-16LE -t UTF-8"),
    (b"\0{", "UTF-16", "write it as UTF-8: iconv -f UTF-16BE -t UTF-8"),
    (b"PK\x03\x04", "a ZIP archive (.xlsx files are, too)",
     "unpack it, or save the sheet as CSV"),
    (b"PK\x05\x06", "an empty ZIP archive", "look for what was meant"),
    (b"PARE", "an encrypted Parquet file", "write it without encryption"),
    (b"BZh", "packed by bzip2", UNPACK),
    (b"\xfd7zXZ\0", "packed by xz", UNPACK),
    (b"7z\xbc\xaf", "a 7-Zip archive", UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (b"\x04\x22\x4d\x18", "packed by lz4", UNPACK),
    (b"\xff\x06\0\0sNaPpY", "packed by Snappy", UNPACK),
    (b"\x1f\x9d", "packed by compress", UNPACK),
    (b"\xd0\xcf\x11\xe0", "an old Office file, as .xls is", "save it as CSV"),
    (b"Obj\x01", "an Avro file", "write it as Parquet"),
    (b"ORC", "an ORC file", "write it as Parquet"),
    (b"\x89HDF", "an HDF5 file", "write it as JSON Lines"),
    (b"SQLite format 3\0", "an SQLite database", "write it as JSON Lines"),
    (b"%PDF", "a PDF file", "write its text as JSON Lines"),
    (b"\x80\x04", "a Python pickle", "write it as JSON Lines"),
    (b"\x80\x05", "a Python pickle", "write it as JSON Lines"),
    (b"<!DOCTYPE", "a page of HTML", "download the file itself"),
    (b"<html", "a page of HTML", "download the file itself"))
TAR_MAGIC, TAR_PLACE = b"ustar", 257
# Letters, with which the first column of a table by its name may begin as well;
# what has no other bytes is text.
LETTERS = (PARQUET_MAGIC, b"PARE", b"BZh", b"ORC")
TEXT_BYTES = frozenset(b"\t\n\r\f\x1b") | frozenset(range(32, 127)) | \
    frozenset(range(128, 256))

# size: bytes of the file. packing: GZIP, ZSTD or None.
Source = collections.namedtuple("Source", "path name size packing kind")


class Budget:
    """How much the files of a dataset may still hold, unpacked."""

    def __init__(self):
        self.left = MAX_UNPACKED_BYTES

    def take(self, size, name):
        self.left -= size
        if self.left < 0:
            raise DataError(
                "unpacks to more than the limit of "
                f"{size_text(MAX_UNPACKED_BYTES)}, with the files before it", name)


class Meter:
    """How much one packed file may still hold; `remedy` is what to do when it
    holds more."""

    def __init__(self, source, budget, remedy=UNPACK):
        self.name, self.remedy, self.budget = source.name, remedy, budget
        self.size = source.size
        self.bytes = PACKED_BYTES + PACKED_BYTES_EACH * source.size
        self.rows = PACKED_ROWS + PACKED_ROWS_EACH * source.size

    def take(self, size):
        self.budget.take(size, self.name)
        self.bytes -= size
        if self.bytes < 0:
            self._refuse(f"{size_text(PACKED_BYTES)} and "
                         f"{size_text(PACKED_BYTES_EACH)} more")

    def row(self):
        """Takes one row, or a line that is none."""
        self.rows -= 1
        if self.rows < 0:
            self._refuse(f"{PACKED_ROWS} rows and {PACKED_ROWS_EACH} more")

    def _refuse(self, most):
        raise DataError(f"has {size_text(self.size)} and holds more than {most} for "
                        f"each of its bytes; {self.remedy}", self.name)


def look_at(path, name):
    """The Source that a file is."""
    file = opened(path, name)
    with file:
        size = os.fstat(file.fileno()).st_size
        try:
            head = file.read(HEAD_BYTES)
        except OSError as error:
            raise DataError(f"cannot read: {error.strerror}", name) from error
    packing = packing_of(head)
    if packing is not None:
        with Stream(Source(path, name, size, packing, None),
                    Budget()) as stream:
            head = stream.read(HEAD_BYTES)
    return Source(path, name, size, packing, kind_of(head, packing, name))


def opened(path, name):
    try:
        return open_regular(path, MAX_DATA_BYTES, name)
    except OSError as error:
        raise DataError(f"cannot open: {error.strerror}", name) from error


def packing_of(head):
    return next((packing for magic, packing in PACKINGS
                 if head.startswith(magic)), None)


def kind_of(head, packing, name):
    """By what the file begins with, unpacked."""
    if head.startswith(LFS_POINTER):
        raise DataError(LFS_MESSAGE, name)
    if packing and packing_of(head):
        raise DataError(f"is packed twice; {UNPACK}", name)
    table = TABLE_SUFFIXES.get(suffix(name))
    if table is not None and head.startswith(LETTERS) and \
            TEXT_BYTES.issuperset(head):
        return table
    if head.startswith(PARQUET_MAGIC):
        if packing:
            raise DataError(f"is Parquet packed by {packing}; {UNPACK} "
                            "(Parquet is packed inside)", name)
        return PARQUET
    for magic, what, remedy in OTHER_KINDS:
        if head.startswith(magic):
            raise DataError(f"is {what}; {remedy}", name)
    if head[TAR_PLACE:].startswith(TAR_MAGIC):
        raise DataError(f"is a tar archive; {UNPACK}", name)
    if table is not None:
        return table
    begin = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    return JSON_ARRAY if begin.startswith(b"[") else JSON_LINES


def suffix(name):
    """The suffix of the file within a packed one."""
    stem, end = os.path.splitext(name.lower())
    return os.path.splitext(stem)[1] if end in PACKED_SUFFIXES else end


# --- Bytes -------------------------------------------------------------------


class Stream(io.BufferedReader):
    """A file's bytes, unpacked; `done` is how far it is within the file."""

    def __init__(self, source, budget):
        file = opened(source.path, source.name)
        self.file, self.source = file, source
        if source.packing is None:
            self.row = lambda: None
            super().__init__(file.detach())
        else:
            meter = Meter(source, budget)
            self.row = meter.row  # to be called for each line or row
            super().__init__(Unpacked(file, source, meter), READ_BYTES)

    def done(self):
        """Bytes of the file that were read."""
        if self.source.packing is None:
            return self.tell()
        return self.raw.done


class Unpacked(io.RawIOBase):
    """What a packed file holds."""

    def __init__(self, file, source, meter):
        self.file, self.name, self.packing = file, source.name, source.packing
        self.meter = meter
        self.done = 0
        self.inner = (gzip.GzipFile(fileobj=file, mode="rb")
                      if source.packing == GZIP else zstd(file, source.name))

    def readable(self):
        return True

    def readinto(self, buffer):
        try:
            data = self.inner.read(min(len(buffer), READ_BYTES))
            self.done = self.file.tell()
        except MemoryError as error:
            raise refusal(error, self.name, None, "unpacking it") from error
        except (OSError, EOFError, zlib.error) as error:
            text = re.sub(r"\s+", " ", str(error))[:200]
            if "too much memory" in text:
                raise DataError(
                    "was packed with a window of more than 128 MiB (zstd "
                    f"--long): {UNPACK}, or pack it without", self.name
                    ) from error
            raise DataError(f"is damaged or cut short ({self.packing}): "
                            f"{text}", self.name) from error
        self.meter.take(len(data))
        buffer[:len(data)] = data
        return len(data)

    def close(self):
        if not self.closed:
            self.inner.close()
            self.file.close()
        super().close()


def zstd(file, name):
    pyarrow = import_pyarrow(name, "packed by zstd")
    return pyarrow.CompressedInputStream(
        pyarrow.PythonFile(file, mode="r"), "zstd")


def import_pyarrow(name, what):
    try:
        import pyarrow
        import pyarrow.parquet  # noqa: F401  what is used is imported here
    except ImportError as error:
        raise DataError(
            f"is {what}, and reading that needs pyarrow, which "
            f"{sys.executable} does not have ({error}); run "
            "deploy/install-deps, or write the file as JSON Lines", name
            ) from error
    return pyarrow


def source_sha256(source):
    return user_file_sha256(source.path, MAX_DATA_BYTES)
