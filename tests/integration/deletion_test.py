"""Jobs, checkpoints and results that people delete: what goes, what stays, what
keeps them from going, and a daemon that dies in between."""

import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "max_length": 16, "batch_size": 4, "micro_batch_size": 2,
        "max_steps": 6, "save_steps": 2}
# At each a daemon that deletes a job is killed; from the second on it is gone.
POINTS = ("removal.output_marked", "removal.job_marked", "removal.renamed",
          "removal.job_gone")


class DeletionTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=20)
        self.daemon = self.scratch.daemon()
        self.outputs = self.daemon.state / "outputs"
        self.daemon.start()

    def made(self, **fields):
        job = self.daemon.submit({**SPEC, **fields})
        self.daemon.wait(job)
        return job

    def refused(self, code, text, *words):
        done = self.daemon.client(*words, check=False)
        self.assertEqual(done.returncode, code, (words, done.stderr))
        self.assertIn(text, done.stderr)
        self.assertEqual(done.stdout, "", words)

    def used(self, kind):
        answer = json.loads(self.daemon.client("du", "-o", "json").stdout)
        self.assertGreater(int(answer["disk_free_bytes"]), 0)
        return sum(int(part.get("size_bytes", 0)) for part in answer["parts"]
                   if part["kind"] == f"DISK_KIND_{kind}")

    def old_steps(self, *words):
        answer = json.loads(self.daemon.client(
            "prune", "--dry-run", "-o", "json", *words).stdout)
        return [int(one["step"]) for one in answer.get("checkpoints", [])]

    def is_gone(self, job, folder):
        self.refused(5, f"{job} was deleted", "get", job)
        self.assertNotIn(job, self.daemon.client("list").stdout)
        harness.wait_until(lambda: not folder.exists(), f"{folder} is gone")

    def test_old_checkpoints_go_but_what_is_in_use_stays(self):
        job = self.made()
        folder = self.daemon.directory(job)
        self.assertEqual(self.daemon.checkpoints(job), [2, 4, 6])
        before = self.used("CHECKPOINT")
        self.assertEqual(self.old_steps(), [2, 4])
        self.assertEqual(self.old_steps("--keep=0"), [2, 4, 6])
        self.assertEqual(self.old_steps("--older-than=1h"), [])
        self.refused(2, "nobody is here to ask, and nothing was deleted",
                     "prune")
        # A job that has not ended needs what it began from.
        user = self.daemon.submit({
            **SPEC, "max_steps": 1_000_000, "save_steps": 0,
            "resume_from_checkpoint": str(folder / "checkpoint-2")})
        self.assertEqual(self.old_steps(), [4])
        self.refused(6, f"used by jobs that have not ended: {user}",
                     "delete", job, "--yes")
        self.refused(6, "cancel it first: roundhouse cancel",
                     "delete", user, "--yes")
        self.daemon.client("cancel", user)
        self.daemon.wait(user, "CANCELLED")
        done = self.daemon.client("prune", "--yes")
        self.assertIn("Deleted 2 checkpoints", done.stdout)
        self.assertIn(job, done.stderr)
        self.assertEqual(self.daemon.checkpoints(job), [6])
        self.assertLess(self.used("CHECKPOINT"), before)
        # The newest serves as before.
        self.made(max_steps=8,
                  resume_from_checkpoint=str(folder / "checkpoint-6"))
        self.daemon.stop()

    def test_a_deleted_job_is_gone_and_its_result_stays(self):
        job = self.made(output_name="first")
        folder, output = self.daemon.directory(job), self.outputs / "first"
        watch = self.enterContext(subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", "watch", "-o", "json"],
            stdout=subprocess.PIPE, text=True))
        self.addCleanup(watch.kill)
        self.refused(2, "nobody is here to ask", "delete", job)
        results = self.used("OUTPUT")
        self.assertGreater(results, 0)
        done = self.daemon.client("delete", job, "--yes")
        self.assertIn(f"Deleted {job}", done.stdout)
        self.assertIn(f"Its result stays in {output}", done.stderr)
        self.is_gone(job, folder)
        line = json.loads(watch.stdout.readline())
        self.assertEqual((line["name"].rsplit("/", 1)[1], line["removed"]),
                         (job, True))
        self.refused(5, f"{job} was deleted", "logs", job)
        self.refused(5, f"{job} was deleted", "delete", job, "--yes")
        # What it trained is of use, over a restart too.
        self.daemon.stop()
        self.daemon.start()
        self.is_gone(job, folder)
        self.assertNotIn("does not know", self.daemon.log_path.read_text())
        self.assertEqual((self.used("OUTPUT"), self.used("EXPORT")),
                         (0, sum(path.stat().st_size
                                 for path in output.iterdir())))
        self.daemon.client("sample", "first", "-p", "one two")
        self.daemon.client("download", "first", "--output",
                           self.scratch.folder / "result")
        second = self.made(model_name_or_path=str(output), max_steps=1,
                           output_name="second")
        # Just downloaded, it may be read yet; another name never was.
        self.daemon.client("delete", second, "--yes", "--output")
        self.is_gone(second, self.daemon.directories[second])
        self.assertEqual({path.name for path in self.outputs.iterdir()},
                         {"first"})
        self.assertEqual(self.made(max_steps=1, output_name="second"),
                         "job-3")
        self.daemon.stop()

    def test_a_result_that_is_read_stays(self):
        job = self.made(output_name="first")

        def refused():
            """A download counts for some seconds only, which may be over."""
            self.daemon.client("download", job, "--force", "--output",
                               self.scratch.folder / "result")
            done = self.daemon.client("delete", job, "--output", check=False)
            return done.returncode == 6 and done.stderr
        message = harness.wait_until(refused, "a download in the way")
        self.assertIn("is read by a download of", message)
        self.assertTrue((self.outputs / "first").exists())
        self.daemon.stop()

    def test_its_request_makes_no_second_job(self):
        path = self.scratch.folder / "job.json"
        path.write_text(json.dumps({**SPEC, "max_steps": 1}))
        words = ("submit", "-f", path, "--request-id=mine", "-o", "name")
        job = self.daemon.client(*words).stdout.strip().rsplit("/", 1)[1]
        self.daemon.wait(job)
        self.daemon.client("delete", job, "--yes")
        self.refused(5, "which request_id \"mine\" made, was deleted", *words)
        self.daemon.stop()

    def test_a_death_anywhere_leaves_nothing_half(self):
        self.daemon.stop()
        for point in POINTS:
            self.daemon.start(kill_at=f"{point}:1")
            job = self.made(max_steps=2, output_name="name")
            folder = self.daemon.directory(job)
            stays = point == POINTS[0]
            words = ("delete", job, "--yes", *([] if stays else ["--output"]))
            done = self.daemon.client(*words, check=False)
            self.assertNotEqual(done.returncode, 0, point)
            harness.wait_until(self.daemon.ended, f"the death at {point}")
            self.daemon.start()
            if stays:
                self.assertEqual(self.daemon.job(job)["state"], "SUCCEEDED")
                self.assertEqual(self.daemon.checkpoints(job), [2])
                self.daemon.client("sample", job, "-p", "one two")
                self.daemon.client("delete", job, "--yes", "--output")
            self.is_gone(job, folder)
            self.assertEqual(list(self.outputs.iterdir()), [], point)
            self.daemon.stop()


if __name__ == "__main__":
    unittest.main()
