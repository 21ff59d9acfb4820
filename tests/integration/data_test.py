"""Datasets through the real daemon: chat data under the model's own template,
packed rows, and prepared data that is kept."""

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
