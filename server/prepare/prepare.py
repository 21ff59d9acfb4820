"""Tokenises one dataset file for training: rows in, mapped arrays out.

The daemon starts this as a short-lived child, once per dataset and split:

    prepare.py --tokenizer DIR --data FILE... --out DIR --max-length N
               --split train|validation [--bigram-from TRAIN_OUT_DIR]
               [--truncation right|left|drop|split] [--packing] [--seed N]
               [--format NAME] [--columns JSON] [--max-samples N]
               [--validation-split SHARE]
               [--template-date YYYY-MM-DD] [--cache DIR]
               [--data-name NAME] [--options JSON|-] [--processes N]

For people, who get no files but JSON on standard output:

    prepare.py --tokenizer DIR --data FILE --max-length N --preview N
    prepare.py --tokenizer DIR --data FILE --max-length N --validate

--options gives the same settings (underscores for dashes) as one JSON object,
'-' reads it from standard input; a setting given both ways is an error.
--data may be given several times, for files whose rows follow each other;
--data-name, once for each, is what messages call the file, where FILE is a
descriptor's path.

--processes says how many tokenise beside this one, which reads and writes
(prepare_processes.py); the output is the same for any number.

--max-samples reads the first rows alone. --validation-split holds out that
share of them, by --seed: --split validation reads those, train the others.
--format says what rows are where they could be several things, --columns, a
JSON object {our name: the file's}, what their fields are called.

Input: JSON Lines, a JSON array, CSV, TSV or Parquet (rows/sources.py), all
rows of one format (rows/formats.py; docs/datasets.md for users): text,
prompt/completion, messages, conversations, instruction/output. Fields that the
format does not know are counted.

Tokens of text.  The tokenizer's own special tokens are kept; the
end-of-sequence token is appended where the sequence does not end with it. A
prompt row is tokenised as the one string prompt + completion, so its ids are
always those of the whole text. Its targets start where they first differ from
the ids of the prompt alone: normally the prompt's length; where the tokenizer
merges characters of both sides into one token, that token is a target
(counted, boundary_merged), so that no character of the completion goes
untrained.

Tokens of conversations.  The model's own chat template writes the whole
conversation once; its text is tokenised as it is, nothing added. Targets are
the tokens that have a character of a trained turn (tokens/template.py).

The first token of a sequence is never a target. A sequence longer than
max_length loses its right end (--truncation left: its left end; drop: it is
dropped; split, of text alone: it becomes several, cut at line ends). Sequences
without a target are dropped and named.

--packing puts whole sequences together into rows of at most max_length tokens
(prepare_output.py), chosen by --seed; without it a row is one sequence.

Output in --out, each written under a temporary name, synced and renamed, the
manifest last; all integers little-endian; sequences in the order of rows:
  tokens.u32    ids of all sequences, one after the other
  labels.u8     per token 1 when it is a target (there is a loss on predicting
                it from the tokens before), else 0
  offsets.u64   sequences + 1 offsets into tokens, in tokens
  lines.u32     per sequence its line (of an array its element, of Parquet its
                row) in the input, from 1; files are numbered through
  rows.u64      only with --packing: rows + 1 offsets into the sequences
  manifest.json counts, truncations, drops, warnings, hashes (of the other files
                and, first, of itself: base/files/sealed_json.h), options

The manifest's key is a hash of all that the output depends on. Where --out has
a whole split with the same key already, it is left as it is; otherwise one in
the --cache folder is linked into --out, and what is made new is linked there
(prepare_cache.py).

Standard output, one JSON object a line: {"progress": done, "total": all}, in
bytes of the files; {"warning", "kind", "rows", "lines"}; {"reused": key}
instead of work; {"still": doing} after SILENT_SECONDS of silence; last
{"samples"} of --preview, {"report"} of --validate. Errors: one JSON line
{"error", "file"?, "line"?} on standard error. Exit status: 0 done, 2 usage, 3
bad dataset or tokenizer, 4 the output could not be written.

Memory is bounded by one batch, with --packing by one window, and with
--bigram-from by the number of distinct pairs of neighbouring tokens in the
validation split and the first BIGRAM_TOKENS of the train split. The same input
gives the same bytes.
"""

import json
import os
import sys

from common.disk import seal
from common.limits import HASHING_SECONDS, allow_counting, allow_cpu, confine
from common.reporting import DataError, refusal, speaker
from prepare_bigram import bigram_record
from prepare_cache import Cache, content_key, prepared_files
from prepare_options import choice, parse_options, settings
from prepare_output import (FORMAT_VERSION, Arrays, NoArrays, NoPacker, Packer,
                            Sequences, read_manifest, write_manifest)
from prepare_processes import Batch, encode_batches
from rows.dataset import open_reader
from tokens.encoder import Encoder

assert sys.byteorder == "little", "the output is this machine's own byte order"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# A preview looks at no more rows for a batch, of which few may be held out.
PREVIEW_ROWS = 20000


# --- One dataset -------------------------------------------------------------


class Progress:
    """Says each hundredth of the input."""

    def __init__(self):
        self.last = -1

    def at(self, done, total):
        hundredth = 100 * done // max(total, 1)
        if hundredth > self.last:
            self.last = hundredth
            speaker.say(progress=done, total=total)
        speaker.still("reading")


class Preparation:
    """One pass over the rows of a file."""

    def __init__(self, options):
        self.options = options
        self.encoder = Encoder(options.tokenizer, options.template_date)
        # The daemon waits less long for the first word than for later ones.
        speaker.say(still="the tokenizer is read")
        self.reader = open_reader(
            options.data, options.data_name or options.data, choice(options))
        self.encoder.place = self.reader.place

    def sequences(self, arrays):
        """A Sequences over these arrays, as the options say."""
        options = self.options
        packer = (Packer(options.max_length, options.seed) if options.packing
                  else NoPacker())
        return Sequences(options.max_length, options.truncation, packer,
                         arrays, self.encoder.ends_line)

    def encoded(self):
        """(Encoded of some rows, how far in the files these are); errors carry
        the file and line."""
        try:
            yield from encode_batches(self.encode, self.encoder,
                                      self.batches(), self.options.processes)
        except DataError as error:
            raise self.placed(error) from error

    def batches(self):
        few = PREVIEW_ROWS if self.options.preview is not None else None
        for rows, size in self.reader.batches(few):
            self.check_may_be_split(rows)
            yield Batch(rows, size, self.reader.done)

    def encode(self, rows):
        try:
            return list(self.encoder.encode(rows))
        except MemoryError as error:
            raise refusal(error, *self.reader.place(rows[0].line),
                          "reading the rows from here") from error

    def placed(self, error):
        """The error with its file and its line there."""
        if error.file is None and error.line is not None:
            error.file, error.line = self.reader.place(error.line)
        error.file = error.file or self.reader.name
        return error

    def keep(self, sequences, sequence):
        """What is kept of it, which the model has a row for each token of."""
        kept = sequences.add(sequence)
        try:
            for part in kept:
                self.encoder.check_ids(part)
        except DataError as error:
            raise self.placed(error) from error
        return kept

    def check_may_be_split(self, rows):
        if self.options.truncation == "split" and \
                self.reader.format.name != "text":
            raise DataError(
                "truncation: split makes several rows of a long 'text'; these "
                f"rows are {self.reader.format.name}: take right, left or drop",
                *self.reader.place(rows[0].line))

    def run(self, sequences):
        progress = Progress()
        for batch, done in self.encoded():
            for sequence in batch:
                self.keep(sequences, sequence)
            progress.at(done, self.reader.total)
        allow_cpu(HASHING_SECONDS)
        sequences.finish()
        self.check_not_empty(sequences)
        for warning in self.warnings(sequences.counts):
            speaker.say(**warning)

    def warnings(self, counts):
        """The encoder's; of several files with the places of their lines, and
        of the rows that were dropped or cut and the files not read."""
        found = self.encoder.warnings() + self.reader.warnings()
        if len(self.options.data) < 2:
            return found
        return self.placed_warnings(found + self.cut(counts))

    def all_warnings(self, counts):
        """The same for who gets no counts: also of one file's rows that were
        dropped or cut, and of fields that are not used."""
        unused = [{"kind": "ignored_fields", "rows": rows, "lines": [],
                   "warning": f"the field {name!r}, in {row_count(rows)}, is "
                   "not used"} for name, rows in self.reader.ignored.items()]
        found = (self.encoder.warnings() + self.reader.warnings() + unused +
                 self.cut(counts))
        return (self.placed_warnings(found) if len(self.options.data) > 1 else
                found)

    def placed_warnings(self, found):
        return [{**one, "places": self.reader.places(one["lines"])}
                for one in found]

    def cut(self, counts):
        """Warnings of rows that were dropped or cut."""
        found = [("truncated", "cut at max_length", counts["truncated"],
                  counts["truncated_lines"])]
        found += [("dropped", f"dropped, {reason}", rows,
                   counts["dropped_lines"][reason])
                  for reason, rows in counts["dropped"].items()]
        return [{"kind": kind, "rows": rows, "lines": list(lines),
                 "warning": f"{row_count(rows)} {'is' if rows == 1 else 'are'} "
                 f"{what}"}
                for kind, what, rows, lines in found if rows]

    def check_not_empty(self, sequences):
        if not self.reader.rows and self.reader.seen:
            seen = self.reader.seen
            share = "" if seen == 1 else "a larger validation_split, or "
            raise DataError(
                f"there {'is' if seen == 1 else 'are'} {row_count(seen)}: too "
                f"few to hold some out; give {share}a validation_dataset",
                self.reader.name)
        if not self.reader.rows:
            raise DataError("the dataset is empty", self.reader.name)
        if not sequences.counts["sequences"]:
            line, reason = sequences.first_dropped
            if sequences.counts["dropped"] == {
                    "no_assistant_message": self.reader.rows}:
                raise DataError("no row has a message of the assistant, so "
                                "there is nothing to train; this is the first",
                                *self.reader.place(line))
            remedy = self.remedy_for(sequences.counts["dropped"])
            if remedy is not None:
                raise DataError(remedy, *self.reader.place(line))
            raise DataError(
                f"none of the {self.reader.rows} rows has a target token "
                f"within max_length {self.options.max_length}; this is the "
                f"first, dropped for {reason}", *self.reader.place(line))

    def remedy_for(self, dropped):
        """What to do where max_length alone leaves nothing to train."""
        rows, most = self.reader.rows, self.options.max_length
        all_rows = "the only row" if rows == 1 else f"all {rows} rows"
        if dropped == {"no_target_tokens": rows}:
            return (f"max_length {most} cuts off all that is trained, in "
                    f"{all_rows}: give a larger one")
        if dropped == {"too_long": rows}:
            return (f"truncation: drop leaves out {all_rows}, longer than "
                    f"max_length {most}: give a larger one, or take right or "
                    "left")
        return None

    def record(self, sequences):
        """What is known of the dataset after the pass."""
        encoder, reader = self.encoder, self.reader
        record = {
            "format": reader.format.name, "rows": reader.rows,
            **sequences.counts,
            "ignored_fields": dict(sorted(reader.ignored.items())),
            "warnings": self.warnings(sequences.counts),
            "vocab_size": encoder.vocab_size, "eos_token_id": encoder.eos_id,
            "tokenizer_sha256": encoder.sha256,
            "data_sha256": reader.sha256(), "options": settings(self.options)}
        if self.options.packing:
            record |= {"packed_rows": sequences.rows,
                       "max_row_tokens": sequences.max_row_tokens}
        if len(self.options.data) > 1:
            record["inputs"] = [
                {"name": name, "lines_before": before} for name, before in
                zip(self.reader.short_names, self.reader.starts)]
        if encoder.used_template():
            record["template"] = encoder.template.record()
            record["turn_end_ids"] = sorted(encoder.unlisted_ends())
        return record


def row_count(rows):
    return "1 row" if rows == 1 else f"{rows} rows"


# --- Modes -------------------------------------------------------------------


def prepare(options):
    preparation = Preparation(options)
    preparation.reader.check_start()
    key = split_key(preparation)
    total = preparation.reader.total
    if reuse(options, key):
        speaker.say(reused=key)
        speaker.say(progress=total, total=total)
        return
    arrays = Arrays(options.out, options.packing)
    sequences = preparation.sequences(arrays)
    preparation.run(sequences)
    manifest = {"format_version": FORMAT_VERSION, "key": key,
                "split": options.split, **preparation.record(sequences)}
    if manifest["data_sha256"] != preparation.data_sha256:
        raise DataError("the file changed while it was read",
                        preparation.reader.name)
    manifest["files"] = arrays.publish()
    shared = options.cache and preparation.reader.hashed_as_read()
    if options.bigram_from:
        del preparation, sequences
        allow_counting()
        manifest |= bigram_record(options.bigram_from, options.out, manifest)
    write_manifest(options.out,
                   seal(json.dumps(manifest, indent=1).encode() + b"\n"))
    if shared:
        Cache(options.cache).add(key, options.out)
    Progress().at(total, total)


def split_key(preparation):
    """The content key of what this preparation gives."""
    options = preparation.options
    allow_cpu(HASHING_SECONDS)
    preparation.data_sha256 = preparation.reader.sha256_now()
    depends = settings(options) | {"files": preparation.reader.described()}
    if preparation.encoder.asks_for_date():
        depends["template_date"] = preparation.encoder.today.isoformat()
    if options.bigram_from:
        depends["bigram_from"] = read_manifest(options.bigram_from)["files"]
    return content_key(preparation.data_sha256, options.tokenizer, depends)


def reuse(options, key):
    """Whether --out has the split now without any work."""
    if prepared_files(options.out, key) is not None:
        return True
    return bool(options.cache) and Cache(options.cache).take(key, options.out)


def validate(options):
    preparation = Preparation(options)
    sequences = preparation.sequences(NoArrays())
    preparation.run(sequences)
    speaker.say(report=preparation.record(sequences))


def preview(options):
    """The first rows that are kept, as they are trained, and how many rows
    were looked at for them, with their warnings: `whole`, when there are no
    more."""
    preparation = Preparation(options)
    sequences = preparation.sequences(NoArrays())
    samples, rows, warnings, whole = [], 0, [], True
    for batch, _ in preparation.encoded():
        if len(samples) >= options.preview:
            whole = False
            break
        for sequence in batch:
            for kept in preparation.keep(sequences, sequence):
                if len(samples) < options.preview:
                    samples.append(sample(preparation, kept))
        rows = preparation.reader.rows
        warnings = preparation.all_warnings(sequences.counts)
    preparation.check_not_empty(sequences)
    speaker.say(format=preparation.reader.format.name, samples=samples,
                rows=rows, whole=whole, warnings=warnings)


def sample(preparation, sequence):
    spans = preparation.encoder.spans(sequence.ids, sequence.labels)
    found = {"line": sequence.line, "tokens": len(sequence.ids),
             "target_tokens": sequence.labels.count(1), "spans": spans}
    if len(preparation.options.data) > 1:
        found["place"], = preparation.reader.places([sequence.line])
    return found


# --- The command -------------------------------------------------------------


def main(arguments):
    options = parse_options(arguments)
    mode = (preview if options.preview is not None else
            validate if options.validate else prepare)
    try:
        mode(options)
    except (DataError, MemoryError) as error:
        print(refusal(error, options.data[0]).as_json(), file=sys.stderr)
        return 3
    except OSError as error:
        record = {"error": f"input or output failed: {error.strerror}",
                  "file": str(error.filename or options.out),
                  "errno": error.errno}
        print(json.dumps(record), file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    confine()
    sys.exit(main(sys.argv[1:]))
