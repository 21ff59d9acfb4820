"""Seeded mutations of all that the dataset helper reads: rows, files of every
kind, chat templates, tokenizers and their settings. Whatever comes of one must
be a result or a DataError.

ROUNDHOUSE_FUZZ_RUNS and ROUNDHOUSE_FUZZ_SEED choose more or others. The input
that failed, or ended the process, is left as fuzz_case.json in the test's
undeclared outputs.
"""

import copy
import csv
import gzip
import io
import json
import os
import pathlib
import random
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import prepare  # noqa: E402  found by the line before
import pyarrow  # noqa: E402
import pyarrow.parquet  # noqa: E402
from common.reporting import DataError, speaker  # noqa: E402
from prepare_output import NoArrays  # noqa: E402
from prepare_testing import (CHATML, LLAMA3, MARKED, MISTRAL,  # noqa: E402
                             make_chatml, make_tokenizer)
from tokens import template  # noqa: E402

RUNS = int(os.environ.get("ROUNDHOUSE_FUZZ_RUNS", 2000))
SEED = int(os.environ.get("ROUNDHOUSE_FUZZ_SEED", 1))
# CPU seconds of one template here: time limits are not what is looked for.
TEMPLATE_SECONDS = 0.5

TURNS = [{"role": "system", "content": "one"},
         {"role": "user", "content": "two [INST] three"},
         {"role": "assistant", "content": "four <|im_end|>", "weight": 1}]
ROWS = [{"text": "one two three"},
        {"prompt": "one", "completion": " two"},
        {"messages": TURNS, "tools": [{"name": "f", "parameters": {}}]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [
            {"function": {"name": "f", "arguments": "{\"a\": 1}"}}]}]},
        {"prompt": TURNS[:2], "completion": TURNS[2:]},
        {"conversations": [{"from": "human", "value": "one"},
                           {"from": "gpt", "value": "two"}], "system": "x"},
        {"instruction": "one", "input": "two", "output": "three"}]
# What takes the place of some value.
ODD = [None, 0, -1, 1, 5e300, 1 << 70, True, "", "x", "\ud800", "\U0010fffe",
       "{{ 1 }}", "a" * 300, [], {}, [None], [[]], {"role": 1}, {"a": {}},
       float("nan"), "<|im_start|>assistant\n"]
# What is put into a template: any text, and parts of expressions.
PIECES = ["{{", "}}", "{%", "%}", "{% for m in messages %}", "{% endfor %}",
          "{% if ", "{% endif %}", " messages ", "{#", "#}", "{% break %}",
          "'", "\"", "\\", "{% macro f() %}", "{% endmacro %}", "\U0010fffe",
          "\0", "{% raw %}", "{% call f() %}", "{% endcall %}", "x\n", " "]
ATOMS = ["messages", "messages[0]", "messages[-1].content", "tools", "1", "-1",
         "99999", "0.5", "none", "true", "'a'", "'%d'", "''", "range(9)",
         "loop", "eos_token", "namespace(a=1)", "dict(a=1)",
         "strftime_now('%Y')",
         "self", "caller()", "raise_exception('no')", "undefined", "[]", "{}",
         "'a'.__class__", "(1, 2)",
         "'\\U0010fffe'", "lipsum(n=1)", "cycler(1)"]
OPERATORS = [" + ", " - ", " * ", " / ", " // ", " % ", " ** ", " ~ ", " in ",
             " == ", " < ", " and ", " or "]
FILTERS = ["tojson", "length", "join(',')", "int", "float", "list", "string",
           "batch(2)", "slice(0)", "round(99)", "first", "last", "sort",
           "unique", "map(attribute='role')", "selectattr('role')", "trim",
           "replace('a', 'bb')", "center(99)", "items", "dictsort", "sum",
           "min", "reverse", "groupby('role')", "wordwrap(1)", "indent(9)",
           "format(1)", "truncate(1)", "xmlattr", "urlize", "filesizeformat",
           "tojson(indent=-1)", "attr('x')", "default('x')", "random",
           "pprint", "striptags", "title", "abs", "forceescape"]
TEMPLATES = [CHATML, LLAMA3, MISTRAL, MARKED]


# --- Files -------------------------------------------------------------------


def json_array(rows):
    return json.dumps(rows).encode()


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(rows, **options):
    sink = pyarrow.BufferOutputStream()
    # Columns that no Arrow type has are text.
    rows = [{name: value if isinstance(value, (str, list)) else str(value)
             for name, value in row.items()} for row in rows]
    for row in rows:
        row.pop("tools", None)
        for message in row.get("messages", ()):
            message.pop("tool_calls", None)
            message["content"] = message["content"] or "x"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink,
                                **options)
    return sink.getvalue().to_pybytes()


def zstd(data):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def table(rows, separator):
    """CSV or TSV; what is no text is JSON."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=separator)
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow([value if isinstance(value, str) else
                         json.dumps(value) for value in row.values()])
    return file.getvalue().encode()


FILES = [
    json_array, lambda rows: gzip.compress(json_lines(rows), mtime=0),
    lambda rows: gzip.compress(json_array(rows), mtime=0),
    lambda rows: zstd(json_lines(rows)), lambda rows: zstd(json_array(rows)),
    parquet, lambda rows: parquet(rows, compression="zstd"),
    lambda rows: parquet(rows, data_page_version="2.0")]


# --- Mutations ---------------------------------------------------------------


def places(value, found):
    """Every (container, key) within a JSON value."""
    keys = (list(value) if isinstance(value, dict) else
            range(len(value)) if isinstance(value, list) else ())
    for key in keys:
        found.append((value, key))
        places(value[key], found)
    return found


def odd_like(source, value):
    """Something else, mostly of the same type, so that it gets further."""
    alike = [odd for odd in ODD if type(odd) is type(value)]
    return copy.deepcopy(source.choice(
        alike if alike and source.random() < 0.7 else ODD))


def change_value(source, value):
    """Changes a place or two of a JSON value, in place."""
    for _ in range(source.choice((1, 1, 1, 2))):
        within = places(value, [])
        leaves = [(container, key) for container, key in within
                  if not isinstance(container[key], (dict, list))]
        if not within:
            return
        deep = leaves and source.random() < 0.8
        container, key = source.choice(leaves if deep else within)
        kind = source.random()
        if kind < 0.15:
            del container[key]
        elif kind < 0.25 and isinstance(container, list):
            container.insert(0, container[key])
        elif kind < 0.35:
            container[key] = json.loads(json.dumps(source.choice(within)[0]))
        else:
            container[key] = odd_like(source, container[key])


def change_bytes(source, data):
    data = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 4))):
        place = source.randrange(len(data) + 1)
        kind = source.random()
        if kind < 0.4 and data:
            data[place % len(data)] = source.randrange(32, 127)
        elif kind < 0.6:
            data[place:place + source.randint(1, 4)] = b""
        else:
            data[place:place] = source.choice(
                (b"{", b"[" * 3000, b"}", b"\"", b"\\u", b"\xff", b"9" * 5000,
                 b",", b"\n", b"\0", b"NaN", b" ", b"a", b"1", b"[]"))
    return bytes(data)


def expression(source, depth=3):
    """One of Jinja's that parses."""
    if depth == 0 or source.random() < 0.3:
        return source.choice(ATOMS)
    inner = [expression(source, depth - 1) for _ in range(2)]
    kind = source.random()
    if kind < 0.4:
        return f"({inner[0]}{source.choice(OPERATORS)}{inner[1]})"
    if kind < 0.8:
        return f"({inner[0]}|{source.choice(FILTERS)})"
    return source.choice((f"{inner[0]}[{inner[1]}]", f"({inner[0]}).content",
                          f"[{inner[0]}, {inner[1]}]", f"(not {inner[0]})",
                          f"({inner[0]} if {inner[1]})"))


def statement(source):
    value = expression(source)
    return source.choice((
        f"{{{{ {value} }}}}", f"{{% set messages = {value} %}}",
        f"{{% for m in {value} %}}{{{{ m }}}}{{% endfor %}}",
        f"{{% if {value} %}}{{{{ x }}}}{{% endif %}}",
        f"{{% generation %}}{{{{ {value} }}}}{{% endgeneration %}}"))


def change_template(source, text):
    if source.random() < 0.6:
        ends = [0] + [i + 2 for i in range(len(text))
                      if text[i:i + 2] in ("%}", "}}")]
        place = source.choice(ends)
        return text[:place] + statement(source) + text[place:]
    for _ in range(source.choice((1, 1, 2))):
        place = source.randrange(len(text) + 1)
        if source.random() < 0.4:
            text = text[:place] + text[place + source.randint(1, 12):]
        else:
            text = text[:place] + source.choice(PIECES) + text[place:]
    return text


def write(path, data):
    """A new file: to write one again makes some file systems wait for it."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


class FuzzTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(
            dir=os.environ.get("TEST_TMPDIR"))
        folder = pathlib.Path(cls.scratch.name)
        cls.models = [folder / "chat", folder / "text"]
        make_chatml(cls.models[0])
        make_tokenizer(cls.models[1], post_processor=True)
        cls.files = [{path.name: path.read_bytes() for path in
                      model.iterdir()} for model in cls.models]
        cls.data = folder / "data.jsonl"
        cls.case = pathlib.Path(os.environ.get(
            "TEST_UNDECLARED_OUTPUTS_DIR", folder)) / "fuzz_case.json"

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def setUp(self):
        for name, value in (("say", lambda **record: json.dumps(record)),
                            ("still", lambda doing: None)):
            patch = mock.patch.object(speaker, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        patch = mock.patch.object(template, "TEMPLATE_SECONDS",
                                  TEMPLATE_SECONDS)
        patch.start()
        self.addCleanup(patch.stop)

    def refused(self, model, end="", **changed):
        """Whether the helper refuses the dataset with these files changed."""
        write(self.case, json.dumps({name: data.decode("latin-1") for
                                     name, data in changed.items()}).encode())
        for name, data in changed.items():
            write(self.data if name == "data" else self.models[model] / name,
                  data)
        options = types.SimpleNamespace(
            tokenizer=str(self.models[model]), data=[str(self.data)],
            data_name=[f"data{end}"], max_length=32, truncation="right",
            packing=False, seed=1, template_date=None, split="train",
            format=None, columns=None, max_samples=None,
            validation_split=None, processes=1, preview=None)
        try:
            preparation = prepare.Preparation(options)
            preparation.reader.check_start()
            preparation.asked = preparation.encoder.asks_for_date()
            sequences = preparation.sequences(NoArrays())
            preparation.run(sequences)
            json.dumps(preparation.record(sequences))
        except DataError as error:
            self.assertTrue(str(error))
            self.assertIsNotNone(error.file)
            json.loads(error.as_json())
            return True
        finally:
            for name in changed:
                if name in self.files[model]:
                    write(self.models[model] / name, self.files[model][name])
                elif name != "data":
                    (self.models[model] / name).unlink()
        return False

    def check(self, share, change):
        """Both ends must be met, or the mutations say nothing."""
        runs = max(20, int(RUNS * share))
        ends = {False: 0, True: 0}
        for number in range(runs):
            source = random.Random(f"{SEED} {self.id()} {number}")
            changed = change(source)
            with self.subTest(number=number):
                ends[self.refused(**changed)] += 1
        print(f"{runs} runs: {ends[True]} refused", file=sys.stderr)
        self.assertTrue(ends[True] and ends[False], ends)
        self.case.unlink()

    def rows(self, source, count=2):
        """Rows, and a model that takes them."""
        row = source.choice(ROWS)
        return ([json.loads(json.dumps(row)) for _ in range(count)],
                1 if ROWS.index(row) < 2 else 0)

    @staticmethod
    def lines(rows):
        return "".join(json.dumps(row) + "\n" for row in rows).encode()

    def test_rows_with_other_values(self):
        def change(source):
            rows, model = self.rows(source)
            change_value(source, rows)
            return {"model": model, "data": self.lines(rows)}
        self.check(0.4, change)

    def test_rows_with_other_bytes(self):
        def change(source):
            rows, model = self.rows(source)
            return {"model": model,
                    "data": change_bytes(source, self.lines(rows))}
        self.check(0.2, change)

    def test_files_of_every_kind(self):
        def change(source):
            rows, model = self.rows(source, source.choice((1, 2, 9)))
            data = source.choice(FILES)(rows)
            if source.random() < 0.9:
                data = change_bytes(source, data)
            if source.random() < 0.1:
                data = data[:source.randrange(len(data) + 1)]
            return {"model": model, "data": data}
        self.check(0.5, change)

    def test_tables(self):
        """CSV and TSV are known by their names."""
        def change(source):
            rows, model = self.rows(source, source.choice((1, 2, 9)))
            end, separator = source.choice(((".csv", ","), (".tsv", "\t")))
            data = table(rows, separator)
            if source.random() < 0.9:
                data = change_bytes(source, data)
            if source.random() < 0.3:
                data, end = gzip.compress(data, mtime=0), end + ".gz"
            return {"model": model, "data": data, "end": end}
        self.check(0.3, change)

    def test_arrays_with_other_values(self):
        def change(source):
            rows, model = self.rows(source)
            change_value(source, rows)
            data = json.dumps(rows, indent=source.choice((None, 1))).encode()
            return {"model": model, "data": source.choice(
                (bytes, gzip.compress))(data)}
        self.check(0.1, change)

    def test_templates(self):
        def change(source):
            text = change_template(source, source.choice(TEMPLATES))
            return {"model": 0, "data": self.lines([source.choice(ROWS[2:])]),
                    "chat_template.jinja": text.encode("utf-8", "replace")}
        self.check(0.25, change)

    def test_tokenizers_and_settings(self):
        def change(source):
            rows, model = self.rows(source, 1)
            name = source.choice(("tokenizer.json", "tokenizer.json",
                                  "tokenizer_config.json"))
            data = self.files[model][name]
            if source.random() < 0.8:
                value = json.loads(data)
                # Most of a tokenizer is its vocabulary.
                kept = value.pop("model", None)
                if kept is not None and source.random() < 0.5:
                    value["model"], kept = kept, None
                change_value(source, value)
                data = json.dumps(value | ({"model": kept} if kept else {})
                                  ).encode()
            else:
                data = change_bytes(source, data)
            return {"model": model, name: data, "data": self.lines(rows)}
        self.check(0.15, change)


if __name__ == "__main__":
    unittest.main()
