"""A daemon whose job store was lost, or set back to an older copy."""

import hashlib
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

SHORT = {"model_name_or_path": "model", "dataset": "train.jsonl",
         "max_length": 32, "batch_size": 4, "micro_batch_size": 2,
         "max_steps": 1, "learning_rate": 0.01, "seed": 1}


def contents(folder):
    """{file: SHA-256} of all that is in a folder."""
    return {str(path.relative_to(folder)):
            hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*") if path.is_file()}


class StoreLossTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model", tied=True)
        self.scratch.make_data("train.jsonl", count=8)
        self.daemon = self.scratch.daemon()
        self.daemon.start()
        self.state = self.daemon.state

    def restart(self, change):
        """What the daemon logs at level ERROR when it starts after it."""
        self.daemon.stop()
        change()
        self.daemon.log_path.write_text("")
        self.daemon.start()
        return [line for line in
                self.daemon.log_path.read_text().splitlines()
                if line.startswith("E ")]

    def lose(self):
        for path in self.state.glob("jobs.*"):
            path.unlink()

    def test_a_lost_store_gives_no_id_again_and_replaces_no_result(self):
        first = self.daemon.wait(self.daemon.submit(SHORT))
        output = pathlib.Path(first["output_path"])
        self.assertEqual(output.name, "job-1")
        before = contents(output)
        errors = self.restart(self.lose)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(f"1 folders in jobs/: {first['uid']} and 1 folders in "
                      "outputs/: job-1;", errors[0])
        again = self.daemon.wait(self.daemon.submit({**SHORT, "seed": 2}))
        self.assertEqual(again["name"].rsplit("/", 1)[1], "job-2")
        self.assertEqual(contents(output), before)
        errors = self.restart(lambda: None)
        self.assertEqual(len(errors), 1, "it is said at every start")

    def test_a_store_that_is_set_back_says_what_it_lost(self):
        self.daemon.wait(self.daemon.submit(SHORT))
        older = self.scratch.folder / "older"
        self.restart(lambda: shutil.copy(self.state / "jobs.db", older))
        lost = self.daemon.wait(self.daemon.submit(SHORT))
        errors = self.restart(
            lambda: shutil.copy(older, self.state / "jobs.db"))
        self.assertEqual(len(errors), 2, errors)
        self.assertIn("has lost acknowledged writes: ", errors[0])
        self.assertIn("jobs lost: job-2 (their ids", errors[0])
        self.assertIn(lost["uid"], errors[1])
        made = self.daemon.wait(self.daemon.submit(SHORT))
        self.assertEqual(made["name"].rsplit("/", 1)[1], "job-3")


if __name__ == "__main__":
    unittest.main()
