"""Tests of prepare.py on files: what kinds are read, packed or not, one or
several, and by what name the others are refused."""

import bz2
import gzip
import io
import json
import os
import pathlib
import sys
import tracemalloc
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import pyarrow  # noqa: E402  found by the line before
import pyarrow.parquet  # noqa: E402
from common.reporting import DataError  # noqa: E402
from prepare_testing import PrepareTest, make_chatml  # noqa: E402
from rows import dataset, json_rows, sources, tables  # noqa: E402

MIB = 1 << 20
ALPACA = [{"instruction": "Add", "input": "2 and 2", "output": "4"},
          {"instruction": "größe {[\"\\", "input": "", "output": "]}"},
          {"instruction": "Say", "output": "nine"}]


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def zstd(data):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def parquet(rows):
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
    return sink.getvalue()


class SourcesTest(PrepareTest):
    def make_model(self):
        return make_chatml(self.model)

    def run_file(self, data, name="data.json", **kwargs):
        path = self.folder / name
        path.write_bytes(data)
        return self.prepare(path, **kwargs)

    def outcome(self, data, name="data.json", out="out", **kwargs):
        """Ids, labels and lines of what a file holds."""
        done = self.run_file(data, name, out=out, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        _, sequences, lines = self.load(out)
        last = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((last["progress"], last["total"]), (len(data),) * 2)
        return sequences, lines

    def refused(self, data, message, name="data.json", line=None):
        done = self.run_file(data, name)
        self.assertEqual(done.returncode, 3, done.stderr)
        found = json.loads(done.stderr.splitlines()[0])
        self.assertEqual(found["file"], str(self.folder / name))
        self.assertIn(message, found["error"])
        self.assertEqual(found.get("line"), line)


    def several(self, files, *more, mode=("--out",), out="out"):
        arguments = ["--tokenizer", self.model, "--max-length", 64]
        for name, data in files.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            arguments += ["--data", path]
        if mode == ("--out",):
            mode = ("--out", self.folder / out, "--split", "train")
        return self.start(*arguments, *mode, *more)


class KindsTest(SourcesTest):
    def test_names_may_be_relative_and_absolute(self):
        self.assertEqual(dataset.short_names(
            ["a.jsonl", os.path.abspath("b/c.jsonl")]),
            ["a.jsonl", "b/c.jsonl"])

    def test_each_kind_gives_the_same_rows(self):
        wanted = self.outcome(json_lines(ALPACA))
        self.assertEqual(wanted[1], [1, 2, 3])
        lines = json_lines(ALPACA)
        for number, data in enumerate((
                json.dumps(ALPACA).encode(),
                json.dumps(ALPACA, indent=2, ensure_ascii=False).encode(),
                b"\xef\xbb\xbf \n" + json.dumps(ALPACA).encode() + b"\n\n",
                gzip.compress(lines), zstd(lines),
                gzip.compress(json.dumps(ALPACA).encode()),
                zstd(json.dumps(ALPACA).encode()),
                gzip.compress(lines[:50]) + gzip.compress(lines[50:]),
                zstd(lines[:50]) + zstd(lines[50:]),
                parquet(ALPACA))):
            with self.subTest(number=number):
                if data.startswith(b"\xef\xbb\xbf \n"):
                    data = data.replace(b"\xef\xbb\xbf \n", b"\xef\xbb\xbf")
                self.assertEqual(self.outcome(data, out=f"out{number}"),
                                 wanted)

    def test_other_kinds_are_refused_by_name(self):
        row = b'{"prompt": "a", "completion": "b"}\n'
        for data, message in (
                (row.decode().encode("utf-16"), "is UTF-16; write it as"),
                (row.decode().encode("utf-16-le"), "is UTF-16"),
                (row.decode().encode("utf-16-be"), "is UTF-16"),
                (b"version https://git-lfs.github.com/spec/v1\noid x\n",
                 "is a Git LFS pointer, the file itself was not downloaded"),
                (b"ARROW1\0\0", "is an Arrow file; write it as Parquet"),
                (b"\xff\xff\xff\xff\x10\0\0\0", "is an Arrow stream"),
                (b"PK\x03\x04", "is a ZIP archive"),
                (bz2.compress(row), "bzip2"), (bz2.compress(b""), "bzip2"),
                (b"PARE\x15\x00", "is an encrypted Parquet file"),
                (b"ORC\n\x0b\n\x03\0\0\0", "is an ORC file"),
                (b"\xfd7zXZ\0", "packed by xz"),
                (b"SQLite format 3\0", "is an SQLite database"),
                (b"<!DOCTYPE html>", "is a page of HTML"),
                (b"\0" * 257 + b"ustar", "is a tar archive"),
                (gzip.compress(gzip.compress(row)), "is packed twice"),
                (gzip.compress(parquet(ALPACA)), "is Parquet packed by gzip"),
                (gzip.compress(b"PK\x03\x04"), "is a ZIP archive")):
            for name in ("data.json", "data.csv", "data.jsonl.gz", "data"):
                with self.subTest(message, name=name):
                    self.refused(data, message, name)

    def test_a_table_may_begin_as_other_kinds_do(self):
        for name in ("ORCID", "PAR1", "PAREN", "BZh"):
            done = self.run_file(f"{name},text\n1,größe\n".encode(), "t.csv")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.load()[0]["ignored_fields"], {name: 1})

    def test_json_over_several_lines_says_what_lines_are(self):
        self.refused(b'{\n "text": "one"\n}\n', "jq -c . FILE", line=1)

    def test_packed_files_that_are_damaged(self):
        lines = json_lines(ALPACA * 2000)
        for data in (gzip.compress(lines), zstd(lines)):
            name = "gzip" if data.startswith(b"\x1f") else "zstd"
            self.refused(data[:-9], f"is damaged or cut short ({name})")
            self.refused(data[:len(data) // 2] + b"?" * 40,
                         f"is damaged or cut short ({name})")

    def test_what_is_unpacked_is_limited(self):
        data = gzip.compress(json_lines([{"text": "one"}] * 5000))
        with mock.patch.object(sources, "MAX_UNPACKED_BYTES", 4096):
            self.refused(data, "unpacks to more than the limit of 4 KiB")

    def test_files_of_a_dataset_share_the_limit(self):
        rows = json_lines([{"text": "one"}] * 50)
        for data in (rows, gzip.compress(rows), parquet([{
                "text": "one " * 4}] * 50)):
            size = 16 * 50 if data.startswith(b"PAR1") else len(rows)
            for most, refused in ((size, True), (2 * size, False)):
                with mock.patch.object(sources, "MAX_UNPACKED_BYTES",
                                       most + 99):
                    done = self.several({"a.json": data, "b.json": data})
                self.assertEqual(done.returncode, 3 if refused else 0)
                self.assertEqual("b.json" in done.stderr, refused)

    def test_a_small_file_holds_no_endless_rows(self):
        lines = json_lines([{"text": "one"}] * 300)
        files = {
            "a.json.gz": gzip.compress(lines), "b.json": parquet(
                [{"text": "one"}] * 300), "c.jsonl": zstd(lines),
            "d.json": gzip.compress(b"\n" * 300 + lines[:16]),
            "e.json": zstd(json.dumps([{"text": "one"}] * 300).encode()),
            "f.csv.gz": gzip.compress(b"text\n" + b"one\n" * 300)}
        with mock.patch.object(sources, "PACKED_ROWS", 299), \
                mock.patch.object(sources, "PACKED_ROWS_EACH", 0):
            for name, data in files.items():
                self.refused(data, "holds more than 299 rows and 0 more for "
                             "each of its bytes; " + (
                                 "write its rows as JSON Lines" if
                                 name == "b.json" else "unpack it first"),
                             name)
        with mock.patch.object(sources, "PACKED_ROWS", 302):
            for name, data in files.items():
                self.assertEqual(self.run_file(data, name).returncode, 0, name)
        with mock.patch.object(sources, "PACKED_BYTES", 200), \
                mock.patch.object(sources, "PACKED_BYTES_EACH", 0):
            self.refused(parquet([{"text": "nine"}] * 51),
                         "holds more than 200 bytes", "g")
            self.refused(files["a.json.gz"], "holds more than 200 bytes", "h")

    def test_no_more_lines_than_their_numbers_hold(self):
        files = {name: json_lines([{"text": "one"}] * 2) for name in "ab"}
        with mock.patch.object(dataset, "MAX_LINES", 3):
            done = self.several(files)
            found = json.loads(done.stderr)
            self.assertEqual((found["file"], found["line"]),
                             (str(self.folder / "b"), 2))
            self.assertIn("more than 3 lines or rows", found["error"])
            self.assertEqual(self.several(files, "--max-samples", 3)
                             .returncode, 0)

    def test_one_endless_line_is_not_held(self):
        line = b'{"text": "' + b"x" * (20 * MIB)
        for data in (gzip.compress(line), zstd(line)):
            self.refused(data, "the line is longer than", line=1)
            path = str(self.folder / "data.json")
            reader = json_rows.JsonLines(sources.look_at(path, path),
                                         sources.Budget())
            tracemalloc.start()
            with self.assertRaises(DataError):
                reader.check_start()
            self.assertLess(tracemalloc.get_traced_memory()[1], 60 * MIB)
            tracemalloc.stop()

    def test_without_pyarrow_it_is_named(self):
        gone = {"pyarrow": None, "pyarrow.parquet": None}
        for data in (parquet(ALPACA), zstd(json_lines(ALPACA))):
            with mock.patch.dict(sys.modules, gone):
                self.refused(data, "needs pyarrow")

    def test_a_file_that_changes_while_it_is_read(self):
        for data in (json_lines(ALPACA), gzip.compress(json_lines(ALPACA)),
                     json.dumps(ALPACA).encode(), parquet(ALPACA)):
            path = self.folder / "data.json"
            real = sources.user_file_sha256
            said = iter(["0" * 64])
            with mock.patch.object(
                    sources, "user_file_sha256",
                    lambda *rest: next(said, None) or real(*rest)):
                self.refused(data, "the file changed while it was read")
            path.unlink()


class ArrayTest(SourcesTest):
    def test_malformed(self):
        row = '{"text": "one"}'
        for text, message, line in (
                ("[", "the array is not closed: element 1 (line 1) is missing "
                 "or cut short", 1),
                ("[5]", "must be a JSON object, not a number", 1),
                (f"[{row}, [1]]", "must be a JSON object, not an array", 2),
                (f"[{row}, null]", "must be a JSON object, not null", 2),
                (f"[{row},]", "not JSON: Expecting value", 2),
                (f"[{row}\n\n{row}]", "no comma or ] follows element 1 "
                 "(line 3 of the file)", 1),
                (f"[{row}", "the array is not closed: no ] follows element 1", 1),
                (f"[{row},\n", "the array is not closed: element 2 (line 2) is "
                 "missing or cut short", 2),
                (f'[{row},\n{{"te', "the array is not closed: element 2 "
                 "(line 2) is", 2),
                (f'[{row},\n{{"text": "a"', "the array is not closed: element "
                 "2 (line 2) is", 2),
                (f"[{row}] x", "something follows its end", 1),
                ('[{"text": "a", "text": "b"}]', "'text' is there twice", 1),
                ('[\n{"text": }]', "(line 2 of the file)", 1),
                ('[{"text": "a\n"}]', "not JSON: Invalid control", 1),
                ("[" * 100_000, "nested too deeply", 1),
                ("[" + '{"a":' * 100_000, "nested too deeply", 1),
                (f"[{row}, {{}}]", "needs the field 'text'", 2),
                ('["text"]', "must be a JSON object, not a string", 1)):
            with self.subTest(text[:30]):
                self.refused(text.encode(), message, line=line)
        self.refused(b"[]", "the dataset is empty")
        self.refused(b'[{"text": "\xff"}]', "not UTF-8: byte 12 of the file",
                     line=1)

    def test_windows_cut_anywhere(self):
        rows = [{"text": "größe \"\\ one, [two] {three}" * n}
                for n in range(1, 30)]
        data = json.dumps(rows, ensure_ascii=False, indent=1).encode()
        wanted = self.outcome(json_lines(rows))
        for size in (1, 2, 3, 7, 64, 1000):
            with mock.patch.object(json_rows, "WINDOW_BYTES", size):
                self.assertEqual(self.outcome(data), wanted)
            (self.folder / "out" / "manifest.json").unlink()

    def test_an_element_is_no_larger_than_a_line_may_be(self):
        with mock.patch.object(json_rows, "MAX_LINE_BYTES", 40), \
                mock.patch.object(json_rows, "WINDOW_BYTES", 16):
            self.refused(json.dumps([{"text": "a"}, {"text": "o" * 41}]
                                    ).encode(), "longer than 40", line=2)
            self.refused(b'[{"text": "' + b"o" * 99, "longer than 40", line=1)

    def test_memory_is_that_of_a_window(self):
        rows = [{"text": "one two three " * 20}] * 40_000
        path = self.folder / "large.json"
        path.write_text(json.dumps(rows))
        self.assertGreater(path.stat().st_size, 10 * MIB)
        source = sources.look_at(str(path), "large.json")
        reader = json_rows.JsonArray(source, sources.Budget())
        tracemalloc.start()
        self.assertEqual(sum(1 for _ in reader.rows()), 40_000)
        self.assertLess(tracemalloc.get_traced_memory()[1], 8 * MIB)
        tracemalloc.stop()


class ParquetTest(SourcesTest):
    def test_rows_are_numbered_and_nulls_are_absent(self):
        turn = {"tool_calls": None, "weight": None}
        rows = [{"messages": [
            {"role": "user", "content": "one", **turn},
            {"role": "assistant", "content": "two", **turn}],
            "tools": None, "text": None}] * 3
        sequences, lines = self.outcome(parquet(rows))
        self.assertEqual(lines, [1, 2, 3])
        _, plain, _ = self.prepared({"messages": [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"}]}, out="plain")
        self.assertEqual(sequences, plain * 3)

    def test_null_content_of_a_call_stays_null(self):
        (self.model / "chat_template.jinja").write_text(
            "x{% for m in messages %}{% generation %}{{ m.content is none }}"
            "{{ m.tool_calls | tojson }}{% endgeneration %}{% endfor %}")
        sequences, _ = self.outcome(parquet([{"messages": [
            {"role": "assistant", "content": None, "name": None,
             "tool_calls": [{"id": None, "n": [1]}]}]}]))
        self.assertEqual(self.tokenizer.decode(sequences[0][0]),
                         'xTrue[{"n": [1]}]')

    def test_fields_of_other_rows_arguments_are_absent(self):
        (self.model / "chat_template.jinja").write_text(
            "x{{ tools | tojson }}{% for m in messages %}{% generation %}"
            "{{ m.tool_calls | tojson }}{% endgeneration %}{% endfor %}")
        rows = [{"messages": [{"role": "assistant", "tool_calls": [
                     {"arguments": {name: {name: 1}}}]}],
                 "tools": [{"parameters": {name: 1}}]}
                for name in ("a", "content")]
        sequences, _ = self.outcome(parquet(rows), max_length=256)
        self.assertEqual(
            [self.tokenizer.decode(ids) for ids, _ in sequences],
            ["x" + json.dumps(row["tools"]) +
             json.dumps(row["messages"][0]["tool_calls"]) for row in rows])

    def test_memory_is_not_that_of_a_row_group(self):
        texts = [os.urandom(1500).hex() for _ in range(10_000)]
        path = self.folder / "one_group"
        pyarrow.parquet.write_table(
            pyarrow.table({"text": texts, "more": texts}), path,
            row_group_size=1 << 30, use_dictionary=False)
        self.assertGreater(path.stat().st_size, 50 * MIB)
        del texts
        reader = tables.Parquet(sources.look_at(str(path), "one_group"),
                                sources.Budget())
        before = pyarrow.total_allocated_bytes()
        tracemalloc.start()
        most = max(pyarrow.total_allocated_bytes() for _ in reader.rows())
        self.assertLess(most - before +
                        tracemalloc.get_traced_memory()[1], 24 * MIB)
        tracemalloc.stop()

    def test_what_the_hub_has(self):
        """list<struct>, large strings, dictionaries, page v2, zstd."""
        struct = pyarrow.struct([("role", pyarrow.large_string()),
                                 ("content", pyarrow.string())])
        table = pyarrow.table({
            "messages": pyarrow.array([[
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two"}]] * 3,
                pyarrow.list_(struct)),
            "source": pyarrow.array(["a", "b", "a"]).dictionary_encode()})
        for options in ({}, {"compression": "zstd"},
                        {"compression": "gzip", "data_page_version": "2.0"},
                        {"compression": "brotli", "use_dictionary": False}):
            sink = io.BytesIO()
            pyarrow.parquet.write_table(table, sink, **options)
            with self.subTest(options):
                sequences, _ = self.outcome(sink.getvalue())
                self.assertEqual(len(sequences), 3)
                manifest = json.loads(
                    (self.folder / "out" / "manifest.json").read_text())
                self.assertEqual(manifest["ignored_fields"], {"source": 3})

    def test_errors_have_the_row(self):
        self.refused(parquet([{"text": 5}]), "'text' must be a string", line=1)
        for data in (b"PAR1 and so on", parquet(ALPACA)[:-9] + b"?" * 9):
            self.refused(data, "unreadable Parquet")
        data = bytearray(parquet([{"text": f"one {i}"} for i in range(99)]))
        data[4:40] = bytes(36)
        self.refused(bytes(data), "unreadable Parquet after row 0")

    def test_what_is_too_much_to_unpack_is_a_refusal(self):
        def unpack(*rest, **options):
            raise MemoryError("malloc of size 9")
            yield

        with mock.patch.object(pyarrow.parquet.ParquetFile, "iter_batches",
                               unpack):
            self.refused(parquet(ALPACA), "needs more memory", line=1)

    def test_a_row_is_no_larger_than_a_line_may_be(self):
        with mock.patch.object(tables, "MAX_LINE_BYTES", 10):
            self.refused(parquet([{"text": "one"}, {"text": "o" * 11}]),
                         "11 characters; the limit is 10", line=2)


class SeveralFilesTest(SourcesTest):
    def test_rows_follow_each_other_whatever_the_kinds(self):
        rows = [{"text": word} for word in "one two three four five".split()]
        done = self.several({
            "a.jsonl": b"\n" + json_lines(rows[:2]) + b"\n",
            "b.json": json.dumps(rows[2:3]).encode(),
            "c.parquet": parquet(rows[3:4]),
            "d.jsonl.gz": gzip.compress(json_lines(rows[4:]))})
        self.assertEqual(done.returncode, 0, done.stderr)
        manifest, sequences, lines = self.load()
        _, wanted, _ = self.prepared(*rows, out="wanted")
        self.assertEqual(sequences, wanted)
        # Blank lines are lines, but none at a file's end.
        self.assertEqual(lines, [2, 3, 4, 5, 6])
        self.assertEqual(manifest["inputs"], [
            {"name": "a.jsonl", "lines_before": 0},
            {"name": "b.json", "lines_before": 3},
            {"name": "c.parquet", "lines_before": 4},
            {"name": "d.jsonl.gz", "lines_before": 5}])

    def test_the_order_and_the_contents_are_part_of_the_key(self):
        keys = []
        for files in ({"a": b'{"text": "one"}', "b": b'{"text": "two"}'},
                      {"b": b'{"text": "two"}', "a": b'{"text": "one"}'},
                      {"a": b'{"text": "one"}', "b": b'{"text": "six"}'}):
            self.assertEqual(self.several(files).returncode, 0)
            keys.append(self.load()[0]["key"])
        self.assertEqual(len(set(keys)), 3)

    def test_the_cache_tells_nobody_names_of_others(self):
        rows = [{"messages": [{"role": "user", "content": text},
                              {"role": "assistant", "content": "b"}]}
                for text in ("a", "<|im_end|>")]
        more = ["--cache", self.folder / "cache"]
        names = ("mine/secret.jsonl", "mine/b.jsonl"), \
            ("other/a.jsonl", "other/b.jsonl"), ("third/a.jsonl",
                                                 "third/b.jsonl")
        reused = []
        for number, (first, second) in enumerate(names):
            done = self.several({first: json_lines(rows[:1]),
                                 second: json_lines(rows[1:])}, *more,
                                out=f"out{number}")
            self.assertEqual(done.returncode, 0, done.stderr)
            reused.append("reused" in done.stdout)
            manifest = self.load(f"out{number}")[0]
            self.assertEqual([one["name"] for one in manifest["inputs"]],
                             [first.split("/")[1], second.split("/")[1]])
            self.assertEqual(manifest["warnings"][0]["places"], ["b.jsonl:1"])
        # Whose files have the same names may share.
        self.assertEqual(reused, [False, False, True])

    def test_the_kind_is_part_of_the_key(self):
        keys = []
        for name in ("t.csv", "t.tsv"):
            self.assertEqual(self.run_file(b"text\none\n", name).returncode, 0)
            keys.append(self.load()[0]["key"])
        self.assertNotEqual(*keys)

    def test_what_is_named_is_a_file_and_its_line(self):
        good = {"messages": [{"role": "user", "content": "a"},
                             {"role": "assistant", "content": "b"}]}
        odd = {"messages": [{"role": "user", "content": "<|im_end|>"},
                            {"role": "assistant", "content": "b"}]}
        alone = {"messages": [{"role": "user", "content": "a"}]}
        done = self.several({"x/a.jsonl": json_lines([good] * 3),
                             "x/b.jsonl": json_lines([good, odd, alone])},
                            mode=("--validate",))
        report = json.loads(done.stdout.splitlines()[-1])["report"]
        self.assertEqual(
            [(one["kind"], one["lines"], one["places"])
             for one in report["warnings"]],
            [("control_tokens", [5], ["b.jsonl:2"]),
             ("dropped", [6], ["b.jsonl:3"])])
        done = self.several({"x/a.jsonl": json_lines([alone, good]),
                             "y/b.jsonl": json_lines([good])},
                            mode=("--preview", 2))
        self.assertEqual([sample["place"] for sample in json.loads(
            done.stdout.splitlines()[-1])["samples"]],
            ["x/a.jsonl:2", "y/b.jsonl:1"])

    def test_errors_are_of_the_file_they_are_in(self):
        good, bad = b'{"text": "one"}\n', b'{"text": 5}\n'
        long = json_lines([{"messages": [{"role": "assistant"}]}])
        for second, line in ((good + bad, 2), (b"\xfd7zXZ\0", None), (long, 1)):
            done = self.several({"a": good * 3, "b": second})
            found = json.loads(done.stderr)
            self.assertEqual((found["file"], found.get("line")),
                             (str(self.folder / "b"), line))

    def test_a_template_refuses_a_row_of_the_second_file(self):
        (self.model / "chat_template.jinja").write_text(
            "{% for m in messages %}{% if m.content == 'no' %}"
            "{{ raise_exception('not this') }}{% endif %}{% generation %}"
            "{{ m.content }}{% endgeneration %}{% endfor %}")
        rows = [{"messages": [{"role": "assistant", "content": text}]}
                for text in ("one", "two", "no")]
        done = self.several({"a": json_lines(rows[:2]),
                             "b": json_lines(rows[1:])})
        found = json.loads(done.stderr)
        self.assertEqual((found["file"], found["line"]),
                         (str(self.folder / "b"), 2))

    def test_an_empty_file_among_them(self):
        done = self.several({"a": b"", "b": b'{"text": "one"}', "c": b"\n"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.load()[2], [1])

    def test_files_that_max_samples_leaves_unread_are_said(self):
        files = {f"{name}.jsonl": json_lines([{"text": "one"}] * 3)
                 for name in "abcd"}
        wanted = {
            "kind": "files_not_read", "rows": 1, "lines": [5],
            "places": ["b.jsonl:2"], "warning":
            "2 of 4 files were not read at all: max_samples (5) ends the "
            "dataset before them, with this row"}
        for most, held_out, split, found in (
                (5, False, "train", [wanted]), (5, True, "train", [wanted]),
                (5, True, "validation", []), (10, False, "train", []),
                (99, False, "train", [])):
            more = ["--max-samples", most, "--split", split]
            more += ["--validation-split", 0.5] if held_out else []
            done = self.several(files, *more, mode=("--validate",))
            report = json.loads(done.stdout.splitlines()[-1])["report"]
            self.assertEqual(report["warnings"], found, (most, split))
            self.assertEqual([json.loads(line) for line in
                              done.stdout.splitlines() if "warning" in line
                              and "report" not in line], found)

    def test_how_many(self):
        data = self.write({"text": "one"})
        done = self.start("--tokenizer", self.model, "--max-length", 9,
                          "--preview", 1, *["--data", data] * 129)
        self.assertEqual(done.returncode, 2)
        self.assertIn("at most 128 files", done.stderr)

    def test_options_may_have_a_list(self):
        data = str(self.write({"text": "one"}))
        for value, count in ((data, 1), ([data, data], 2)):
            done = self.start("--options", "-", stdin=json.dumps({
                "tokenizer": str(self.model), "data": value, "max_length": 9,
                "preview": 5}))
            self.assertEqual(len(json.loads(done.stdout.splitlines()[-1])[
                "samples"]), count)
        for value in ([], [5], 5):
            self.assertEqual(self.start("--options", json.dumps({
                "data": value})).returncode, 2)


if __name__ == "__main__":
    unittest.main()
