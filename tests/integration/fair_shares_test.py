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
        self.daemon = self.scratch.daemon(devices="cpu:2", max_running_jobs=6)
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

    def await_steps(self, job):
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 2, "steps")

    def got(self, *jobs_of):
        """What each one's jobs compute in SECONDS."""
        before = [self.computed(jobs) for jobs in jobs_of]
        time.sleep(SECONDS)
        return [self.computed(jobs) - had
                for jobs, had in zip(jobs_of, before)]

    def test_users_share_whatever_jobs_they_have_and_by_their_shares(self):
        for name, uid in (("ann", ANN), ("bob", BOB)):
            self.daemon.client("user", "add", name, f"--uid={uid}")
        ann = [self.submit(ANN, "one")]
        bob = [self.submit(BOB, f"of-bob-{i}") for i in range(3)]
        for job in (*ann, *bob):
            self.await_steps(job)
        got = self.got(ann, bob)
        print(f"device time: {got[0]:.2f} s with one job, {got[1]:.2f} s with "
              "three")
        self.assertAlmostEqual(got[0] / sum(got), 0.5, delta=0.1, msg=got)
        # One job alone could not use more than one device.
        self.daemon.client("limit", "set", "user:bob", "share", "3")
        got = self.got(ann, bob)
        print(f"and {got[0]:.2f} s with a share of 1, {got[1]:.2f} s with 3")
        self.assertAlmostEqual(got[0] / sum(got), 0.25, delta=0.1, msg=got)

        # Who has as many running jobs as he may is passed over.
        self.daemon.client("limit", "set", "user:ann", "running_jobs", "1")
        waiting = self.submit(ANN, "two")
        self.await_steps(self.submit(BOB, "last"))
        self.assertEqual(self.daemon.job(waiting)["state"], "QUEUED")
        self.daemon.client("limit", "remove", "user:ann", "running_jobs")
        self.await_steps(waiting)
        self.daemon.stop()


if __name__ == "__main__":
    unittest.main()
