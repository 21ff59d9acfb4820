"""Chat templates by name, in the folder additional_chat_templates: rows with
tools are written by the one for tools, and job, checkpoint, result and export
have the folder."""

import json
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

FOLDER = "additional_chat_templates"
TURNS = ("{% for message in messages %}{{ message.role }} "
         "{% if message.role == 'assistant' %}"
         "{% generation %}{{ message.content + eos_token }}{% endgeneration %}"
         "{% else %}{{ message.content }}{% endif %} {% endfor %}")
# {name in the model's folder: text}.
TEMPLATES = {"chat_template.jinja": TURNS,
             f"{FOLDER}/tool_use.jinja": "{{ tools | length }} tools " + TURNS,
             f"{FOLDER}/rag.jinja": "sources " + TURNS}
ROW = {"messages": [{"role": "user", "content": "one plus two"},
                    {"role": "assistant", "content": "three"}]}
TOOLS = [{"type": "function",
          "function": {"name": "add", "description": "adds", "parameters": {}}}]
JOB = {"model_name_or_path": "model", "dataset": "chat.jsonl",
       "max_length": 48, "batch_size": 4, "max_steps": 4, "save_steps": 2}


class ChatTemplatesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.model = self.scratch.data / "model"
        self.scratch.make_model("model")
        (self.model / FOLDER).mkdir()
        (self.scratch.data / "exports").mkdir()
        for name, text in TEMPLATES.items():
            (self.model / name).write_text(text)
        # What is no template stays where it is.
        (self.model / FOLDER / "notes.txt").write_text("mine")
        with open(self.scratch.data / "chat.jsonl", "w") as file:
            for i in range(8):
                row = {**ROW, "tools": TOOLS} if i % 2 else ROW
                file.write(json.dumps(row) + "\n")
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def assert_has_templates(self, folder):
        folder = pathlib.Path(folder)
        for name, text in TEMPLATES.items():
            self.assertEqual((folder / name).read_text(), text, folder)
        self.assertEqual(sorted(path.name for path in
                                (folder / FOLDER).iterdir()),
                         ["rag.jinja", "tool_use.jinja"])

    def first_texts(self, model):
        """The text of the row without tools, and of the one with them."""
        samples = json.loads(self.daemon.client(
            "dataset", "preview", "chat.jsonl", "--model", model, "-o", "json",
            "-n", 2).stdout)["samples"]
        return ["".join(span["text"] for span in sample["spans"])
                for sample in samples]

    def assert_used(self, model):
        plain, with_tools = self.first_texts(model)
        self.assertTrue(plain.startswith("user one plus two"), plain)
        self.assertTrue(with_tools.startswith("1 tools user one"), with_tools)

    def test_they_are_used_and_go_where_results_go(self):
        self.assert_used("model")
        job = self.daemon.submit({**JOB, "output_name": "whole"})
        done = self.daemon.wait(job)
        copy = self.daemon.directory(job) / "tokenizer"
        shutil.rmtree(self.model)
        for folder in (copy, self.daemon.checkpoint(job, 2),
                       self.daemon.checkpoint(job, 4), done["output_path"]):
            self.assert_has_templates(folder)
        manifest = json.loads((self.daemon.checkpoint(job, 4) /
                               "checkpoint.json").read_text())
        files = {shard["file"] for shard in manifest["shards"]}
        self.assertLessEqual(set(TEMPLATES), files)
        self.daemon.client("export", "whole", "--output", "exports/whole")
        self.daemon.client("export", f"{job}/checkpoint-2", "--output",
                           "exports/two")
        for name in ("whole", "two"):
            self.assert_has_templates(self.scratch.data / "exports" / name)
        self.assert_used("job:whole")
        self.assert_used("exports/two")

    def test_adapters_and_merged_models_have_them(self):
        job = self.daemon.submit({**JOB, "method": "lora",
                                  "output_name": "adapter"})
        self.assert_has_templates(self.daemon.wait(job)["output_path"])
        self.daemon.client("export", "adapter", "--merge", "--output",
                           "exports/merged")
        self.assert_has_templates(self.scratch.data / "exports/merged")
        self.assert_used("exports/merged")

    def test_a_job_goes_on_with_its_own(self):
        job = self.daemon.submit({**JOB, "max_steps": 100_000,
                                  "save_steps": 0})
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 0, "a step")
        self.daemon.client("pause", "--give-back", job)
        harness.wait_until(lambda: self.daemon.job(job)["state"] == "PAUSED",
                           "PAUSED")
        self.daemon.stop()
        # Damaged on the disk meanwhile.
        copy = self.daemon.directories[job] / "tokenizer"
        (copy / FOLDER / "rag.jinja").write_text("damaged")
        self.daemon.start()
        self.daemon.client("resume", job)
        self.assert_has_templates(self.daemon.finish(job)["output_path"])
        self.assert_has_templates(copy)

    def test_more_than_there_may_be_are_refused(self):
        for i in range(40):
            (self.model / FOLDER / f"t{i}.jinja").write_text(TURNS)
        done = self.daemon.client("dataset", "preview", "chat.jsonl",
                                  "--model", "model", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("more than 32 templates", done.stderr)

    def test_a_link_that_leads_elsewhere_is_refused(self):
        outside = self.scratch.folder / "outside.jinja"
        outside.write_text("secret")
        (self.model / FOLDER / "x.jinja").symlink_to(outside)
        done = self.daemon.client("dataset", "preview", "chat.jsonl",
                                  "--model", "model", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("x.jinja", done.stderr)
        self.assertNotIn("secret", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
