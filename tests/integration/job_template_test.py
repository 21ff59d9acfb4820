"""`roundhouse job-template`: accepted as it is, its values are the defaults,
and what is commented out may be used."""

import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

# Lines that go together with the one that is tried.
WITH = {
    "eval_steps": "validation_split: 0.05\n",
    "load_best_model_at_end": "validation_split: 0.05\neval_steps: 100\n",
    "early_stopping_patience": "validation_split: 0.05\neval_steps: 100\n",
}
LORA = ("lora_r", "lora_alpha", "lora_dropout", "target_modules")
OF_A_JOB = ("adapter_name_or_path", "resume_from_checkpoint")
FEWEST = 18


class JobTemplateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = cls.enterClassContext(harness.Scratch())
        cls.scratch.make_model("model")
        for name in ("train.jsonl", "valid.jsonl"):
            cls.scratch.make_data(name, count=80)
        cls.daemon = cls.scratch.daemon()
        cls.daemon.start()
        printed = cls.daemon.client("job-template").stdout
        cls.text = cls.filled(printed)
        # {field: its lines without the mark of a comment}.
        cls.options = {}
        for match in re.finditer(r"^# (\w+):.*\n(?:#  +\w+: .*\n)*", cls.text,
                                 re.M):
            cls.options[match[1]] = re.sub("(?m)^# ", "", match[0])

    @staticmethod
    def filled(text):
        for path, name in (("model", "model"), ("train.jsonl", "train.jsonl"),
                           ("validation.jsonl", "valid.jsonl")):
            text = text.replace(f"path/to/{path}", name)
        return text

    def dry_run(self, text):
        path = self.scratch.folder / "job.yaml"
        path.write_text(text)
        return self.daemon.client("submit", "-f", path, "--dry-run", "-o",
                                  "json", check=False)

    def spec(self, text):
        done = self.dry_run(text)
        self.assertEqual(done.returncode, 0, f"{text}\n{done.stderr}")
        self.assertNotIn("Warning", done.stderr)
        return json.loads(done.stdout)["resolved_spec"]

    def test_its_values_are_the_defaults(self):
        self.assertEqual(
            self.spec(self.text),
            self.spec("model_name_or_path: model\ndataset: train.jsonl\n"))

    def test_what_is_commented_out_may_be_used(self):
        self.assertGreaterEqual(len(self.options), FEWEST, self.options)
        for field, lines in self.options.items():
            with self.subTest(field):
                text = self.text + WITH.get(field, "")
                if field in LORA:
                    text = text.replace("method: full", "method: lora")
                if field == "max_steps":
                    text = re.sub("(?m)^num_train_epochs.*$", "", text)
                if field == "max_length":
                    lines = lines.replace("1024", "128")  # the model's
                if field in OF_A_JOB:
                    done = self.dry_run(text + lines)
                    self.assertRegex(
                        done.stderr, rf'{field}: "path/to/\S+" does not exist')
                    continue
                spec = self.spec(text + lines)
                self.assertIn(field, spec)

    def test_comments_name_fields_and_values_as_documented(self):
        documented = (harness.ROOT / "docs/job-spec.md").read_text()
        for field in self.options:
            self.assertIn(f"| `{field}` |", documented)
        for line in self.text.splitlines():
            self.assertLessEqual(len(line), 80, line)


if __name__ == "__main__":
    unittest.main()
