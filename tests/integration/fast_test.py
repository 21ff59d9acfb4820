"""`determinism: fast` beside `bitwise`: how far the weights of a 16-bit job are
from those of an fp32 job on the same weights and data, which rounds nothing.

Sums of gradients are rounded to what weights and activations are rounded to
anyway: it must not show.
"""

import array
import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

STEPS = 40
# The tolerances of docs/job-spec.md. Of the distance of all updates to the fp32
# job's, over that of `bitwise`; to those of `bitwise`, over their own size; of
# a step's loss; of the norm of the first step's gradients, whose weights are
# the same: half a unit in the last place of each element.
MOST_DISTANCE = 1.1
MOST_APART = {"bf16": 2**-6, "fp16": 2**-9}
MOST_LOSS = {"bf16": 1e-3, "fp16": 2e-4}
MOST_FIRST_NORM = {"bf16": 2**-9, "fp16": 2**-12}
SPEC = {
    "dataset": "train.jsonl", "max_length": 32, "max_steps": STEPS,
    "batch_size": 16, "micro_batch_size": 2, "gradient_groups": 8,
    "learning_rate": 1e-3, "seed": 11, "save_steps": 0,
    "lr_scheduler_type": "constant",
}
STAGES = {"forward": [[0, 1]], "backward": [[2, 4], [0, 1]]}
# `single` parts send the gradients of one micro-batch, which are computed in the
# model's dtype: there is nothing to round.
PLANS = {"narrow": STAGES, "halves": {**STAGES, "width": 2},
         "single": {**STAGES, "width": 8},
         "uneven": {**STAGES, "backward_width": [[3, 5], [1, 7]]}}


def masters(tensors):
    return {name: array.array("f", data)
            for name, (_, _, data) in tensors.items()
            if name.endswith(".master")}


def distance(left, right):
    """The L2 norm of the difference of all weights."""
    return math.sqrt(math.fsum(
        (a - b) ** 2 for name in left
        for a, b in zip(left[name], right[name])))


class FastTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = cls.enterClassContext(harness.Scratch())
        cls.scratch.make_data("train.jsonl", count=160, seed=1)
        cls.daemon = cls.scratch.daemon(devices="cpu:8")
        cls.daemon.start()

    def train(self, **changes):
        """Losses, the first step's norm, final masters."""
        job = self.daemon.submit({**SPEC, **changes})
        self.daemon.wait(job)
        lines = [line for line in self.daemon.metrics(job) if "loss" in line]
        norms = [line["grad_norm"] for line in lines if "grad_norm" in line]
        return ([line["loss"] for line in lines], norms[0],
                masters(self.daemon.tensors(job, STEPS)))

    def check_dtype(self, dtype, tied):
        model = f"model-{dtype}-{tied}"
        # The fp32 job begins with the same weights.
        self.scratch.make_model(model, tied=tied, dtype=dtype, seed=3)
        fields = {"model_name_or_path": model, "plan": PLANS["narrow"]}
        _, _, start = self.train(**fields, dtype="fp32", learning_rate=0)
        _, _, oracle = self.train(**fields, dtype="fp32")
        losses, norm, bitwise = self.train(**fields, dtype=dtype)
        moved = distance(oracle, start)
        usual = distance(bitwise, oracle)
        for name, plan in PLANS.items():
            found, first, fast = self.train(
                **{**fields, "plan": plan}, dtype=dtype, determinism="fast")
            loss = max(abs(a - b) / b for a, b in zip(found, losses))
            apart = distance(fast, bitwise) / moved
            print(f"{dtype} tied={tied} {name}: updates {moved:.4f}, from "
                  f"fp32: bitwise {usual / moved:.2e}, fast "
                  f"{distance(fast, oracle) / moved:.2e}; fast from bitwise "
                  f"{apart:.2e}, losses {loss:.1e}, first norm "
                  f"{abs(first / norm - 1):.1e}", flush=True)
            self.assertLess(losses[-1], losses[0])
            self.assertEqual(apart == 0, name == "single")
            self.assertLessEqual(apart, MOST_APART[dtype])
            self.assertLessEqual(distance(fast, oracle), MOST_DISTANCE * usual)
            self.assertLessEqual(loss, MOST_LOSS[dtype])
            self.assertLessEqual(abs(first / norm - 1), MOST_FIRST_NORM[dtype])

    def test_bf16(self):
        self.check_dtype("bf16", False)

    def test_bf16_tied(self):
        self.check_dtype("bf16", True)

    def test_fp16(self):
        self.check_dtype("fp16", False)


if __name__ == "__main__":
    unittest.main()
