"""kill_test.py's kills of every kind of process in a job that trains a mixture
of experts: the same bits, too. Device workers also die between what a forward
slot picks and the word that says so, and between that and what it computes.

ROUNDHOUSE_KILLS and ROUNDHOUSE_SEED as there; a third of the kills.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kill_test  # pylint: disable=wrong-import-position


class KillMixtureTest(kill_test.KillTest):
    spec = {**kill_test.SPEC, "dtype": "bf16"}
    # Per save two files with 304 tensors.
    points = {
        **kill_test.POINTS,
        "device": {"slot.picks.written": (4, 24), "slot.picks.raised": (4, 24),
                   "slot.micro_batch.done": (4, 24),
                   "slot.output.raised": (4, 24)},
        "files": {**kill_test.POINTS["files"],
                  "files.save.tensor": (310, 600)}}
    kill_count = kill_test.KILLS // 3
    model = {"tied": True, "dtype": "bf16", "family": "qwen3_moe"}

    def test_loads_of_experts_are_told(self):
        # The other tests compare them, too.
        steps = [line for line in self.undisturbed["metrics"]
                 if "loss" in line]
        self.assertEqual(len(steps), kill_test.STEPS)
        for load in (line["expert_load"] for line in steps):
            # Two of four experts have each token, so none has over twice the
            # mean.
            self.assertGreaterEqual(load["max_over_mean"], 1)
            self.assertLessEqual(load["max_over_mean"], 2)
            self.assertGreater(load["entropy"], 0.4)
            self.assertIn(load["unhit_experts"], range(3 * 2))
            self.assertIn(load["layer"], (0, 2, 3))


if __name__ == "__main__":
    unittest.main()
