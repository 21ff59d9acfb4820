"""Job files of LLaMA-Factory, axolotl and TRL: all that must change is in the
first answer, and the second one takes the job."""

import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

FILES = pathlib.Path(__file__).absolute().parent / "other_tools"
MODEL = "acme/tiny-qwen3"
# By file: what the first answer names, and what its reader then writes there.
CORRECTIONS = {
    "llamafactory.yaml": {
        "dataset": "dataset: sums.jsonl", "dataset_dir": None,
        "template": None},
    "axolotl.yaml": {
        "datasets": "dataset: sums.jsonl",
        "optimizer": "optimizer: adamw_torch",
        "loss_watchdog_threshold": None, "loss_watchdog_patience": None,
        "evals_per_epoch": "eval_steps: 5", "saves_per_epoch": None,
        "special_tokens": None},
    "trl.yaml": {
        "dataset_name": "dataset: sums.jsonl", "eos_token": None,
        "eval_steps": "validation_dataset: more.jsonl\neval_steps: 50",
        "save_strategy": None, "neftune_noise_alpha": None},
}


def lines_of(text):
    """{field: its line} of a file's own fields."""
    return {match[1]: number
            for number, line in enumerate(text.splitlines(), 1)
            if (match := re.match(r"(\w+):", line))}


def corrected(text, corrections):
    """With each named field, and what is indented below it, replaced."""
    out, inside = [], False
    for line in text.splitlines():
        match = re.match(r"(\w+):", line)
        if match or not line.strip() or line.startswith("#"):
            inside = bool(match) and match[1] in corrections
            if inside and corrections[match[1]] is not None:
                out.append(corrections[match[1]])
        if not inside:
            out.append(line)
    return "\n".join(out) + "\n"


class OtherToolsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model(MODEL, dtype="bf16",
                                max_position_embeddings=4096)
        for file, first in (("sums.jsonl", 0), ("more.jsonl", 40)):
            (self.scratch.data / file).write_text("".join(
                json.dumps({"instruction": "Add.", "input": f"{i} and {i}",
                            "output": f"{2 * i}"}) + "\n"
                for i in range(first, first + 40)))
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def submit(self, name, text, *flags):
        path = self.scratch.folder / name
        path.write_text(text)
        return self.daemon.client("submit", "-f", path, *flags, check=False)

    def named(self, answer):
        """[(line, field)] of an answer's errors."""
        return [(int(line), field) for line, field in
                re.findall(r"^  line (\d+): (\w+): ", answer, re.M)]

    def test_all_errors_then_taken(self):
        for name, corrections in CORRECTIONS.items():
            with self.subTest(name):
                text = (FILES / name).read_text()
                where = lines_of(text)
                first = self.submit(name, text, "--dry-run")
                self.assertEqual(first.returncode, 1, first.stderr)
                self.assertEqual(
                    self.named(first.stderr),
                    sorted((where[field], field) for field in corrections),
                    first.stderr)
                self.assertIn(f"{name} has {len(corrections)} errors\n",
                              first.stderr)
                self.assertEqual(
                    self.submit(name, text).stderr, first.stderr)

                second = self.submit(name, corrected(text, corrections))
                self.assertEqual(second.returncode, 0, second.stderr)
                self.check_warning(name, second)

    def check_warning(self, name, done):
        """In the answer and once in the job's log."""
        warnings = [line.removeprefix("Warning: ")
                    for line in done.stderr.splitlines()
                    if line.startswith("Warning: ")]
        expected = ["output_dir (line "]
        if name == "llamafactory.yaml":
            expected.insert(0, "lora_alpha is not given and is 8, where "
                               "LLaMA-Factory takes twice the lora_rank")
        self.assertEqual(len(warnings), len(expected), done.stderr)
        log = self.daemon.log(done.stdout.strip())
        for said, part in zip(warnings, expected):
            self.assertIn(part, said)
            self.assertEqual(log.count(f"WARNING: {said}"), 1, log)
        self.daemon.wait(done.stdout.strip())

    def test_what_the_words_mean(self):
        text = corrected((FILES / "axolotl.yaml").read_text(),
                         CORRECTIONS["axolotl.yaml"])
        done = self.submit("axolotl.yaml", text, "--dry-run", "-o", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        spec = answer["resolved_spec"]
        self.assertEqual(len(answer["warnings"]), 1)
        for field, value in {
                "method": "lora", "lora_r": 16, "lora_alpha": 32.0,
                "max_length": 2048, "packing": True, "batch_size": 4,
                "micro_batch_size": 2, "num_train_epochs": 1.0,
                "optim": "adamw", "lr_scheduler_type": "cosine",
                "learning_rate": 0.0002, "dtype": "bf16",
                "warmup_steps": 10, "eval_steps": 5}.items():
            self.assertEqual(spec[field], value, field)
        self.assertEqual(len(spec["target_modules"]), 7)


if __name__ == "__main__":
    unittest.main()
