"""Whatever daemon, workers and dataset helper make, open for writing, rename or
remove below the state directory and the data roots, they do at a site with a
name (base/files/file_site.h): a preloaded library looks on while jobs live
through all that jobs live through (tests/fakes/file_interposer.cc)."""

import collections
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

LIBRARY = harness.ROOT / "tests/fakes/libfile_interposer.so"
MARKED_HELPER = harness.ROOT / "tests/fakes/marked_helper.py"
STORE = "store (SQLite)"
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 4, "micro_batch_size": 2,
       "learning_rate": 0.01, "lr_scheduler_type": "constant",
       "save_steps": 2, "save_total_limit": 2}
LONG = {**JOB, "max_steps": 1_000_000}
LORA = {"method": "lora", "lora_r": 2}
# These sites only read, or write to what another site has opened.
NOTHING_TO_SEE = {"checkpoint.read", "prepared.verify", "shard.sync",
                  "merge.sync", "export.text", "upload.verify"}

Call = collections.namedtuple("Call", "pid command name site path callers")


class Report:
    """The library writes it."""

    def __init__(self, folder, roots):
        self.path = folder / "report"
        self.environment = {
            "LD_PRELOAD": str(LIBRARY.resolve()),
            "ROUNDHOUSE_INTERPOSER_ROOTS": ":".join(map(str, roots)),
            "ROUNDHOUSE_INTERPOSER_REPORT": str(self.path)}

    def calls(self):
        return [Call(*line.split("\t")) for line in
                self.path.read_text(errors="replace").splitlines()]

    def script(self, path, *words):
        """A program that is `words`, with the library; its arguments follow.
        The daemon's children inherit nothing of its environment."""
        lines = [f"export {name}='{value}'"
                 for name, value in self.environment.items()]
        command = " ".join(f"'{word}'" for word in words)
        path.write_text("\n".join(["#!/bin/sh", *lines,
                                   f'exec {command} "$@"', ""]))
        path.chmod(0o755)
        return path


def listed_sites():
    text = (harness.ROOT / "base/files/file_site.h").read_text()
    return set(re.findall(r'FileSite \w+\{"([a-z._]+)"\}', text))


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


class LibraryTest(unittest.TestCase):
    """Shows that the other test can fail."""

    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.root = self.scratch.data
        self.report = Report(self.scratch.folder, [self.root])

    def run_with(self, *words, **options):
        subprocess.run(words, check=True, cwd=self.root,
                       env={"PATH": "/usr/bin:/bin",
                            **self.report.environment}, **options)

    def reported(self):
        return [(call.name, pathlib.Path(call.path).name, call.site)
                for call in self.report.calls() if call.name != "loaded"]

    def test_programs_that_know_no_sites_are_reported(self):
        outside = self.scratch.folder / "outside"
        outside.mkdir()
        self.run_with("sh", "-c", f"echo > a; echo >> a; cat a > /dev/null; "
                                  f"echo > {outside}/file")
        self.run_with("mkdir", "folder")
        self.run_with("mv", "a", "folder/b")
        self.run_with("ln", "-s", "b", "folder/c")
        self.run_with("rm", "-r", "folder")
        self.run_with("touch", f"{outside}/file")
        found = {(name, site) for _, name, site in self.reported()}
        self.assertEqual(found, {("a", "-"), ("b", "-"), ("c", "-"),
                                 ("folder", "-")})
        self.assertTrue(all(call.callers for call in self.report.calls()
                            if call.path.startswith(str(self.root))))

    def test_calls_are_reported_with_the_sites_that_they_are_at(self):
        (self.root / "common").mkdir()
        (self.root / "common/disk.py").write_text(
            "import os\n"
            "class Disk:\n"
            "    def make(self, site, path):\n"
            "        os.mkdir(path)\n"
            "        self.write('two', path + '/file')\n"
            "        os.rmdir(path + '/none') if 0 else None\n"
            "        os.truncate(path + '/file', 1)\n"
            "    def write(self, site, path):\n"
            "        open(path, 'wb').close()\n"
            "disk = Disk()\n")
        (self.root / "prepare.py").write_text(
            "import os, socket, sys\n"
            "from common.disk import disk\n"
            "disk.make('one', 'folder')\n"
            "os.link('folder/file', 'jobs.db-wal')\n"
            "os.rename('folder/file', 'new')\n"
            "at = os.open('folder', os.O_RDONLY)\n"
            "os.close(os.open('in', os.O_WRONLY | os.O_CREAT, dir_fd=at))\n"
            "os.unlink('in', dir_fd=at)\n"
            "open(f'/proc/self/fd/{os.open(sys.argv[1], os.O_PATH)}', 'a')\n"
            "socket.socket(socket.AF_UNIX).bind('socket')\n"
            "open('new').read()\n")
        self.run_with(sys.executable, "-B", MARKED_HELPER,
                      self.root / "prepare.py", "new")
        self.assertEqual(self.reported(), [
            ("mkdir", "folder", "one"), ("open64", "file", "two"),
            ("truncate64", "file", "one"), ("link", "jobs.db-wal", STORE),
            ("rename", "file", "-"), ("rename", "new", "-"),
            ("openat64", "in", "-"), ("unlinkat", "in", "-"),
            ("open64", "new", "-"), ("bind", "socket", "-")])


class FileSitesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.data = self.scratch.data
        self.hub = self.scratch.folder / "hub"
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=24)
        self.scratch.make_data("valid.jsonl", count=4, seed=2)
        self.scratch.make_model("broken")
        (self.data / "broken/tokenizer.json").write_text("{}")
        snapshot = self.hub / "models--Org--Tiny" / "snapshots" / ("0" * 40)
        harness.make_model(snapshot)
        (self.hub / "models--Org--Tiny/refs").mkdir()
        (self.hub / "models--Org--Tiny/refs/main").write_text("0" * 40)
        self.daemon = self.scratch.daemon(hf_cache=self.hub,
                                          listen_tls="127.0.0.1:0")
        self.outputs = self.daemon.state / "outputs"
        roots = [self.daemon.folder, self.data, self.hub]
        self.report = Report(self.scratch.folder, roots)
        self.daemon.environment = self.report.environment
        self.daemon.fixed["worker_program"] = self.report.script(
            self.scratch.folder / "worker",
            harness.ROOT / "worker/roundhouse-worker")
        self.daemon.fixed["python"] = self.report.script(
            self.scratch.folder / "python", sys.executable, "-B",
            MARKED_HELPER)

    def step(self, job, more=5):
        step = self.daemon.job(job)["step"]
        harness.wait_until(lambda: self.daemon.job(job)["step"] >= step + more,
                           f"steps of {job}")

    def wait_state(self, job, state):
        harness.wait_until(lambda: self.daemon.job(job)["state"] == state,
                           f"{job} {state}")

    def assert_loaded(self):
        """Workers are forked from the nursery: no line tells of each."""
        workers = self.daemon.workers()
        self.assertLessEqual({"0", "1", "host", "files", "nursery"},
                             workers.keys())
        for name, pid in [("daemon", self.daemon.process.pid),
                          *workers.items()]:
            maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
            self.assertIn(LIBRARY.name, maps, name)
        for program in ("server/roundhoused", "--role=nursery", "/prepare.py",
                        "/prepare_sample.py"):
            self.assertTrue(
                [call for call in self.report.calls()
                 if call.name == "loaded" and program in call.command],
                program)

    def live(self):
        """Runs jobs of every kind; the last one runs on, with two
        checkpoints."""
        adapter = self.daemon.submit({
            **LONG, **LORA, "validation_dataset": "valid.jsonl",
            "eval_steps": 2, "eval_prompts": ["one two"], "packing": True,
            "save_total_limit": 1})
        self.step(adapter)
        self.daemon.client("pause", "--give-back", adapter)
        self.wait_state(adapter, "PAUSED")
        self.daemon.client("resume", adapter)
        self.wait_state(adapter, "RUNNING")
        self.step(adapter, 1)
        self.daemon.finish(adapter)
        self.daemon.client("sample", adapter, "-pone two")
        self.daemon.client("dataset", "preview", "train.jsonl", "--model",
                           "model", "--max-length=32")
        self.daemon.client("upload", self.data / "train.jsonl")
        self.daemon.client("export", adapter, "--output=adapter")
        self.daemon.client("export", adapter, "--merge", "--output",
                           self.data / "merged")
        # It fails before the helper makes its folder.
        self.daemon.wait(self.daemon.submit({**JOB, "max_steps": 2,
                                             "model_name_or_path": "broken"}),
                         "FAILED")
        cancelled = self.daemon.submit({**LONG, "model_name_or_path":
                                        "Org/Tiny"})
        self.step(cancelled)
        self.assert_loaded()
        self.daemon.client("cancel", cancelled)
        self.wait_state(cancelled, "CANCELLED")
        last = self.daemon.submit(LONG)
        harness.wait_until(lambda: len(self.daemon.checkpoints(last)) == 2,
                           "two checkpoints")
        return last

    def damage(self, job):
        """Leaves things as a death and a bad disk do."""
        self.daemon.kill()
        newest = self.daemon.checkpoints(job)[-1]
        flip(self.daemon.checkpoint(job, newest) / "model.safetensors")
        folder = self.daemon.directory(job)
        flip(folder / "data/train/tokens.u32")
        flip(folder / "tokenizer/tokenizer.json")
        for left in (folder / ".tmp-checkpoint-3", self.outputs / ".tmp-x",
                     self.data / ".roundhouse-export-x"):
            left.mkdir()
            (left / "file").write_text("text")
        (folder / "finish.tmp").write_text("text")
        (self.daemon.state / "export-in-progress").write_text(
            str(self.data / ".roundhouse-export-x"))
        (self.daemon.state / "reserve").unlink()

    def delete(self, job):
        """First a checkpoint, then a job whose result stays, then one with
        its result."""
        self.daemon.client("prune", "--yes")
        self.daemon.client("delete", job, "--yes")
        other = self.daemon.submit({**JOB, "max_steps": 2})
        self.daemon.wait(other)
        self.daemon.client("delete", other, "--yes", "--output")

    def swap_an_output(self):
        """The next daemon knows of no end and makes the output again."""
        self.daemon.start(kill_at="daemon.save.after_rename:2")
        job = self.daemon.submit({**JOB, "max_steps": 2})
        harness.wait_until(self.daemon.ended, "the daemon's end")
        self.daemon.start()
        self.daemon.wait(job)
        self.daemon.stop()

    def lose_the_store(self):
        for name in ("jobs.db", "jobs.db-wal", "jobs.db-shm"):
            (self.daemon.state / name).unlink(missing_ok=True)

    def test_every_file_is_touched_at_a_site_with_a_name(self):
        self.daemon.start()
        job = self.live()
        self.damage(job)
        # A files worker dies in the middle of a save, too.
        self.daemon.start(worker_kill_at="files=files.save.tensor:3")
        self.daemon.finish(job)
        self.assertTrue(list(self.daemon.directory(job).glob("*.corrupt")))
        self.daemon.client("export", job, "--output=full")
        self.delete(job)
        self.daemon.stop()
        self.lose_the_store()
        self.swap_an_output()
        calls = [call for call in self.report.calls()
                 if call.name != "loaded"]
        unnamed = sorted({(call.command, call.name, call.path, call.callers)
                          for call in calls if call.site == "-"})
        self.assertEqual(unnamed, [], "calls without a site:\n" +
                         "\n".join(map(str, unnamed)))
        seen = {call.site for call in calls}
        self.assertEqual(seen - {STORE} - listed_sites(), set())
        self.assertEqual(listed_sites() - seen - NOTHING_TO_SEE, set())
        self.assertIn(STORE, seen)


if __name__ == "__main__":
    unittest.main()
