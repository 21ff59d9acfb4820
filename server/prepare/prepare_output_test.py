"""Tests of prepare.py on what becomes of sequences: truncation, packing, the
cache, and what people are shown."""

import json
import os
import pathlib
import random
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import prepare_cache  # noqa: E402  found by the line before
import prepare_output  # noqa: E402
from common import reporting  # noqa: E402
from prepare_testing import (HERE, WORDS, PrepareTest,  # noqa: E402
                             make_chatml, make_mistral)
from tokens.encoder import Encoded  # noqa: E402


def words(count, start=0):
    return {"text": " ".join(WORDS[(start + i) % 12] for i in range(count))}


class TruncationTest(PrepareTest):
    def test_left_keeps_the_right_end(self):
        manifest, sequences, _ = self.prepared(
            {"prompt": "", "completion": words(9)["text"]},
            {"prompt": "one two three four", "completion": " five"},
            {"prompt": "one", "completion": " two"}, max_length=3,
            more=["--truncation", "left"])
        self.assertEqual(sequences[0], (
            self.ids(words(9)["text"])[-2:] + [self.eos], [0, 1, 1]))
        self.assertEqual(sequences[1], (
            self.ids(" four five") + [self.eos], [0, 1, 1]))
        self.assertEqual(manifest["truncated"], 2)
        self.assertEqual(manifest["truncated_lines"], [1, 2])
        self.assertEqual(manifest["options"]["truncation"], "left")

    def test_the_first_token_left_is_no_target(self):
        _, sequences, _ = self.prepared(
            {"prompt": "one", "completion": " two three four"}, max_length=2,
            more=["--truncation", "left"])
        self.assertEqual(sequences, [(self.ids(" four") + [self.eos], [0, 1])])

    def test_drop_keeps_no_part(self):
        manifest, sequences, lines = self.prepared(
            words(9), words(2), words(8), max_length=3,
            more=["--truncation", "drop"])
        self.assertEqual(lines, [2])
        self.assertEqual(manifest["truncated"], 0)
        self.assertEqual(manifest["dropped"], {"too_long": 2})
        self.assertEqual(manifest["dropped_lines"], {"too_long": [1, 3]})

    def test_all_too_long(self):
        found = self.error(words(9), max_length=3,
                           more=["--truncation", "drop"])
        self.assertEqual(found["line"], 1)
        self.assertIn("truncation: drop leaves out the only row, longer than "
                      "max_length 3: give", found["error"])


class PackingTest(PrepareTest):
    def packed(self, rows, max_length, seed=1, out="out"):
        """The manifest, the sequences with their lines, and the rows as lists
        of them."""
        manifest, sequences, lines = self.prepared(
            *rows, max_length=max_length, out=out,
            more=["--packing", "--seed", seed])
        bounds = self.values(self.folder / out, "rows.u64", manifest)
        self.assertEqual((bounds[0], bounds[-1]), (0, len(sequences)))
        self.assertEqual(len(bounds) - 1, manifest["packed_rows"])
        kept = list(zip(lines, sequences))
        return manifest, kept, [kept[a:b] for a, b in zip(bounds, bounds[1:])]

    def rows(self, count=400):
        source = random.Random(3)
        return [words(source.randint(1, 30), source.randint(0, 11))
                for _ in range(count)]

    def test_every_sequence_is_whole_and_there_once(self):
        rows = self.rows()
        plain, sequences, lines = self.prepared(*rows, max_length=24,
                                                out="plain")
        manifest, kept, packed = self.packed(rows, 24)
        self.assertEqual(sorted(kept), sorted(zip(lines, sequences)))
        lengths = [sum(len(ids) for _, (ids, _) in row) for row in packed]
        self.assertTrue(all(packed))
        self.assertLessEqual(max(lengths), 24)
        self.assertEqual(max(lengths), manifest["max_row_tokens"])
        for name in ("sequences", "tokens", "target_tokens", "truncated",
                     "truncated_lines", "dropped", "max_sequence_tokens"):
            self.assertEqual(manifest[name], plain[name], name)
        self.assertNotIn("packed_rows", plain)

    def test_rows_are_well_filled(self):
        manifest, _, packed = self.packed(self.rows(), 24)
        # First-fit-decreasing needs at most 11/9 of the fewest rows, plus 1.
        fewest = -(-manifest["tokens"] // 24)
        self.assertLessEqual(len(packed), fewest * 11 / 9 + 1)

    def test_the_seed_decides(self):
        rows = self.rows(50)
        contents = [self.bytes_of(rows, seed, out) for seed, out in
                    ((1, "a"), (1, "b"), (2, "c"))]
        self.assertEqual(contents[0], contents[1])
        self.assertNotEqual(contents[0], contents[2])

    def bytes_of(self, rows, seed, out):
        self.packed(rows, 24, seed, out)
        return [(self.folder / out / name).read_bytes() for name in
                ("tokens.u32", "rows.u64", "manifest.json")]

    def test_windows_are_packed_one_by_one(self):
        rows = self.rows(100)
        for name, value in (("WINDOW_SEQUENCES", 10), ("WINDOW_TOKENS", 99)):
            with mock.patch.object(prepare_output, name, value):
                _, kept, packed = self.packed(rows, 24, out=name)
            self.assertEqual(sorted(line for line, _ in kept),
                             list(range(1, 101)))
            last = -1
            for row in packed:
                lines = [line for line, _ in row]
                self.assertLess(max(lines) - min(lines), 99)
                if name == "WINDOW_SEQUENCES":
                    windows = {(line - 1) // 10 for line in lines}
                    self.assertEqual(len(windows), 1)
                    self.assertGreaterEqual(min(windows), last)
                    last = min(windows)

    def test_the_next_packing_needs_no_rows(self):
        self.packed(self.rows(5), 24)
        self.prepared(*self.rows(5), max_length=24)  # checks the files

    def test_bins_take_the_first_with_room(self):
        source = random.Random(8)
        for most in (1, 2, 7, 100):
            bins = prepare_output.Bins(10, most)
            rooms = [10] * most
            for _ in range(most):
                size = source.randint(1, 10)
                wanted = next(i for i, room in enumerate(rooms)
                              if room >= size)
                rooms[wanted] -= size
                self.assertEqual(bins.first_fit(size), wanted)

    def test_equal_lengths_are_mixed_by_the_seed(self):
        sequences = [Encoded(i, [0] * 5, b"\0\1\1\1\1", False, None)
                     for i in range(40)]
        rows = prepare_output.pack(sequences, 10, random.Random("7"))
        self.assertEqual([len(row) for row in rows], [2] * 20)
        self.assertNotEqual([s.line for row in rows for s in row],
                            list(range(40)))


class CacheTest(PrepareTest):
    def run_again(self, *more, out="out", **kwargs):
        """Whether preparing took what was there."""
        done = self.prepare(self.folder / "data.jsonl", *more, out=out,
                            **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        records = [json.loads(line) for line in done.stdout.splitlines()]
        manifest, _, _ = self.load(out)
        reused = [r["reused"] for r in records if "reused" in r]
        self.assertIn(reused, ([], [manifest["key"]]))
        self.assertEqual(records[-1]["progress"], records[-1]["total"])
        return bool(reused)

    def setUp(self):
        super().setUp()
        self.write(words(3), words(4))

    def test_the_same_is_not_done_again(self):
        self.assertFalse(self.run_again())
        self.assertTrue(self.run_again())

    def test_all_it_depends_on_makes_another_key(self):
        config = self.model / "tokenizer_config.json"
        changes = (
            lambda: {"max_length": 32}, lambda: {"split": "validation"},
            lambda: {"more": ["--packing"]},
            lambda: {"more": ["--truncation", "left"]},
            lambda: {"more": ["--seed", "7"]},
            lambda: self.write(words(3), words(5)) and {},
            lambda: config.write_text(config.read_text() + " ") and {},
            lambda: (self.model / "chat_template.jinja").write_text("x") and
            {})
        self.assertFalse(self.run_again())
        for change in changes:
            options = change()
            more = options.pop("more", [])
            self.assertFalse(self.run_again(*more, **options))
            self.assertTrue(self.run_again(*more, **options))

    def test_code_and_packages_and_the_date_are_part_of_the_key(self):
        self.run_again()
        for name, value in (("code_sha256", ["x"]), ("packages", {"a": "1"})):
            with mock.patch.object(prepare_cache, name, lambda v=value: v):
                self.assertFalse(self.run_again())
        modules = [path for path in HERE.rglob("*.py")
                   if "test" not in path.name]
        self.assertEqual(len(prepare_cache.code_sha256()), len(modules))
        self.assertIn("tokenizers", prepare_cache.packages())
        (self.model / "chat_template.jinja").write_text(
            "{{ strftime_now('%Y') }}")
        for date in ("2024-01-01", "2024-01-02"):
            self.assertFalse(self.run_again("--template-date", date))

    def test_damaged_output_is_made_anew(self):
        self.run_again()
        for name in ("labels.u8", "tokens.u32", "manifest.json"):
            path = self.folder / "out" / name
            data = path.read_bytes()
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            self.assertFalse(self.run_again(), name)
            path.unlink()
            self.assertFalse(self.run_again(), name)
        self.assertTrue(self.run_again())

    def test_a_cache_folder_serves_other_outputs(self):
        cache = ["--cache", self.folder / "cache"]
        self.assertFalse(self.run_again(*cache, out="a"))
        self.assertTrue(self.run_again(*cache, out="b"))
        self.assertFalse(self.run_again(*cache, out="b", max_length=32))
        self.assertFalse(self.run_again(*cache, "--packing", out="b"))
        self.assertTrue(self.run_again(*cache, out="b"))
        self.assertEqual((self.folder / "a" / "tokens.u32").stat().st_ino,
                         (self.folder / "b" / "tokens.u32").stat().st_ino)

    def test_only_what_was_hashed_as_it_was_read_is_shared(self):
        # Whoever may write a file may change it while it is read, and back.
        cache = self.folder / "cache"
        (self.folder / "data.jsonl").write_text(
            json.dumps([{"text": "one two"}] * 3))
        self.run_again("--cache", cache, out="a")
        self.assertFalse(self.run_again("--cache", cache, out="b"))
        self.assertEqual(list(cache.glob("*/")), [])

    def test_damage_in_the_cache_is_seen(self):
        cache = ["--cache", self.folder / "cache"]
        self.run_again(*cache, out="a")
        for entry in (self.folder / "cache").glob("*/tokens.u32"):
            entry.unlink()
            entry.write_bytes(b"1234")
        self.assertFalse(self.run_again(*cache, out="b"))
        self.assertTrue(self.run_again(*cache, out="c"))

    def test_the_least_recently_used_goes_first(self):
        cache = ["--cache", self.folder / "cache"]
        with mock.patch.object(prepare_cache, "KEPT_ENTRIES", 2):
            for step, length in enumerate((10, 11, 10, 12)):
                self.run_again(*cache, max_length=length, out=f"{step}")
                for entry in (self.folder / "cache").iterdir():
                    when = os.stat(entry).st_mtime - 100
                    os.utime(entry, (when, when))
        self.assertEqual(len(list((self.folder / "cache").glob("*/"))), 2)
        self.load("1")  # keeps its files
        self.assertTrue(self.run_again(*cache, max_length=10, out="x"))
        self.assertTrue(self.run_again(*cache, max_length=12, out="y"))
        self.assertFalse(self.run_again(*cache, max_length=11, out="z"))


class SilenceTest(PrepareTest):
    def test_long_work_is_told(self):
        with mock.patch.object(reporting, "SILENT_SECONDS", 0):
            done = self.prepare(self.write(words(3)), "--packing",
                                out="train")
            more = self.prepare(self.write(words(3)), "--bigram-from",
                                self.folder / "train", split="validation")
        records = [json.loads(line) for line in
                   (done.stdout + more.stdout).splitlines()]
        self.assertEqual({r["still"] for r in records if "still" in r}, {
            "the tokenizer is read", "hashing", "reading", "packing",
            "comparing with bigrams"})


class ShownTest(PrepareTest):
    def make_model(self):
        return make_chatml(self.model)

    CHAT = {"messages": [{"role": "user", "content": "größer 三?"},
                         {"role": "assistant", "content": "two\n"},
                         {"role": "user", "content": "and"},
                         {"role": "assistant", "content": "三"}]}
    SPANS = [("<|im_start|>user\ngrößer 三?<|im_end|>\n"
              "<|im_start|>assistant\n", False),
             ("two\n<|im_end|>\n", True),
             ("<|im_start|>user\nand<|im_end|>\n<|im_start|>assistant\n",
              False), ("三<|im_end|>\n", True)]

    def shown(self, sample):
        return [(span["text"], span["trained"]) for span in sample["spans"]]

    def test_preview_marks_what_is_trained(self):
        masked = {"messages": self.CHAT["messages"][:1]}
        seen = self.report(["--preview", 2], masked, self.CHAT, self.CHAT,
                           self.CHAT)
        self.assertEqual(seen["format"], "messages")
        self.assertEqual([sample["line"] for sample in seen["samples"]],
                         [2, 3])
        sample = seen["samples"][0]
        self.assertEqual(self.shown(sample), self.SPANS)
        _, sequences, _ = self.prepared(self.CHAT)
        self.assertEqual(sample["tokens"], len(sequences[0][0]))
        self.assertEqual(sample["target_tokens"], sum(sequences[0][1]))

    def test_preview_is_of_what_is_left(self):
        seen = self.report(["--preview", 1], {"text": "one two three four"},
                           more=["--options", '{"truncation": "left"}'])
        self.assertEqual(self.shown(seen["samples"][0]),
                         [("one", False), (" two three four<|im_end|>", True)])

    def test_preview_says_the_warnings_of_what_it_read(self):
        rows = [{"text": "one two three four", "id": 5},
                {"text": "one <image>"}, {"text": "", "id": 5}]
        seen = self.report(["--preview", 1], *rows, more=["--options",
                           json.dumps({"truncation": "right"})])
        said = {one["kind"]: (one["rows"], one["warning"])
                for one in seen["warnings"]}
        self.assertEqual(said["ignored_fields"],
                         (2, "the field 'id', in 2 rows, is not used"))
        self.assertEqual(said["media_marks"][0], 1)
        self.assertEqual(said["dropped"],
                         (1, "1 row is dropped, all_labels_masked"))
        done = self.start("--tokenizer", self.model, "--data",
                          self.write(*rows), "--max-length", 2, "--preview", 1)
        seen = json.loads(done.stdout.splitlines()[-1])
        self.assertIn("2 rows are cut at max_length",
                      [one["warning"] for one in seen["warnings"]])

    def test_preview_warns_of_no_row_that_it_does_not_tell_of(self):
        rows = [{"text": "one"}] * 512 + [{"text": "one", "id": 1}] * 9
        seen = self.report(["--preview", 1], *rows)
        self.assertEqual((seen["rows"], seen["whole"], seen["warnings"]),
                         (512, False, []))

    def test_preview_when_a_character_is_cut(self):
        seen = self.report(["--preview", 1],
                           {"prompt": "三", "completion": "丁"})
        spans = self.shown(seen["samples"][0])
        self.assertEqual("".join(text for text, _ in spans), "三丁<|im_end|>")
        self.assertEqual(spans[-1], ("丁<|im_end|>", True))

    def test_preview_of_a_tokenizer_that_prefixes_spaces(self):
        self.tokenizer = make_mistral(self.model)
        seen = self.report(["--preview", 1], {"messages": [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"}]})
        sample = seen["samples"][0]
        _, sequences, _ = self.prepared({"messages": [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"}]})
        self.assertEqual("".join(text for text, _ in self.shown(sample)),
                         self.tokenizer.decode(sequences[0][0],
                                               skip_special_tokens=False))
        self.assertEqual([trained for _, trained in self.shown(sample)],
                         [False, True])

    def test_validate_counts_and_leaves_nothing(self):
        before = sorted(self.folder.rglob("*"))
        masked = {"messages": self.CHAT["messages"][:1]}
        rows = [self.CHAT, masked, self.CHAT]
        report = self.report(["--validate"], *rows,
                             more=["--packing"])["report"]
        self.assertEqual(sorted(self.folder.rglob("*")),
                         sorted([*before, self.folder / "data.jsonl"]))
        manifest, _, _ = self.prepared(*rows, more=["--packing"])
        for name in ("rows", "sequences", "tokens", "target_tokens", "dropped",
                     "dropped_lines", "truncated", "truncated_lines",
                     "warnings", "packed_rows", "max_row_tokens", "template"):
            self.assertEqual(report[name], manifest[name], name)

    def test_validate_names_what_is_wrong(self):
        done = self.start(
            "--tokenizer", self.model, "--data",
            self.write(self.CHAT, {"messages": []}), "--max-length", 64,
            "--validate")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(json.loads(done.stderr)["line"], 2)

    def test_names_that_utf8_cannot_have_are_told_too(self):
        report = self.report(["--validate"],
                             b'{"text": "one two", "a\\ud800": 1}\n')["report"]
        self.assertEqual(report["ignored_fields"], {"a?": 1})


if __name__ == "__main__":
    unittest.main()
