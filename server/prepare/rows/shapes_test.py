"""Tests of prepare.py on the shapes that other tools document, in our own
words: each is taken, or refused with what to do (docs/datasets.md, "What lies
around")."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from prepare_testing import PrepareTest, make_chatml  # noqa: E402

TEMPLATE = """\
{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for call in m.tool_calls or [] %}
{{- call.function | tojson }}{% endfor %}<|im_end|>
{% endfor %}"""
TOOL = {"type": "function", "function": {
    "name": "weather", "description": "of a town", "parameters": {
        "type": "object", "properties": {"town": {"type": "string"}}}}}
CALL = {"id": "call_1", "type": "function", "function": {
    "name": "weather", "arguments": "{\"town\": \"Ulm\"}"}}
ASKED = {"role": "user", "content": "How warm is it?"}
SAID = {"role": "assistant", "content": "Eight degrees."}
THEIRS = [{"from": "human", "value": "How warm is it?"},
          {"from": "gpt", "value": "Eight degrees."}]
USED = [ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "8"}, SAID]

# (whose, the row, what its trained text is)
TAKEN = (
    ("LLaMA-Factory alpaca", {"instruction": "Say it.", "input": "one",
                              "output": "two", "system": "Be short.",
                              "history": [["a", "b"]]},
     "b<|im_end|>\ntwo<|im_end|>\n"),
    ("LLaMA-Factory sharegpt", {
        "conversations": [THEIRS[0],
                          {"from": "function_call", "value": json.dumps(
                              {"name": "weather",
                               "arguments": {"town": "Ulm"}})},
                          {"from": "observation", "value": "8"}, THEIRS[1]],
        "system": "Be short.", "tools": json.dumps([TOOL["function"]])},
     '{"name": "weather", "arguments": {"town": "Ulm"}}<|im_end|>\n'
     "Eight degrees.<|im_end|>\n"),
    ("LLaMA-Factory pre-training", {"text": "one two"}, None),
    ("axolotl completion", {"text": "one two", "id": 7}, None),
    ("axolotl chat_template", {"messages": [
        ASKED, {**SAID, "training": True}, ASKED, {**SAID, "train": False}]},
     "Eight degrees.<|im_end|>\n"),
    ("axolotl sharegpt", {"conversations": THEIRS},
     "Eight degrees.<|im_end|>\n"),
    ("TRL language modelling", {"text": "one two"}, None),
    ("TRL prompt and completion", {"prompt": "one", "completion": " two"},
     " two<|im_end|>"),
    ("TRL conversational pairs", {"prompt": [ASKED], "completion": [SAID]},
     "Eight degrees.<|im_end|>\n"),
    ("TRL tools", {"messages": USED, "tools": [TOOL],
                   "chat_template_kwargs": {"enable_thinking": False}},
     '{"name": "weather", "arguments": {"town": "Ulm"}}<|im_end|>\n'
     "Eight degrees.<|im_end|>\n"),
    ("OpenAI chat", {"messages": [*USED[:3], {**SAID, "weight": 1}],
                     "tools": [TOOL], "parallel_tool_calls": False},
     '{"name": "weather", "arguments": {"town": "Ulm"}}<|im_end|>\n'
     "Eight degrees.<|im_end|>\n"),
    ("OpenAI weights", {"messages": [ASKED, {**SAID, "weight": 0}, ASKED,
                                     {"role": "assistant", "content": "Nine.",
                                      "weight": 1}]},
     "Nine.<|im_end|>\n"),
)
# (whose, the row, words of the refusal)
REFUSED = (
    ("LLaMA-Factory preferences", {"conversations": THEIRS[:1],
                                   "chosen": THEIRS[1],
                                   "rejected": THEIRS[0]},
     "has 'chosen': these are preferences"),
    ("LLaMA-Factory KTO", {"messages": [ASKED, SAID], "label": True},
     "has a 'label' that is true or false"),
    ("LLaMA-Factory images", {"messages": [ASKED, SAID],
                              "images": ["a.jpg"]}, "has 'images'"),
    ("LLaMA-Factory videos", {"messages": [ASKED, SAID],
                              "videos": ["a.mp4"]}, "has 'videos'"),
    ("axolotl input_output", {"segments": [{"label": True, "text": "x"}]},
     "write 'prompt' and 'completion'"),
    ("TRL preference", {"prompt": "a", "chosen": "b", "rejected": "c"},
     "has 'chosen': these are preferences"),
    ("TRL unpaired", {"prompt": "a", "completion": "b", "label": False},
     "keep the rows whose answers are to be learned"),
    ("OpenAI functions", {"messages": [ASKED, SAID],
                          "functions": [TOOL["function"]]},
     "write them as 'tools'"),
    ("OpenAI function_call", {"messages": [ASKED, {
        "role": "assistant", "content": None,
        "function_call": {"name": "weather", "arguments": "{}"}}]},
     "write it as 'tool_calls'"),
    ("OpenAI preferences", {"input": {"messages": [ASKED]},
                            "preferred_output": [SAID],
                            "non_preferred_output": [SAID]},
     "has 'preferred_output': these are preferences"),
    ("OpenAI images", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "x"}}]}]},
     "no part of the type 'text'"),
    ("other names", {"question": "a", "answer": "b"}, "dataset_columns"),
)


class ShapesTest(PrepareTest):
    def make_model(self):
        return make_chatml(self.model, TEMPLATE)

    def preview(self, row):
        done = self.start("--tokenizer", self.model, "--data",
                          self.write(row), "--max-length", 512, "--preview", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_what_is_taken(self):
        for whose, row, trained in TAKEN:
            with self.subTest(whose):
                report = self.preview(row)
                spans = report["samples"][0]["spans"]
                if trained is None:
                    self.assertEqual(report["format"], "text")
                    continue
                self.assertEqual("".join(span["text"] for span in spans
                                         if span["trained"]), trained)

    def test_an_array_of_them_is_taken_too(self):
        for whose, row, _ in TAKEN:
            with self.subTest(whose):
                data = self.folder / "data.json"
                data.write_text(json.dumps([row, row], indent=2))
                done = self.prepare(data, max_length=512)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.load()[2], [1, 2])

    def test_what_is_refused(self):
        for whose, row, words in REFUSED:
            with self.subTest(whose):
                self.assert_error([row], 1, words)


if __name__ == "__main__":
    unittest.main()
