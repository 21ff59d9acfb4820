"""kill_test.py's kills of every kind of process in a job that trains adapters
with dropout in bf16 on packed rows: the same bits, too.

ROUNDHOUSE_KILLS and ROUNDHOUSE_SEED as there; half of the kills.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kill_test  # pylint: disable=wrong-import-position


class KillAdapterTest(kill_test.KillTest):
    spec = {**kill_test.SPEC, "method": "lora", "lora_r": 4,
            "lora_dropout": 0.1, "target_modules": "all-linear",
            "dtype": "bf16", "packing": True}
    # Per save two files with 224 tensors.
    points = {**kill_test.POINTS, "files": {
        **kill_test.POINTS["files"], "files.save.tensor": (230, 440)}}
    kill_count = kill_test.KILLS // 2
    model = {"tied": True, "dtype": "bf16"}
    draws = {}  # new adapters are drawn

    def test_the_job_has_what_it_is_to_have(self):
        """Packed rows, masks that matter, and fp32 adapters over bf16."""
        daemon = self.scratch.daemon()
        daemon.start()
        found = []
        for fields in ({}, {"lora_dropout": 0}, {"packing": False}):
            job = daemon.submit({**self.spec, "max_steps": 2, **fields})
            daemon.wait(job)
            found.append(daemon.tensors(job, 2))
        daemon.stop()
        self.assertNotEqual(found[0], found[1])
        self.assertNotEqual(found[0], found[2])
        self.assertEqual({dtype for dtype, _, _ in found[0].values()}, {"F32"})
        self.assertEqual(len(found[0]), 224)


if __name__ == "__main__":
    unittest.main()
