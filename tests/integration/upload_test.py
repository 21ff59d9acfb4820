"""Files over the wire: an upload and a download whose client or daemon is killed
at random points arrive whole, and a job on dataset:NAME computes the same bits
as on the same file by its path.

ROUNDHOUSE_SEED chooses other points, ROUNDHOUSE_CUTS how many there are.
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

SEED = int(os.environ.get("ROUNDHOUSE_SEED", time.time_ns() % 1_000_000))
CUTS = int(os.environ.get("ROUNDHOUSE_CUTS", "20"))
LONGEST_TRY_SECONDS = 0.25
SPEC = {"model_name_or_path": "model", "max_length": 16, "batch_size": 4,
        "micro_batch_size": 2, "max_steps": 3, "save_steps": 0}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class UploadTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.daemon = self.scratch.daemon()
        self.local = self.scratch.folder / "laptop"
        self.local.mkdir()

    def begin(self, *words):
        return subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=self.local)

    def cut(self, chosen, command):
        """Gives command(0), and kills it or the daemon. Goes on until CUTS of
        them were under way; one that has ended by then makes room for
        command(1), and so on. Then the last one ends: its number and output."""
        print(f"ROUNDHOUSE_SEED={SEED} ROUNDHOUSE_CUTS={CUTS}", flush=True)
        number, cuts, longest = 0, 0, LONGEST_TRY_SECONDS
        words = command(number)
        while cuts < CUTS:
            client = self.begin(*words)
            try:
                _, err = client.communicate(timeout=chosen.uniform(0, longest))
                self.assertEqual(client.returncode, 0, err)
                number, longest = number + 1, longest / 2
                words = command(number)
            except subprocess.TimeoutExpired:
                cuts += 1
            if chosen.random() < 0.3:
                self.daemon.kill()
                self.daemon.start()
            client.kill()
            client.communicate()
        return number, self.finish(self.begin(*words))

    def finish(self, client):
        out, err = client.communicate(timeout=harness.DEADLINE_SECONDS)
        self.assertEqual(client.returncode, 0, err)
        return out

    def test_cut_at_random_points_all_arrives_whole(self):
        chosen = random.Random(SEED)
        self.daemon.start()
        folder = self.local / "model"
        (folder / "sub").mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "sub/empty").write_text("")

        def command(number):
            (folder / "model.safetensors").write_bytes(
                chosen.randbytes(48 << 20))
            return "upload", "model", "--model", f"--name=big-{number}"
        number, out = self.cut(chosen, command)
        self.assertEqual(out, f"model:big-{number}\n")
        shown = json.loads(self.daemon.client(
            "model", "list", "-o", "json").stdout)["uploads"]
        self.assertEqual([(one["name"], one["version"]) for one in shown],
                         [(f"big-{i}", 1) for i in range(number + 1)])
        shown = shown[number]
        there = self.daemon.state / "uploads/versions" / shown["id"]
        for path in folder.rglob("*"):
            if path.is_file():
                self.assertEqual(digest(there / path.relative_to(folder)),
                                 digest(path), path)
        self.assertEqual(
            list((self.daemon.state / "uploads/parts").iterdir()), [])
        self.daemon.stop()

    def test_a_job_on_an_upload_computes_the_same_bits(self):
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=20)
        self.daemon.start()
        by_path = self.daemon.submit({**SPEC, "dataset": "train.jsonl"})
        local = self.local / "train.jsonl"
        shutil.copy(self.scratch.data / "train.jsonl", local)
        self.assertEqual(self.daemon.client("upload", local).stdout,
                         "dataset:train\n")
        by_name = self.daemon.submit({**SPEC, "dataset": "dataset:train"})
        # A later version changes nothing for it.
        harness.make_data(local, count=12, seed=3)
        self.daemon.client("upload", local)
        digests = {digest(pathlib.Path(self.daemon.wait(job)["output_path"]) /
                          "model.safetensors") for job in (by_path, by_name)}
        self.assertEqual(len(digests), 1)
        kept = self.daemon.client("dataset", "delete", "train@2", check=False)
        self.assertEqual(kept.returncode, 0, kept.stderr)
        self.check_download(by_name)
        self.daemon.stop()

    def check_download(self, job):
        """With a file that takes a while."""
        chosen = random.Random(SEED + 1)
        output = pathlib.Path(self.daemon.job(job)["output_path"])
        (output / "large.bin").write_bytes(chosen.randbytes(48 << 20))
        _, out = self.cut(chosen, lambda _: ("download", job, "--output=result",
                                             "--force"))
        self.assertEqual(out, "result\n")
        names = {path.name for path in output.iterdir()}
        self.assertIn("model.safetensors", names)
        self.assertEqual({path.name for path in
                          (self.local / "result").iterdir()}, names)
        for name in names:
            self.assertEqual(digest(self.local / "result" / name),
                             digest(output / name), name)
        self.assertFalse((self.local / "result.part").exists())


if __name__ == "__main__":
    unittest.main()
