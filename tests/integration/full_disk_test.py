"""Jobs on a disk that is full for a while: a small file system of the test's
own, in a mount namespace of its own."""

import hashlib
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]
IN_NAMESPACE = "ROUNDHOUSE_TEST_MOUNTS"
EXIT_QUOTA = 7
# A checkpoint of these jobs has twice as much.
FOR_THE_STORE = 400 << 10
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
       "max_steps": 1_000_000, "save_steps": 10, "save_total_limit": 1,
       "learning_rate": 0.01, "lr_scheduler_type": "constant", "seed": 1}

if IN_NAMESPACE not in os.environ and subprocess.run(
        [*UNSHARE, "true"], check=False, capture_output=True).returncode == 0:
    os.execvpe(UNSHARE[0], [*UNSHARE, sys.executable, "-B", *sys.argv],
               {**os.environ, IN_NAMESPACE: "1"})


def shards(folder):
    """{file: SHA-256} of a folder's weights."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in pathlib.Path(folder).glob("*.safetensors")}


class DiskTest(unittest.TestCase):
    known = {}  # steps -> weights of an undisturbed run

    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=60)
        self.daemon = self.scratch.daemon(max_running_jobs=1)

    def state(self, job):
        return self.daemon.job(job)["state"]

    def wait_state(self, job, state):
        harness.wait_until(lambda: self.state(job) == state,
                           f"{job} {state}")
        return self.daemon.job(job)

    def wait_steps(self, job, more=3):
        step = self.daemon.job(job)["step"]
        harness.wait_until(lambda: self.daemon.job(job)["step"] >= step + more,
                           "more steps")

    def finish(self, job):
        """Ends the job early; its weights must be those of a run that
        nothing disturbed."""
        self.daemon.client("finish", job)
        found = self.daemon.wait(job)
        step = found["step"]
        if step not in self.known:
            other = self.scratch.daemon()
            other.start()
            same = other.submit({**JOB, "max_steps": step, "save_steps": 0})
            self.known[step] = shards(other.wait(same)["output_path"])
            other.stop()
        self.assertEqual(shards(found["output_path"]), self.known[step])
        self.assertTrue(self.known[step])
        return found

    def assert_refused(self, done, *parts, status=EXIT_QUOTA):
        self.assertEqual(done.returncode, status, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)


@unittest.skipUnless(IN_NAMESPACE in os.environ,
                     "this system lets nobody mount in a namespace")
class FullDiskTest(DiskTest):
    def setUp(self):
        super().setUp()
        self.mount(self.daemon.state)
        self.daemon.start()

    def mount(self, folder, size="80m"):
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none",
                        folder], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", folder], check=True)

    def mount_over(self, folder):
        """A file system of its own that is as good as full."""
        self.mount(folder, "16k")

    def remount(self, folder, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", folder],
                       check=True)

    @property
    def filler(self):
        return self.daemon.state / "fill"

    def fill(self, leave=0):
        """Leaves so many bytes, at first."""
        with open(self.filler, "ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass
            file.truncate(file.tell() - leave)

    def free(self):
        self.filler.unlink()

    def held(self):
        """A job that keeps its memory."""
        job = self.daemon.submit(JOB)
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 2, "steps")
        self.fill(FOR_THE_STORE)
        found = self.wait_state(job, "PAUSED")
        self.assertEqual(found["reason"], "STORAGE_FULL", found)
        self.assertEqual(found["memory"], "KEPT")
        return job, found

    def assert_weights_are_kept(self, job):
        """No step is done twice but what a restart of the daemon undid."""
        steps = [line["step"] for line in self.daemon.metrics(job)
                 if "loss" in line]
        self.assertEqual(len(steps), len(set(steps)))

    def test_a_checkpoint_waits_for_room(self):
        job, found = self.held()
        for part in ("since 20", " are needed, ", " are free in ",
                     str(self.daemon.state), "goes on by itself"):
            self.assertIn(part, found["message"])
        text = self.daemon.client("get", job).stdout
        self.assertRegex(text, r"memory: +kept")
        self.assertIn("PAUSED (memory kept)",
                      self.daemon.client("list").stdout)
        path = self.daemon.folder / "job.yaml"
        self.assert_refused(
            self.daemon.client("submit", "-f", path, check=False),
            "job.yaml:1: model_name_or_path: the job needs ", "of disk")
        step = found["step"]
        self.assertEqual(self.daemon.job(job)["step"], step)
        self.free()
        self.wait_state(job, "RUNNING")
        self.wait_steps(job)
        self.assertEqual(self.daemon.job(job)["memory"],
                         "JOB_MEMORY_UNSPECIFIED")
        self.finish(job)
        self.assert_weights_are_kept(job)
        self.daemon.stop()

    def test_its_place_is_free_and_its_memory_is_not(self):
        job, _ = self.held()
        self.free()
        # As it goes on by itself, another waits for its place.
        self.wait_state(job, "RUNNING")
        harness.wait_until((self.daemon.state / "reserve").exists,
                           "the reserve again")
        other = self.daemon.submit({**JOB, "save_steps": 0})
        self.wait_state(other, "QUEUED")
        # A full disk of checkpoints alone: the other one, which saves none yet,
        # may start, and has the place until it ends.
        jobs = self.daemon.directory(job)
        self.mount_over(jobs)
        self.wait_state(job, "PAUSED")
        self.wait_state(other, "RUNNING")
        done = self.daemon.client("resume", job, check=False)
        self.assertIn("--max-running-jobs", done.stderr)
        self.remount(jobs, "40m")
        self.wait_steps(other)
        self.assertEqual(self.state(job), "PAUSED")
        self.daemon.client("cancel", other)
        self.wait_state(other, "CANCELLED")
        self.wait_state(job, "RUNNING")
        self.assertEqual(self.daemon.job(job)["attempts"], 1)
        self.daemon.client("cancel", job)
        self.wait_state(job, "CANCELLED")
        self.daemon.stop()

    def test_verbs_while_it_is_kept(self):
        job, found = self.held()
        self.assertIn("PAUSED", self.daemon.client("pause", job).stdout)
        now = self.daemon.job(job)
        self.assertEqual((now["reason"], now["memory"]),
                         ("JOB_REASON_UNSPECIFIED", "KEPT"))
        done = self.daemon.client("finish", job, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("not RUNNING", done.stderr)
        # Asked to, it tries at once, and waits again.
        self.daemon.client("resume", job)
        again = self.wait_state(job, "PAUSED")
        self.assertEqual(again["step"], found["step"])
        self.assertEqual(again["memory"], "KEPT")
        # What it is to give back finds no room either.
        self.assertIn("PAUSING",
                      self.daemon.client("pause", "--give-back", job).stdout)
        self.assertEqual(self.wait_state(job, "PAUSED")["memory"], "KEPT")
        waiting = subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", "watch", job],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={"HOME": str(self.daemon.folder), "PATH": "/usr/bin:/bin"})
        self.daemon.client("cancel", job)
        self.wait_state(job, "CANCELLED")
        _, errors = waiting.communicate(timeout=harness.DEADLINE_SECONDS)
        self.assertIn("was cancelled", errors)
        self.assertEqual(list(self.daemon.directory(job).glob("tmp-*")), [])
        self.free()
        self.daemon.stop()

    def test_a_pause_that_cannot_save(self):
        job = self.daemon.submit({**JOB, "save_steps": 0})
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 2, "steps")
        self.fill(FOR_THE_STORE)
        self.daemon.client("pause", "--give-back", job)
        found = harness.wait_until(
            lambda: (now := self.daemon.job(job))["state"] == "PAUSED" and now,
            "PAUSED")
        self.assertEqual((found["reason"], found["memory"]),
                         ("STORAGE_FULL", "KEPT"))
        self.free()
        # Its pause ends: saved, and given back.
        found = harness.wait_until(
            lambda: (now := self.daemon.job(job))["state"] == "PAUSED" and
            now["memory"] == "GIVEN_BACK" and now, "the pause")
        self.assertEqual(found["reason"], "JOB_REASON_UNSPECIFIED")
        self.assertEqual(self.daemon.checkpoints(job), [found["step"]])
        self.daemon.client("resume", job)
        self.wait_state(job, "RUNNING")
        self.finish(job)
        self.daemon.stop()

    def test_a_pause_that_cannot_save_is_resumed(self):
        job = self.daemon.submit({**JOB, "save_steps": 0})
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 2, "steps")
        self.fill(FOR_THE_STORE)
        self.daemon.client("pause", "--give-back", job)
        self.wait_state(job, "PAUSED")
        self.daemon.client("resume", job)
        step = self.wait_state(job, "PAUSED")["step"]
        self.free()
        # It is saved as a pause is, and then goes on as it was told.
        self.wait_state(job, "RUNNING")
        self.assertEqual(self.daemon.job(job)["attempts"], 2)
        self.assertEqual(self.daemon.checkpoints(job), [step])
        self.finish(job)
        self.daemon.stop()

    def test_an_export_waits_for_room(self):
        job = self.daemon.submit(JOB)
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 2, "steps")
        outputs = self.daemon.state / "outputs"
        self.mount_over(outputs)
        self.daemon.client("finish", job)
        found = self.wait_state(job, "PAUSED")
        self.assertEqual((found["reason"], found["memory"]),
                         ("STORAGE_FULL", "KEPT"))
        self.assertIn(str(outputs), found["message"])
        step = found["step"]
        self.assertEqual(self.daemon.checkpoints(job), [step])
        self.remount(outputs, "40m")
        found = self.daemon.wait(job)  # by itself
        self.assertEqual(found["step"], step)
        self.assertEqual(found["attempts"], 1)
        self.assertEqual(self.daemon.log(job).count(f"step {step}/"), 1)
        self.daemon.stop()

    def check_restart(self, stop):
        job, found = self.held()
        stop()
        self.daemon.start()
        found = self.wait_state(job, "PAUSED")
        saved = self.daemon.checkpoints(job)
        last = saved[-1] if saved else 0
        self.assertEqual(found["memory"], "GIVEN_BACK")
        self.assertEqual(found["reason"], "STORAGE_FULL")
        self.assertIn(f"it goes on after step {last}", found["message"])
        self.free()
        self.daemon.client("resume", job)
        self.wait_state(job, "RUNNING")
        self.wait_steps(job)
        self.finish(job)
        self.assert_weights_are_kept(job)
        self.daemon.stop()

    def test_a_stop_while_it_is_kept(self):
        self.check_restart(self.daemon.stop)

    def test_a_kill_while_it_is_kept(self):
        self.check_restart(self.daemon.kill)

    def test_a_start_on_a_full_disk(self):
        jobs = [self.daemon.submit(JOB), self.daemon.submit(JOB)]
        harness.wait_until(lambda: self.daemon.job(jobs[0])["step"] > 12,
                           "steps")
        self.daemon.kill()
        (self.daemon.state / "reserve").unlink()
        self.fill()
        self.daemon.start()
        self.fill()  # what opening the store gave back
        # Reads are served, verbs say what is wrong or are done.
        self.assertIn(self.state(jobs[0]), ("RUNNING", "RECOVERING", "QUEUED"))
        self.assert_refused(
            self.daemon.client("cancel", jobs[0], check=False),
            "the job store can't be written", "nothing was done")
        self.assertNotEqual(
            self.daemon.client("cancel", jobs[1], check=False).returncode, 0)
        path = self.daemon.folder / "job.yaml"
        self.assert_refused(
            self.daemon.client("submit", "-f", path, check=False))
        self.free()
        harness.wait_until(lambda: self.daemon.job(jobs[0])["attempts"] == 2,
                           "another life")
        self.wait_state(jobs[0], "RUNNING")
        self.finish(jobs[0])
        self.wait_state(jobs[1], "RUNNING")
        self.daemon.client("cancel", jobs[1])
        self.wait_state(jobs[1], "CANCELLED")
        self.assertEqual(len(json.loads(self.daemon.client(
            "list", "-o", "json").stdout)["jobs"]), 2)
        self.daemon.stop()

    def test_the_reserve_carries_jobs_over_a_full_disk(self):
        """Each verb, and each end, on a disk without a free block."""
        paused = self.daemon.submit({**JOB, "save_steps": 0})
        self.wait_state(paused, "RUNNING")
        self.daemon.client("pause", "--give-back", paused)
        self.wait_state(paused, "PAUSED")
        running = self.daemon.submit(JOB)
        queued = self.daemon.submit(JOB)
        harness.wait_until(lambda: self.daemon.job(running)["step"] > 2,
                           "steps")
        self.fill()
        path = self.daemon.folder / "job.yaml"
        self.assert_refused(
            self.daemon.client("submit", "-f", path, check=False))
        self.daemon.client("cancel", queued)
        self.assertEqual(self.state(queued), "CANCELLED")
        self.daemon.client("resume", paused)
        self.assertEqual(self.state(paused), "QUEUED")
        self.daemon.client("cancel", paused)
        self.assertEqual(self.state(paused), "CANCELLED")
        self.wait_state(running, "PAUSED")
        self.daemon.client("cancel", running)
        self.wait_state(running, "CANCELLED")
        self.free()
        harness.wait_until((self.daemon.state / "reserve").exists,
                           "the reserve again")
        self.daemon.stop()


class StoreRefusesTest(DiskTest):
    """Nothing that the daemon writes to a file is taken, as on a full disk
    that has no reserve left."""

    def setUp(self):
        super().setUp()
        self.daemon.start()

    def refuse(self, refuses):
        limit = 1 if refuses else resource.RLIM_INFINITY
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE,
                         (limit, resource.RLIM_INFINITY))

    def test_the_end_of_a_job_is_stored_later(self):
        job = self.daemon.submit({**JOB, "max_steps": 60, "save_steps": 0})
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 2, "steps")
        waiting = subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", "watch", job],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={"HOME": str(self.daemon.folder), "PATH": "/usr/bin:/bin"})
        self.refuse(True)
        harness.wait_until(lambda: self.daemon.job(job)["step"] == 60,
                           "the last step")
        for verb in ("cancel", "pause"):
            harness.wait_until(
                lambda verb=verb: "the job store can't be written" in
                self.daemon.client(verb, job, check=False).stderr,
                f"{verb} refused")
        self.assertEqual(self.state(job), "RUNNING")
        path = self.daemon.folder / "job.yaml"
        self.assert_refused(
            self.daemon.client("submit", "-f", path, check=False),
            "RESOURCE_EXHAUSTED", "takes no job")
        self.assertEqual(len(json.loads(self.daemon.client(
            "list", "-o", "json").stdout)["jobs"]), 1)
        self.refuse(False)
        # It could not write its checkpoint either; asked to, it does.
        self.wait_state(job, "PAUSED")
        self.daemon.client("resume", job)
        found = self.daemon.wait(job)
        output, errors = waiting.communicate(timeout=harness.DEADLINE_SECONDS)
        self.assertEqual(waiting.returncode, 0, output + errors)
        self.assertEqual(found["step"], 60)
        self.daemon.stop()

    def test_jobs_in_each_state(self):
        paused = self.daemon.submit({**JOB, "save_steps": 0})
        self.wait_state(paused, "RUNNING")
        self.daemon.client("pause", "--give-back", paused)
        self.wait_state(paused, "PAUSED")
        running = self.daemon.submit({**JOB, "save_steps": 0})
        harness.wait_until(lambda: self.daemon.job(running)["step"] > 2,
                           "steps")
        queued = self.daemon.submit(JOB)
        self.wait_state(queued, "QUEUED")
        validating = self.daemon.submit(JOB)
        self.refuse(True)
        before = {job: self.state(job) for job in (paused, running, queued)}
        for job, verb in ((paused, "resume"), (running, "cancel"),
                          (running, "pause"), (queued, "cancel"),
                          (queued, "pause"), (validating, "cancel")):
            self.assert_refused(self.daemon.client(verb, job, check=False),
                                "the job store can't be written")
        self.assertEqual(
            before, {job: self.state(job) for job in before})
        self.refuse(False)
        self.wait_state(validating, "QUEUED")
        for job, verb, state in ((queued, "cancel", "CANCELLED"),
                                 (validating, "pause", "PAUSED"),
                                 (running, "pause", "PAUSED"),
                                 (paused, "resume", "RUNNING")):
            self.daemon.client(verb, job)
            self.wait_state(job, state)
        self.daemon.client("cancel", paused)
        self.daemon.stop()


if __name__ == "__main__":
    unittest.main()
