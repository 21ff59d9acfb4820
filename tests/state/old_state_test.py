"""The state directory of an older daemon, killed, taken up by this one."""

import json
import pathlib
import shutil
import sqlite3
import sys
import time
import unittest

HERE = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import harness

PLACE = "/state-test"  # as make_state.py wrote it
STATES = {"job-1": "SUCCEEDED", "job-2": "FAILED", "job-3": "CANCELLED",
          "job-4": "PAUSED", "job-6": "QUEUED"}


def put(source, target, folder):
    """A copy with this test's folder in its paths; Bazel's is read-only."""
    shutil.copytree(source, target, copy_function=shutil.copyfile,
                    dirs_exist_ok=True)
    for path in target.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        if PLACE.encode() in content and path.suffix != ".db":
            path.write_bytes(content.replace(PLACE.encode(),
                                             str(folder).encode()))


def put_in_store(path, folder):
    """Also makes its requests of now: they are remembered for a week."""
    store = sqlite3.connect(path, isolation_level=None)
    for table, columns in {"jobs": ("text", "resolved", "output_path",
                                    "last_checkpoint", "message"),
                           "events": ("message",),
                           "checkpoints": ("path",)}.items():
        for column in columns:
            store.execute(f"UPDATE {table} SET {column} = "
                          f"replace({column}, ?, ?)", (PLACE, str(folder)))
    store.execute("UPDATE requests SET create_us = ?",
                  (int(time.time() * 1e6),))
    store.close()


class OldStateTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.daemon = self.scratch.daemon(max_running_jobs=2)
        old = HERE / "b98b8c3"
        put(old / "data", self.scratch.data, self.scratch.folder)
        put(old / "state", self.daemon.state, self.scratch.folder)
        put_in_store(self.daemon.state / "jobs.db", self.scratch.folder)
        self.requests = json.loads((old / "requests.json").read_text())
        self.daemon.start()

    def submit_again(self, request):
        path = self.daemon.folder / "again.yaml"
        path.write_text(request["text"])
        return json.loads(self.daemon.client(
            "submit", "-f", path, "--request-id", request["request_id"],
            "-o", "json").stdout)

    def test_it_is_taken_up(self):
        daemon = self.daemon
        for job, state in STATES.items():
            if state != "QUEUED":
                self.assertEqual(daemon.job(job)["state"], state, job)
        # It ran, without a checkpoint, and would for ever.
        harness.wait_until(lambda: daemon.job("job-5")["state"] == "RUNNING",
                           "job-5 RUNNING")
        self.assertEqual(daemon.wait("job-6")["step"], 2)
        daemon.client("cancel", "job-5")
        for job, request in self.requests.items():
            made = self.submit_again(request)
            self.assertEqual(made["name"].rsplit("/", 1)[1], job)
            self.assertEqual(made["uid"], request["uid"])
        self.assertNotIn("job store", daemon.log_path.read_text())

    def test_its_paused_job_goes_on_from_its_checkpoint(self):
        daemon = self.daemon
        step, = daemon.checkpoints("job-4")
        daemon.client("cancel", "job-5")
        daemon.client("resume", "job-4")
        found = daemon.finish("job-4")
        self.assertGreater(found["step"], step)
        self.assertIn(f"checkpoint-{step}", daemon.log("job-4"))
        steps = [entry["step"] for entry in daemon.metrics("job-4")
                 if "loss" in entry]
        self.assertEqual(steps, list(range(1, found["step"] + 1)))
        self.assertTrue(pathlib.Path(found["output_path"]).is_dir())

    def test_the_next_job_has_the_next_id(self):
        text = json.loads(self.requests["job-6"]["text"])
        job = self.daemon.submit({**text, "output_name": "next"})
        self.assertEqual(job, "job-7")
        self.daemon.client("cancel", "job-5")
        self.daemon.wait(job)
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(self.daemon.job(job)["state"], "SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
