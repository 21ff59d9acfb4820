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

    def test_a_template_that_raises_names_the_line(self):
        self.set_template("{{ raise_exception('only questions') }}"
                          "{% generation %}{% endgeneration %}")
        job = self.daemon.submit(SHORT)
        found = self.daemon.wait(job, "FAILED")
        self.assertEqual(found["reason"], "INVALID_DATASET")
        self.assertIn("chat.jsonl", found["message"])
        self.assertIn("only questions", found["message"])

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
