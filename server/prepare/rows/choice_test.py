"""Tests of prepare.py on tables with a header, and on what a job says of its
rows: their format, their columns, how many, which are held out, and long texts
in parts."""

import csv
import gzip
import io
import json
import pathlib
import re
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import prepare  # noqa: E402  found by the line before
from prepare_testing import (HERE, PrepareTest, make_chatml,  # noqa: E402
                             make_tokenizer)
from rows import tables  # noqa: E402
from rows.formats import COLUMNS  # noqa: E402


class ChoiceTest(PrepareTest):
    def make_model(self):
        return make_chatml(self.model)

    def run_file(self, name, data, *more, **kwargs):
        path = self.folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return self.prepare(path, *more, **kwargs)

    def outcome(self, name, data, *more, out="out", **kwargs):
        done = self.run_file(name, data, *more, out=out, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.load(out)

    def refused(self, name, data, message, line, *more):
        done = self.run_file(name, data, *more)
        self.assertEqual(done.returncode, 3, done.stderr)
        found = json.loads(done.stderr.splitlines()[0])
        self.assertEqual((found["file"], found.get("line")),
                         (str(self.folder / name), line))
        self.assertIn(message, found["error"])


class TablesTest(ChoiceTest):
    ROWS = [{"prompt": "a, b", "completion": "\"c\"\nd"},
            {"prompt": "größe", "completion": " x\t"}]
    CSV = ('prompt,completion\r\n"a, b","""c""\nd"\r\n\r\n'
           'größe," x\t"\r\n')

    def test_the_same_rows(self):
        _, wanted, _ = self.prepared(*self.ROWS, out="wanted")
        tsv = 'prompt\tcompletion\na, b\t"""c""\nd"\ngröße\t" x\t"\n'
        for number, (name, data) in enumerate((
                ("t.csv", self.CSV), ("t.CSV", b"\xef\xbb\xbf" +
                                      self.CSV.encode()),
                ("t.tsv", tsv), ("t.csv.gz", gzip.compress(
                    self.CSV.encode())), ("t.csv", self.CSV[:-2]))):
            with self.subTest(name):
                _, sequences, lines = self.outcome(name, data,
                                                   out=f"o{number}")
                self.assertEqual(sequences, wanted)
                self.assertEqual(lines, [2, 4 + ("tsv" not in name)])

    def test_messages_as_json_in_a_column(self):
        turns = [{"role": "user", "content": "one"},
                 {"role": "assistant", "content": "two"}]
        _, wanted, _ = self.prepared({"messages": turns}, out="wanted")
        cell = json.dumps(turns).replace('"', '""')
        _, sequences, _ = self.outcome("t.csv", f'messages,tools,chosen\n'
                                       f'"{cell}",,\n')
        self.assertEqual(sequences, wanted)

    def cells(self, *rows):
        file = io.StringIO()
        csv.writer(file).writerows(rows)
        return file.getvalue()

    def test_pairs_of_messages_as_json_in_two_columns(self):
        prompt = [{"role": "user", "content": "one"}]
        theirs = [{"from": "human", "value": "one"}]
        said = [{"role": "assistant", "content": "two"}]
        manifest, wanted, _ = self.prepared(
            {"prompt": prompt, "completion": said}, out="wanted")
        for number, first in enumerate((prompt, theirs)):
            made, sequences, _ = self.outcome("t.csv", self.cells(
                ["prompt", "completion"],
                *[[json.dumps(first), json.dumps(said)]] * 2), out=f"o{number}")
            self.assertEqual(sequences, wanted * 2)
            self.assertEqual(made["format"], manifest["format"])
        pair = [json.dumps(prompt), json.dumps(said)]
        for rows, message, line in (
                ([["one", "two"], pair], "is of the format prompt_completion "
                 "of messages, those before", 3),
                ([pair, ["[1, 2]", "[3]"]], "is of the format "
                 "prompt_completion, those before", 3),
                ([[str(prompt), str(said)]], "'prompt' is a list of messages "
                 "as Python writes it", 2),
                ([[pair[0], str(said)]], "'completion' is a list of messages "
                 "as Python writes it", 2)):
            self.refused("t.csv", self.cells(["prompt", "completion"], *rows),
                         message, line)
        # One of the two alone may be what is asked for.
        for rows in ([[pair[0], "two"]], [["one", pair[1]]],
                     [["one", str(said)]]):
            made, _, _ = self.outcome("t.csv", self.cells(
                ["prompt", "completion"], *rows))
            self.assertEqual(made["format"], "prompt_completion")
            self.assertEqual([one["kind"] for one in made["warnings"]],
                             ["messages_as_text"])
        # What is no list of messages is text.
        rows = [["[1, 2]", "[]"], ["[{\"a\": 1}]", "['x']"], ["[", "[{}]"]]
        self.assertEqual(self.outcome("t.csv", self.cells(
            ["prompt", "completion"], *rows))[0]["rows"], 3)

    def test_messages_in_other_columns(self):
        cell = json.dumps([{"role": "assistant", "content": "two"}])
        data = self.cells(["text"], [cell])
        self.refused("t.csv", data, "dataset_columns {messages: text}", 2)
        self.assertEqual(self.outcome(
            "t.csv", data, "--columns", '{"messages": "text"}')[0]["format"],
            "messages")
        self.assertEqual(self.outcome("t.csv", data, "--format", "text")[0][
            "format"], "text")
        self.assertEqual(self.outcome("t.csv", self.cells(
            ["messages", "chat_template_kwargs"], [cell, ""]))[0]["rows"], 1)
        python = str(json.loads(cell))
        for name in ("messages", "conversations"):
            self.refused("t.csv", self.cells([name], [python]),
                         f"{name!r} is a list as Python writes it", 2)
        self.refused("t.csv", self.cells(["messages", "tools"],
                                         [cell, "[{'type': 'function'}]"]),
                     "'tools' is a list as Python writes it", 2)

    def test_malformed(self):
        for data, message, line in (
                ("", "the dataset is empty", None),
                ("text\n", "the dataset is empty", None),
                ("text,text\na,b\n", "has two columns 'text'", 1),
                ("text,\na,b\n", "index=False", 1),
                ("prompt;completion\na;b\n", "separate columns by a comma", 1),
                ("text,id\na\n", "has 1 fields, the header 2", 2),
                ("text\na,b\n", "has 2 fields, the header 1", 2),
                ('text\n"a"b\n', "not CSV", 2),
                ('text\na\n"never\nclosed\n', "not CSV", 3),
                (b"text\na\xff\n", "byte 2 of the line is 0xff; iconv", 2),
                ("a,b\nx,y\n", "has 'a', 'b'", 2),
                ("prompt,completion,label\na,b,False\n", "has a 'label'", 2)):
            with self.subTest(message):
                self.refused("t.csv", data, message, line)

    def test_many_columns(self):
        names = [f"c{number}" for number in range(16_383)]
        header = ",".join([*names, names[7]])
        self.refused("t.csv", header + "\n", "has two columns 'c7'", 1)
        self.refused("t.csv", header + ",text\n",
                     "has 16385 columns; the limit is 16384", 1)
        row = "," * len(names) + "one"
        data = ",".join([*names, "text"]) + f"\n{row}\n{row}\n"
        manifest, _, _ = self.outcome("t.csv", data)
        self.assertEqual(manifest["rows"], 2)
        self.assertEqual(manifest["ignored_fields"], {
            name: 2 for name in sorted(names[:32])})

    def test_a_record_is_no_larger_than_a_line_may_be(self):
        with mock.patch.object(tables, "MAX_LINE_BYTES", 100):
            self.refused("t.csv", 'text\n"' + "a\n" * 60 + '"\n',
                         "the record is longer than 100 bytes", 51)
            self.refused("t.csv", "text\n" + "a" * 101, "longer than 100", 2)

    def test_a_header_that_is_missing(self):
        for text in ("What is two plus two?,4\n5,6\n",
                     "A sentence.,An answer\na,b\n"):
            self.refused("t.csv", text, "is its header missing? Write one", 1)
        self.refused("t.csv", "question,answer 2\na,b\n",
                     "dataset_columns says which is which", 2)

    def test_what_is_no_json_hints_at_tables(self):
        self.refused("t.txt", "prompt,completion\na,b\n",
                     "tables end with .csv or .tsv", 1)


class FormatTest(ChoiceTest):
    def line(self, **fields):
        return json.dumps(fields) + "\n"

    def texts(self, row, *more, out="out"):
        manifest, sequences, _ = self.outcome(f"{out}.jsonl",
                                              self.line(**row), *more, out=out)
        return manifest["format"], self.tokenizer.decode(
            sequences[0][0], skip_special_tokens=False)

    def test_a_format_that_is_said(self):
        turns = [{"role": "user", "content": "one"},
                 {"role": "assistant", "content": "two"}]
        row = {"text": "x", "messages": turns, "conversations": turns,
               "instruction": "i", "output": "o", "prompt": "p",
               "completion": "c"}
        self.refused("t.jsonl", self.line(**row), "say dataset_format", 1)
        for name, wanted in (
                ("text", "x<|im_end|>"), ("prompt_completion", "pc<|im_end|>"),
                ("messages", "<|im_start|>user\none"),
                ("sharegpt", "<|im_start|>user\none"),
                ("alpaca", "<|im_start|>user\ni")):
            _, text = self.texts(row, "--format", name, out=name)
            self.assertTrue(text.startswith(wanted), (name, text))
        self.refused("t.jsonl", self.line(messages=turns),
                     "'text' is missing, which dataset_format text needs", 1,
                     "--format", "text")

    def test_columns_by_other_names(self):
        columns = json.dumps({"prompt": "question", "completion": "answer"})
        row = {"question": "p", "answer": "c", "id": 5}
        self.assertEqual(self.texts(row, "--columns", columns),
                         ("prompt_completion", "pc<|im_end|>"))
        self.refused("t.jsonl", self.line(question="p"),
                     "'completion' (the column 'answer') is missing", 1,
                     "--columns", columns)
        self.refused("t.jsonl", self.line(**row), "(dataset_columns says", 1)

    def test_the_chosen_answer_may_be_named(self):
        answers = {"chosen": "good", "rejected": "bad", "q": "p"}
        columns = json.dumps({"prompt": "q", "completion": "chosen"})
        _, text = self.texts(answers, "--columns", columns)
        self.assertEqual(text, "pgood<|im_end|>")
        self.refused("t.jsonl", self.line(**answers), "has 'chosen'", 1)

    def test_the_job_file_knows_the_same_columns(self):
        source = (HERE.parent / "spec/spec.cc").read_text()
        names = source.split("kColumns[] = {")[1].split("};")[0]
        self.assertEqual(sorted(re.findall('"([a-z_]+)"', names)), COLUMNS)

    def test_columns_that_are_none(self):
        for columns in ("[]", '{"nine": "x"}', '{"text": 5}', "x"):
            done = self.run_file("t.jsonl", self.line(text="x"), "--columns",
                                 columns)
            self.assertEqual(done.returncode, 2, columns)


class SomeRowsTest(ChoiceTest):
    ROWS = "".join(json.dumps({"text": f"one {n}"}) + "\n"
                   for n in range(1, 101))

    def lines(self, *more, out="out", **kwargs):
        return self.outcome("t.jsonl", self.ROWS, *more, out=out, **kwargs)[2]

    def test_the_first_rows_alone(self):
        self.assertEqual(self.lines("--max-samples", 3), [1, 2, 3])
        self.assertEqual(len(self.lines("--max-samples", 999, out="b")), 100)
        rows = self.ROWS.replace('"one 4"', "5")
        manifest, _, lines = self.outcome("t.jsonl", rows, "--max-samples", 3,
                                          out="c")
        self.assertEqual((lines, manifest["rows"]), ([1, 2, 3], 3))
        rows = json.loads("[" + ",".join(self.ROWS.splitlines()) + "]")
        self.assertEqual(self.outcome("t.json", json.dumps(rows),
                                      "--max-samples", 2, out="d")[2], [1, 2])

    def test_a_preview_of_few_held_out_rows_reads_no_more_than_it_must(self):
        path = self.write(*[{"text": "one"}] * 5000)
        with mock.patch.object(prepare, "PREVIEW_ROWS", 100):
            done = self.start(
                "--tokenizer", self.model, "--data", path, "--max-length", 8,
                "--preview", 1, "--split", "validation",
                "--validation-split", "0.002")
        answer = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((len(answer["samples"]), answer["rows"],
                          answer["whole"]), (1, 1, False))

    def test_what_is_held_out_is_what_is_not_trained(self):
        for share, counts in ((0.05, {5}), (0.1, {10}), (0.3, {29, 30}),
                              (0.5, {50})):
            more = ("--validation-split", share)
            train = self.lines(*more, out="a")
            held = self.lines(*more, out="b", split="validation")
            self.assertEqual(sorted(train + held), list(range(1, 101)))
            self.assertIn(len(held), counts)
        self.assertNotEqual(held, self.lines(
            *more, "--seed", 7, out="c", split="validation"))
        self.assertEqual(held, self.lines(*more, out="d", split="validation"))
        train = self.lines(*more, "--max-samples", 10, out="e")
        held = self.lines(*more, "--max-samples", 10, out="f",
                          split="validation")
        self.assertEqual(sorted(train + held), list(range(1, 11)))

    def test_too_few_to_hold_one_out(self):
        done = self.run_file("t.jsonl", self.ROWS, "--max-samples", "1",
                             "--validation-split", "0.001",
                             split="validation")
        self.assertIn("there is 1 row: too few to hold some out; give a "
                      "validation_dataset", done.stderr)
        done = self.run_file("t.jsonl", self.ROWS, "--max-samples", "5",
                             "--validation-split", "0.001",
                             split="validation")
        self.assertIn("there are 5 rows: too few to hold some out; give a "
                      "larger validation_split, or", done.stderr)

    def test_bounds(self):
        for more in (("--max-samples", 0), ("--validation-split", 0),
                     ("--validation-split", 0.6), ("--format", "x")):
            self.assertEqual(self.run_file("t.jsonl", self.ROWS, *more
                                           ).returncode, 2)

    def test_each_is_part_of_the_key_and_of_the_record(self):
        keys = set()
        for more in ((), ("--max-samples", 50), ("--validation-split", 0.1),
                     ("--format", "text"), ("--columns", "{}")):
            manifest, _, _ = self.outcome("t.jsonl", self.ROWS, *more)
            keys.add(manifest["key"])
        self.assertEqual(len(keys), 5)
        self.assertEqual(manifest["options"]["columns"], {})

    def test_options_have_them_too(self):
        (self.folder / "t.jsonl").write_text(self.ROWS)
        done = self.start("--options", json.dumps({
            "tokenizer": str(self.model), "data": str(self.folder / "t.jsonl"),
            "max_length": 9, "preview": 9, "max_samples": 2,
            "columns": {"text": "text"}, "format": "text",
            "validation_split": 0.5}))
        found = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(len(found["samples"]), 1)


class SplitTest(PrepareTest):
    def make_model(self):
        return make_tokenizer(self.model)

    def split(self, *texts, max_length=8, more=()):
        return self.prepared(*[{"text": text} for text in texts],
                             max_length=max_length,
                             more=["--truncation", "split", *more])

    def test_nothing_is_lost_and_lines_stay_whole(self):
        text = "".join(f"one two {word} four\n" for word in
                       ("three", "five", "six", "seven", "eight"))
        manifest, sequences, lines = self.split(text, "ten", max_length=12)
        whole = self.ids(text) + [self.eos]
        parts = [ids for ids, _ in sequences[:-1]]
        self.assertEqual(sum(parts, []), whole)
        for ids, labels in sequences:
            self.assertLessEqual(len(ids), 12)
            self.assertEqual(labels, [0] + [1] * (len(ids) - 1))
        for ids in parts[:-1]:
            self.assertTrue(self.tokenizer.decode(ids).endswith("\n"))
        self.assertEqual(lines, [1] * len(parts) + [2])
        self.assertEqual((manifest["split"], manifest["truncated"],
                          manifest["dropped"]), (1, 0, {}))

    def test_a_line_that_is_too_long_is_cut_where_it_must(self):
        for length in range(2, 9):
            for count in range(1, 30):
                text = "one " * count
                _, sequences, _ = self.split(text, max_length=length)
                self.assertEqual(sum((ids for ids, _ in sequences), []),
                                 self.ids(text) + [self.eos])
                if length > 2:
                    self.assertGreater(min(len(ids) for ids, _ in sequences),
                                       1)

    def test_packed(self):
        manifest, sequences, _ = self.split("one\n" * 40, "two " * 3,
                                            more=["--packing"])
        self.assertEqual(manifest["options"]["truncation"], "split")
        self.assertLessEqual(manifest["max_row_tokens"], 8)
        self.assertEqual(manifest["split"], 1)

    def test_other_formats_are_refused(self):
        found = self.error({"prompt": "a", "completion": "b"},
                           more=["--truncation", "split"])
        self.assertIn("split makes several rows of a long 'text'",
                      found["error"])
        self.assertEqual(found["line"], 1)


if __name__ == "__main__":
    unittest.main()
