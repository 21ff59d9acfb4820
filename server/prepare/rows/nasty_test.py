"""Tests of prepare.py on small files that are wrong, odd or meant to do harm:
what is silent elsewhere is refused here, with the line and what to do."""

import datetime
import decimal
import gzip
import io
import json
import pathlib
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import pyarrow  # noqa: E402  found by the line before
import pyarrow.parquet  # noqa: E402
from prepare_testing import PrepareTest, make_chatml  # noqa: E402

ROW = b'{"text": "one two"}\n'
TURNS = [{"role": "user", "content": "one"},
         {"role": "assistant", "content": "two"}]
TEMPLATE = """\
{% if tools %}{{ tools | tojson }}
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}{{ call | tojson }}
{%- endfor %}<|im_end|>
{% endfor %}"""


def parquet(columns, **options):
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink, **options)
    return sink.getvalue()


def zstd_frame(window_log, data):
    """A frame of one raw block that asks for a window of 2^window_log."""
    block = struct.pack("<I", len(data) << 3 | 1)[:3]
    return b"\x28\xb5\x2f\xfd\0" + bytes([window_log - 10 << 3]) + block + data


class NastyTest(PrepareTest):
    def make_model(self):
        return make_chatml(self.model, TEMPLATE)

    def run_file(self, name, data, *more):
        path = self.folder / name
        path.write_bytes(data)
        return self.start("--tokenizer", self.model, "--data", path,
                          "--max-length", 512, "--validate", *more)

    def report(self, name, data, *more):
        done = self.run_file(name, data, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])["report"]

    def refused(self, name, data, message, line=None):
        done = self.run_file(name, data)
        self.assertEqual(done.returncode, 3, (name, done.stdout[-300:]))
        found = json.loads(done.stderr)
        self.assertIn(message, found["error"])
        self.assertEqual((found["file"], found.get("line")),
                         (str(self.folder / name), line))
        self.assertLess(len(done.stderr), 4096)

    def each_refused(self, cases):
        for name, data, message, line in cases:
            with self.subTest(message, name=name, data=data[:40]):
                self.refused(name, data, message, line)


class JsonTest(NastyTest):
    def test_lines(self):
        self.each_refused([("a.jsonl", data, message, line)
                           for data, message, line in (
            (ROW + b"\0" * 999, "bytes that are zero", 2),
            (b'{"text": "a\0b"}\n', "bytes that are zero", 1),
            (ROW + b"\xef\xbb\xbf" + ROW, "mark of a file's begin", 2),
            (b"\xef\xbb\xbf" * 2 + ROW, "mark of a file's begin", 1),
            (ROW.strip() + b"\r" + ROW.strip() + b"\r", "CR alone", 1),
            (ROW.strip() * 2, "one object, with nothing behind it", 1),
            (ROW.strip() + b",\n" + ROW, "nothing behind it", 1),
            (b"{'text': 'a'}\n", "json.dumps writes JSON", 1),
            (b'{"data": [\n' + ROW + b"]}", "jq -c . FILE", 1),
            (ROW + b'{"text":', "unless it was cut short", 2),
            (b'{"data": [' + ROW.strip() + b"]}", "jq -c '.[][]' FILE", 1),
            (b'{"text": "a", "x": ' + b"9" * 5000 + b"}",
             "more than 4300 digits", 1),
            (b'{"text": "a", "x": ' + b"[" * 100_000, "nested too deeply", 1),
            (json.dumps({"messages": "[" * 100_000}).encode(),
             "nested too deeply", 1),
            (b'{"text": "a", "x": {"q": [{"y": 1, "y": 2}]}}',
             "'y' is there twice", 1),
            (json.dumps({"messages": TURNS, "tools": [{"name": "\ud83d"}]}
                        ).encode(), "half of a surrogate pair in a", 1),
            (ROW.decode().encode("utf-32"), "is UTF-32", None))])
        for data in (ROW.replace(b"\n", b"\r\n") * 2, b"\xef\xbb\xbf" + ROW * 2,
                     b'{"text": "a\\u0000b\xe2\x80\xa8", "x": NaN}\n' * 2):
            self.assertEqual(self.report("a.jsonl", data)["rows"], 2)

    def test_names_and_values_as_long_as_a_line(self):
        long = "k" * (3 << 20)
        report = self.report("a.jsonl", json.dumps(
            {"text": "one", long: 1}).encode())
        (name, rows), = report["ignored_fields"].items()
        self.assertEqual((len(name), rows), (120, 1))
        self.each_refused((
            ("a.jsonl", json.dumps({long: 1}).encode(),
             "(dataset_columns says which is which)", 1),
            ("a.jsonl", json.dumps({"messages": [
                {**TURNS[1], "weight": long}]}).encode(), "must be 0 or 1", 1),
            ("a.jsonl", json.dumps({"conversations": [
                {"from": long, "value": ""}]}).encode(), "observation", 1)))
        report = self.report("a.jsonl", json.dumps(
            {"messages": [{**one, long: 1} for one in TURNS]}).encode())
        self.assertLess(len(report["warnings"][0]["warning"]), 300)

    def test_a_sequence_of_the_datasets_library(self):
        """Is kept as one object of lists, in Parquet as in JSON."""
        lists = {"role": ["user", "assistant"], "content": ["one", "two"],
                 "name": [None, None]}
        _, wanted, _ = self.prepared({"messages": TURNS})
        for number, messages in enumerate((lists, json.dumps(TURNS))):
            _, sequences, _ = self.prepared({"messages": messages},
                                            out=f"o{number}")
            self.assertEqual(sequences, wanted)
        self.each_refused((
            ("a.jsonl", json.dumps({"messages": {**lists, "role": []}}
                                   ).encode(), "not of one length", 1),
            ("a.jsonl", b'{"messages": {"role": "user"}}',
             "must be an array, not an object", 1),
            ("a.jsonl", b'{"messages": {"role": []}}', "is empty", 1)))


class TableTest(NastyTest):
    def test_tables(self):
        self.each_refused([(name, data, message, line)
                           for name, data, message, line in (
            ("a.csv", b"text\none\n" + b"\0" * 99, "byte that is zero", 3),
            ("a.csv", b"text\na\0b\n", "byte that is zero", 2),
            ("a.csv", "text\none\n".encode("utf-16-le"), "is it UTF-16", 1),
            ("a.csv", b"text\rone\rtwo\r", "CR alone", 1),
            ("a.csv", b'text\n"one\ntwo\n', "a quote is never closed", 2),
            ("a.csv", b'text\n"one \\"two\\""\n', "is written twice", 2),
            ("a.csv", b"text|x\na|b\n", "separate columns by", 1),
            ("a.tsv", b"prompt,completion\na,b\n", "separate columns by", 1),
            ("a.csv", b"prompt,completion\na,b,c\n", "needs quotes", 2),
            ("a.csv", b"prompt, completion\na, b\n",
             "'completion' is missing; there is ' completion'", 2),
            ("a.csv", b"Prompt,completion\na,b\n", "there is 'Prompt'", 2),
            ("a.csv", b",text\n0,one\n", "index=False", 1),
            ("a.csv", ROW * 3, "is JSON and named as CSV", 1),
            ("a.tsv", b"[" + ROW + b"]", "is JSON and named as TSV", 1),
            ("a.csv", b"\xd0\xcf\x11\xe0" + b"\0" * 99, "old Office file",
             None))])
        for data in (b"\n\r\ntext\r\none\r\n", b'text\n"a\nb"\n',
                     b"\xef\xbb\xbftext\none\n", b'text\na "b" c\n',
                     b"[id],{x},text\n1,2,one\n"):
            self.assertEqual(self.report("a.csv", data)["rows"], 1)


class PackedTest(NastyTest):
    def test_packed(self):
        packed = gzip.compress(ROW * 99)
        self.each_refused((
            ("a", packed[:3], "cut short (gzip)", None),
            ("a", packed[:-5], "cut short (gzip)", None),
            ("a", packed + b"x", "damaged or cut short (gzip)", None),
            ("a", packed[:-4] + b"\xff" * 4, "damaged", None),
            ("a", b"\x28\xb5\x2f\xfd", "cut short (zstd)", None),
            ("a", zstd_frame(28, ROW), "window of more than 128 MiB", None),
            ("a", zstd_frame(41, ROW), "window of more than 128 MiB", None),
            ("a", b"\x04\x22\x4d\x18xx", "packed by lz4", None),
            ("a", b"\x1f\x9d\x90", "packed by compress", None),
            ("a", b"Rar!\x1a\x07\x01\0", "is a RAR archive", None)))
        skipped = b"\x53\x2a\x4d\x18\x04\0\0\0abcd"
        for data in (packed + b"\0" * 99, zstd_frame(27, ROW * 99),
                     skipped + zstd_frame(17, ROW * 99),
                     gzip.compress(ROW) * 99):
            self.assertEqual(self.report("a", data)["rows"], 99)


class ParquetTest(NastyTest):
    def test_columns_that_python_has_no_value_for_are_ignored_too(self):
        for kind, value in (("ns", 1), ("us", 1 << 62)):
            when = pyarrow.array([None, value], pyarrow.timestamp(kind))
            report = self.report("a", parquet({"text": ["one", "two"],
                                               "when": when}))
            self.assertEqual(report["ignored_fields"], {"when": 1})
            self.refused("a", parquet({"text": when[1:]}),
                         "must be a string, not a value that cannot be read", 1)

    def test_values_that_are_no_json(self):
        bad = pyarrow.array([b"one", b"\xff"]).view(pyarrow.string())
        self.each_refused((
            ("a", parquet({"text": bad}), "cannot be read (string: 'utf-8'", 2),
            ("a", parquet({"text": [b"one"]}), "of the type bytes", 1),
            ("a", parquet({"text": [decimal.Decimal("1.5")]}),
             "of the type Decimal", 1),
            ("a", parquet({"text": [datetime.date(2020, 1, 1)]}),
             "of the type date", 1)))

    def test_maps_are_objects(self):
        rows = []
        for pairs in (pyarrow.map_(pyarrow.string(), pyarrow.int64()), None):
            function = {"name": "f", "arguments": [("a", None), ("b", 2)]
                        if pairs else {"a": None, "b": 2}}
            kind = pairs and pyarrow.list_(pyarrow.struct([
                ("role", pyarrow.string()), ("content", pyarrow.string()),
                ("tool_calls", pyarrow.list_(pyarrow.struct([
                    ("function", pyarrow.struct([
                        ("name", pyarrow.string()), ("arguments", pairs)]))])))
                ]))
            messages = [{"role": "assistant", "content": "x",
                         "tool_calls": [{"function": function}]}]
            path = self.folder / "a"
            # Parquet without a map has a null for what is absent.
            path.write_bytes(
                parquet({"messages": pyarrow.array([messages], kind)})
                if pairs else json.dumps({"messages": messages}).encode())
            done = self.prepare(path, out=f"o{len(rows)}", max_length=512)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows.append(self.load(f"o{len(rows)}")[1])
        self.assertEqual(*rows)
        self.assertIn('{"a": null, "b": 2}', self.tokenizer.decode(rows[0][0][0]))

    def test_files_that_are_none(self):
        whole = parquet({"text": ["one"] * 99})
        self.each_refused([("a", data, "unreadable Parquet", None) for data in (
            b"PAR1", whole[:-8], whole[:50] + whole[-50:], whole + b"x",
            b"PAR1" + b"\0" * 99 + b"PAR1")])
        self.refused("a", parquet({}), "the dataset is empty")
        self.refused("a", parquet({f"c{n}": ["x"] for n in range(16_385)}),
                     "the limit is 16384")


if __name__ == "__main__":
    unittest.main()
