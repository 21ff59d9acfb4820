"""Users share device time, however many jobs they have: jobs of fake workers,
submitted by two users of this machine, as root can.

ROUNDHOUSE_SECONDS: how long it is counted (3).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

SECONDS = float(os.environ.get("ROUNDHOUSE_SECONDS", "3"))
ANN, BOB = 71_001, 71_002
COSTS = "layer,forward_ms,recompute_ms,backward_ms\n" + "".join(
    f"{layer},2,{2 if layer < 4 else 0},4\n" for layer in range(5))
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 16, "batch_size": 8, "micro_batch_size": 2,
       "max_steps": 1_000_000, "save_steps": 0}


@unittest.skipUnless(os.geteuid() == 0, "only root can be several users")
class FairSharesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=24)
        self.daemon = self.scratch.daemon(devices="cpu:2", max_running_jobs=4)
        self.daemon.start(worker_program=self.scratch.fake_worker(COSTS))
        self.program = self.scratch.folder / "roundhouse"
        shutil.copy(harness.ROOT / "client/roundhouse", self.program)
        self.daemon.let_everybody_in()

    def submit(self, uid, name):
        path = self.scratch.folder / f"{name}.json"
        path.write_text(json.dumps({**JOB, "output_name": name}))
        path.chmod(0o644)
        done = subprocess.run(
            [self.program, f"--server=unix:{self.daemon.socket}", "submit",
             "-f", path, "-o", "name"],
            preexec_fn=harness.become(uid), capture_output=True, text=True,
            check=False, timeout=harness.DEADLINE_SECONDS,
            stdin=subprocess.DEVNULL,
            env={"HOME": "/nowhere", "PATH": "/usr/bin:/bin"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def computed(self, jobs):
        return sum(use["compute_seconds"] for job in jobs
                   for use in self.daemon.job(job)["device_use"])

    def test_who_has_three_jobs_gets_what_who_has_one_gets(self):
        ann = [self.submit(ANN, "one")]
        bob = [self.submit(BOB, f"of-bob-{i}") for i in range(3)]
        for job in (*ann, *bob):
            harness.wait_until(lambda job=job: self.daemon.job(job)["step"] > 2,
                               "steps")
        before = [self.computed(jobs) for jobs in (ann, bob)]
        time.sleep(SECONDS)
        got = [self.computed(jobs) - had
               for jobs, had in zip((ann, bob), before)]
        print(f"device time: {got[0]:.2f} s with one job, {got[1]:.2f} s with "
              "three")
        self.assertGreater(got[0], 0)
        share = got[0] / sum(got)
        self.assertGreater(share, 0.4, got)
        self.assertLess(share, 0.6, got)
        self.daemon.stop()


if __name__ == "__main__":
    unittest.main()
