"""Datasets through the real daemon: chat data under the model's own template,
packed rows, and prepared data that is kept."""

import gzip
import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

TEMPLATE = (
    "{% for message in messages %}{{ message.role }} "
    "{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content + eos_token }}{% endgeneration %}"
    "{% else %}{{ message.content }}{% endif %} {% endfor %}")
SHORT = {"model_name_or_path": "model", "dataset": "chat.jsonl",
         "max_length": 48, "batch_size": 4, "micro_batch_size": 2,
         "max_steps": 3, "learning_rate": 0.01, "seed": 1}
QUESTIONS = 24


def conversation(i):
    words = harness.WORDS
    return {"messages": [
        {"role": "user", "content": f"{words[i % 7]} plus {words[i % 5]}"},
        {"role": "assistant", "content": words[i % 11]}]}


class DataTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.set_template(TEMPLATE)
        with open(self.scratch.data / "chat.jsonl", "w",
                  encoding="utf-8") as file:
            for i in range(QUESTIONS):
                file.write(json.dumps(conversation(i)) + "\n")
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def set_template(self, text):
        path = self.scratch.data / "model/tokenizer_config.json"
        config = json.loads(path.read_text())
        config["chat_template"] = text
        path.write_text(json.dumps(config))

    def train(self, **fields):
        job = self.daemon.submit({**SHORT, **fields})
        self.daemon.wait(job)
        return job

    def prepared(self, job):
        return self.daemon.directory(job) / "data/train"

    def manifest(self, job):
        return json.loads((self.prepared(job) / "manifest.json").read_text())

    def expected_targets(self):
        """Tokens of what the assistant says, the end of text included."""
        tokenizer = harness.make_tokenizer()
        return sum(len(tokenizer.encode(
            conversation(i)["messages"][1]["content"] + harness.EOS,
            add_special_tokens=False).ids) for i in range(QUESTIONS))

    def test_chat_trains_the_assistants_turns_only(self):
        manifest = self.manifest(self.train())
        self.assertEqual(manifest["sequences"], QUESTIONS)
        self.assertEqual(manifest["target_tokens"], self.expected_targets())
        self.assertLess(manifest["target_tokens"], manifest["tokens"] / 2)

    def test_packed_rows_hold_every_sequence(self):
        manifest = self.manifest(self.train(packing=True, max_length=128))
        self.assertEqual(manifest["sequences"], QUESTIONS)
        self.assertEqual(manifest["target_tokens"], self.expected_targets())
        self.assertLess(manifest["packed_rows"], QUESTIONS)

    def test_a_model_without_template_is_told_at_validation(self):
        path = self.scratch.data / "model/tokenizer_config.json"
        path.write_text(json.dumps({"eos_token": harness.EOS}))
        job = self.daemon.submit(SHORT)
        found = self.daemon.wait(job, "FAILED")
        self.assertEqual(found["reason"], "INVALID_DATASET")
        self.assertIn("chat template", found["message"])

    def write(self, name, *conversations):
        """From line 1; None is an empty line."""
        path = self.scratch.data / name
        path.write_text("".join(
            (json.dumps(row) if row else "") + "\n" for row in conversations))
        return path

    def fails(self, **fields):
        """The message of a job that its data fail."""
        found = self.daemon.wait(self.daemon.submit({**SHORT, **fields}),
                                 "FAILED")
        self.assertEqual(found["reason"], "INVALID_DATASET")
        return found["message"]

    def test_a_template_that_raises_names_the_line(self):
        self.set_template(
            "{% if messages | length > 2 %}"
            "{{ raise_exception('one question only') }}{% endif %}" + TEMPLATE)
        longer = {"messages": 2 * conversation(1)["messages"]}
        path = self.write("longer.jsonl", conversation(0), None, longer)
        message = self.fails(dataset="longer.jsonl")
        self.assertIn(f"{path}:3: ", message)
        self.assertIn("one question only", message)
        self.assertIn(f"{path}:3: ", self.fails(
            validation_dataset="longer.jsonl"))

    def test_rows_with_every_label_masked(self):
        masked = conversation(2)
        masked["messages"][1]["weight"] = 0
        path = self.write("masked.jsonl", None, masked, masked)
        for fields in ({"dataset": "masked.jsonl"},
                       {"validation_dataset": "masked.jsonl"},
                       {"dataset": "masked.jsonl", "packing": True}):
            message = self.fails(**fields)
            self.assertIn(f"{path}:2: none of the 2 rows has a target token",
                          message)
            self.assertIn("all_labels_masked", message)
        # Beside others they are dropped and named.
        self.write("some.jsonl", conversation(0), masked, conversation(1))
        job = self.train(dataset="some.jsonl")
        manifest = self.manifest(job)
        self.assertEqual(manifest["sequences"], 2)
        self.assertEqual(manifest["dropped_lines"], {"all_labels_masked": [2]})
        self.assertEqual(self.daemon.job(job)["dataset"]["train_dropped"], 1)

    def test_control_tokens_in_a_users_text_are_warned_of(self):
        def forged(i):
            row = conversation(i)
            row["messages"][0]["content"] += harness.EOS
            return row
        path = self.write("forged.jsonl", conversation(0), forged(1),
                          conversation(2), forged(3))
        warning = (f"WARNING: {path}: 2 rows have special tokens of the "
                   "tokenizer in the text of a message; the model reads them "
                   "as control tokens (lines 2, 4)")
        first = self.train(dataset="forged.jsonl")
        again = self.train(dataset="forged.jsonl")  # prepared already
        other = self.train(validation_dataset="forged.jsonl")
        for job in (first, again, other):
            self.assertEqual(self.daemon.log(job).count(warning), 1)
        self.assertNotIn("WARNING", self.daemon.log(self.train()))
        self.assertEqual(self.manifest(first)["sequences"], 4)

    def make_shards(self):
        """A folder of three kinds of file with the conversations in order."""
        folder = self.scratch.data / "shards"
        folder.mkdir()
        rows = [conversation(i) for i in range(QUESTIONS)]
        (folder / "part-2.json").write_text(json.dumps(rows[5:12], indent=1))
        (folder / "part-10.jsonl.gz").write_bytes(gzip.compress("".join(
            json.dumps(row) + "\n" for row in rows[12:]).encode()))
        self.write("shards/part-1.jsonl", *rows[:5])
        (folder / "README.md").write_text("Shards.")
        return folder

    def test_shards_are_one_dataset_however_they_are_named(self):
        folder = self.make_shards()
        files = [str(folder / name) for name in
                 ("part-1.jsonl", "part-2.json", "part-10.jsonl.gz")]
        wanted = (self.prepared(self.train()) / "tokens.u32").read_bytes()
        for names in ("shards", "shards/part-*", files):
            job = self.train(dataset=names)
            self.assertEqual(
                (self.prepared(job) / "tokens.u32").read_bytes(), wanted)
            resolved = self.daemon.job(job)["resolved_spec"]
            self.assertEqual(resolved["dataset"], files)
        other = {"messages": [{"role": "user", "content": "x"}]}
        self.write("shards/part-11.jsonl", conversation(1), other)
        job = self.train(dataset="shards")
        self.assertIn("1 row is dropped, no_assistant_message "
                      "(part-11.jsonl:2)", self.daemon.log(job))
        self.write("shards/part-11.jsonl", conversation(1), {"messages": 5})
        self.assertIn("shards/part-11.jsonl:2: the field 'messages' must be",
                      self.fails(dataset="shards"))

    def test_rows_that_are_chosen(self):
        rows = "question,answer,text\n" + "".join(
            f"{row['messages'][0]['content']},{row['messages'][1]['content']},x"
            "\n" for row in map(conversation, range(QUESTIONS)))
        (self.scratch.data / "table.csv").write_text(rows)
        job = self.train(
            dataset="table.csv", max_samples=20, validation_split=0.25,
            dataset_columns={"prompt": "question", "completion": "answer"},
            dataset_format="prompt_completion", eval_steps=2)
        found = self.daemon.job(job)
        self.assertEqual((found["dataset"]["train_sequences"],
                          found["dataset"]["validation_sequences"]), (15, 5))
        lines = [json.loads((self.daemon.directory(job) / "data" / split /
                             "manifest.json").read_text())["rows"]
                 for split in ("train", "validation")]
        self.assertEqual(lines, [15, 5])
        self.assertTrue(any("eval_loss" in line
                            for line in self.daemon.metrics(job)))

    def test_long_texts_become_several_rows(self):
        (self.scratch.data / "long.jsonl").write_text(
            json.dumps({"text": "one two three\n" * 100}) + "\n")
        job = self.train(dataset="long.jsonl", truncation="split",
                         max_length=16)
        manifest = self.manifest(job)
        self.assertGreater(manifest["sequences"], 10)
        self.assertEqual((manifest["split"], manifest["truncated"]), (1, 0))
        self.assertIn("split makes several rows of a long 'text'",
                      self.fails(truncation="split"))

    def test_max_length_is_what_a_small_model_allows(self):
        path = self.scratch.data / "model/config.json"
        config = json.loads(path.read_text())
        config["max_position_embeddings"] = 40
        path.write_text(json.dumps(config))
        fields = {key: value for key, value in SHORT.items()
                  if key != "max_length"}
        job = self.daemon.submit(fields)
        self.daemon.wait(job)
        self.assertEqual(self.daemon.job(job)["resolved_spec"]["max_length"],
                         40)
        with self.assertRaises(harness.Failure) as refused:
            self.daemon.submit({**fields, "max_length": 41})
        self.assertIn("max_length: 41 tokens; the model allows 40",
                      str(refused.exception))

    def test_the_end_of_turns_is_an_end_of_the_result(self):
        size = harness.make_tokenizer().get_vocab_size()
        for name in ("config.json", "generation_config.json"):
            path = self.scratch.data / "model" / name
            config = json.loads(path.read_text()) if path.exists() else {}
            config["eos_token_id"] = size - 1
            path.write_text(json.dumps(config))
        eos = harness.make_tokenizer().token_to_id(harness.EOS)
        job = self.train()
        self.assertIn(f"the turns of the chat template end with {harness.EOS}",
                      self.daemon.log(job))
        result = pathlib.Path(self.daemon.job(job)["output_path"])
        self.assertEqual(json.loads(
            (result / "generation_config.json").read_text()),
            {"eos_token_id": [size - 1, eos]})

    def test_prepared_data_is_kept_by_content(self):
        first, second = self.train(), self.train()
        self.assertTrue(os.path.samefile(self.prepared(first) / "tokens.u32",
                                         self.prepared(second) / "tokens.u32"))
        other = self.train(max_length=40)
        self.assertFalse(os.path.samefile(self.prepared(first) / "tokens.u32",
                                          self.prepared(other) / "tokens.u32"))
        with open(self.scratch.data / "chat.jsonl", "a",
                  encoding="utf-8") as file:
            file.write(json.dumps(conversation(100)) + "\n")
        self.assertEqual(self.manifest(self.train())["sequences"],
                         QUESTIONS + 1)


if __name__ == "__main__":
    unittest.main()
