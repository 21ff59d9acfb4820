"""What is legal in a dataset but rarely meant: counted, with the first lines,
and said as warnings."""

import collections

from common.reporting import name_line, shown

NAMED_FIELDS = 8  # in one warning

TEXTS = {
    "control_tokens": "{have} special tokens of the tokenizer in the text of a "
                      "message; the model reads them as control tokens",
    "tool_arguments": "{have} tool calls whose arguments are JSON in a string; "
                      "the chat template was given what it says",
    "unread_fields": "{have} messages with fields that the chat template does "
                     "not read: {names}",
    "text_left_out": "{have} a message whose text the chat template leaves out "
                     "or changes",
    "media_marks": "{have} {names} in a text: images, sounds and videos are not "
                   "read, the marks are trained as text",
    "messages_as_text": "{have} a list of messages, written as JSON, that is "
                        "trained as a text",
    "two_begins": "{begin} with the token {names} twice: the tokenizer puts "
                  "one before each text",
    "turn_ends": "the turns of the chat template end with {names}, which "
                 "generation_config.json does not name as eos_token_id: "
                 "samples stop there too, and so does the result",
}


def warning(kind, rows, names):
    """"1 row has ...", "2 rows have ..."."""
    one = rows == 1
    return TEXTS[kind].format(
        have="1 row has" if one else f"{rows} rows have",
        begin="1 row begins" if one else f"{rows} rows begin",
        names=", ".join(names))


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
                 "warning": warning(kind, note["rows"], note["names"])}
                for kind, note in sorted(self.kinds.items())]
