"""roundhouse-gpu-calibrate: its figures where there is a GPU, and what it says
where there is none."""

import json
import os
import pathlib
import subprocess
import unittest

PROGRAM = pathlib.Path.cwd() / "worker/model/cuda/roundhouse-gpu-calibrate"
RATES = ("h2d_pageable_gbps", "d2h_pageable_gbps", "h2d_registered_gbps",
         "d2h_registered_gbps", "both_ways_registered_gbps",
         "register_gib_per_second", "unregister_gib_per_second",
         "matmul_bf16_tflops", "fused_tokens",
         *(f"{kernel}_{way}_ms"
           for kernel in ("rms_norm", "head_norm", "rotary", "swiglu")
           for way in ("fused", "operators")))
UNABLE = 2


def run(*flags):
    return subprocess.run([PROGRAM, *flags], capture_output=True, text=True,
                          check=False)


class CalibrateTest(unittest.TestCase):
    def test_every_rate_is_measured(self):
        done = run("--register_mib=256", "--matmul=512", "--tokens=256")
        if done.returncode == UNABLE:
            self.assertIn("roundhouse-gpu-calibrate: cudaSetDevice: ",
                          done.stderr)
            self.assertEqual(done.stdout, "")
            if "ROUNDHOUSE_REQUIRE_DEVICES" not in os.environ:
                self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        for name in RATES:
            self.assertGreater(found[name], 0, name)

    def test_too_little_memory_to_register_is_refused(self):
        done = run("--register_mib=1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--register_mib: at least 256", done.stderr)

    def test_no_tokens_are_refused(self):
        done = run("--tokens=0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--tokens: at least 1", done.stderr)


if __name__ == "__main__":
    unittest.main()
