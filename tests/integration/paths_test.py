"""No file outside the data roots is read or written, through the real
programs: links in every file that a job file can lead to, things that are no
files, and names that become something else while they are used."""

import json
import os
import pathlib
import shutil
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
       "max_steps": 2, "learning_rate": 0.01, "seed": 1}
# In a model's directory, and who has to read it.
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json",
               "tokenizer_config.json", "generation_config.json",
               "chat_template.jinja")
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"
LEADS_OUT = "leads out of the data roots"


class PathsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.data = self.scratch.data
        self.outside = self.scratch.folder / "outside"
        self.scratch.make_model("model")
        for name, text in (("generation_config.json", "{}"),
                           ("chat_template.jinja", TEMPLATE)):
            (self.data / "model" / name).write_text(text)
        self.scratch.make_data("train.jsonl", count=40)
        shutil.copytree(self.data / "model", self.outside / "model")
        shutil.copy(self.data / "train.jsonl", self.outside)
        self.daemon = self.scratch.daemon(max_running_jobs=1)
        self.daemon.start()

    def submit(self, *words, **fields):
        path = self.scratch.folder / "job.json"
        path.write_text(json.dumps({**JOB, **fields}))
        return self.daemon.client("submit", "-f", path, *words, check=False)

    def verbs(self, model, data="train.jsonl"):
        """{name: the client's answer} of all that reads a model's files."""
        return {
            "submit": self.submit(model_name_or_path=model, dataset=data),
            "dry run": self.submit("--dry-run", model_name_or_path=model,
                                   dataset=data),
            "preview": self.daemon.client(
                "dataset", "preview", data, "--model", model,
                "--max-length", "32", check=False),
            "validate": self.daemon.client(
                "dataset", "validate", data, "--model", model,
                "--max-length", "32", check=False),
            "export": self.daemon.client(
                "export", self.data / model, "--output",
                self.data / "exported", check=False),
            "sample": self.daemon.client(
                "sample", self.data / model, "--prompt", "one",
                "--max-new-tokens", "2", check=False),
        }

    def assert_takes_jobs(self):
        done = self.submit("--wait")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_link_that_leads_out_is_refused_wherever_it_is(self):
        for name in MODEL_FILES:
            path = self.data / "model" / name
            kept = path.read_bytes()
            path.unlink()
            for target in (self.outside / "model" / name,
                           f"../../outside/model/{name}"):
                path.symlink_to(target)
                for verb, done in self.verbs("model").items():
                    if verb in ("preview", "validate") and name in (
                            "model.safetensors", "generation_config.json"):
                        continue  # they are not read
                    with self.subTest(name, target=target, verb=verb):
                        self.assertNotEqual(done.returncode, 0, done.stdout)
                        self.assertIn(LEADS_OUT, done.stderr)
                        self.assertIn(name, done.stderr)
                path.unlink()
            path.write_bytes(kept)
        self.assertFalse((self.data / "exported").exists())
        self.assert_takes_jobs()

    def test_links_beneath_the_root_are_followed(self):
        shutil.move(self.data / "model", self.data / "blobs")
        (self.data / "linked").mkdir()
        for name in MODEL_FILES:
            (self.data / "linked" / name).symlink_to(f"../blobs/{name}")
        (self.data / "data.jsonl").symlink_to(self.data / "train.jsonl")
        (self.data / "model").symlink_to("linked")
        for verb, done in self.verbs("model", "data.jsonl").items():
            with self.subTest(verb):
                self.assertEqual(done.returncode, 0, done.stderr)
        exported = self.data / "exported"
        self.assertEqual((exported / "config.json").read_bytes(),
                         (self.data / "blobs/config.json").read_bytes())

    def test_a_link_to_another_data_root_is_followed(self):
        other = self.scratch.folder / "other"
        shutil.move(self.outside, other)
        (self.data / "lab").symlink_to(other)
        done = self.submit(model_name_or_path="lab/model",
                           dataset="lab/train.jsonl")
        self.assertIn(LEADS_OUT, done.stderr)
        self.assertIn("can name what it leads to as a data root", done.stderr)
        self.daemon.stop()
        self.daemon.fixed["data_root"] = f"{self.data},{other}"
        self.daemon.start()
        done = self.submit("--wait", model_name_or_path="lab/model",
                           dataset="lab/train.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_no_file_is_refused_at_once(self):
        def fifo(path):
            os.mkfifo(path)

        def device(path):
            os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero

        def huge(path):
            with open(path, "wb") as file:
                file.truncate(1 << 42)

        for name in MODEL_FILES + ("train.jsonl",):
            path = (self.data / name if name == "train.jsonl"
                    else self.data / "model" / name)
            kept = path.read_bytes()
            for make in (fifo, device, pathlib.Path.mkdir, huge):
                if make is huge and name in ("train.jsonl",
                                             "model.safetensors"):
                    continue  # as large as they like
                path.unlink()
                try:
                    make(path)
                except PermissionError:  # devices need a right
                    path.write_bytes(kept)
                    continue
                done = self.submit("--dry-run")
                with self.subTest(name, make=make):
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(name, done.stderr)
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink()
                path.write_bytes(kept)
        self.assert_takes_jobs()

    def test_an_exports_folder_that_becomes_a_link(self):
        """Swapped all the time; whatever becomes of the exports, nothing is
        made outside."""
        folder, away = self.data / "folder", self.data / "away"
        target = self.scratch.folder / "target"
        folder.mkdir()
        target.mkdir()
        stop = threading.Event()

        def swap():
            while not stop.is_set():
                folder.rename(away)
                folder.symlink_to(target)
                folder.unlink()
                away.rename(folder)

        thread = threading.Thread(target=swap)
        thread.start()
        try:
            ended = [self.daemon.client(
                "export", self.data / "model", "--output",
                folder / f"out{i}", check=False).returncode
                     for i in range(30)]
        finally:
            stop.set()
            thread.join()
        self.assertEqual(list(target.iterdir()), [])
        whole = {path.name for path in folder.iterdir()}
        self.assertFalse([name for name in whole if name.startswith(".")])
        self.assertEqual(len(whole), ended.count(0))
        self.assert_takes_jobs()


if __name__ == "__main__":
    unittest.main()
