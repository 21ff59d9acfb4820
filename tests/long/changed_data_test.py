"""Data that are written over just after a job was submitted: the job computes
what it was submitted with, bit for bit, or fails and names the file.

ROUNDHOUSE_CHANGES: how many (6). ROUNDHOUSE_SEED: of their moments and kinds.
"""

import hashlib
import os
import pathlib
import random
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

CHANGES = int(os.environ.get("ROUNDHOUSE_CHANGES", "6"))
SEED = int(os.environ.get("ROUNDHOUSE_SEED", "1"))
LONGEST_WAIT_SECONDS = 0.4
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 16, "batch_size": 4, "micro_batch_size": 2,
       "max_steps": 3, "save_steps": 0, "seed": 1}
ROWS = 400


class ChangedDataTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.path = self.scratch.data / "train.jsonl"
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def write(self, path, seed):
        harness.make_data(path, count=ROWS, seed=seed)

    def change(self, seed, kind):
        if kind == "in place":
            self.write(self.path, seed)
            return
        other = self.scratch.folder / "other.jsonl"
        self.write(other, seed)
        other.replace(self.path)

    def digest(self, job):
        weights = pathlib.Path(job["output_path"]) / "model.safetensors"
        return hashlib.sha256(weights.read_bytes()).hexdigest()

    def begin(self, name):
        job = self.daemon.submit({**JOB, "output_name": name})
        return lambda: harness.wait_until(
            lambda: self.ended(job), f"{job} to end")

    def ended(self, job):
        seen = self.daemon.job(job)
        return seen if seen["state"] in ("SUCCEEDED", "FAILED") else None

    def test_what_was_submitted_is_what_is_used(self):
        chosen = random.Random(SEED)
        kept = failed = 0
        for change in range(CHANGES):
            print(f"ROUNDHOUSE_SEED={SEED}, change {change}", flush=True)
            self.write(self.path, 2 * change)
            wait = self.begin(f"changed-{change}")
            time.sleep(chosen.uniform(0, LONGEST_WAIT_SECONDS))
            self.change(2 * change + 1, chosen.choice(["in place", "other"]))
            seen = wait()
            if seen["state"] == "FAILED":
                self.assertIn("train.jsonl", seen["message"], seen)
                failed += 1
                continue
            # Prepared anew only if what was kept of it is something else.
            self.write(self.path, 2 * change)
            whole = self.begin(f"whole-{change}")()
            self.assertEqual(self.digest(seen), self.digest(whole), change)
            kept += 1
        self.assertGreater(kept, 0)
        print(f"{kept} computed what they were submitted with, {failed} failed")
        self.daemon.stop()


if __name__ == "__main__":
    unittest.main()
