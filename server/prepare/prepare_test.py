"""Tests of prepare.py on text rows, of its command and of its rooms."""

import ast
import collections
import json
import math
import pathlib
import random
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import prepare_bigram  # noqa: E402  found by the line before
from prepare_testing import (BOS, EOS, HERE, PREPARE, WORDS,  # noqa: E402
                             PrepareTest, make_tokenizer)

# Which rooms the modules of one may import.
MAY_IMPORT = {"common": {"common"}, "rows": {"common", "rows"},
              "tokens": {"common", "rows", "tokens"}}


class FormatsTest(PrepareTest):
    def test_text_appends_eos_and_targets_all_but_the_first(self):
        manifest, sequences, lines = self.prepared(
            {"text": "one plus two"}, {"text": "drei größer 三"})
        self.assertEqual(sequences[0][0], self.ids("one plus two") + [self.eos])
        self.assertEqual(sequences[1][0],
                         self.ids("drei größer 三") + [self.eos])
        for ids, labels in sequences:
            self.assertEqual(labels, [0] + [1] * (len(ids) - 1))
        self.assertEqual(lines, [1, 2])
        self.assertEqual(manifest["format"], "text")
        self.assertEqual(manifest["vocab_size"],
                         self.tokenizer.get_vocab_size())
        self.assertEqual(manifest["max_token_id"],
                         max(max(ids) for ids, _ in sequences))
        self.assertEqual(manifest["max_sequence_tokens"],
                         max(len(ids) for ids, _ in sequences))

    def test_eos_is_not_doubled(self):
        _, sequences, _ = self.prepared({"text": "one two" + EOS})
        self.assertEqual(sequences[0][0], self.ids("one two") + [self.eos])

    def test_prompt_is_masked(self):
        manifest, sequences, _ = self.prepared(
            {"prompt": "one plus one is", "completion": " two"})
        ids, labels = sequences[0]
        prompt = self.ids("one plus one is")
        self.assertEqual(ids, prompt + self.ids(" two") + [self.eos])
        self.assertEqual(labels, [0] * len(prompt) +
                         [1] * (len(ids) - len(prompt)))
        self.assertEqual(manifest["format"], "prompt_completion")
        self.assertEqual(manifest["boundary_merged"], 0)

    def test_token_over_the_boundary_is_a_target(self):
        whole = self.ids("one two")
        self.assertEqual(len(whole), 2)  # so " tw" and "o" must merge
        manifest, sequences, _ = self.prepared(
            {"prompt": "one tw", "completion": "o"})
        self.assertEqual(sequences[0], (whole + [self.eos], [0, 1, 1]))
        self.assertEqual(manifest["boundary_merged"], 1)

    def test_empty_prompt_and_empty_completion(self):
        _, sequences, _ = self.prepared(
            {"prompt": "", "completion": "one two"},
            {"prompt": "one two", "completion": ""})
        ids = self.ids("one two") + [self.eos]
        self.assertEqual(sequences, [(ids, [0, 1, 1]), (ids, [0, 0, 1])])

    def test_tokenizers_own_special_tokens_are_kept(self):
        self.tokenizer = make_tokenizer(self.model, post_processor=True)
        bos = self.tokenizer.token_to_id(BOS)
        _, sequences, _ = self.prepared(
            {"prompt": "one", "completion": " two"})
        plain = self.tokenizer.encode("one two", add_special_tokens=False).ids
        self.assertEqual(sequences,
                         [([bos, *plain, self.eos], [0, 0, 1, 1])])

    def test_saved_truncation_and_padding_are_ignored(self):
        text = "one two three four five"
        wanted = self.ids(text) + [self.eos]
        self.tokenizer.enable_truncation(2)
        self.tokenizer.enable_padding(length=50)
        self.tokenizer.save(str(self.model / "tokenizer.json"))
        _, sequences, _ = self.prepared({"text": text}, {"text": "one"})
        self.assertEqual(sequences[0][0], wanted)

    def test_blank_lines_bom_crlf_and_extra_fields(self):
        manifest, sequences, lines = self.prepared(
            b"\xef\xbb\xbf" + b'{"text":"one","id":7}\r\n', b"\n", b"  \n",
            b'{"text":"two three"}')
        self.assertEqual(lines, [1, 4])
        self.assertEqual(len(sequences), 2)
        self.assertEqual(manifest["rows"], 2)
        self.assertEqual(manifest["ignored_fields"], {"id": 1})

    def test_many_batches_equal_one_by_one_encoding(self):
        random.seed(5)
        rows = [{"prompt": " ".join(random.choices(WORDS, k=5)),
                 "completion": " " + random.choice(WORDS)}
                for _ in range(1500)]
        _, sequences, lines = self.prepared(*rows)
        self.assertEqual(lines, list(range(1, 1501)))
        for row, (ids, labels) in zip(rows, sequences):
            self.assertEqual(
                ids, self.ids(row["prompt"] + row["completion"]) + [self.eos])
            self.assertEqual(labels.count(0), len(self.ids(row["prompt"])))


class LengthTest(PrepareTest):
    def test_truncates_from_the_right_and_names_lines(self):
        rows = [{"text": "one two"}] + [{"text": "one two three four"}] * 7
        manifest, sequences, _ = self.prepared(*rows, max_length=3)
        self.assertEqual(sequences[0][0], self.ids("one two") + [self.eos])
        self.assertEqual(sequences[1][0], self.ids("one two three"))
        self.assertEqual(manifest["truncated"], 7)
        self.assertEqual(manifest["truncated_lines"], [2, 3, 4, 5, 6])
        self.assertEqual(manifest["max_sequence_tokens"], 3)

    def test_exact_length_is_not_truncated(self):
        manifest, _, _ = self.prepared({"text": "one two"}, max_length=3)
        self.assertEqual(manifest["truncated"], 0)

    def test_rows_without_targets_are_dropped_with_reason(self):
        manifest, sequences, lines = self.prepared(
            {"prompt": "one two three", "completion": " four"},
            {"prompt": "one", "completion": " two"}, max_length=3)
        self.assertEqual(lines, [2])
        self.assertEqual(len(sequences), 1)
        self.assertEqual(manifest["dropped"], {"no_target_tokens": 1})
        self.assertEqual(manifest["dropped_lines"], {"no_target_tokens": [1]})
        self.assertEqual(manifest["truncated"], 1)

    def test_no_row_left_is_an_error(self):
        found = self.error({"prompt": "one two three", "completion": " four"},
                           max_length=2)
        self.assertIn("max_length 2 cuts off all that is trained, in the "
                      "only row: give a larger one", found["error"])


class BadInputTest(PrepareTest):
    def test_empty_dataset(self):
        self.assert_error([], None, "the dataset is empty")
        self.assert_error([b"\n \n"], None, "the dataset is empty")

    def test_malformed_line(self):
        good = {"text": "one"}
        for raw, message in (
                (b'{"text": "a"\n', "not JSON"),
                (b'{"text": "a\n',
                 "not JSON: Invalid control character at character 12"),
                (b'{"text": "a"} x\n', "not JSON: Extra data at character 15"),
                (b'["text"]\n', "must be a JSON object, not an array"),
                (b"17\n", "must be a JSON object, not a number"),
                (b"[" * 100_000 + b"\n", "not usable JSON: nested too deeply"),
                (b'{"text": "a", "text": "b"}\n', "'text' is there twice"),
                (b'{"text": "a\xff"}\n', "byte 12 of the line is 0xff"),
                (b'{"text": "\\ud800"}\n', "surrogate"),
                (b'{"text": 5}\n', "'text' must be a string, not a number"),
                (b'{"text": null}\n', "the field 'text' is null"),
                (b'{"prompt": "a"}\n', "the field 'completion' is missing"),
                (b'{"completion": "a"}\n', "the field 'prompt' is missing"),
                (b'{"text": "a", "prompt": "b"}\n', "say dataset_format"),
                (b'{"txt": "a"}\n', "has 'txt'"),
                (b"{}\n", "has none"),
                (b'{"prompt":"a","completion":"b"}\n', "make two datasets,")):
            with self.subTest(raw=raw[:40]):
                self.assert_error([good, b"\n", raw, good], 3, message)

    def test_too_long_line(self):
        self.assert_error([{"text": "a"}, b'{"text":"' + b"a" * (16 << 20)], 2,
                          "longer than 16 MiB; make")

    def test_missing_data_and_name_for_messages(self):
        done = self.prepare(self.folder / "none", "--data-name", "my.jsonl")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(json.loads(done.stderr), {
            "error": "cannot open: No such file or directory",
            "file": "my.jsonl"})

    def test_failure_removes_the_last_manifest(self):
        self.prepared({"text": "one"})
        self.assertTrue((self.folder / "out" / "manifest.json").exists())
        self.error({"text": 1})

    def test_random_bytes_never_crash(self):
        random.seed(11)
        lines = [b'{"text": "one two"}\n',
                 b'{"prompt": "one", "completion": " two"}\n']
        for round_number in range(25):
            data = bytearray(b"".join(random.choices(lines, k=4)))
            for _ in range(random.randint(1, 6)):
                data[random.randrange(len(data))] = random.randrange(256)
            done = self.prepare(self.write(bytes(data)))
            self.assertIn(done.returncode, (0, 3), (round_number, bytes(data)))
            if done.returncode == 3:
                self.assertIn("error", json.loads(done.stderr))
            else:
                self.load()


class TokenizerTest(PrepareTest):
    def fail(self):
        done = self.prepare(self.write({"text": "one"}))
        self.assertEqual(done.returncode, 3, done.stderr)
        return json.loads(done.stderr)

    def test_missing_or_broken_tokenizer(self):
        (self.model / "tokenizer.json").write_text("{}")
        self.assertIn("unreadable tokenizer", self.fail()["error"])
        (self.model / "tokenizer.json").unlink()
        self.assertTrue(self.fail()["file"].endswith("tokenizer.json"))

    def test_eos_sources(self):
        make_tokenizer(self.model, files=False)
        self.assertIn("no end-of-sequence token", self.fail()["error"])
        two = self.ids("two")[0]
        sources = (("config.json", "eos_token_id", two, two),
                   ("generation_config.json", "eos_token_id",
                    [self.eos, two], self.eos),
                   ("special_tokens_map.json", "eos_token",
                    {"content": BOS}, self.tokenizer.token_to_id(BOS)),
                   ("tokenizer_config.json", "eos_token", EOS, self.eos))
        for file, field, value, wanted in sources:  # later ones win
            (self.model / file).write_text(json.dumps({field: value}))
            manifest, sequences, _ = self.prepared({"text": "one"})
            self.assertEqual(manifest["eos_token_id"], wanted, file)
            self.assertEqual(sequences[0][0][-1], wanted, file)

    def test_unknown_eos_names_its_file(self):
        config = self.model / "tokenizer_config.json"
        config.write_text(json.dumps({"eos_token": "<nope>"}))
        found = self.fail()
        self.assertIn("'<nope>' is not in the tokenizer", found["error"])
        self.assertEqual(found["file"], str(config))


class BigramTest(PrepareTest):
    def rows(self, seed, count):
        """The second word follows from the first, so that a bigram model
        knows it; the third is one of four whatever stands before."""
        source = random.Random(seed)
        for _ in range(count):
            index = source.randrange(8)
            yield {"text": f" {WORDS[index]} {WORDS[index + 1]} "
                           f"{source.choice(WORDS[:4])}"}

    def loss(self, train, validation):
        self.prepared(*train, out="train")
        done = self.prepare(
            self.write(*validation), "--bigram-from", self.folder / "train",
            split="validation")
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.load()[0]

    def test_loss_is_near_the_entropy_of_a_bigram_source(self):
        manifest = self.loss(self.rows(1, 4000), self.rows(2, 1000))
        # Word 2 given word 1 is not certain: word 1 may also be a third
        # word, followed by the end. Counted exactly: below.
        follow = {}
        for row in self.rows(1, 4000):
            words = row["text"].split() + [EOS]
            for pair in zip(words, words[1:]):
                follow.setdefault(pair[0], []).append(pair[1])
        wanted, count = 0.0, 0
        for row in self.rows(2, 1000):
            words = row["text"].split() + [EOS]
            for before, token in zip(words, words[1:]):
                after = follow[before]
                wanted -= math.log(after.count(token) / len(after))
                count += 1
        self.assertEqual(manifest["target_tokens"], count)
        self.assertAlmostEqual(manifest["bigram_loss"], wanted / count,
                               delta=0.01)

    def test_unseen_pairs_cost_a_finite_loss(self):
        manifest = self.loss([{"text": "one two"}], [{"text": "ten nine"}])
        self.assertTrue(2 < manifest["bigram_loss"] < 20,
                        manifest["bigram_loss"])

    def test_only_targets_count(self):
        masked = {"prompt": "one two three", "completion": " four"}
        manifest = self.loss([masked] * 40, [masked])
        self.assertEqual(manifest["bigram"]["train_tokens"], 80)
        self.assertLess(manifest["bigram_loss"], 0.1)

    def test_probabilities_sum_to_one(self):
        pairs = collections.Counter({(0, 1): 3, (0, 2): 1, (1, 1): 2})
        model = prepare_bigram.Bigram(5, pairs)
        for before in range(3):
            total = sum(math.exp(-model.nll({(before, token): 1}, (0.1, 3.0)))
                        for token in range(5))
            self.assertAlmostEqual(total, 1.0, places=12)

    def test_another_tokenizer_is_refused(self):
        self.prepared({"text": "one two"}, out="train")
        make_tokenizer(self.model, post_processor=True)
        done = self.prepare(self.write({"text": "one"}), "--bigram-from",
                            self.folder / "train", split="validation")
        self.assertEqual(done.returncode, 3)
        self.assertIn("another tokenizer_sha256", done.stderr)


class CommandTest(PrepareTest):
    def test_same_input_gives_the_same_bytes(self):
        rows = [{"text": " ".join(WORDS[i % 7:])} for i in range(600)]
        contents = []
        for out in ("first", "second"):
            self.prepared(*rows, out=out)
            contents.append({path.name: path.read_bytes() for path in
                             (self.folder / out).iterdir()})
        self.assertEqual(*contents)

    def test_progress_ends_at_the_total(self):
        data = self.write(*[{"text": "one two three"}] * 3000)
        done = self.prepare(data)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        steps = [line["progress"] for line in lines if "progress" in line]
        self.assertEqual(steps, sorted(steps))
        self.assertGreater(len(steps), 3)
        self.assertEqual(lines[-1], {"progress": data.stat().st_size,
                                     "total": data.stat().st_size})

    def test_options_as_json(self):
        options = json.dumps({
            "tokenizer": str(self.model), "split": "train", "max_length": 8,
            "data": str(self.write({"text": "one"})),
            "out": str(self.folder / "out")})
        self.assertEqual(self.start("--options", options).returncode, 0)
        self.load()
        done = self.start("--options", "-", stdin=options)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_usage_errors(self):
        data = ["--tokenizer", "t", "--data", "d", "--max-length", "8"]
        for arguments in (["--options", '{"maxlength": 5}'],
                          ["--options", '{"max_length": "5"}'],
                          ["--options", "nope"],
                          ["--max-length", "8", "--options",
                           '{"max_length": 8}'],
                          ["--options", '{"packing": 1}'],
                          ["--options", '{"truncation": "top"}'],
                          ["--options", '{"template_date": "today"}'],
                          ["--preview", "0", *data], ["--preview", "1001",
                           *data], ["--preview", "1", "--out", "x", *data],
                          ["--preview", "1", "--validate", *data],
                          ["--validate", "--cache", "x", *data],
                          ["--split", "test"], data, []):
            with self.subTest(arguments):
                self.assertEqual(self.start(*arguments).returncode, 2)

    def test_as_the_daemon_starts_it(self):
        installed = self.folder / "bin"
        shutil.copytree(HERE, installed)
        for number, script in enumerate((PREPARE, installed / PREPARE.name)):
            out = f"out{number}"
            # Without this process's environment and modules.
            done = subprocess.run(
                [sys.executable, script, "--tokenizer", self.model, "--data",
                 self.write({"text": "one two"}), "--out", self.folder / out,
                 "--max-length", "8", "--split", "train"],
                capture_output=True, text=True, check=False, env={})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(self.load(out)[1][0][0],
                             self.ids("one two") + [self.eos])

    def test_unwritable_output(self):
        (self.folder / "out").write_text("a file")
        done = self.prepare(self.write({"text": "one"}))
        self.assertEqual(done.returncode, 4)
        self.assertIn("errno", json.loads(done.stderr))


class RoomsTest(unittest.TestCase):
    def modules(self):
        """(room or "", module, its tree) of each but tests."""
        found = [path for path in HERE.rglob("*.py") if "test" not in path.name]
        self.assertGreater(len(found), 20)
        for path in found:
            room = path.parent.name if path.parent != HERE else ""
            yield room, path.stem, ast.parse(path.read_text())

    def test_imports_go_one_way(self):
        for room, module, tree in self.modules():
            names = {node.module for node in ast.walk(tree)
                     if isinstance(node, ast.ImportFrom)}
            names |= {alias.name for node in ast.walk(tree)
                      if isinstance(node, ast.Import) for alias in node.names}
            ours = {name.split(".")[0] for name in names}
            ours = {name for name in ours
                    if name in MAY_IMPORT or name.startswith("prepare")}
            with self.subTest(room=room, module=module):
                if room:
                    self.assertLessEqual(ours, MAY_IMPORT[room])

    def test_no_module_has_a_name_of_pythons_own(self):
        for room, module, _ in self.modules():
            self.assertNotIn(module, sys.stdlib_module_names, room)


if __name__ == "__main__":
    unittest.main()
