"""kill_test.py's kills of every kind of process in a bf16 job with
`determinism: fast`, whose plan cuts its rounds, without clipping, so that units
are reduced and updated in one pass: the same bits, too.

ROUNDHOUSE_KILLS and ROUNDHOUSE_SEED as there; half of the kills.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kill_test  # pylint: disable=wrong-import-position


class KillFastTest(kill_test.KillTest):
    spec = {**kill_test.SPEC, "dtype": "bf16", "determinism": "fast",
            "max_grad_norm": 0, "micro_batches_per_round": 4,
            "plan": {**kill_test.SPEC["plan"], "backward_width": 2}}
    kill_count = kill_test.KILLS // 2
    model = {"tied": True, "dtype": "bf16"}
    mortal_devices = "cpu:2"  # as wide as the plan

    def test_sums_are_rounded(self):
        """As of no other word, and of each plan in its way."""
        daemon = self.scratch.daemon()
        daemon.start()
        found = []
        for fields in ({}, {"determinism": "bitwise"},
                       {"plan": kill_test.SPEC["plan"]}):
            job = daemon.submit({**self.spec, "max_steps": 2, **fields})
            daemon.wait(job)
            found.append(daemon.tensors(job, 2))
        daemon.stop()
        self.assertNotEqual(found[0], found[1])
        self.assertNotEqual(found[0], found[2])


if __name__ == "__main__":
    unittest.main()
