"""One verdict on a dataset: what `dataset validate`, a dry run and the job
itself say of files that cannot be trained on, in the same words."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'judge' %}{{ raise_exception('no judges') }}"
    "{% endif %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "<|im_end|>\n{% endfor %}")
MAX_LENGTH = 96
FEWER = 12  # rows of the embedding than tokens
GOOD = {"text": "one two three"}
# More than a dry run looks at.
MANY = 1100


def said(*pairs):
    return {"messages": [{"role": role, "content": text}
                         for role, text in pairs]}


GOOD_CHAT = said(("user", "one"), ("assistant", "two"))
# Rows that are refused, each behind rows of its own format.
ROWS = {
    "no-json": (GOOD, '{"text": "a'),
    "no-object": (GOOD, "[1]"),
    "not-utf8": (GOOD, b'{"text": "\xff"}'),
    "twice": (GOOD, '{"text": "a", "text": "b"}'),
    "other-type": (GOOD, {"text": 5}),
    "missing-field": (GOOD, {"title": "a"}),
    "two-formats": (GOOD, GOOD_CHAT),
    "both-formats": (GOOD, {"text": "a", **GOOD_CHAT}),
    "dpo": (GOOD_CHAT, {"prompt": "a", "chosen": "b", "rejected": "c"}),
    "kto": (GOOD_CHAT, {**GOOD_CHAT, "label": False}),
    "image": (GOOD_CHAT, {**GOOD_CHAT, "images": ["cat.jpg"]}),
    "null-content": (GOOD_CHAT, said(("user", None), ("assistant", "b"))),
    "no-role": (GOOD_CHAT, {"messages": [{"content": "a"}]}),
    "template-raises": (GOOD_CHAT, said(("judge", "a"), ("assistant", "b"))),
    "weights": (GOOD_CHAT, {"messages": [
        {"role": "assistant", "content": "a", "weight": 3}]}),
    "functions": (GOOD_CHAT, {**GOOD_CHAT, "functions": [{"name": "f"}]}),
    "share-gpt-role": (
        {"conversations": [{"from": "human", "value": "a"},
                           {"from": "gpt", "value": "b"}]},
        {"conversations": [{"from": "narrator", "value": "a"},
                           {"from": "gpt", "value": "b"}]}),
    "history": ({"instruction": "a", "output": "b"},
                {"instruction": "a", "output": "b", "history": [["x"]]}),
}
WHOLE = {
    "empty": b"",
    "no-assistant": json.dumps(said(("user", "a"))).encode(),
    "utf16": json.dumps(GOOD).encode("utf-16"),
    "lfs": b"version https://git-lfs.github.com/spec/v1\n"
           b"oid sha256:" + 64 * b"0" + b"\nsize 5\n",
    "zip": b"PK\x03\x04" + bytes(40),
}


def line(row):
    if isinstance(row, bytes):
        return row + b"\n"
    text = row if isinstance(row, str) else json.dumps(row)
    return text.encode() + b"\n"


class SameVerdictTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.give_template("model", TEMPLATE)
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def write(self, name, data):
        path = self.scratch.data / name
        path.write_bytes(data)
        return path

    def verdict(self, command, done):
        """What is said behind the command's name."""
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertTrue(done.stderr.startswith("roundhouse: "), done.stderr)
        # Where the file that the command names is the one that is bad, the
        # text begins with it.
        return (done.stderr.removeprefix("roundhouse: ")
                .removeprefix(f"{command}: ").rstrip("\n"))

    def validated(self, name, *flags, model="model"):
        return self.daemon.client(
            "dataset", "validate", name, f"--model={model}",
            f"--max-length={MAX_LENGTH}", *flags, check=False)

    def file(self, model="model", **fields):
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps({
            "model_name_or_path": model, "max_length": MAX_LENGTH,
            "max_steps": 1, "save_steps": 0, **fields}))
        return path

    def dry_run(self, file):
        return self.daemon.client("submit", "-f", file, "--dry-run",
                                  check=False)

    def failure(self, file):
        """The message of a job that its data fail."""
        job = self.daemon.client("submit", "-f", file).stdout.strip()
        found = self.daemon.wait(job, "FAILED")
        self.assertEqual(found["reason"], "INVALID_DATASET")
        return found["message"]

    def check_all(self, name, place, *flags, model="model", **fields):
        """The three say the same, with the file's name and the place, or, where
        that is None, with the model's; answers what."""
        done = self.validated(name, *flags, model=model)
        told = self.verdict(f"dataset validate {name}", done)
        where = f"{model}: " if place is None else f"{name}{place}"
        self.assertIn(f"{self.scratch.data}/{where}", told)
        file = self.file(model, dataset=name, **fields)
        self.assertEqual(
            self.verdict(f"submit {file}", self.dry_run(file)), told)
        self.assertEqual(self.failure(file), told)
        return told

    def check_late(self, name, place):
        """As check_all, of a row that a dry run does not come to."""
        told = self.verdict(f"dataset validate {name}", self.validated(name))
        self.assertIn(f"{self.scratch.data / name}{place}", told)
        file = self.file(dataset=name)
        done = self.dry_run(file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Read and checked: the first 512 rows of the dataset. "
                      "The rest is checked when the job's data are prepared; "
                      "`roundhouse dataset validate` checks all of it now.",
                      done.stderr)
        self.assertEqual(self.failure(file), told)

    def test_each_row_that_is_refused(self):
        for name, (good, bad) in ROWS.items():
            with self.subTest(name):
                self.write(name, 3 * line(good) + line(bad))
                self.check_all(name, ":4: ")

    def test_each_file_that_is_refused(self):
        for name, data in WHOLE.items():
            with self.subTest(name):
                self.write(name, data)
                self.check_all(name, "")

    def test_what_a_dry_run_does_not_come_to(self):
        for name in ("no-json", "dpo", "template-raises"):
            good, bad = ROWS[name]
            with self.subTest(name):
                self.write(name, MANY * line(good) + line(bad))
                self.check_late(name, f":{MANY + 1}: ")

    def test_a_dry_run_warns_of_what_it_read(self):
        long = {"text": MAX_LENGTH * "one ", "id": 1}
        self.write("t.jsonl", line(GOOD) + line(long) +
                   line({"text": "<image> one"}))
        file = self.file(dataset="t.jsonl", validation_dataset="t.jsonl",
                         eval_steps=1, eval_prompts=["one"])
        told = self.dry_run(file).stderr
        for text in ("dataset: the field 'id', in 1 row, is not used\n",
                     "dataset: 1 row is cut at max_length (line 2)\n",
                     "dataset: 1 row has <image> in a text",
                     "validation data: 1 row is cut at max_length (line 2)",
                     "eval_prompts are checked when the job's data are "
                     "prepared."):
            self.assertIn(text, told)
        self.write("good.jsonl", line(GOOD))
        told = self.dry_run(self.file(dataset="good.jsonl")).stderr
        self.assertNotIn("warning", told)
        self.assertNotIn("eval_prompts", told)

    def test_a_dry_run_warns_of_another_order_of_rows(self):
        self.write("t.jsonl", 8 * line(GOOD))
        file = self.file(dataset="t.jsonl", batch_size=2, max_steps=2)
        job = self.daemon.client("submit", "-f", file).stdout.strip()
        self.daemon.wait(job)
        more = {"dataset": "t.jsonl", "max_steps": 4,
                "resume_from_checkpoint": f"job:{job}"}
        told = self.dry_run(self.file(batch_size=4, **more)).stderr
        self.assertIn("resume_from_checkpoint: its job had batch_size 2 and "
                      "seed 42, this one has batch_size 4 and seed 42: rows "
                      "are taken in another order", told)
        told = self.dry_run(self.file(batch_size=2, **more)).stderr
        self.assertNotIn("another order", told)

    def small_model(self):
        """Its tokenizer has tokens that it has no row for."""
        size = harness.make_tokenizer().get_vocab_size()
        self.scratch.make_model("small")
        path = self.scratch.data / "small/config.json"
        config = json.loads(path.read_text())
        config["vocab_size"] = size - FEWER
        path.write_text(json.dumps(config))
        weights = self.scratch.data / "small/model.safetensors"
        tensors = harness.read_safetensors(weights)
        for name, (dtype, shape, data) in tensors.items():
            if shape[0] == size:
                tensors[name] = (dtype, [size - FEWER, *shape[1:]],
                                 data[:len(data) // size * (size - FEWER)])
        harness.write_safetensors(weights, tensors)
        return harness.make_tokenizer().id_to_token(size - 1)

    def test_a_token_that_the_model_has_no_row_for(self):
        token = self.small_model().replace("\u0120", " ")
        self.write("t.jsonl", 2 * line({"text": "a"}) + line({"text": token}))
        told = self.check_all("t.jsonl", ":3: ", model="small")
        self.assertIn("the model's vocab_size is", told)

    def test_what_a_model_without_template_cannot_take(self):
        self.scratch.make_model("base")
        self.write("chat.jsonl", line(GOOD_CHAT))
        self.check_all("chat.jsonl", None, model="base")

    def test_which_rows_are_meant(self):
        self.write("t.jsonl", 3 * line({"q": "a", "a": "b"}) +
                   line({"q": "a"}))
        self.check_all("t.jsonl", ":4: ", "--dataset-columns=prompt=q",
                       "--dataset-columns=completion=a",
                       dataset_columns={"prompt": "q", "completion": "a"})
        self.check_all("t.jsonl", ":1: ", "--dataset-format=text",
                       dataset_format="text")
        self.write("chat.jsonl", line(GOOD_CHAT))
        self.check_all("chat.jsonl", ":1: ", "--truncation=split",
                       truncation="split")

    def test_what_is_evaluated_on(self):
        good, bad = ROWS["template-raises"]
        self.write("good.jsonl", 3 * line(good))
        path = self.write("bad.jsonl", line(good) + line(bad))
        file = self.file(dataset="good.jsonl",
                         validation_dataset="bad.jsonl")
        told = self.verdict(f"submit {file}", self.dry_run(file))
        self.assertIn(f"{path}:2: ", told)
        self.assertEqual(self.failure(file), told)
        file = self.file(dataset="good.jsonl",
                         validation_dataset="good.jsonl")
        self.assertIn("Read and checked: all 3 rows of the dataset, all 3 rows "
                      "of the validation data.\n", self.dry_run(file).stderr)

    def test_a_row_that_is_held_out(self):
        """All rows are: each is held out in one place or another."""
        good, bad = ROWS["template-raises"]
        for where in range(4):
            rows = [good, good, good, good]
            rows[where] = bad
            self.write("t.jsonl", b"".join(map(line, rows)))
            self.check_all("t.jsonl", f":{where + 1}: ",
                           "--validation-split=0.5", validation_split=0.5)
        self.write("t.jsonl", 4 * line(good))
        done = self.validated("t.jsonl", "--validation-split=0.5", "-o",
                              "json")
        report = json.loads(done.stdout)
        self.assertEqual((report["rows"], report["held_out"]["rows"]), (2, 2))


if __name__ == "__main__":
    unittest.main()
