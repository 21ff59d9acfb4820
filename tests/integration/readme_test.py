"""README's own job on a model with as few positions as the quickstart's."""

import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

POSITIONS = 256  # deploy/quickstart.d/make_model.py


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        readme = (harness.ROOT / "README.md").read_text()
        self.job = re.search(r"```yaml\n(model_name_or_path.*?)```", readme,
                             re.S)[1]
        self.paths = dict(re.findall(r"^(\w+): +(\S*/\S*)", self.job, re.M))
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model(self.paths["model_name_or_path"],
                                max_position_embeddings=POSITIONS)
        (self.scratch.data / "data").mkdir()
        for field in ("dataset", "validation_dataset"):
            self.scratch.make_data(self.paths[field], count=40)
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def submit(self, text, *flags):
        path = self.scratch.folder / "job.yaml"
        path.write_text(text)
        return self.daemon.client("submit", "-f", path, *flags, check=False)

    def test_the_job_is_taken_and_runs(self):
        dry = self.submit(self.job, "--dry-run", "-o", "json")
        self.assertEqual(dry.returncode, 0, dry.stderr)
        spec = json.loads(dry.stdout)["resolved_spec"]
        self.assertEqual(spec["max_length"], POSITIONS)
        self.assertEqual(spec["dtype"], "fp32")
        done = self.submit(re.sub(r"max_steps: \d+", "max_steps: 2",
                                  self.job), "--wait")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_dry_run_says_what_the_job_is(self):
        dry = self.submit(self.job, "--dry-run")
        self.assertEqual(dry.returncode, 0, dry.stderr)
        self.assertIn("job.yaml; no job was made.\n", dry.stderr)
        self.assertRegex(dry.stdout, r"\Amodel: +\S+/my-qwen3\nparameters:")
        self.assertRegex(dry.stdout, r"(?m)^steps: +500 of 32 sequences$")
        self.assertRegex(dry.stdout, r"(?m)^host memory: +\S+ MiB of \S+ MiB$")
        self.assertRegex(dry.stdout, r"(?m)^dtype: +fp32$")
        self.assertRegex(dry.stdout, rf"(?m)^max_length: +{POSITIONS}$")

    def test_plan_and_preview_have_the_same_default_and_limit(self):
        model = self.paths["model_name_or_path"]
        plan = ("plan", "--model", model, "--devices", "8xrtx4090",
                "--host-memory", "800GiB")
        self.daemon.client(*plan)
        self.daemon.client("dataset", "preview", self.paths["dataset"],
                           "--model", model)
        long = f"max_length: {POSITIONS + 1} tokens; the model allows 256"
        done = self.daemon.client("dataset", "preview", self.paths["dataset"],
                                  "--model", model, "--max-length",
                                  POSITIONS + 1, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"flag --{long.replace('_', '-', 1)}", done.stderr)
        # A plan says what it would take, and that no job may.
        done = self.daemon.client(*plan, "--max-length", POSITIONS + 1)
        self.assertIn(f"no job may have max_length {POSITIONS + 1}",
                      done.stderr)
        self.assertNotIn("Warning", self.daemon.client(*plan).stderr)
        done = self.submit(f"{self.job}max_length: {POSITIONS + 1}\n")
        self.assertEqual(done.returncode, 1, done.stderr)
        line = 1 + len(self.job.splitlines())
        self.assertIn(f"job.yaml:{line}: {long}", done.stderr)


if __name__ == "__main__":
    unittest.main()
