"""Names that become something else while they are used: nothing outside of the
data roots is opened, and nothing is made there.

Files of a model, an adapter and a dataset, and the folder of exports, become
links to their like outside and back, again and again, while jobs, dry runs,
previews and exports use them. The kernel says what is opened or made outside
(inotify); what the daemon answers is not looked at, only that it goes on.

ROUNDHOUSE_SWAPS: how many (200). ROUNDHOUSE_SEED: of their order. All of them:

    bazel test //tests/long:path_swaps_test --test_timeout=7200 \
      --test_output=all --test_env=ROUNDHOUSE_SWAPS=10000
"""

import ctypes
import json
import os
import pathlib
import random
import shutil
import struct
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

SWAPS = int(os.environ.get("ROUNDHOUSE_SWAPS", "200"))
SEED = int(os.environ.get("ROUNDHOUSE_SEED", "1"))
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
       "max_steps": 2, "learning_rate": 0.01, "seed": 1}
NAMES = ("model/config.json", "model/model.safetensors",
         "model/tokenizer.json", "model/tokenizer_config.json",
         "model/chat_template.jinja", "model", "train.jsonl", "folder")
# sys/inotify.h
IN_OPEN, IN_ACCESS, IN_MODIFY, IN_CREATE, IN_DELETE = 0x20, 1, 2, 0x100, 0x200
EVENT = struct.Struct("iIII")


class Watch:
    """What the kernel tells of folders and the files in them."""

    def __init__(self, folders):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.paths = {}
        mask = IN_OPEN | IN_ACCESS | IN_MODIFY | IN_CREATE | IN_DELETE
        for folder in folders:
            watch = self.libc.inotify_add_watch(
                self.fd, os.fsencode(folder), mask)
            if watch < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch")
            self.paths[watch] = folder

    def seen(self):
        """["/outside/model/config.json", ...]: what was opened or made."""
        found = []
        while True:
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                watch, _, _, length = EVENT.unpack_from(data, at)
                at += EVENT.size
                name = data[at:at + length].rstrip(b"\0").decode()
                found.append(str(self.paths[watch] / name))
                at += length

    def close(self):
        os.close(self.fd)


class PathSwapsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.data = self.scratch.data
        self.outside = self.scratch.folder / "outside"
        self.scratch.make_model("model")
        (self.data / "model/chat_template.jinja").write_text("{{ 1 }}")
        self.scratch.make_data("train.jsonl", count=20)
        (self.data / "folder").mkdir()
        shutil.copytree(self.data, self.outside)
        self.daemon = self.scratch.daemon(max_running_jobs=1)
        self.daemon.start()
        self.stop = threading.Event()
        self.calls = 0

    def swap(self, chosen):
        """One file or folder is a link that leads out, for a moment."""
        name = chosen.choice(NAMES)
        path, aside = self.data / name, self.data / "aside"
        path.rename(aside)
        path.symlink_to(self.outside / name)
        time.sleep(chosen.uniform(0, 0.02))
        path.unlink()
        aside.rename(path)
        time.sleep(chosen.uniform(0, 0.02))

    def use(self, words):
        while not self.stop.is_set():
            self.daemon.client(*words(), check=False)
            self.calls += 1

    def uses(self):
        job = self.scratch.folder / "swapped.json"
        job.write_text(json.dumps(JOB))
        count = iter(range(1 << 30))
        return [
            lambda: ("submit", "-f", job, "--dry-run"),
            lambda: ("submit", "-f", job, "--wait"),
            lambda: ("dataset", "preview", "train.jsonl", "--model", "model",
                     "--max-length", "32"),
            lambda: ("export", "model", "--output", f"folder/out{next(count)}"),
        ]

    def test_nothing_outside_is_opened_or_made(self):
        folders = [self.outside, self.outside / "model",
                   self.outside / "folder"]
        watch = Watch(folders)
        self.addCleanup(watch.close)
        # It sees what it is to see.
        (self.outside / "train.jsonl").read_bytes()
        self.assertIn(str(self.outside / "train.jsonl"), watch.seen())
        threads = [threading.Thread(target=self.use, args=(words,))
                   for words in self.uses()]
        for thread in threads:
            thread.start()
        chosen = random.Random(SEED)
        try:
            for _ in range(SWAPS):
                self.swap(chosen)
                self.assertEqual(watch.seen(), [])
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(watch.seen(), [])
        self.assertEqual(list((self.outside / "folder").iterdir()), [])
        self.assertIsNone(self.daemon.process.poll())
        # Nobody holds it up afterwards.
        job = self.daemon.submit({**JOB, "output_name": "after"})
        self.daemon.wait(job)
        self.assertTrue(self.calls)
        print(f"{SWAPS} swaps with seed {SEED}, {self.calls} calls: nothing "
              "outside was opened or made")


if __name__ == "__main__":
    unittest.main()
