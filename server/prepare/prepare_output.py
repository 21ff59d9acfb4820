"""Sequences to files: truncation, packing, the arrays, their counts."""

import array
import hashlib
import os
import random

from common.disk import ARRAY, MANIFEST, REMOVE, disk, is_sealed
from common.files import read_json_object
from common.reporting import DataError, name_line, speaker

FORMAT_VERSION = 2  # of a prepared split; the reader is dataset.cc
ARRAYS = {"tokens.u32": "I", "labels.u8": "B", "offsets.u64": "Q",
          "lines.u32": "I"}  # array's type codes
ROWS = "rows.u64"  # beside them where rows are packed
# What a window of sequences packed together holds in memory.
WINDOW_SEQUENCES = 16384
WINDOW_TOKENS = 4 << 20


class Output:
    """One output file under its temporary name until publish()."""

    def __init__(self, folder, name, site=ARRAY):
        self.path = os.path.join(folder, name)
        self.site = site
        self.hash = hashlib.sha256()
        self.bytes = 0
        self.file = disk.create(site, self.path + ".part")

    def write(self, data):
        data = bytes(data)
        disk.write(self.site, self.file, data)
        self.hash.update(data)
        self.bytes += len(data)

    def publish(self):
        disk.close(self.site, self.file)
        disk.rename(self.site, self.path + ".part", self.path)
        return {"sha256": self.hash.hexdigest(), "bytes": self.bytes}


def write_manifest(folder, text):
    """Last of all: the arrays' names are on disk before there is one."""
    file = Output(folder, "manifest.json", MANIFEST)
    file.write(text)
    disk.sync_folder(MANIFEST, folder)
    file.publish()
    disk.sync_folder(MANIFEST, folder)


def read_manifest(folder):
    path = os.path.join(folder, "manifest.json")
    manifest = read_json_object(path, own=True)
    if manifest is None:
        raise DataError("there is no manifest.json", folder)
    with open(path, "rb") as file:
        if not is_sealed(file.read()):
            raise DataError("its SHA-256 is not the one it was written with",
                            path)
    if manifest.get("format_version") != FORMAT_VERSION:
        raise DataError(f"format_version is not {FORMAT_VERSION}", path)
    return manifest


class Arrays:
    """The files of a split being written, in the order of rows."""

    def __init__(self, folder, packing):
        disk.make_folder(ARRAY, folder)
        # From here the old files would be described wrongly.
        for name in ("manifest.json", ROWS):
            disk.remove(REMOVE, os.path.join(folder, name))
        names = [*ARRAYS, ROWS] if packing else ARRAYS
        self.files = {name: Output(folder, name) for name in names}
        self.sequences = self.tokens = 0
        self._append("offsets.u64", [0])
        if packing:
            self._append(ROWS, [0])

    def _append(self, name, values):
        code = ARRAYS.get(name, "Q")
        self.files[name].write(array.array(code, values))

    def put(self, row):
        """A row: its sequences as Encoded."""
        for sequence in row:
            self.sequences += 1
            self.tokens += len(sequence.ids)
            self._append("tokens.u32", sequence.ids)
            self.files["labels.u8"].write(sequence.labels)
            self._append("offsets.u64", [self.tokens])
            self._append("lines.u32", [sequence.line])
        if ROWS in self.files:
            self._append(ROWS, [self.sequences])

    def publish(self):
        return {name: file.publish() for name, file in self.files.items()}


class NoArrays:
    """Takes rows and keeps none."""

    def put(self, row):
        pass

    def publish(self):
        return {}


class Bins:
    """Bins of equal capacity; finds the first with room in O(log bins)."""

    def __init__(self, capacity, most):
        self.capacity = capacity
        self.leaves = 1
        while self.leaves < most:
            self.leaves *= 2
        # A tree of the most room in any bin below; bin i is leaf i.
        self.room = [capacity] * (2 * self.leaves)

    def first_fit(self, size):
        """Puts `size` into the first bin with room for it; which one."""
        node = 1
        while node < self.leaves:
            node *= 2
            if self.room[node] < size:
                node += 1
        leaf = node - self.leaves
        self.room[node] -= size
        while node > 1:
            node //= 2
            self.room[node] = max(self.room[2 * node], self.room[2 * node + 1])
        return leaf


def pack(sequences, capacity, source):
    """Rows of whole sequences, none longer than `capacity` tokens, by
    first-fit-decreasing (Johnson 1973). `source`, a random.Random, chooses
    among sequences of one length and mixes the order within rows."""
    order = list(sequences)
    source.shuffle(order)
    order.sort(key=lambda sequence: -len(sequence.ids))
    bins = Bins(capacity, len(order))
    rows = {}
    for sequence in order:
        rows.setdefault(bins.first_fit(len(sequence.ids)), []).append(sequence)
    for row in rows.values():
        source.shuffle(row)
    return list(rows.values())


class Packer:
    """Packs windows of sequences, each by a seed of its own."""

    def __init__(self, capacity, seed):
        self.capacity = capacity
        self.seed = seed
        self.windows = 0
        self.window, self.tokens = [], 0

    def put(self, sequence):
        """The rows that are complete with this sequence."""
        ids = array.array("I", sequence.ids)  # a tenth of a list's memory
        self.window.append(sequence._replace(ids=ids))
        self.tokens += len(sequence.ids)
        full = (len(self.window) >= WINDOW_SEQUENCES or
                self.tokens >= WINDOW_TOKENS)
        return self.rest() if full else []

    def rest(self):
        speaker.still("packing")
        window, self.window, self.tokens = self.window, [], 0
        source = random.Random(f"{self.seed} {self.windows}")
        self.windows += 1
        return pack(window, self.capacity, source) if window else []


class NoPacker:
    def put(self, sequence):
        return [[sequence]]

    def rest(self):
        return []


class Sequences:
    """Cuts, drops and counts sequences on their way to rows. `keep` is the
    truncation: of a longer one its left ('right') or right ('left') end is
    kept, none ('drop'), or all of it in parts ('split'), which end where
    `ends_line`, of a token's id, says so if any does."""

    def __init__(self, max_length, keep, packer, arrays, ends_line=None):
        self.ends_line = ends_line
        self.max_length = max_length
        self.keep = keep
        self.packer = packer
        self.arrays = arrays
        self.first_dropped = None  # (line, reason)
        self.rows = self.max_row_tokens = 0
        self.counts = dict(sequences=0, tokens=0, target_tokens=0, truncated=0,
                           truncated_lines=[], dropped={}, dropped_lines={},
                           boundary_merged=0, max_sequence_tokens=0,
                           max_token_id=0)
        if keep == "split":
            self.counts["split"] = 0  # sequences that are in parts

    def add(self, sequence):
        """The sequence as it is kept, mostly one; none when it is dropped."""
        self.counts["boundary_merged"] += sequence.merged
        reason, sequence = self._cut(sequence)
        if reason is not None:
            self._drop(sequence.line, reason)
            return []
        kept = self._parts(sequence)
        for part in kept:
            self._count(part)
            self._put(self.packer.put(part))
        return kept

    def _parts(self, sequence):
        if len(sequence.ids) <= self.max_length:
            return [sequence]
        self.counts["split"] += 1
        parts, start, length = [], 0, len(sequence.ids)
        while start < length:
            end = self._end_of_part(sequence.ids, start)
            labels = b"\0" + sequence.labels[start + 1:end]
            parts.append(sequence._replace(ids=sequence.ids[start:end],
                                           labels=labels))
            start = end
        return parts

    def _end_of_part(self, ids, start):
        """Behind the last line end within reach, or as far as it goes; never so
        that one token is left, of which nothing could be learned."""
        most = min(start + self.max_length, len(ids))
        if most == len(ids):
            return most
        for end in range(most, start + 1, -1):
            if self.ends_line(ids[end - 1]) and len(ids) - end != 1 and \
                    end - start > 1:
                return end
        return most - (len(ids) - most == 1 and most - start > 2)

    def finish(self):
        self._put(self.packer.rest())

    def _cut(self, sequence):
        """Why it is dropped (None: it is not), and what is left."""
        if sequence.dropped is not None:
            return sequence.dropped, sequence
        if not any(sequence.labels):
            return "all_labels_masked", sequence
        if len(sequence.ids) <= self.max_length:
            return None, sequence
        if self.keep == "drop":
            return "too_long", sequence
        if self.keep == "split":
            return None, sequence
        self.counts["truncated"] += 1
        name_line(self.counts["truncated_lines"], sequence.line)
        part = (slice(self.max_length) if self.keep == "right" else
                slice(-self.max_length, None))
        labels = b"\0" + sequence.labels[part][1:]
        cut = sequence._replace(ids=sequence.ids[part], labels=labels)
        return None if any(labels) else "no_target_tokens", cut

    def _drop(self, line, reason):
        self.first_dropped = self.first_dropped or (line, reason)
        dropped = self.counts["dropped"]
        dropped[reason] = dropped.get(reason, 0) + 1
        name_line(self.counts["dropped_lines"].setdefault(reason, []), line)

    def _count(self, sequence):
        counts, length = self.counts, len(sequence.ids)
        counts["sequences"] += 1
        counts["tokens"] += length
        counts["target_tokens"] += sequence.labels.count(1)
        counts["max_sequence_tokens"] = max(counts["max_sequence_tokens"],
                                            length)
        counts["max_token_id"] = max(counts["max_token_id"], *sequence.ids)

    def _put(self, rows):
        for row in rows:
            self.rows += 1
            tokens = sum(len(sequence.ids) for sequence in row)
            self.max_row_tokens = max(self.max_row_tokens, tokens)
            self.arrays.put(row)
