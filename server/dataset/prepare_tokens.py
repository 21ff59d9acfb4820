"""Rows to token ids and labels, and back to text for people to look at."""

import bisect
import collections
import datetime
import functools
import hashlib
import itertools
import os
import re

from prepare_common import DataError, name_line, read_json_object
from prepare_formats import AlpacaRow, ChatRow, alpaca_chat, alpaca_text
from prepare_template import contents, load_template

# labels: per token 1 when it is a target. dropped: why there is no sequence.
Encoded = collections.namedtuple("Encoded", "line ids labels merged dropped")


class Encoder:
    """A Hugging Face tokenizer directory, ready to encode whole rows."""

    def __init__(self, folder, today=None):
        from tokenizers import Tokenizer

        self.folder = folder
        self.today = today or datetime.date.today()
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
        self.eos_id = find_eos(folder, self.tokenizer)
        self.control_tokens = {"rows": 0, "lines": []}

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
        """The tokenizer without its post-processor, which adds special tokens
        (a template has its own) and cuts spaces off the tokens' offsets."""
        plain = type(self.tokenizer).from_str(self.tokenizer.to_str())
        plain.post_processor = None
        return plain

    @functools.cached_property
    def special(self):
        """Matches any of the tokenizer's special tokens in a text."""
        tokens = [re.escape(token.content) for token in
                  self.tokenizer.get_added_tokens_decoder().values()
                  if token.special and token.content]
        return re.compile("|".join(sorted(tokens, key=len, reverse=True))
                          or r"(?!)")

    def encode(self, rows):
        """Per row, all of one format, an Encoded."""
        if isinstance(rows[0], AlpacaRow):
            convert = alpaca_chat if self.template else alpaca_text
            rows = [convert(row) for row in rows]
        if isinstance(rows[0], ChatRow):
            return self.encode_chats(rows)
        return self.encode_texts(rows)

    # Text.

    def ids(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch_fast(texts)]

    def encode_texts(self, rows):
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
            labels = bytes(first) + b"\1" * (len(ids) - first)
            yield Encoded(row.line, ids, labels, merged, None)

    # Chats.

    def encode_chats(self, rows):
        rendered = [self.render(row) for row in rows]
        texts = [text for text, _ in rendered]
        encodings = self.plain.encode_batch(texts, add_special_tokens=False)
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
