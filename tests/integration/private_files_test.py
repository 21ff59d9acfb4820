"""What the daemon keeps is its user's and group's, whatever the umask that it
was started with."""

import os
import pathlib
import stat
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

OTHERS = stat.S_IROTH | stat.S_IWOTH | stat.S_IXOTH


class PrivateFilesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=20)
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        self.daemon = self.scratch.daemon()

    def open_to_others(self, folder):
        """Paths that others may use; links have no mode of their own."""
        return [path for path in [folder, *folder.rglob("*")]
                if not path.is_symlink()
                and path.lstat().st_mode & OTHERS]

    def test_state_is_closed_to_others(self):
        self.daemon.start()
        job = self.daemon.submit({
            "model_name_or_path": "model", "dataset": "train.jsonl",
            "validation_dataset": "train.jsonl", "max_length": 32,
            "batch_size": 4, "max_steps": 4, "save_steps": 2,
            "eval_prompts": ["one two"]})
        self.daemon.wait(job)
        self.daemon.client("export", job, "--output",
                           self.scratch.data / "exported")
        self.assertTrue((self.daemon.state / "jobs.db").exists())
        self.assertTrue(self.daemon.checkpoints(job))
        self.assertEqual(self.open_to_others(self.daemon.state), [])
        self.assertEqual(self.open_to_others(self.scratch.data / "exported"),
                         [])

    def test_host_memory_is_closed_to_others_and_to_the_group(self):
        self.daemon.start()
        descriptors = pathlib.Path(f"/proc/{self.daemon.process.pid}/fd")
        arenas = [path for path in descriptors.iterdir()
                  if "memfd:" in os.readlink(path)]
        self.assertTrue(arenas)
        for path in arenas:
            self.assertEqual(path.stat().st_mode & 0o077, 0,
                             os.readlink(path))

    def test_a_state_directory_that_was_open_is_closed(self):
        self.daemon.state.mkdir(mode=0o777)
        self.daemon.start()
        self.assertEqual(self.daemon.state.stat().st_mode & 0o777, 0o750)


if __name__ == "__main__":
    unittest.main()
