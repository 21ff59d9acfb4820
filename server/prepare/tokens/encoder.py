"""Rows to token ids and labels, and back to text for people to look at."""

import bisect
import collections
import contextlib
import datetime
import functools
import itertools
import json
import os
import re

from common.limits import BATCH_SECONDS, TOKENIZER_SECONDS, allow_cpu
from common.reporting import OUR_EXITS, DataError, refusal, speaker
from rows.formats import AlpacaRow, ChatRow, alpaca_chat, alpaca_text
from rows.messages import arguments_of, decoded_calls, messages_in_text
from tokens.notes import Notes
from tokens.template import contents, load_template
from tokens.tokenizer import (find_eos, listed_ends, load_tokenizer,
                              model_rows, special_ids, special_pattern,
                              without_post_processor)

# A text of more letters is tokenized alone, and said before.
LARGE_LETTERS = 1 << 19

# Where other tools put what they read beside the text; closed, it is a page's.
MEDIA_MARK = re.compile(r"<(image|video|audio)>")

# labels: per token 1 when it is a target. dropped: why there is no sequence.
Encoded = collections.namedtuple("Encoded", "line ids labels merged dropped")


class Encoder:
    """A Hugging Face tokenizer directory, ready to encode whole rows."""

    def __init__(self, folder, today=None):
        self.folder = folder
        self.today = today or datetime.date.today()
        self.path = os.path.join(folder, "tokenizer.json")
        allow_cpu(TOKENIZER_SECONDS)
        try:
            self._load()
        except BaseException as error:  # a panic of tokenizers' is no Exception
            raise refusal(error, self.path, None,
                          "reading the tokenizer") from error
        self.notes = Notes()
        self.line_ends = {}  # ids of tokens -> whether they end a line
        self.turn_ends = {}  # ids that trained turns end with: first line
        self.place = lambda line: (None, line)  # its file, and line there

    def _load(self):
        self.tokenizer, self.sha256 = load_tokenizer(self.path)
        self.vocab_size = self.tokenizer.get_vocab_size(with_added_tokens=True)
        self.eos_id = find_eos(self.folder, self.tokenizer)
        self.special_ids = special_ids(self.tokenizer)
        self.model_rows = model_rows(self.folder)

    @functools.cached_property
    def template(self):
        return load_template(self.folder, self.today)

    def asks_for_date(self):
        """Whether what is encoded may depend on `today`."""
        try:
            return self.template is not None and self.template.asks_for_date()
        except DataError:
            return False  # reported where the template is needed

    def used_template(self):
        return bool(getattr(vars(self).get("template"), "used", None))

    @functools.cached_property
    def plain(self):
        return self.derived(without_post_processor)

    @functools.cached_property
    def special(self):
        return self.derived(special_pattern)

    def derived(self, make):
        try:
            return make(self.tokenizer)
        except BaseException as error:
            raise refusal(error, self.path, None,
                          "reading the tokenizer") from error

    def encode(self, rows):
        """Per row, all of one format, an Encoded."""
        if isinstance(rows[0], AlpacaRow):
            convert = alpaca_chat if self.template else alpaca_text
            rows = [self.by_line(convert, row) for row in rows]
        if isinstance(rows[0], ChatRow):
            return self.encode_chats(rows)
        return self.encode_texts(rows)

    @staticmethod
    def by_line(convert, row):
        try:
            return convert(row)
        except ValueError as error:
            raise DataError(str(error), None, row.line) from error

    def check_ids(self, sequence):
        """A token that the model has no row for fails the job."""
        most = max(sequence.ids, default=0)
        if self.model_rows is not None and most >= self.model_rows:
            raise DataError(
                f"has the token {self.tokenizer.id_to_token(most)!r} with the "
                f"id {most}, the model's vocab_size is {self.model_rows} "
                "(config.json): the tokenizer is another model's, or the "
                "model must be made larger for it", None, sequence.line)

    def tokenized(self, rows, texts, tokenize):
        """What `tokenize` makes of the rows' texts; a text that it cannot take
        is named by its row."""
        allow_cpu(BATCH_SECONDS)
        if all(len(text) <= LARGE_LETTERS for text in texts):
            try:
                return tokenize(texts)
            except BaseException as error:  # a panic is no Exception
                if isinstance(error, OUR_EXITS):
                    raise
        # One of them is at fault, or large.
        found = []
        for row, text in zip(rows, texts):
            large = len(text) > LARGE_LETTERS
            if large:
                self.say_at("tokenizing its text", row.line)
            try:
                found += tokenize([text])
            except BaseException as error:
                raise refusal(error, None, row.line,
                              "tokenizing its text") from error
            if large:
                self.say_at("reading what follows it", row.line)
        return found

    def say_at(self, doing, line):
        file, line = self.place(line)
        speaker.at(doing, line, file)

    # Text.

    def ids(self, rows, texts):
        return self.tokenized(rows, texts, lambda some: [
            e.ids for e in self.tokenizer.encode_batch_fast(some)])

    def encode_texts(self, rows):
        texts = [row.prompt + row.completion for row in rows]
        for row, text in zip(rows, texts):
            self.look_for_marks(row.line, [text])
        whole = self.ids(rows, texts)
        prompted = [row for row in rows if row.has_prompt]
        alone = iter(self.ids(prompted, [row.prompt for row in prompted]))
        for row, ids in zip(rows, whole):
            first, merged = 1, False
            if row.has_prompt:
                prompt = next(alone)
                first = common_prefix(prompt, ids)
                merged = first < min(len(prompt), len(ids))
                first = max(first, 1)
            if len(ids) > 1 and ids[0] == ids[1] and ids[0] in \
                    self.special_ids:
                self.notes.add("two_begins", row.line,
                               self.tokenizer.id_to_token(ids[0]))
            if any(map(messages_in_text, (row.prompt, row.completion))):
                self.notes.add("messages_as_text", row.line)
            if not ids or ids[-1] != self.eos_id:
                ids.append(self.eos_id)
            labels = bytes(first) + b"\1" * (len(ids) - first)
            yield Encoded(row.line, ids, labels, merged, None)

    # Chats.

    def encode_chats(self, rows):
        rendered = [self.render(row) for row in rows]
        texts = [text for text, _ in rendered]
        encodings = self.tokenized(
            rows, texts, lambda some: self.plain.encode_batch(
                some, add_special_tokens=False))
        for row, (_, spans), encoding in zip(rows, rendered, encodings):
            yield self.masked(row, spans, encoding)

    def render(self, row):
        """The conversation's text and the spans of its trained turns, None
        where they cannot be told."""
        if self.template is None:
            raise DataError(
                "the data is conversations, and the model has no chat "
                "template: no chat_template.jinja, and no chat_template in "
                "tokenizer_config.json or chat_template.json; add one, or "
                "give rows of 'text' or of 'prompt' and 'completion'",
                self.folder)
        try:
            text, spans = self.write(row)
        except ValueError as error:
            raise DataError(str(error), None, row.line) from error
        self.look_at(row, text)
        return text, spans

    def write(self, row):
        """As render. Arguments of tool calls are objects for the template;
        one that fails on those, or writes them as Python, wants what is
        there."""
        messages = decoded_calls(row.messages)
        if messages is not None:
            with contextlib.suppress(ValueError):
                found = self.template.render(messages, row.tools, row.trained,
                                             row.variables)
                if not any(value and str(value) in found[0]
                           for value in arguments_of(messages)):
                    self.notes.add("tool_arguments", row.line)
                    return found
        return self.template.render(row.messages, row.tools, row.trained,
                                    row.variables)

    def look_at(self, row, text):
        """Notes what the row has that is rarely meant."""
        said = contents(row.messages)
        self.look_for_marks(row.line, said)
        if any(map(self.special.search, said)):
            self.notes.add("control_tokens", row.line)
        if not all(is_written(one, text) for one in said):
            self.notes.add("text_left_out", row.line)
        unread = self.template.unread_fields(row.messages, row.tools)
        if unread:
            self.notes.add("unread_fields", row.line, *unread)

    def look_for_marks(self, line, texts):
        marks = {found[0] for text in texts
                 for found in MEDIA_MARK.finditer(text)
                 if f"</{found[1]}>" not in text}
        if marks:
            self.notes.add("media_marks", line, *sorted(marks))

    def masked(self, row, spans, encoding):
        if spans is None:
            marked = self.template.markers_in(row.messages)
            reason = "turn_markers_in_text" if marked else "turns_not_found"
            return Encoded(row.line, [], b"", False, reason)
        if not row.trained and not spans:
            return Encoded(row.line, [], b"", False, "no_assistant_message")
        labels, merged = span_labels(spans, encoding.offsets)
        end = self.last_special(encoding.ids, labels)
        if end is not None:
            self.turn_ends.setdefault(end, row.line)
        return Encoded(row.line, encoding.ids, labels, merged, None)

    def last_special(self, ids, labels):
        """The special token that the last trained turn ends with, a line break
        behind it or none."""
        last = labels.rfind(b"\1")
        for at in range(last, max(last - 2, -1), -1):
            if ids[at] in self.special_ids and labels[at]:
                return ids[at]
            if self.tokenizer.decode([ids[at]]).strip():
                break
        return None

    def template_ends(self):
        """Ids that the template ends the assistant's turns with."""
        if self.template is None:
            return set()
        turns = [{"role": "user", "content": "a"},
                 {"role": "assistant", "content": "b"}]
        try:
            text, spans = self.template.render(turns, None, [True])
            encoding = self.plain.encode(text, add_special_tokens=False)
        except (ValueError, DataError):
            return set()  # no turn can be told, or it refuses this one
        labels, _ = span_labels(spans or [], encoding.offsets)
        end = self.last_special(encoding.ids, labels)
        return set() if end is None else {end}

    def unlisted_ends(self):
        """{id: first line} of ends of turns that the model's files do not name
        as ends."""
        listed = (listed_ends(self.folder, "generation_config.json") or
                  listed_ends(self.folder, "config.json") or {self.eos_id})
        return {end: line for end, line in self.turn_ends.items()
                if end not in listed}

    # What was noted of rows, from one process to another.

    def take_noted(self):
        """What was noted since the last call, for add_noted."""
        used = self.template.noted() if self.used_template() else None
        noted = self.notes, self.turn_ends, used
        self.notes, self.turn_ends = Notes(), {}
        return noted

    def add_noted(self, noted):
        """Takes what was noted of rows that follow those noted here."""
        notes, turn_ends, used = noted
        self.notes.add_all(notes)
        for end, line in turn_ends.items():
            self.turn_ends.setdefault(end, line)
        if used is not None:
            self.template.add_noted(used)

    def warnings(self):
        found = self.notes.warnings()
        ends = Notes()
        for end, line in self.unlisted_ends().items():
            ends.add("turn_ends", line, self.tokenizer.id_to_token(end))
        return found + ends.warnings()

    def ends_line(self, token_id):
        """Whether the token's text ends with a line's end."""
        known = self.line_ends.get(token_id)
        if known is None:
            known = self.tokenizer.decode(
                [token_id], skip_special_tokens=False).endswith("\n")
            self.line_ends[token_id] = known
        return known

    # For people.

    def spans(self, ids, labels):
        """The decoded sequence cut where trained and untrained text meet."""
        whole = self.tokenizer.decode(ids, skip_special_tokens=False)
        spans, start, end = [], 0, 0
        for label, run in itertools.groupby(labels):
            end += len(list(run))
            before = self.tokenizer.decode(ids[:end],
                                           skip_special_tokens=False)
            # A token may end inside of a character.
            stop = max(start, len(os.path.commonprefix([whole, before])))
            stop = len(whole) if end == len(ids) else stop
            if stop > start:
                spans.append({"text": whole[start:stop],
                              "trained": bool(label)})
            start = stop
        return spans


def common_prefix(a, b):
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:
        return shorter
    return next(i for i in range(shorter) if a[i] != b[i])


def span_labels(spans, offsets):
    """Per token 1 where it has a character of a span; and whether one has a
    character outside as well."""
    labels = bytearray(len(offsets))
    merged = False
    starts = [start for start, _ in offsets]
    ends = [end for _, end in offsets]
    for start, end in spans:
        first = bisect.bisect_right(ends, start)
        last = bisect.bisect_left(starts, end)
        if first < last:
            labels[first:last] = b"\1" * (last - first)
            merged |= starts[first] < start or ends[last - 1] > end
    if labels:
        labels[0] = 0  # nothing stands before it
    return bytes(labels), merged


def is_written(text, whole):
    """Whether a message's text is in the conversation's, but for white space,
    as it is or within JSON."""
    text = text.strip()
    if text in whole:
        return True
    whole = "".join(whole.split())
    inside = json.dumps(text, ensure_ascii=False)[1:-1]
    return any("".join(one.split()) in whole
               for one in (text, inside))
