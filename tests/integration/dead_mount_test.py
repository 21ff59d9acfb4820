"""A mount whose server is gone below some jobs' data: other jobs start, calls
are answered, and the daemon ends when it is told to."""

import json
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 4, "micro_batch_size": 2,
       "max_steps": 2, "learning_rate": 0.01, "seed": 1}
DEAD = 6  # jobs; more than the threads that wait for disks beside the loop
LIBRARY = harness.ROOT / "tests/fakes/libhanging_opens.so"


class DeadMountTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=20)
        mount = self.scratch.data / "mount"
        mount.mkdir()
        for i in range(DEAD):
            shutil.copy(self.scratch.data / "train.jsonl",
                        mount / f"{i}.jsonl")
        self.marker = self.scratch.folder / "gone"
        self.daemon = self.scratch.daemon(max_running_jobs=1)
        self.daemon.environment = {
            "LD_PRELOAD": str(LIBRARY.resolve()), "ROUNDHOUSE_HANGS": "mount/",
            "ROUNDHOUSE_HANGS_WHILE": str(self.marker)}

    def test_one_dead_mount_stops_nobody_else(self):
        self.daemon.start()
        dead = [self.daemon.submit({**JOB, "dataset": f"mount/{i}.jsonl"})
                for i in range(DEAD)]
        self.daemon.kill()
        self.marker.touch()
        self.daemon.start()
        # A call that needs the mount says so.
        path = self.scratch.folder / "job.json"
        path.write_text(json.dumps({**JOB, "dataset": "mount/0.jsonl"}))
        done = self.daemon.client("submit", "-f", path, check=False)
        self.assertNotEqual(done.returncode, 0)
        for part in ("mount/0.jsonl", "did not answer within 20 s"):
            self.assertIn(part, done.stderr)
        # Others go on, beside those that hang.
        self.daemon.wait(self.daemon.submit(JOB))
        self.assertIn("such opens wait in the kernel", self.daemon.tail(1000))
        self.daemon.stop()
        # The mount is back: nobody has lost anything.
        self.marker.unlink()
        self.daemon.start()
        for job in dead:
            if self.daemon.job(job)["state"] == "PAUSED":
                self.assertEqual(self.daemon.job(job)["reason"],
                                 "STORAGE_ERROR")
                self.daemon.client("resume", job)
            self.daemon.wait(job)
        self.daemon.stop()

    def test_it_ends_while_all_that_it_does_hangs(self):
        self.daemon.start()
        for i in range(DEAD):
            self.daemon.submit({**JOB, "dataset": f"mount/{i}.jsonl"})
        self.daemon.kill()
        self.marker.touch()
        self.daemon.start()
        self.daemon.stop()


if __name__ == "__main__":
    unittest.main()
