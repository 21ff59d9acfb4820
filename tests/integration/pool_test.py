"""Jobs whose host memory has room for the fewest blocks between stages make the
bits that they make with memory to spare, also while workers die. What is in the
arena is what admission counted.
"""

import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

TOKENS, STEPS = 1024, 4
# Layers 0..3 are decoder layers, 4 is the head.
LAYER_EACH = {"forward": [[0, 0], [1, 1], [2, 2], [3, 3]],
              "backward": [[4, 4], [3, 3], [2, 2], [1, 1], [0, 0]]}
INSIDE = {"forward": [[0, 1], [2, 2]], "backward": [[3, 4], [1, 2], [0, 0]]}
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": TOKENS, "batch_size": 8, "micro_batch_size": 1,
       "max_steps": STEPS, "learning_rate": 0.01, "seed": 3,
       "gradient_groups": 2, "plan": LAYER_EACH}
JOBS = {
    "two_rounds": {"micro_batches_per_round": 4, "eval_steps": 2,
                   "validation_dataset": "validation.jsonl"},
    "tied_one_pass": {"model_name_or_path": "tied", "max_grad_norm": 0},
    "async": {"optimizer_mode": "async", "dtype": "bf16"},
    "wide": {"gradient_groups": 8, "plan": {
        **INSIDE, "forward_width": [[5, 3], 2], "backward_width": [4, 2, 1]}},
    "lora": {"method": "lora", "lora_dropout": 0.1,
             "target_modules": "all-linear"},
    "packed": {"packing": True, "dataset": "short.jsonl", "plan": INSIDE},
    "other_plans": {"plan": "auto", "max_steps": 12},
}
# A worker has done something between two deaths.
KILLS = ("0=slot.output.raised:9;0=slot.done.before:6;1=slot.output.raised:14;"
         "1=slot.micro_batch.done:20;4=host.gather.raised:6;"
         "4=host.done.before:9")
MOST, ALLOWANCE = 256 << 20, (1 << 20) + (1 << 16)


class PoolTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = cls.enterClassContext(harness.Scratch())
        for name, tied in (("model", False), ("tied", True)):
            cls.scratch.make_model(name, tied=tied,
                                   max_position_embeddings=TOKENS)
        long = (TOKENS, TOKENS + 100)  # words, each at least a token
        cls.scratch.make_data("train.jsonl", count=20, seed=1, words=long)
        cls.scratch.make_data("validation.jsonl", count=3, seed=2, words=long)
        cls.scratch.make_data("short.jsonl", count=200, seed=3, words=(40, 200))
        cls.specs = {name: {**JOB, **fields} for name, fields in JOBS.items()}
        cls.free = cls.start(MOST)

    @classmethod
    def start(cls, host_memory, **flags):
        daemon = cls.scratch.daemon(devices="cpu:4",
                                    host_memory=str(host_memory))
        daemon.start(**flags)
        cls.addClassCleanup(daemon.stop)
        return daemon

    def needs(self, daemon, name):
        """What admission counts, and the words of a refusal."""
        spec = daemon.folder / "spec.yaml"
        spec.write_text(json.dumps(self.specs[name]))
        done = daemon.client("submit", "-f", spec, "--dry-run", "-o", "json",
                             check=False)
        return (json.loads(done.stdout)["needs"] if done.returncode == 0
                else None, done.stderr)

    def least(self, name):
        """Bytes of the whole job with the fewest blocks."""
        daemon = self.start(1 << 20)
        _, refusal = self.needs(daemon, name)
        daemon.stop()
        found = re.search(r"the job needs (\d+) bytes", refusal)
        self.assertIsNotNone(found, refusal)
        return int(found[1])

    def run_job(self, daemon, name):
        """What must not depend on memory, and the bytes that it took of the
        arena at first."""
        job = daemon.submit(self.specs[name])
        daemon.wait(job)
        taken = re.search(r"plan: .*; host memory (\d+) bytes",
                          daemon.log(job))
        output = pathlib.Path(daemon.job(job)["output_path"])
        steps = self.specs[name]["max_steps"]
        return int(taken[1]), {
            "metrics": [{key: value for key, value in line.items()
                         if key != "step_seconds"}
                        for line in daemon.metrics(job)],
            "checkpoint": daemon.tensors(job, steps),
            "export": {key: tensor for path in output.glob("*.safetensors")
                       for key, tensor in
                       harness.read_safetensors(path).items()}}

    def check(self, name, **flags):
        tight = self.start(self.least(name) + ALLOWANCE, **flags)
        found, buffers = [], []
        for daemon in (self.free, tight):
            needs, refusal = self.needs(daemon, name)
            self.assertIsNotNone(needs, refusal)
            taken, results = self.run_job(daemon, name)
            found.append(results)
            buffers.append(int(needs["host_buffer_bytes"]))
            self.assertEqual(taken,
                             int(needs["host_state_bytes"]) + buffers[-1])
        tight.stop()
        self.assertLess(buffers[1], buffers[0])
        for kind, values in found[0].items():
            self.assertEqual(found[1][kind], values, kind)
        print(f"{name}: {buffers[1]} bytes of buffers in place of "
              f"{buffers[0]}", flush=True)
        return tight

    def test_workers_die(self):
        daemon = self.check("two_rounds", worker_kill_at=KILLS)
        self.assertGreaterEqual(len(daemon.killed_workers()), 4)


def load_tests(loader, _tests, _pattern):
    suite = unittest.TestSuite()
    for name in JOBS:
        def run(self, name=name):
            self.check(name)
        setattr(PoolTest, f"test_{name}", run)
    suite.addTests(loader.loadTestsFromTestCase(PoolTest))
    return suite


if __name__ == "__main__":
    unittest.main(verbosity=2)
