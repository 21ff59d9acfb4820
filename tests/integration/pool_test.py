"""Jobs whose host memory has room for the fewest blocks between stages make the
bits that they make with memory to spare, also while workers die: with all inputs
of backward stages saved, and with the fewest, where the others are computed
again. What is in the arena is what admission counted.
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
UNEVEN = {"forward": [[0, 1], [2, 3]], "backward": LAYER_EACH["backward"],
          "forward_width": [[5, 3], 2], "backward_width": [4, 2, 1, [3, 5], 2]}
DEEP = {"forward": [[0, 2], [3, 5], [6, 7]],
        "backward": [[8, 8]] + [[layer, layer] for layer in range(7, -1, -1)]}
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": TOKENS, "batch_size": 8, "micro_batch_size": 1,
       "max_steps": STEPS, "learning_rate": 0.01, "seed": 3,
       "gradient_groups": 2, "plan": LAYER_EACH}
JOBS = {
    "two_rounds": {"micro_batches_per_round": 4, "eval_steps": 2,
                   "validation_dataset": "validation.jsonl"},
    "tied_one_pass": {"model_name_or_path": "tied", "max_grad_norm": 0},
    "async": {"optimizer_mode": "async", "dtype": "bf16"},
    "wide": {"gradient_groups": 8, "plan": UNEVEN},
    "deep": {"model_name_or_path": "deep", "model_init": "random",
             "plan": DEEP, "micro_batches_per_round": 4},
    "lora": {"method": "lora", "lora_dropout": 0.1,
             "target_modules": "all-linear"},
    "packed": {"packing": True, "dataset": "short.jsonl"},
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
        cls.scratch.make_model("deep", max_position_embeddings=TOKENS,
                               num_hidden_layers=8)
        (cls.scratch.data / "deep/model.safetensors").unlink()
        long = (TOKENS, TOKENS + 100)  # words, each at least a token
        cls.scratch.make_data("train.jsonl", count=20, seed=1, words=long)
        cls.scratch.make_data("validation.jsonl", count=3, seed=2, words=long)
        cls.scratch.make_data("short.jsonl", count=200, seed=3, words=(40, 200))
        cls.specs = {name: {**JOB, **fields} for name, fields in JOBS.items()}
        cls.free = cls.start(MOST)
        cls.with_memory = {}  # run_job's of `free`, by names

    @classmethod
    def start(cls, host_memory, **flags):
        daemon = cls.scratch.daemon(devices="cpu:4",
                                    host_memory=str(host_memory))
        daemon.start(**flags)
        cls.addClassCleanup(daemon.stop)
        return daemon

    def needs(self, daemon, spec_fields):
        """What admission counts, and the words of a refusal."""
        spec = daemon.folder / "spec.yaml"
        spec.write_text(json.dumps(spec_fields))
        done = daemon.client("submit", "-f", spec, "--dry-run", "-o", "json",
                             check=False)
        return (json.loads(done.stdout)["needs"] if done.returncode == 0
                else None, done.stderr)

    def least(self, fields):
        """Bytes of the whole job with the fewest blocks."""
        daemon = self.start(1 << 20)
        _, refusal = self.needs(daemon, fields)
        daemon.stop()
        found = re.search(r"the job needs (\d+) bytes", refusal)
        self.assertIsNotNone(found, refusal)
        return int(found[1])

    def run_job(self, daemon, fields):
        """What must not depend on memory, what admission counted, and the bytes
        of buffers in it. It is what was taken of the arena."""
        needs, refusal = self.needs(daemon, fields)
        self.assertIsNotNone(needs, refusal)
        job = daemon.submit(fields)
        daemon.wait(job)
        taken = re.search(r"plan: .*; host memory (\d+) bytes",
                          daemon.log(job))
        buffers = int(needs["host_buffer_bytes"])
        self.assertEqual(int(taken[1]), int(needs["host_state_bytes"]) + buffers)
        output = pathlib.Path(daemon.job(job)["output_path"])
        steps = fields["max_steps"]
        return needs, buffers, {
            "metrics": [{key: value for key, value in line.items()
                         if key != "step_seconds"}
                        for line in daemon.metrics(job)],
            "checkpoint": daemon.tensors(job, steps),
            "export": {key: tensor for path in output.glob("*.safetensors")
                       for key, tensor in
                       harness.read_safetensors(path).items()}}

    def wanted(self, name):
        """With memory to spare; once."""
        if name not in self.with_memory:
            self.with_memory[name] = self.run_job(self.free, self.specs[name])
        return self.with_memory[name][1:]

    def check(self, name, saved, **flags):
        fields = {**self.specs[name], "saved_inputs": saved}
        tight = self.start(self.least(fields) + ALLOWANCE, **flags)
        free, wanted = self.wanted(name)
        needs, buffers, found = self.run_job(tight, fields)
        tight.stop()
        self.assertLess(buffers, free)
        for kind, values in wanted.items():
            self.assertEqual(found[kind], values, kind)
        print(f"{name}: {buffers} bytes of buffers in place of {free}, "
              f"{needs['saved_inputs']} of {needs['backward_inputs']} inputs "
              "are saved", flush=True)
        return tight, needs

    def check_both(self, name):
        self.check(name, "all")
        # It takes several groups of stages to save anything.
        deep = name == "deep"
        _, needs = self.check(name, "auto" if deep else "every 2")
        self.assertLess(needs["saved_inputs"], needs["backward_inputs"])

    def test_workers_die(self):
        for saved in ("all", "every 2"):
            daemon, _ = self.check("two_rounds", saved, worker_kill_at=KILLS)
            self.assertGreaterEqual(len(daemon.killed_workers()), 4)

    def test_with_memory_to_spare_it_is_asked_for(self):
        fields = {**self.specs["deep"], "saved_inputs": "every 3"}
        _, wanted = self.wanted("deep")
        needs, _, found = self.run_job(self.free, fields)
        # Layers 6 and 7, 5 to 3 and 2 to 0: of the last two groups one each.
        self.assertEqual((needs["backward_inputs"], needs["saved_inputs"]),
                         (8, 4))
        self.assertEqual(found, wanted)


def load_tests(loader, _tests, _pattern):
    suite = unittest.TestSuite()
    for name in JOBS:
        def run(self, name=name):
            self.check_both(name)
        setattr(PoolTest, f"test_{name}", run)
    suite.addTests(loader.loadTestsFromTestCase(PoolTest))
    return suite


if __name__ == "__main__":
    unittest.main(verbosity=2)
