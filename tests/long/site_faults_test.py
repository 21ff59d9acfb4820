"""The disk fails at every named site of daemon, workers and dataset helper
(base/files/file_site.h): once, for four seconds, and for good.

TABLE has a row for each site; one without a row fails the test. Each row is run
with every kind and length of fault. In each of these cells the fault strikes
while a job, an export or a start goes through the site. While it lasts every
verb answers, and what was acknowledged is there. When the disk is back (a fault
for good ends with a restart of the daemon) every job ends SUCCEEDED, resumed
where it is PAUSED, with the weights of a run that nothing disturbed.

ROUNDHOUSE_CELLS: how many cells (8), "all", or how the sites begin, as
"prepared.,job.". ROUNDHOUSE_SEED: which ones. All of them:

    bazel test //tests/long:site_faults_test --test_timeout=7200 \
      --test_output=all --test_env=ROUNDHOUSE_CELLS=all
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

CELLS = os.environ.get("ROUNDHOUSE_CELLS", "8")
SEED = int(os.environ.get("ROUNDHOUSE_SEED", "1"))
KINDS = ("ENOSPC", "EIO")
LENGTHS = ("1", "4s", "ever")
# What a call may take beside three jobs on a busy machine; a hang is longer.
ANSWER_SECONDS = 30
SETTLE_SECONDS = 2
FINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}
STEPS, SAVED_STEPS = 6, 4
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 16, "batch_size": 4, "micro_batch_size": 2,
       "max_steps": STEPS, "save_steps": 2, "learning_rate": 0.01,
       "lr_scheduler_type": "constant", "seed": 1}
# Runs until it is told to finish.
LONG = {**JOB, "max_steps": 1_000_000, "save_steps": 20,
        "save_total_limit": 1}
PROMPTS = {**JOB, "eval_prompts": ["one two"], "eval_steps": 2,
           "validation_dataset": "valid.jsonl"}
# Its daemon dies when the result is there and the job has not ended.
SHORT = {**JOB, "max_steps": 2}
BROKEN = {**JOB, "model_name_or_path": "broken"}
OTHER = {**JOB, "max_steps": 1, "save_steps": 0, "output_name": "other"}
DOOMED = {**OTHER, "output_name": "doomed"}


@dataclasses.dataclass(frozen=True)
class Row:
    """How a site is reached."""

    site: str
    scenario: str = "job"  # a method of SiteFaultsTest
    after: int = 0  # passes that go well before
    job: dict = dataclasses.field(default_factory=lambda: JOB)


TABLE = (
    Row("checkpoint.folder"),
    Row("checkpoint.text"),
    Row("checkpoint.manifest"),
    Row("checkpoint.rename"),
    Row("checkpoint.read", "restart"),
    Row("checkpoint.quarantine", "damaged"),
    Row("checkpoint.remove", job={**JOB, "save_total_limit": 1}),
    Row("output.folder"),
    Row("output.text"),
    Row("output.rename"),
    Row("export.note", "export"),
    Row("export.folder", "export"),
    Row("export.header", "export"),
    Row("export.text", "export"),
    Row("export.rename", "export"),
    # The job looks once for a mark as it starts.
    Row("job.finish_mark", "finish", after=1, job=LONG),
    Row("job.metrics"),
    Row("job.samples", "restart", job=PROMPTS),
    Row("job.tokenizer"),
    Row("job.tokenizer", "restart"),
    Row("prepared.verify"),
    Row("prepared.verify", "restart"),
    Row("shard.write"),
    Row("shard.sync"),
    Row("merge.write", "export"),
    Row("merge.sync", "export"),
    Row("prepared.array"),
    Row("prepared.manifest"),
    Row("prepared.link"),
    Row("prepared.cache"),
    Row("prepared.lock"),
    Row("prepared.remove"),
    Row("job.log"),
    Row("job.lines"),
    Row("job.folder", "failing", job=BROKEN),
    Row("store.mark", after=10),  # the start and the first job's submit
    Row("store.backup", "begin"),
    Row("state.folder", "begin_afresh"),
    Row("state.lock", "begin"),
    Row("state.reserve", "begin_afresh"),
    Row("listen.socket", "begin"),
    Row("leftover.remove", "begin"),
    Row("tls.folder", "begin_tls"),
    Row("tls.file", "begin_tls"),
    Row("upload.folder", "begin_afresh"),
    Row("upload.part", "upload"),
    Row("upload.verify", "upload_goes_on"),
    Row("upload.link", "upload"),
    Row("upload.rename", "upload"),
    Row("upload.remove", "upload"),
    Row("output.remove", "restart", job=SHORT),
    Row("export.remove", "export_left"),
    Row("shard.remove", "files_worker_dies"),
    Row("removal.mark", "delete"),
    Row("removal.rename", "delete"),
    Row("removal.remove", "delete"),
)

# Each run of the helper counts its own passes: this stands before Python, and
# only those get the fault that begin while it lasts.
HELPER = """#!{python} -ISB
import os, sys, time
began, fault = {began!r}, os.environ.get("ROUNDHOUSE_FILE_FAULT_AT", "")
if fault and "--out" in sys.argv:
    length = fault.split(":")[2]
    if not os.path.exists(began):
        open(began, "w").close()
    elif length == "1" or (length[-1] == "s" and time.time() -
                           os.path.getmtime(began) > float(length[:-1])):
        del os.environ["ROUNDHOUSE_FILE_FAULT_AT"]
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


def cells():
    """(row, kind, length) of those to be run."""
    every = [(row, kind, length) for row in TABLE for kind in KINDS
             for length in LENGTHS]
    if CELLS == "all":
        return every
    if CELLS.isdigit():
        return random.Random(SEED).sample(every, min(int(CELLS), len(every)))
    sites = tuple(CELLS.split(","))
    return [cell for cell in every if cell[0].site.startswith(sites)]


def shards(folder):
    """{file: SHA-256} of a folder's weights; never none."""
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
             for path in pathlib.Path(folder).glob("*.safetensors")}
    assert found, folder
    return found


class TableTest(unittest.TestCase):
    def test_every_site_has_a_row(self):
        header = harness.ROOT / "base/files/file_site.h"
        names = re.findall(r'FileSite k\w+\{\s*"([^"]+)"', header.read_text())
        self.assertTrue(names)
        self.assertEqual(len(names), len(set(names)))
        reached = {row.site for row in TABLE}
        self.assertEqual(reached, set(names))


class SiteFaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = cls.enterClassContext(harness.Scratch())
        cls.scratch.make_model("model")
        cls.scratch.make_data("train.jsonl", count=20)
        cls.scratch.make_data("valid.jsonl", count=4, seed=2)
        cls.daemon = cls.scratch.daemon(devices="cpu:1")
        cls.began = cls.scratch.folder / "began"
        helper = cls.scratch.folder / "helper"
        helper.write_text(HELPER.format(python=sys.executable,
                                        began=str(cls.began)))
        helper.chmod(0o700)
        cls.daemon.fixed["python"] = helper
        cls.exports = cls.scratch.data / "exports"
        cls.weights = {}  # steps -> those of a run that nothing disturbed
        cls.states = {}  # of jobs whose daemon was killed: job file -> folder
        cls.jobs = cls.struck = 0

    # What a cell begins with.

    def start(self, fault="", **flags):
        """On the state that there is."""
        self.began.unlink(missing_ok=True)
        if self.daemon.log_path.exists():
            self.daemon.log_path.unlink()
        if fault:
            flags["file_fault_at"] = fault
        self.daemon.start(**flags)

    def start_afresh(self, fault="", **flags):
        self.clear()
        self.start(fault, **flags)

    def clear(self):
        shutil.rmtree(self.daemon.state, ignore_errors=True)
        self.daemon.directories.clear()

    def killed(self, job_file, change=lambda folder: None):
        """The state that a killed daemon left, with checkpoints of steps 2 and
        4, or of 2 and a result; the job's id."""
        key = json.dumps(job_file)
        if key not in self.states:
            shutil.rmtree(self.daemon.state, ignore_errors=True)
            self.daemon.start(kill_at="daemon.save.after_rename:2")
            job = self.daemon.submit(job_file)
            harness.wait_until(self.daemon.ended, "the daemon's end")
            self.assertEqual(
                self.daemon.checkpoints(job),
                [step for step in (2, SAVED_STEPS)
                 if step <= job_file["max_steps"]])
            self.states[key] = self.scratch.folder / f"state{len(self.states)}"
            self.daemon.state.rename(self.states[key])
        self.clear()
        shutil.copytree(self.states[key], self.daemon.state)
        for folder in (self.daemon.state / "jobs").iterdir():
            change(folder / f"checkpoint-{SAVED_STEPS}")
        return "job-1"

    def undisturbed(self, steps):
        if steps not in self.weights:
            daemon = self.scratch.daemon(devices="cpu:1")
            daemon.start()
            job = daemon.submit({**JOB, "max_steps": steps, "save_steps": 0})
            self.weights[steps] = shards(daemon.wait(job)["output_path"])
            daemon.stop()
        return self.weights[steps]

    # What is seen while a fault lasts.

    def wait_for_fault(self, site):
        text = f"fault at {site}\n"
        harness.wait_until(lambda: text in self.daemon.log_path.read_text(),
                           f"the fault at {site}")
        type(self).struck += 1

    def answer(self, *words):
        """The client's; an error is one, a hang or no daemon is none."""
        done = self.daemon.client(*words, check=False, seconds=ANSWER_SECONDS)
        self.assertFalse(self.daemon.ended(), f"{words}: the daemon is gone")
        self.assertGreaterEqual(done.returncode, 0, f"{words}: {done.stderr}")
        return done

    def ask_to_submit(self, spec):
        """The job's id; None: it was refused."""
        path = self.scratch.folder / "other.json"
        path.write_text(json.dumps(spec))
        done = self.answer("submit", "-f", path, "-o", "json")
        if done.returncode != 0:
            return None
        return json.loads(done.stdout)["name"].rsplit("/", 1)[1]

    def ask_everything(self, job):
        """{job: the states that it may end in} of all that there are."""
        wanted = {job: {"SUCCEEDED"}} if job else {}
        self.answer("list")
        other = self.ask_to_submit(OTHER)
        doomed = self.ask_to_submit(DOOMED)
        if other:
            wanted[other] = {"SUCCEEDED"}
        for verb in ("get", "pause", "resume"):
            self.answer(verb, job or other or "job-1")
        if doomed:
            self.answer("finish", doomed)
            done = self.answer("cancel", doomed)
            wanted[doomed] = ({"CANCELLED"} if done.returncode == 0 else
                              {"SUCCEEDED", "CANCELLED"})
        known = json.loads(self.answer("list", "-o", "json").stdout)["jobs"]
        self.assertEqual({one["name"].rsplit("/", 1)[1] for one in known},
                         set(wanted))
        return wanted

    # What has to come of it.

    def disk_is_back(self, length, job=None):
        """A disk that is broken for good is replaced while the daemon is
        down."""
        if length != "ever":
            return
        deadline = time.monotonic() + SETTLE_SECONDS
        while (job and time.monotonic() < deadline and
               self.daemon.job(job)["state"] not in FINAL | {"PAUSED"}):
            time.sleep(0.05)
        self.daemon.stop()
        self.start()

    def end(self, job):
        """Resumes it where it is PAUSED; its JSON when it has ended."""
        def ended():
            found = self.daemon.job(job)
            if found["state"] == "PAUSED":
                self.answer("resume", job)
            return found["state"] in FINAL and found
        return harness.wait_until(ended, f"the end of {job}", pause=0.2)

    def end_all(self, wanted, steps=STEPS):
        for job, states in wanted.items():
            found = self.end(job)
            self.assertIn(found["state"], states,
                          f"{job}: {found.get('reason')} "
                          f"{found.get('message')}\n{self.daemon.tail()}")
            if found["state"] == "SUCCEEDED":
                self.check_weights(found)
        type(self).jobs += len(wanted)

    def check_weights(self, found):
        self.assertIn("dataset", found)
        self.assertEqual(shards(found["output_path"]),
                         self.undisturbed(found["step"]))

    def stop(self):
        self.daemon.stop()
        state = self.daemon.state
        left = [*state.glob("jobs/*/.tmp-*"), *state.glob("outputs/.tmp-*"),
                *state.glob("export-in-progress")]
        self.assertEqual(left, [])

    # The scenarios.

    def job(self, row, fault, length):
        self.start_afresh(fault)
        job = self.daemon.submit(row.job)
        self.wait_for_fault(row.site)
        wanted = self.ask_everything(job)
        self.disk_is_back(length, job)
        self.end_all(wanted)

    def restart(self, row, fault, length, change=lambda folder: None):
        job = self.killed(row.job, change)
        self.start(fault)
        self.wait_for_fault(row.site)
        wanted = self.ask_everything(job)
        self.disk_is_back(length, job)
        self.end_all(wanted)
        self.start_once_more()
        # Steps that were saved are never lost.
        self.assertEqual(self.daemon.log(job).count(
            f"step 1/{row.job['max_steps']} "), 1)

    def damaged(self, row, fault, length):
        def flip(folder):
            path = folder / "model.safetensors"
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
        self.restart(row, fault, length, flip)

    def begin(self, row, fault, length):
        """A start may be refused, in words; nothing is lost by it."""
        job = self.killed(row.job)
        self.begin_with(row, fault, length, job)

    def begin_afresh(self, row, fault, length):
        self.clear()
        self.begin_with(row, fault, length, None)

    def begin_tls(self, row, fault, length):
        """A certificate of its own is made at the first start."""
        self.daemon.flags["listen_tls"] = "127.0.0.1:0"
        try:
            self.begin_afresh(row, fault, length)
        finally:
            del self.daemon.flags["listen_tls"]

    def begin_with(self, row, fault, length, job):
        for folder in self.daemon.state.glob("jobs/*"):
            (folder / ".tmp-checkpoint-90").mkdir()
        try:
            self.start(fault)
        except harness.Failure:
            self.assertTrue(self.daemon.ended())
            self.assertIn(self.daemon.process.returncode, (1, 2))
            self.wait_for_fault(row.site)
            self.start()
        else:
            self.wait_for_fault(row.site)
        wanted = self.ask_everything(job)
        self.disk_is_back(length, job)
        self.end_all(wanted)
        self.start_once_more()

    def start_once_more(self):
        """What could not be removed is, at the next start."""
        self.daemon.stop()
        self.start()

    def failing(self, row, fault, length):
        """Whatever the disk does, the job says what is wrong with it."""
        broken = self.scratch.data / "broken"
        if not broken.exists():
            shutil.copytree(self.scratch.data / "model", broken)
            (broken / "tokenizer.json").write_text("{}")
        self.start_afresh(fault)
        job = self.daemon.submit(row.job)
        self.wait_for_fault(row.site)
        wanted = self.ask_everything(job)
        self.disk_is_back(length, job)
        self.end_all({**wanted, job: {"FAILED"}})
        self.assertIn("tokenizer.json", self.daemon.job(job)["message"])

    def files_worker_dies(self, row, fault, length):
        """Its successor removes what it left."""
        self.start_afresh(fault, worker_kill_at="files=files.save.tensor:3")
        job = self.daemon.submit(row.job)
        self.wait_for_fault(row.site)
        wanted = self.ask_everything(job)
        self.disk_is_back(length, job)
        self.end_all(wanted)

    def finish(self, row, fault, length):
        self.start_afresh(fault)
        job = self.daemon.submit(row.job)
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 1, "steps")
        self.assertNotEqual(self.answer("finish", job).returncode, 0)
        self.wait_for_fault(row.site)
        wanted = self.ask_everything(job)
        self.disk_is_back(length)
        def finished():
            if self.daemon.job(job)["state"] == "PAUSED":
                self.answer("resume", job)
            return self.answer("finish", job).returncode == 0
        harness.wait_until(finished, "a finish that is taken", pause=0.2)
        self.end_all(wanted)

    def export(self, row, fault, length):
        shutil.rmtree(self.exports, ignore_errors=True)
        self.exports.mkdir()
        self.start_afresh(fault)
        words = ("export", "model", "--output", "exports/made")
        done = self.answer(*words)
        self.assertNotEqual(done.returncode, 0)
        self.wait_for_fault(row.site)
        self.assertEqual(list(self.exports.iterdir()), [], done.stderr)
        wanted = self.ask_everything(None)
        self.disk_is_back(length)
        harness.wait_until(lambda: self.answer(*words).returncode == 0,
                           "an export", pause=0.2)
        self.assertEqual([path.name for path in self.exports.iterdir()],
                         ["made"])
        model = harness.read_safetensors(
            self.scratch.data / "model/model.safetensors")
        self.assertEqual(harness.read_safetensors(
            self.exports / "made/model.safetensors"), model)
        self.end_all(wanted)

    def export_left(self, row, fault, length):
        """One that fails, and can't be taken away: the next start does."""
        shutil.rmtree(self.exports, ignore_errors=True)
        self.exports.mkdir()
        self.start_afresh(f"{fault};export.text:ENOSPC")
        words = ("export", "model", "--output", "exports/made")
        self.assertNotEqual(self.answer(*words).returncode, 0)
        self.wait_for_fault(row.site)
        self.end_all(self.ask_everything(None))
        self.start_once_more()
        self.assertEqual(list(self.exports.iterdir()), [])
        self.daemon.client(*words)

    def upload(self, row, fault, length):
        self.start_afresh(fault)
        self.answer("upload", self.scratch.data / "train.jsonl")
        self.uploaded(row, length)

    def upload_goes_on(self, row, fault, length):
        """What came before a death is read again, to be hashed."""
        self.start_afresh(kill_at="upload.built:1")
        client = subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", "upload",
             self.scratch.data / "train.jsonl"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        harness.wait_until(self.daemon.ended, "the daemon's end")
        self.start(fault)
        self.uploaded(row, length)

    def uploaded(self, row, length):
        self.wait_for_fault(row.site)
        wanted = self.ask_everything(None)
        self.disk_is_back(length)
        words = ("upload", self.scratch.data / "train.jsonl")
        harness.wait_until(lambda: self.answer(*words).returncode == 0,
                           "an upload", pause=0.2)
        self.assertIn("train.jsonl",
                      self.answer("dataset", "show", "train").stdout)
        self.end_all(wanted)

    def delete(self, row, fault, length):
        """A job goes, or it stays whole; in the end nothing of it is left."""
        self.start_afresh(fault)
        job = self.daemon.submit(JOB)
        self.check_weights(self.daemon.wait(job))
        folder = self.daemon.directory(job)
        with_result = row.site != "removal.mark"
        words = ("delete", job, "--yes",
                 *(["--output"] if with_result else []))
        self.answer(*words)
        self.wait_for_fault(row.site)
        there = self.answer("get", job).returncode == 0
        wanted = self.ask_everything(job if there else None)
        self.disk_is_back(length)
        not_found = 5
        harness.wait_until(
            lambda: self.answer(*words).returncode in (0, not_found),
            f"{job} is deleted", pause=0.2)
        self.start_once_more()
        harness.wait_until(lambda: not folder.exists(), f"{folder} is gone")
        output = self.daemon.state / "outputs" / job
        harness.wait_until(lambda: output.exists() != with_result,
                           f"{output} {'goes' if with_result else 'stays'}")
        wanted.pop(job, None)
        self.end_all(wanted)

    def test_data_without_room_are_prepared_when_there_is_some(self):
        self.addCleanup(lambda: self.daemon.ended() or self.daemon.kill())
        self.start_afresh("prepared.array:ENOSPC:1:0")
        job = self.daemon.submit(JOB)
        self.wait_for_fault("prepared.array")
        # Nobody resumes it.
        harness.wait_until(lambda: self.daemon.job(job)["state"] == "SUCCEEDED",
                           "SUCCEEDED")
        self.check_weights(self.daemon.job(job))
        self.assertIn("PAUSED STORAGE_FULL: ", self.daemon.log(job))
        self.stop()

    def test_whatever_fails_every_job_ends_right(self):
        chosen = cells()
        self.assertTrue(chosen, CELLS)
        begun_with = self.struck
        for row, kind, length in chosen:
            fault = f"{row.site}:{kind}:{length}:{row.after}"
            begun, right = time.monotonic(), False
            with self.subTest(f"{fault} {row.scenario}"):
                try:
                    getattr(self, row.scenario)(row, fault, length)
                    self.stop()
                    right = True
                finally:
                    if not self.daemon.ended():
                        self.daemon.kill()
            print(f"{fault} {row.scenario}: {'right' if right else 'WRONG'}, "
                  f"{time.monotonic() - begun:.1f} s", flush=True)
        print(f"{len(chosen)} cells of {len({row.site for row, *_ in chosen})} "
              f"sites with seed {SEED}: {self.struck - begun_with} faults "
              f"struck, {self.jobs} jobs ended as they should")


if __name__ == "__main__":
    unittest.main()
