"""Damaged files of jobs, and a disk that fails, through the real programs: each
is noticed, and the job ends with the weights of the undisturbed run.

ROUNDHOUSE_DAMAGES says how many damages of checkpoints (tests/long),
ROUNDHOUSE_DAMAGE_SEED which.
"""

import json
import os
import pathlib
import random
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

STEPS = 6
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "validation_dataset": "valid.jsonl", "max_length": 32, "batch_size": 4,
       "micro_batch_size": 2, "max_steps": STEPS, "save_steps": 2,
       "learning_rate": 0.01, "seed": 1}
DAMAGES = int(os.environ.get("ROUNDHOUSE_DAMAGES", "6"))
SEED = int(os.environ.get("ROUNDHOUSE_DAMAGE_SEED", "1"))


class DamagedFilesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=40)
        self.scratch.make_data("valid.jsonl", count=6, seed=2)
        self.daemon = self.scratch.daemon(max_running_jobs=1)

    def undisturbed(self):
        self.daemon.start()
        job = self.daemon.submit(JOB)
        self.daemon.wait(job)
        self.daemon.stop()
        self.wanted = self.daemon.tensors(job, STEPS)
        return job

    def killed_after_step_4(self):
        """A job with checkpoints of steps 2 and 4, whose daemon is gone."""
        self.daemon.start(kill_at="daemon.save.after_rename:2")
        job = self.daemon.submit(JOB)
        harness.wait_until(self.daemon.ended, "the daemon's end")
        self.assertEqual(self.daemon.checkpoints(job), [2, 4])
        return job

    def ends_right(self, job):
        self.daemon.start()
        self.daemon.wait(job)
        self.daemon.stop()
        self.assertEqual(self.daemon.tensors(job, STEPS), self.wanted)
        return self.daemon.log(job)


class CheckpointTest(DamagedFilesTest):
    def damage(self, source, path):
        """Flips a bit, cuts the file or removes it; what was done."""
        data = path.read_bytes()
        at = source.randrange(len(data))
        kind = source.choice(["flip", "flip", "cut", "remove"])
        if kind == "flip":
            bit = 1 << source.randrange(8)
            path.write_bytes(data[:at] + bytes([data[at] ^ bit]) +
                             data[at + 1:])
        elif kind == "cut":
            path.write_bytes(data[:at])
        else:
            path.unlink()
        return f"{kind} {path.name} at {at}"

    def test_a_damaged_checkpoint_costs_one_checkpoint(self):
        self.undisturbed()
        source = random.Random(SEED)
        for i in range(DAMAGES):
            job = self.killed_after_step_4()
            folder = self.daemon.checkpoint(job, 4)
            (folder / "README").write_text("mine")
            files = sorted(path for path in folder.iterdir()
                           if path.name != "README")
            self.assertEqual(len(files), 7, files)
            done = self.damage(source, files[i % len(files)])
            with self.subTest(done):
                log = self.ends_right(job)
                self.assertIn(f"checkpoint {folder} is not used: ", log)
                self.assertIn("going on from "
                              f"{self.daemon.checkpoint(job, 2)}\n", log)
                self.assertTrue(
                    folder.with_name("checkpoint-4.corrupt").is_dir())

    def test_damage_is_told_though_the_daemon_dies_as_it_moves_it_aside(self):
        self.undisturbed()
        job = self.killed_after_step_4()
        folder = self.daemon.checkpoint(job, 4)
        (folder / "checkpoint.json").unlink()
        self.daemon.launch(kill_at="daemon.quarantine.after_rename:1")
        harness.wait_until(self.daemon.ended, "the daemon's end")
        self.assertFalse(folder.exists())
        log = self.ends_right(job)
        self.assertIn(f"checkpoint {folder} is not used: ", log)

    def test_one_of_the_version_before_is_gone_on_from(self):
        self.undisturbed()
        job = self.killed_after_step_4()
        path = self.daemon.checkpoint(job, 4) / "checkpoint.json"
        manifest = json.loads(path.read_text())
        del manifest["manifest_sha256"]
        manifest["format_version"] = 1
        manifest["shards"] = [shard for shard in manifest["shards"]
                              if shard["file"].endswith(".safetensors")]
        path.write_text(json.dumps(manifest, indent=2) + "\n")
        log = self.ends_right(job)
        self.assertIn(f"going on from {path.parent}\n", log)
        self.assertNotIn("is not used", log)

    def test_leftovers_go_when_the_daemon_starts(self):
        job = self.killed_after_step_4()
        state = self.daemon.state
        left = [self.daemon.directory(job) / ".tmp-checkpoint-90",
                self.daemon.directory(job) / "tmp-checkpoint-91",
                state / "outputs" / ".tmp-x"]
        kept = [self.daemon.directory(job) / "tmp-mine",
                state / "outputs" / "tmp-y"]
        for folder in left + kept:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "file").write_text("x")
        self.daemon.start()
        self.assertEqual([path for path in left if path.exists()], [])
        self.assertEqual([path for path in kept if not path.exists()], [])
        self.daemon.wait(job)


class PreparedDataTest(DamagedFilesTest):
    def flip(self, path):
        with open(path, "r+b") as file:  # the inode that the cache has
            file.seek(8)
            byte = file.read(1)
            file.seek(8)
            file.write(bytes([byte[0] ^ 1]))

    def test_flipped_tokens_and_labels_are_prepared_again(self):
        first = self.undisturbed()
        for split, name in (("train", "tokens.u32"), ("train", "labels.u8"),
                            ("validation", "offsets.u64"),
                            ("train", "manifest.json")):
            job = self.killed_after_step_4()
            path = self.daemon.directory(job) / "data" / split / name
            shared = self.daemon.directory(first) / "data" / split / name
            whole = path.read_bytes()
            self.assertTrue(path.samefile(shared), name)
            self.flip(path)
            log = self.ends_right(job)
            self.assertIn("WARNING: the prepared data were damaged: "
                          f"{path}: ", log)
            self.assertIn("they were prepared again", log)
            self.assertEqual(path.read_bytes(), whole)
            # The next job shares what is whole now.
            first = job

    def test_damage_is_told_though_the_daemon_dies_as_it_is_mended(self):
        self.undisturbed()
        for point in ("daemon.data.before_mending",
                      "daemon.data.after_mending"):
            with self.subTest(point):
                job = self.killed_after_step_4()
                self.flip(self.daemon.directory(job) /
                          "data/train/tokens.u32")
                self.daemon.launch(kill_at=f"{point}:1")
                harness.wait_until(self.daemon.ended, "the daemon's end")
                log = self.ends_right(job)
                self.assertIn("WARNING: the prepared data were damaged: ", log)

    def test_without_its_source_the_job_says_so(self):
        train = self.scratch.data / "train.jsonl"
        for change, text in (
                (train.unlink, f"and {train}, from which they could be"),
                (lambda: self.scratch.make_data("train.jsonl", count=40,
                                                seed=9),
                 "changed since the job was submitted; submit it again")):
            self.scratch.make_data("train.jsonl", count=40)
            job = self.killed_after_step_4()
            self.flip(self.daemon.directory(job) / "data/train/tokens.u32")
            change()
            self.daemon.start()
            found = self.daemon.wait(job, "FAILED")
            self.assertEqual(found["reason"], "INVALID_DATASET")
            self.assertIn(text, found["message"])
            self.daemon.stop()


class FailingDiskTest(DamagedFilesTest):
    def ends_after_resumes(self, job):
        """A job may be paused by the disk; it is never lost."""
        for _ in range(3):
            found = harness.wait_until(
                lambda: (found := self.daemon.job(job))["state"] in
                ("SUCCEEDED", "PAUSED", "FAILED") and found, "an end")
            if found["state"] != "PAUSED":
                break
            self.daemon.client("resume", job)
        self.assertEqual(found["state"], "SUCCEEDED", found.get("message"))

    def test_a_failure_of_power_in_a_save_loses_no_step_that_was_saved(self):
        self.undisturbed()
        for fault in ("checkpoint.text:lost:1:8",
                      "checkpoint.manifest:lost:1:1",
                      "checkpoint.rename:lost:1:5", "output.rename:lost:1:1"):
            with self.subTest(fault):
                self.daemon.start(file_fault_at=fault)
                job = self.daemon.submit(JOB)
                harness.wait_until(self.daemon.ended, "the failure of power")
                log = self.ends_right(job)
                self.assertIn("going on from ", log)
                self.assertNotIn("is not used", log)

    def test_each_site_of_a_save_fails_once(self):
        self.undisturbed()
        for fault in ("checkpoint.folder:ENOSPC", "checkpoint.text:EIO",
                      "checkpoint.manifest:ENOSPC", "checkpoint.rename:EIO",
                      "shard.write:ENOSPC:1:1", "shard.sync:EIO",
                      "shard.write:torn", "shard.sync:lost",
                      "job.metrics:ENOSPC", "prepared.verify:EIO:1:6",
                      "output.text:ENOSPC", "output.rename:ENOSPC"):
            with self.subTest(fault):
                self.daemon.start(file_fault_at=fault)
                try:
                    job = self.daemon.submit(JOB)
                    self.ends_after_resumes(job)
                finally:
                    self.daemon.stop()
                site = fault.split(":")[0]
                self.assertIn(f"fault at {site}", self.daemon.tail(200))
                self.assertEqual(self.daemon.tensors(job, STEPS), self.wanted)

    def test_data_that_cannot_be_prepared_pause_their_job(self):
        self.undisturbed()
        for kind, reason in (("ENOSPC", "STORAGE_FULL"),
                             ("EIO", "STORAGE_ERROR")):
            with self.subTest(kind):
                shutil.rmtree(self.daemon.state / "datasets")
                self.daemon.start(file_fault_at=f"prepared.array:{kind}:ever")
                job = self.daemon.submit(JOB)
                found = harness.wait_until(
                    lambda job=job: (found := self.daemon.job(job))["state"]
                    not in ("VALIDATING", "QUEUED") and found, "PAUSED")
                self.daemon.stop()
                self.assertEqual((found["state"], found["reason"]),
                                 ("PAUSED", reason), found)
                self.assertIn("resumed", found["message"])
                self.daemon.start()
                if kind == "EIO":  # with room it goes on by itself
                    self.daemon.client("resume", job)
                self.daemon.wait(job)
                self.daemon.stop()
                self.assertEqual(self.daemon.tensors(job, STEPS), self.wanted)


if __name__ == "__main__":
    unittest.main()
