"""A state directory that somebody deletes, replaces or locks under a running
daemon."""

import fcntl
import os
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "max_length": 16, "batch_size": 4, "max_steps": 1, "save_steps": 0}


class StateDirectoryTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=8)
        self.daemon = self.scratch.daemon(max_running_jobs=2)
        self.daemon.start()

    def submit_is_refused(self):
        with self.assertRaises(harness.Failure) as refused:
            self.daemon.submit(SPEC)
        self.assertRegex(str(refused.exception),
                         "the server's state directory "
                         r".*/state is no longer what it was \(.*put the "
                         "directory back")

    def log_says(self, text):
        harness.wait_until(lambda: text in self.daemon.log_path.read_text(),
                           text, pause=0.1)

    def test_it_is_moved_away_and_back(self):
        self.daemon.wait(self.daemon.submit(SPEC))
        moved = self.scratch.folder / "moved"
        self.daemon.state.rename(moved)
        self.submit_is_refused()
        self.log_says("is no longer what it was (it is gone)")
        self.daemon.state.mkdir()  # as a restarted service would
        self.submit_is_refused()
        self.assertEqual(list(self.daemon.state.iterdir()), [])
        self.daemon.state.rmdir()
        moved.rename(self.daemon.state)
        self.log_says("the state directory is there again")
        job = self.daemon.submit(SPEC)
        self.daemon.wait(job)
        self.daemon.stop()
        # What was acknowledged is there after a restart.
        self.daemon.start()
        self.assertEqual(self.daemon.job(job)["state"], "SUCCEEDED")
        self.daemon.stop()

    def test_a_start_that_fails_has_begun_nothing_with_the_jobs(self):
        """Jobs are opened beside the loop before the API is there."""
        jobs = [self.daemon.submit({**SPEC, "max_steps": 100_000})
                for _ in range(3)]
        harness.wait_until(
            lambda: self.daemon.job(jobs[-1])["state"] == "QUEUED", "QUEUED")
        self.daemon.kill()
        taken = self.scratch.folder / "taken"
        taken.mkdir()
        for _ in range(5):
            self.daemon.launch(listen=f"unix:{taken}")
            harness.wait_until(self.daemon.ended, "the daemon's end")
            self.assertEqual(self.daemon.process.returncode, 1)
            self.assertIn(str(taken), self.daemon.tail(5))
        self.daemon.start()
        for job in jobs:
            self.daemon.client("cancel", job)
        self.daemon.stop()

    def test_it_is_deleted(self):
        shutil.rmtree(self.daemon.state)
        self.submit_is_refused()
        self.daemon.kill()

    def test_the_store_in_it_is_deleted(self):
        (self.daemon.state / "jobs.db").unlink()
        self.submit_is_refused()
        self.daemon.kill()

    def second(self):
        """What another daemon says that is started beside the first."""
        other = self.scratch.daemon()
        other.fixed["state_dir"] = self.daemon.state
        other.log_path = self.scratch.folder / "other.log"
        other.socket = self.scratch.folder / "other-socket"
        other.fixed["listen"] = f"unix:{other.socket}"
        with self.assertRaises(harness.Failure):
            other.start()
        self.assertEqual(other.process.returncode, 1)
        return other.log_path.read_text()

    def test_without_the_lock_file_no_second_daemon_runs_on_it(self):
        (self.daemon.state / "lock").unlink()
        self.assertIn("another roundhoused uses", self.second())
        self.daemon.wait(self.daemon.submit(SPEC))
        self.daemon.stop()

    def test_the_locks_are_held_by_daemon_and_workers(self):
        harness.wait_until(lambda: len(self.daemon.workers()) == 5, "workers")
        held = self.daemon.state.stat()
        for name, pid in self.daemon.workers().items():
            if name == "nursery":
                continue
            inherited = [os.stat(fd) for fd in
                         pathlib.Path(f"/proc/{pid}/fd").iterdir()
                         if fd.is_dir()]
            self.assertIn((held.st_dev, held.st_ino),
                          [(s.st_dev, s.st_ino) for s in inherited], name)
        # What a daemon of before the directory's lock looks at.
        with open(self.daemon.state / "lock", "rb") as old, \
                self.assertRaises(BlockingIOError):
            fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.daemon.stop()
        with open(self.daemon.state / "lock", "rb") as old:
            fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.assertIn("another roundhoused uses", self.second())


if __name__ == "__main__":
    unittest.main()
