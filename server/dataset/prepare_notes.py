"""What is legal in a dataset but rarely meant: counted, with the first lines,
and said as warnings."""

import collections

from prepare_common import name_line, shown

NAMED_FIELDS = 8  # in one warning

TEXTS = {
    "control_tokens": "{rows} rows have special tokens of the tokenizer in the "
                      "text of a message; the model reads them as control "
                      "tokens",
    "tool_arguments": "{rows} rows have tool calls whose arguments are JSON in "
                      "a string; the chat template was given what it says",
    "unread_fields": "{rows} rows have messages with fields that the chat "
                     "template does not read: {names}",
    "media_marks": "{rows} rows have {names} in their text: images, sounds and "
                   "videos are not read, the marks are trained as text",
    "text_left_out": "{rows} rows have a message whose text the chat template "
                     "leaves out or changes",
    "messages_as_text": "{rows} rows have a list of messages, written as JSON, "
                        "that is trained as a text",
    "two_begins": "{rows} rows begin with the token {names} twice: the "
                  "tokenizer puts one before each text",
    "turn_ends": "the turns of the chat template end with {names}, which "
                 "generation_config.json does not name as eos_token_id: "
                 "samples stop there too, and so does the result",
}


class Notes:
    def __init__(self):
        self.kinds = {}

    def add(self, kind, line, *names):
        """One row's; `names` are what the warning lists."""
        self._add(kind, 1, [line], collections.Counter(map(shown, names)))

    def add_all(self, later):
        """The Notes of rows that follow."""
        for kind, note in later.kinds.items():
            self._add(kind, note["rows"], note["lines"], note["names"])

    def _add(self, kind, rows, lines, names):
        note = self.kinds.setdefault(kind, {
            "rows": 0, "lines": [], "names": collections.Counter()})
        note["rows"] += rows
        for line in lines:
            name_line(note["lines"], line)
        for name, times in names.items():
            if name in note["names"] or len(note["names"]) < NAMED_FIELDS:
                note["names"][name] += times

    def warnings(self):
        return [{"kind": kind, "rows": note["rows"], "lines": note["lines"],
                 "warning": TEXTS[kind].format(
                     rows=note["rows"], names=", ".join(note["names"]))}
                for kind, note in sorted(self.kinds.items())]
