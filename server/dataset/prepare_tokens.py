"""Rows to token ids and labels, and back to text for people to look at."""

import bisect
import collections
import datetime
import functools
import hashlib
import itertools
import os
import re

from prepare_common import (OUR_EXITS, DataError, name_line, refusal,
                            speaker)
from prepare_files import (MAX_TOKENIZER_BYTES, read_json_object,
                           read_regular)
from prepare_formats import AlpacaRow, ChatRow, alpaca_chat, alpaca_text
from prepare_limits import BATCH_SECONDS, TOKENIZER_SECONDS, allow_cpu
from prepare_template import contents, load_template

# A text of more letters is tokenized alone, and said before.
LARGE_LETTERS = 1 << 19

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
        self.control_tokens = {"rows": 0, "lines": []}

    def _load(self):
        from tokenizers import Tokenizer

        data = read_regular(self.path, MAX_TOKENIZER_BYTES)
        if data is None:
            raise DataError("unreadable tokenizer: there is no such file",
                            self.path)
        self.sha256 = hashlib.sha256(data).hexdigest()
        try:
            self.tokenizer = Tokenizer.from_buffer(data)
        except MemoryError:
            raise
        except Exception as error:  # tokenizers raises bare Exception
            raise DataError(f"unreadable tokenizer: {error}",
                            self.path) from error
        # Settings of whoever saved the file; rows are cut and padded later.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocab_size = self.tokenizer.get_vocab_size(with_added_tokens=True)
        self.eos_id = find_eos(self.folder, self.tokenizer)

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
            rows = [convert(row) for row in rows]
        if isinstance(rows[0], ChatRow):
            return self.encode_chats(rows)
        return self.encode_texts(rows)

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
                speaker.at("tokenizing its text", row.line)
            try:
                found += tokenize([text])
            except BaseException as error:
                raise refusal(error, None, row.line,
                              "tokenizing its text") from error
            if large:
                speaker.at("reading what follows it", row.line)
        return found

    # Text.

    def ids(self, rows, texts):
        return self.tokenized(rows, texts, lambda some: [
            e.ids for e in self.tokenizer.encode_batch_fast(some)])

    def encode_texts(self, rows):
        whole = self.ids(rows, [row.prompt + row.completion for row in rows])
        prompted = [row for row in rows if row.has_prompt]
        alone = iter(self.ids(prompted, [row.prompt for row in prompted]))
        for row, ids in zip(rows, whole):
            first, merged = 1, False
            if row.has_prompt:
                prompt = next(alone)
                first = common_prefix(prompt, ids)
                merged = first < min(len(prompt), len(ids))
                first = max(first, 1)
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
        self.look_for_control_tokens(row)
        try:
            return self.template.render(row.messages, row.tools, row.trained)
        except ValueError as error:
            raise DataError(str(error), None, row.line) from error

    def look_for_control_tokens(self, row):
        if any(map(self.special.search, contents(row.messages))):
            self.control_tokens["rows"] += 1
            name_line(self.control_tokens["lines"], row.line)

    def masked(self, row, spans, encoding):
        if spans is None:
            marked = self.template.markers_in(row.messages)
            reason = "turn_markers_in_text" if marked else "turns_not_found"
            return Encoded(row.line, [], b"", False, reason)
        labels, merged = span_labels(spans, encoding.offsets)
        return Encoded(row.line, encoding.ids, labels, merged, None)

    def warnings(self):
        rows = self.control_tokens["rows"]
        if not rows:
            return []
        return [{"kind": "control_tokens", **self.control_tokens,
                 "warning": f"{rows} rows have special tokens of the tokenizer "
                            "in the text of a message; the model reads them "
                            "as control tokens"}]

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


def without_post_processor(tokenizer):
    """The same without what adds special tokens (a template has its own) and
    cuts spaces off the tokens' offsets."""
    plain = type(tokenizer).from_str(tokenizer.to_str())
    plain.post_processor = None
    return plain


def special_pattern(tokenizer):
    """Matches any of the tokenizer's special tokens in a text."""
    tokens = [re.escape(token.content) for token in
              tokenizer.get_added_tokens_decoder().values()
              if token.special and token.content]
    return re.compile("|".join(sorted(tokens, key=len, reverse=True))
                      or r"(?!)")


def find_eos(folder, tokenizer):
    """The id of the end-of-sequence token, from the first file that has it."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        path = os.path.join(folder, name)
        token = (read_json_object(path) or {}).get("eos_token")
        if isinstance(token, dict):
            token = token.get("content")
        if token is None:
            continue
        found = tokenizer.token_to_id(str(token))
        if found is None:
            raise DataError(
                f"eos_token {token!r} is not in the tokenizer", path)
        return found
    vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)
    for name in ("generation_config.json", "config.json"):
        path = os.path.join(folder, name)
        found = (read_json_object(path) or {}).get("eos_token_id")
        if isinstance(found, list):
            found = found[0] if found else None
        if found is None:
            continue
        if type(found) is not int or not 0 <= found < vocab_size:
            raise DataError(
                f"eos_token_id {found!r} is not in the tokenizer", path)
        return found
    raise DataError(
        "the tokenizer has no end-of-sequence token: neither eos_token in "
        "tokenizer_config.json or special_tokens_map.json nor "
        "eos_token_id in generation_config.json or config.json", folder)


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
