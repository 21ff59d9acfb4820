"""Tokenises one dataset file for training: JSON Lines in, mapped arrays out.

The daemon starts this as a short-lived child, once per dataset and split:

    prepare.py --tokenizer DIR --data FILE --out DIR --max-length N
               --split train|validation [--bigram-from TRAIN_OUT_DIR]
               [--data-name NAME] [--options JSON|-]

--options gives the same settings (underscores for dashes) as one JSON object,
'-' reads it from standard input; a setting given both ways is an error.
--data-name is what messages call the file, where FILE is a descriptor's path.

Input.  One JSON object a line, UTF-8, all lines of one format:
  {"text": str}                        every token but the first is a target
  {"prompt": str, "completion": str}   the completion's tokens are targets
Other fields are ignored and counted. Blank lines are skipped.

Tokens.  The tokenizer's own special tokens are kept; the end-of-sequence token
is appended where the sequence does not end with it. A prompt row is tokenised
as the one string prompt + completion, so its ids are always those of the whole
text. Its targets start where they first differ from the ids of the prompt
alone: normally the prompt's length; where the tokenizer merges characters of
both sides into one token, that token is a target (counted, boundary_merged),
so that no character of the completion goes untrained. The first token of a
sequence is never a target. Sequences longer than max_length lose their right
end; those left without a target are dropped.

Output in --out, each written under a temporary name, synced and renamed, the
manifest last; all integers little-endian:
  tokens.u32    ids of all sequences, one after the other
  labels.u8     per token 1 when it is a target (there is a loss on predicting
                it from the tokens before), else 0
  offsets.u64   sequences + 1 offsets into tokens, in tokens
  lines.u32     per sequence its line in the input, from 1
  manifest.json counts, truncations, drops, hashes, options (Manifest below)

Standard output: {"progress": bytes done, "total": bytes} lines. Errors: one
JSON line {"error", "file"?, "line"?} on standard error. Exit status: 0 done,
2 usage, 3 bad dataset or tokenizer, 4 the output could not be written.

Memory is bounded by one batch and, with --bigram-from, by the number of
distinct pairs of neighbouring tokens in the validation split and the first
BIGRAM_TOKENS of the train split. The same input
gives the same bytes.
"""

import argparse
import array
import collections
import hashlib
import itertools
import json
import math
import mmap
import os
import sys

assert sys.byteorder == "little", "the output is this machine's own byte order"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

FORMAT_VERSION = 1
MAX_LINE_BYTES = 16 << 20
BATCH_ROWS = 512
BATCH_BYTES = 4 << 20
NAMED_LINES = 5  # of truncated and dropped rows, per reason
NAMED_FIELDS = 32  # of ignored fields
BIGRAM_TOKENS = 20_000_000
BIGRAM_HELD_OUT = 10  # every tenth sequence chooses the smoothing

CHAT_FIELDS = {
    "messages": "chat messages",
    "conversations": "ShareGPT conversations",
    "instruction": "Alpaca instructions",
    "chosen": "preference pairs",
}


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
        return json.dumps(record, ensure_ascii=False)


# --- Tokenizer ---------------------------------------------------------------


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


class Encoder:
    """A Hugging Face tokenizer directory, ready to encode whole rows."""

    def __init__(self, folder):
        from tokenizers import Tokenizer

        self.path = os.path.join(folder, "tokenizer.json")
        try:
            with open(self.path, "rb") as file:
                self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            self.tokenizer = Tokenizer.from_file(self.path)
        except Exception as error:  # tokenizers raises bare Exception
            raise DataError(f"unreadable tokenizer: {error}",
                            self.path) from error
        # Settings of whoever saved the file; rows are cut and padded later.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocab_size = self.tokenizer.get_vocab_size(with_added_tokens=True)
        self.eos_id = self._find_eos(folder)

    def _find_eos(self, folder):
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            path = os.path.join(folder, name)
            token = (read_json_object(path) or {}).get("eos_token")
            if isinstance(token, dict):
                token = token.get("content")
            if token is None:
                continue
            found = self.tokenizer.token_to_id(str(token))
            if found is None:
                raise DataError(
                    f"eos_token {token!r} is not in the tokenizer", path)
            return found
        for name in ("generation_config.json", "config.json"):
            path = os.path.join(folder, name)
            found = (read_json_object(path) or {}).get("eos_token_id")
            if isinstance(found, list):
                found = found[0] if found else None
            if found is None:
                continue
            if type(found) is not int or not 0 <= found < self.vocab_size:
                raise DataError(
                    f"eos_token_id {found!r} is not in the tokenizer", path)
            return found
        raise DataError(
            "the tokenizer has no end-of-sequence token: neither eos_token in "
            "tokenizer_config.json or special_tokens_map.json nor "
            "eos_token_id in generation_config.json or config.json", folder)

    def ids(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch_fast(texts)]

    def encode(self, rows):
        """Per row its ids, its first target's index, and if one token merged
        both sides of the boundary."""
        whole = self.ids([row.prompt + row.completion for row in rows])
        alone = iter(self.ids([r.prompt for r in rows if r.has_prompt]))
        for row, ids in zip(rows, whole):
            first, merged = 1, False
            if row.has_prompt:
                prompt = next(alone)
                first = common_prefix(prompt, ids)
                merged = first < min(len(prompt), len(ids))
                first = max(first, 1)
            if not ids or ids[-1] != self.eos_id:
                ids.append(self.eos_id)
            yield ids, first, merged


def common_prefix(a, b):
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:
        return shorter
    return next(i for i in range(shorter) if a[i] != b[i])


# --- Reading -----------------------------------------------------------------

Row = collections.namedtuple("Row", "line prompt completion has_prompt")


class Reader:
    """The rows of a JSON Lines file, checked, in order."""

    def __init__(self, path, name):
        self.name = name
        self.format = None
        self.bytes_read = 0
        self.rows = 0
        self.ignored = {}
        self.hash = hashlib.sha256()
        try:
            self.file = open(path, "rb")
            self.total = os.fstat(self.file.fileno()).st_size
        except OSError as error:
            raise DataError(f"cannot open: {error.strerror}", name) from error

    def batches(self):
        rows, size = [], 0
        for row in self._read():
            rows.append(row)
            size += len(row.prompt) + len(row.completion)
            if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield rows
                rows, size = [], 0
        if rows:
            yield rows

    def _read(self):
        with self.file:
            for number in itertools.count(1):
                try:
                    raw = self.file.readline(MAX_LINE_BYTES + 1)
                except OSError as error:
                    raise DataError(f"cannot read: {error.strerror}",
                                    self.name, number) from error
                if not raw:
                    return
                self.bytes_read += len(raw)
                self.hash.update(raw)
                if len(raw) > MAX_LINE_BYTES:
                    raise DataError(
                        f"the line is longer than {MAX_LINE_BYTES} bytes",
                        self.name, number)
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                if raw.strip():
                    self.rows += 1
                    try:
                        yield self._row(number, parse_object(raw))
                    except ValueError as error:
                        raise DataError(str(error), self.name,
                                        number) from error

    def _row(self, number, fields):
        found = row_format(fields)
        if self.format is None:
            self.format = found
        elif found != self.format:
            raise ValueError(
                f"this line is of the format {found}, those before are of the "
                f"format {self.format}; a file has one format")
        wanted = found.split("/")
        for name in fields.keys() - set(wanted):
            if name in self.ignored or len(self.ignored) < NAMED_FIELDS:
                self.ignored[name] = self.ignored.get(name, 0) + 1
        texts = [text_field(fields, name) for name in wanted]
        return Row(number, "".join(texts[:-1]), texts[-1], len(texts) == 2)


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


def unique_object(pairs):
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"the field {twice!r} is there twice")
    return value


def row_format(fields):
    has_text = "text" in fields
    has_pair = "prompt" in fields, "completion" in fields
    if has_text and any(has_pair):
        raise ValueError("has 'text' beside 'prompt' or 'completion'; "
                         "a line is of one format")
    if has_text:
        return "text"
    if all(has_pair):
        return "prompt/completion"
    if any(has_pair):
        missing = "completion" if has_pair[0] else "prompt"
        raise ValueError(f"the field {missing!r} is missing")
    for name, meaning in CHAT_FIELDS.items():
        if name in fields:
            raise ValueError(
                f"the field {name!r} ({meaning}) is not supported; use "
                "'text', or 'prompt' and 'completion'")
    names = ", ".join(repr(n) for n in list(fields)[:NAMED_FIELDS]) or "none"
    raise ValueError("needs the field 'text', or 'prompt' and 'completion'; "
                     f"has {names}")


def text_field(fields, name):
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(
            f"the field {name!r} must be a string, not {json_type(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"the field {name!r} has half of a surrogate pair at "
                         f"character {error.start + 1}") from error
    return value


def json_type(value):
    names = {dict: "an object", list: "an array", str: "a string",
             bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


# --- Writing -----------------------------------------------------------------


class Output:
    """One output file under its temporary name until Publish()."""

    def __init__(self, folder, name):
        self.path = os.path.join(folder, name)
        self.hash = hashlib.sha256()
        self.bytes = 0
        self.file = open(self.path + ".part", "wb")

    def write(self, data):
        data = bytes(data)
        self.file.write(data)
        self.hash.update(data)
        self.bytes += len(data)

    def publish(self):
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        os.rename(self.path + ".part", self.path)
        return {"sha256": self.hash.hexdigest(), "bytes": self.bytes}


def sync_folder(path):
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Sequences:
    """The four arrays being written, and their counts."""

    def __init__(self, folder, max_length):
        os.makedirs(folder, exist_ok=True)
        # From here the old manifest would describe new files.
        try:
            os.unlink(os.path.join(folder, "manifest.json"))
        except FileNotFoundError:
            pass
        self.max_length = max_length
        self.files = {name: Output(folder, name) for name in
                      ("tokens.u32", "labels.u8", "offsets.u64", "lines.u32")}
        self.files["offsets.u64"].write(array.array("Q", [0]))
        self.counts = dict(sequences=0, tokens=0, target_tokens=0, truncated=0,
                           truncated_lines=[], dropped={}, dropped_lines={},
                           boundary_merged=0, max_sequence_tokens=0,
                           max_token_id=0)

    def add(self, line, ids, first_target, merged):
        counts = self.counts
        counts["boundary_merged"] += merged
        if len(ids) > self.max_length:
            del ids[self.max_length:]
            counts["truncated"] += 1
            name_line(counts["truncated_lines"], line)
        targets = len(ids) - first_target
        if targets <= 0:
            reason = "no_target_tokens"
            dropped = counts["dropped"]
            dropped[reason] = dropped.get(reason, 0) + 1
            name_line(counts["dropped_lines"].setdefault(reason, []), line)
            return
        counts["sequences"] += 1
        counts["tokens"] += len(ids)
        counts["target_tokens"] += targets
        counts["max_sequence_tokens"] = max(counts["max_sequence_tokens"],
                                            len(ids))
        counts["max_token_id"] = max(counts["max_token_id"], *ids)
        self.files["tokens.u32"].write(array.array("I", ids))
        self.files["labels.u8"].write(bytes(first_target) + b"\1" * targets)
        self.files["offsets.u64"].write(array.array("Q", [counts["tokens"]]))
        self.files["lines.u32"].write(array.array("I", [line]))

    def publish(self):
        return {name: file.publish() for name, file in self.files.items()}


def name_line(lines, line):
    if len(lines) < NAMED_LINES:
        lines.append(line)


# --- The bigram baseline -----------------------------------------------------


class Bigram:
    """A count model of the next token from the last one alone.

    P(c | p) = (n(p,c) + b U(c)) / (n(p) + b), U(c) = (n(c) + a) / (N + a V):
    counts smoothed by b pseudo-counts of the unigram, which is smoothed by a
    of each of the V ids (MacKay and Peto's hierarchical Dirichlet model).
    Only targets count, as only they are scored.
    """

    def __init__(self, vocab_size, pairs):
        """pairs: a Counter of (token before, target)."""
        self.vocab_size = vocab_size
        self.pairs = pairs
        self.befores = collections.Counter()
        self.tokens = collections.Counter()
        for (before, token), count in pairs.items():
            self.befores[before] += count
            self.tokens[token] += count
        self.total = sum(self.tokens.values())

    def nll(self, scored, smoothing):
        """Sum of -log P in nats over a Counter of (token before, target);
        smoothing is (a, b)."""
        a, b = smoothing
        floor = self.total + a * self.vocab_size
        loss = 0.0
        for (before, token), count in scored.items():
            unigram = (self.tokens[token] + a) / floor
            chance = ((self.pairs[before, token] + b * unigram) /
                      (self.befores[before] + b))
            loss -= count * math.log(chance)
        return loss


# The first is taken where there are too few sequences to hold any out.
SMOOTHINGS = tuple(itertools.product(
    (0.1, 0.01, 1.0, 10.0), (3.0, 0.1, 0.3, 1.0, 10.0, 30.0, 100.0)))


def fit_bigram(folder, manifest):
    """The bigram model of a prepared train split, and the smoothing of
    SMOOTHINGS with which every tenth sequence is predicted best from the
    others."""
    kept, held_out = collections.Counter(), collections.Counter()
    seen = 0
    for index, pairs in enumerate(target_pairs(folder, manifest)):
        seen += len(pairs)
        if index and seen > BIGRAM_TOKENS:
            break
        last = index % BIGRAM_HELD_OUT == BIGRAM_HELD_OUT - 1
        (held_out if last else kept).update(pairs)
    model = Bigram(manifest["vocab_size"], kept)
    smoothing = min(SMOOTHINGS, key=lambda s: model.nll(held_out, s))
    return Bigram(manifest["vocab_size"], kept + held_out), smoothing


def bigram_record(train_folder, folder, manifest):
    train = read_manifest(train_folder)
    for name in ("tokenizer_sha256", "vocab_size"):
        if train[name] != manifest[name]:
            raise DataError(f"--bigram-from was made with another {name}",
                            train_folder)
    model, smoothing = fit_bigram(train_folder, train)
    scored = collections.Counter()
    for pairs in target_pairs(folder, manifest):
        scored.update(pairs)
    return {"bigram_loss": model.nll(scored, smoothing) / scored.total(),
            "bigram": {"unigram_pseudo_count": smoothing[0],
                       "bigram_pseudo_count": smoothing[1],
                       "train_tokens": model.total}}


def read_manifest(folder):
    path = os.path.join(folder, "manifest.json")
    manifest = read_json_object(path)
    if manifest is None:
        raise DataError("there is no manifest.json", folder)
    if manifest.get("format_version") != FORMAT_VERSION:
        raise DataError(f"format_version is not {FORMAT_VERSION}", path)
    return manifest


def mapped(folder, name, code, manifest):
    path = os.path.join(folder, name)
    wanted = manifest["files"][name]["bytes"]
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size != wanted:
            raise DataError(f"is not {wanted} bytes long", path)
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return memoryview(data).cast(code)


def target_pairs(folder, manifest):
    """Per sequence the list of its (token before, target)."""
    tokens = mapped(folder, "tokens.u32", "I", manifest)
    labels = mapped(folder, "labels.u8", "B", manifest)
    offsets = mapped(folder, "offsets.u64", "Q", manifest)
    for start, end in itertools.pairwise(offsets):
        ids = tokens[start:end].tolist()
        yield list(itertools.compress(itertools.pairwise(ids),
                                      labels[start + 1:end]))


# --- The command -------------------------------------------------------------


class Progress:
    """At most 101 lines, one per hundredth of the input."""

    def __init__(self, total):
        self.total = total
        self.last = -1

    def at(self, done):
        hundredth = 100 * done // max(self.total, 1)
        if hundredth > self.last:
            self.last = hundredth
            print(json.dumps({"progress": done, "total": self.total}),
                  flush=True)


def prepare(options):
    encoder = Encoder(options.tokenizer)
    reader = Reader(options.data, options.data_name or options.data)
    out = Sequences(options.out, options.max_length)
    progress = Progress(reader.total)
    for rows in reader.batches():
        for row, encoded in zip(rows, encoder.encode(rows)):
            out.add(row.line, *encoded)
        progress.at(reader.bytes_read)
    if not reader.rows:
        raise DataError("the dataset is empty", reader.name)
    if not out.counts["sequences"]:
        raise DataError(
            f"none of the {reader.rows} rows has a target token within "
            f"max_length {options.max_length}", reader.name)
    manifest = {
        "format_version": FORMAT_VERSION, "split": options.split,
        "format": reader.format, "rows": reader.rows, **out.counts,
        "vocab_size": encoder.vocab_size, "eos_token_id": encoder.eos_id,
        "ignored_fields": dict(sorted(reader.ignored.items())),
        "tokenizer_sha256": encoder.sha256,
        "data_sha256": reader.hash.hexdigest(),
        "options": {"max_length": options.max_length, "split": options.split},
        "files": out.publish(),
    }
    if options.bigram_from:
        manifest |= bigram_record(options.bigram_from, options.out, manifest)
    file = Output(options.out, "manifest.json")
    file.write(json.dumps(manifest, indent=1).encode() + b"\n")
    sync_folder(options.out)
    file.publish()
    sync_folder(options.out)
    progress.at(reader.bytes_read)


def parse_options(arguments):
    parser = argparse.ArgumentParser(prog="prepare.py", allow_abbrev=False)
    for name in ("tokenizer", "data", "out", "bigram-from", "data-name"):
        parser.add_argument("--" + name)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--split", choices=("train", "validation"))
    parser.add_argument("--options")
    options = parser.parse_args(arguments)
    if options.options is not None:
        merge_json_options(parser, options)
    for name in ("tokenizer", "data", "out", "max_length", "split"):
        if getattr(options, name) is None:
            parser.error(f"{name} is missing")
    if not 2 <= options.max_length < 1 << 31:
        parser.error("max_length must be from 2 to 2147483647")
    return options


def merge_json_options(parser, options):
    text = sys.stdin.read() if options.options == "-" else options.options
    try:
        given = json.loads(text, object_pairs_hook=unique_object)
    except ValueError as error:
        parser.error(f"--options: {error}")
    if not isinstance(given, dict):
        parser.error("--options must be a JSON object")
    for name, value in given.items():
        if name == "options" or not hasattr(options, name):
            parser.error(f"--options: unknown setting {name!r}")
        if getattr(options, name) is not None:
            parser.error(f"{name} is given twice")
        wanted = int if name == "max_length" else str
        if type(value) is not wanted:
            parser.error(f"--options: {name} is {json_type(value)}")
        if name == "split" and value not in ("train", "validation"):
            parser.error(f"--options: split {value!r} is not train or "
                         "validation")
        setattr(options, name, value)


def main(arguments):
    options = parse_options(arguments)
    try:
        prepare(options)
    except DataError as error:
        print(error.as_json(), file=sys.stderr)
        return 3
    except OSError as error:
        record = {"error": f"input or output failed: {error.strerror}",
                  "file": str(error.filename or options.out),
                  "errno": error.errno}
        print(json.dumps(record), file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
