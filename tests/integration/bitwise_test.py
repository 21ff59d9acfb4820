"""A run through daemon, workers and arena equals the sequential reference bit
for bit: every loss, gradient norm, weight, master and moment. So does one with
`determinism: fast`, where the reference rounds sums as the job's plan cuts them.

The runs are a seeded sample in which every pair of values of any two factors
occurs. One test case a run; all runs of one device count share a daemon.
"""

import itertools
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

SEED = 20
STEPS = 6
SEQUENCES, BATCH = 30, 8  # the fourth step of an epoch has 6 sequences

# Layers 0..3 are decoder layers, 4 is the head.
PLANS = {
    "auto": "auto",
    "all_fused": {"forward": [], "backward": [[0, 4]]},
    "layer_each": {
        "forward": [[0, 0], [1, 1], [2, 2], [3, 3]],
        "backward": [[4, 4], [3, 3], [2, 2], [1, 1], [0, 0]]},
    "uneven": {"forward": [[0, 2]], "backward": [[3, 4], [2, 2], [0, 1]]},
    "other_cuts": {"forward": [[0, 0], [1, 3]],
                   "backward": [[4, 4], [2, 3], [0, 1]]},
    "backward_begins_inside": {"forward": [[0, 1], [2, 2]],
                               "backward": [[3, 4], [1, 2], [0, 0]]},
}
FACTORS = {
    "devices": [1, 2, 4],
    "dtype": ["fp32", "bf16", "fp16"],
    "files": ["fp32", "bf16"],
    "tied": [False, True],
    "micro_batch_size": [1, 2, 3],
    "micro_batches_per_round": [1, 3, "auto"],
    "gradient_groups": [1, 2, 3],
    "plan": list(PLANS),
    "max_grad_norm": [0, 1],
    "gradient_checkpointing": ["stage", "layer"],
    "head_token_chunk": [7, 1024],
    "packing": [False, True],
    "optimizer": [
        {"lr_scheduler_type": "linear"},
        {"lr_scheduler_type": "cosine", "warmup_ratio": 0.3,
         "weight_decay": 0.1},
        {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 2,
         "adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-6}],
    "save_steps": [0, 2],
}


# Jobs that train adapters; the rest as the rows above have it.
ADAPTERS = {
    "fp32": (2, {"lora_dropout": 0.1, "max_grad_norm": 0.05}),
    "bf16": (2, {"dtype": "bf16", "lora_dropout": 0.1, "max_grad_norm": 0.05,
                 "target_modules": "all-linear", "lora_r": 3,
                 "lora_alpha": 7.5, "plan": PLANS["uneven"]}),
    "fp16": (2, {"dtype": "fp16", "lora_dropout": 0.1, "max_grad_norm": 0.05,
                 "target_modules": "all-linear", "plan": PLANS["uneven"]}),
    "tied_rounds": (4, {
        "model": "model-True-bf16", "lora_dropout": 0.25,
        "target_modules": ["k_proj", "o_proj", "up_proj"],
        "micro_batch_size": 1, "micro_batches_per_round": 3,
        "gradient_groups": 2, "plan": PLANS["backward_begins_inside"],
        "gradient_checkpointing": "layer", "save_steps": 2,
        "weight_decay": 0.1}),
    "one_slot": (1, {"lora_dropout": 0.1, "plan": PLANS["all_fused"],
                     "target_modules": ["down_proj"]}),
    "layer_each": (4, {"dtype": "bf16", "lora_dropout": 0.1,
                       "max_grad_norm": 0, "plan": PLANS["layer_each"]}),
    "packed": (2, {"packing": True, "dtype": "bf16", "lora_dropout": 0.1,
                   "target_modules": "all-linear", "micro_batch_size": 1}),
    "packed_layer_each": (4, {
        "packing": True, "dtype": "bf16", "lora_dropout": 0.1,
        "target_modules": "all-linear", "micro_batch_size": 2,
        "micro_batches_per_round": 3, "gradient_groups": 2,
        "plan": PLANS["layer_each"], "max_grad_norm": 0.05}),
    "packed_one_slot": (1, {
        "packing": True, "dtype": "bf16", "lora_dropout": 0.1,
        "target_modules": "all-linear", "micro_batch_size": 2,
        "plan": PLANS["all_fused"]}),
    "without_dropout": (2, {"target_modules": "all-linear",
                            "max_grad_norm": 0}),
}


# One of each other family: what its model has, what the job says. A window is
# shorter than the rows.
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}
FAMILIES = {
    "qwen2_biases": (
        2, {"family": "qwen2", "tied": True, "dtype": "bf16"},
        {"dtype": "bf16", "packing": True, "plan": PLANS["uneven"],
         "weight_decay": 0.1}),
    "llama_rope_scaling": (
        4, {"family": "llama", "rope_scaling": LLAMA3_ROPE},
        {"dtype": "fp32", "plan": PLANS["layer_each"],
         "gradient_checkpointing": "layer", "max_grad_norm": 1}),
    "mistral_window": (
        2, {"family": "mistral", "sliding_window": 5, "dtype": "fp16"},
        {"dtype": "fp32", "micro_batch_size": 3}),
    "experts": (
        4, {"family": "qwen3_moe"},
        {"dtype": "fp32", "plan": PLANS["backward_begins_inside"],
         "packing": True, "weight_decay": 0.1, "save_steps": 2}),
    "experts_bf16_layer_each": (
        2, {"family": "qwen3_moe", "tied": True, "dtype": "bf16"},
        {"dtype": "bf16", "plan": PLANS["layer_each"], "micro_batch_size": 1,
         "gradient_checkpointing": "layer", "max_grad_norm": 1}),
    "experts_fp16": (
        2, {"family": "qwen3_moe"},
        {"dtype": "fp16", "plan": PLANS["uneven"], "gradient_groups": 2}),
}
FAMILY_ADAPTERS = {
    "mistral_window_packed": (
        2, {"family": "mistral", "sliding_window": 5, "dtype": "fp16"},
        {"dtype": "bf16", "packing": True, "lora_dropout": 0.1,
         "target_modules": "all-linear", "plan": PLANS["uneven"]}),
    "experts_attention_adapters": (
        2, {"family": "qwen3_moe"},
        {"dtype": "bf16", "lora_dropout": 0.1, "target_modules": "all-linear",
         "plan": PLANS["backward_begins_inside"]}),
}


# Slots on several devices at once, cut into equal and uneven parts. A step of
# 20 micro-batches has rounds of 8, 8 and 4, one of 10 has 8 and 2, and the
# validation set one of 7: each is cut, and adds, in another way.
WIDE_BATCH = {"batch_size": 20, "micro_batch_size": 1,
              "micro_batches_per_round": 8, "gradient_groups": 8}
WIDE = {
    "powers_of_two": {
        "dtype": "fp32", "model_name_or_path": "model-False-fp32",
        "plan": {**PLANS["backward_begins_inside"], "forward_width": [2, 4],
                 "backward_width": [8, 4, 2]}},
    "uneven_tied": {
        "dtype": "bf16", "model_name_or_path": "model-True-bf16",
        "max_grad_norm": 0, "save_steps": 2,
        "plan": {**PLANS["other_cuts"], "forward_width": [[5, 3], 3],
                 "backward_width": [[1, 7], [2, 3, 3], 1]}},
    "uneven_fp16": {
        "dtype": "fp16", "model_name_or_path": "model-False-bf16",
        "max_grad_norm": 0, "save_steps": 2,
        "plan": {**PLANS["other_cuts"], "forward_width": [[5, 3], 3],
                 "backward_width": [[1, 7], [2, 3, 3], 1]}},
    "one_stage": {
        "dtype": "fp32", "model_name_or_path": "model-True-fp32",
        "gradient_checkpointing": "layer", "packing": True,
        "plan": {**PLANS["all_fused"], "width": 8}},
    "adapters": {
        "dtype": "bf16", "model": "model-False-fp32", "lora_dropout": 0.1,
        "target_modules": "all-linear", "max_grad_norm": 0.05,
        "plan": {**PLANS["layer_each"], "forward_width": 2,
                 "backward_width": [1, 4, [1, 2, 5], 8, 3]}},
}


EXPERTS = {"family": "qwen3_moe"}
FAMILIES.update({
    "experts_wide": (
        8, EXPERTS,
        {**WIDE_BATCH, "dtype": "bf16",
         "plan": {**PLANS["layer_each"], "forward_width": [[5, 3], 3, 2, 1],
                  "backward_width": [1, 4, [1, 2, 5], 8, 3]}}),
    "experts_async": (
        2, EXPERTS,
        {"dtype": "bf16", "optimizer_mode": "async", "micro_batch_size": 1,
         "plan": PLANS["backward_begins_inside"]}),
    "shared_expert": (
        2, {"family": "qwen2_moe", "dtype": "bf16", "use_sliding_window": True,
            "sliding_window": 5, "max_window_layers": 3},
        {"dtype": "bf16", "micro_batch_size": 1, "optimizer_mode": "async",
         "plan": PLANS["backward_begins_inside"]}),
    "mixtral_window": (
        2, {"family": "mixtral", "sliding_window": 5, "dtype": "bf16"},
        {"dtype": "bf16", "packing": True, "plan": PLANS["uneven"]}),
    "experts_fewer_inputs": (
        2, EXPERTS,
        {"dtype": "fp32", "saved_inputs": "every 2", "micro_batch_size": 1,
         "plan": PLANS["layer_each"]}),
})


# An optimizer that is a step behind: each step reads the weights that the
# update before the last one left. The reference does the same, step by step.
ASYNC = {
    "clipped_rounds": {
        "dtype": "fp32", "model_name_or_path": "model-False-fp32",
        "micro_batches_per_round": 3, "micro_batch_size": 1,
        "gradient_groups": 2, "max_grad_norm": 0.5, "save_steps": 2,
        "plan": PLANS["backward_begins_inside"]},
    "tied_unclipped": {
        "dtype": "bf16", "model_name_or_path": "model-True-bf16",
        "micro_batch_size": 2, "max_grad_norm": 0, "save_steps": 1,
        "eval_steps": 2, "plan": PLANS["layer_each"]},
    "wide": {
        **WIDE_BATCH, "dtype": "bf16", "packing": True,
        "model_name_or_path": "model-False-bf16",
        "plan": {**PLANS["other_cuts"], "forward_width": [2, 4],
                 "backward_width": [4, [3, 5], 2]}},
    "adapters": {
        "dtype": "bf16", "model": "model-True-fp32", "lora_dropout": 0.1,
        "target_modules": "all-linear", "micro_batch_size": 1,
        "micro_batches_per_round": 3, "gradient_groups": 2,
        "plan": PLANS["uneven"]},
}


# Sums that leave the devices in the model's dtype, rounded where the plan cuts
# a round. With fp32, and of adapters, they are what they always are.
FAST = {
    "bf16_powers_of_two": {
        "dtype": "bf16", "model_name_or_path": "model-False-bf16",
        "save_steps": 2,
        "plan": {**PLANS["backward_begins_inside"], "forward_width": [2, 4],
                 "backward_width": [8, 4, 2]}},
    "bf16_uneven_tied": {
        "dtype": "bf16", "model_name_or_path": "model-True-bf16",
        "max_grad_norm": 0, "packing": True,
        "plan": {**PLANS["other_cuts"], "forward_width": [[5, 3], 3],
                 "backward_width": [[1, 7], [2, 3, 3], 1]}},
    "fp16_uneven": {
        "dtype": "fp16", "model_name_or_path": "model-False-fp32",
        "gradient_checkpointing": "layer",
        "plan": {**PLANS["other_cuts"],
                 "backward_width": [[3, 5], 2, [7, 1]]}},
    "async": {
        "dtype": "bf16", "model_name_or_path": "model-True-bf16",
        "optimizer_mode": "async",
        "plan": {**PLANS["layer_each"], "backward_width": 2}},
    "fp32": {
        "dtype": "fp32", "model_name_or_path": "model-False-fp32",
        "plan": {**PLANS["all_fused"], "width": 2}},
    "adapters": {
        "dtype": "bf16", "model": "model-False-fp32", "lora_dropout": 0.1,
        "target_modules": "all-linear",
        "plan": {**PLANS["uneven"], "width": 2}},
}


def possible(row):
    """A round has no more groups than micro-batches."""
    value = {name: FACTORS[name][index] for name, index in row.items()}
    most = value.get("micro_batches_per_round", "auto")
    return most == "auto" or value.get("gradient_groups", 1) <= most


def pairs_of(row):
    """All pairs of (factor, index of its value)."""
    return set(itertools.combinations(sorted(row.items()), 2))


def all_pairs():
    return {pair for a, b in itertools.combinations(sorted(FACTORS), 2)
            for pair in itertools.product(
                ((a, i) for i in range(len(FACTORS[a]))),
                ((b, i) for i in range(len(FACTORS[b]))))
            if possible(dict(pair))}


def sample():
    """Rows {factor: index of its value} that cover every pair, greedily."""
    chosen = random.Random(SEED)
    left, rows = all_pairs(), []
    while left:
        must = sorted(left)
        candidates = []
        for _ in range(200):
            row = {name: chosen.randrange(len(values))
                   for name, values in FACTORS.items()}
            row.update(chosen.choice(must))
            if possible(row):
                candidates.append(row)
        rows.append(max(candidates, key=lambda row: len(pairs_of(row) & left)))
        left -= pairs_of(rows[-1])
    return sorted(rows, key=lambda row: row["devices"])


def bits(value):
    return struct.pack("<d", float(value))


class BitwiseCase(unittest.TestCase):
    """What runs are compared with and how; peers_test.py's too."""
    flags = {}  # of every daemon

    @classmethod
    def setUpClass(cls):
        cls.scratch = harness.Scratch()
        cls.scratch.__enter__()
        cls.addClassCleanup(cls.scratch.__exit__)
        for tied, dtype in itertools.product(*map(
                FACTORS.get, ("tied", "files"))):
            cls.scratch.make_model(f"model-{tied}-{dtype}", tied=tied,
                                   dtype=dtype, seed=3)
        cls.scratch.make_data("train.jsonl", count=SEQUENCES, seed=1)
        cls.scratch.make_data("validation.jsonl", count=7, seed=2)
        cls.daemons = {}
        cls.sequential = subprocess.Popen(
            [harness.ROOT / "tests/integration/sequential_run"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.sequential.__exit__, None, None, None)

    def daemon(self, devices):
        """One runs at a time."""
        if devices not in self.daemons:
            self.daemons[devices] = self.scratch.daemon(
                devices=f"cpu:{devices}", **self.flags)
        wanted = self.daemons[devices]
        for daemon in self.daemons.values():
            if daemon is not wanted and not daemon.ended():
                daemon.stop()
        if wanted.ended():
            wanted.start()
        return wanted

    def job(self, row):
        value = {name: FACTORS[name][index] for name, index in row.items()}
        spec = {
            "model_name_or_path": f"model-{value['tied']}-{value['files']}",
            "dataset": "train.jsonl",
            "validation_dataset": "validation.jsonl",
            "max_length": 32, "batch_size": BATCH, "max_steps": STEPS,
            "learning_rate": 0.01, "seed": 7, **value["optimizer"],
            "plan": PLANS[value["plan"]],
        }
        for name in ("dtype", "micro_batch_size", "micro_batches_per_round",
                     "gradient_groups", "max_grad_norm", "head_token_chunk",
                     "gradient_checkpointing", "packing", "save_steps"):
            spec[name] = value[name]
        return value["devices"], spec

    def reference(self, daemon, job, **changes):
        """What the sequential loop makes of the job's resolved spec, with
        `changes` to it: metrics, {step: tensors}."""
        out = pathlib.Path(tempfile.mkdtemp(dir=daemon.folder))
        spec = out / "resolved.json"
        spec.write_text(json.dumps(
            {**daemon.job(job)["resolved_spec"], **changes}))
        question = {"spec": spec, "data": daemon.directory(job) / "data",
                    "out": out}
        print(json.dumps({name: str(path) for name, path in question.items()}),
              file=self.sequential.stdin, flush=True)
        self.assertEqual(self.sequential.stdout.readline(), "OK\n")
        metrics = [json.loads(line) for line in
                   (out / "metrics.jsonl").read_text().splitlines()]
        return metrics, {
            int(path.stem.split("-")[1]): harness.read_safetensors(path)
            for path in out.glob("state-*.safetensors")}

    def same_metrics(self, found, wanted, steps=STEPS):
        self.assertEqual([line["step"] for line in found],
                         [0, *range(1, steps + 1), steps])
        self.assertEqual([line["step"] for line in wanted],
                         [line["step"] for line in found])
        for mine, theirs in zip(found, wanted):
            # A step that was skipped has no norm.
            self.assertEqual("grad_norm" in mine, "grad_norm" in theirs)
            for name in theirs.keys() - {"step"}:
                self.assertEqual(
                    bits(mine[name]), bits(float.fromhex(theirs[name])),
                    f"step {mine['step']} {name}: {mine[name]} and "
                    f"{float.fromhex(theirs[name])}")

    def same_tensors(self, found, wanted, step):
        self.assertEqual(found.keys(), wanted.keys())
        differ = [name for name in wanted if found[name] != wanted[name]]
        self.assertEqual(differ, [], f"these differ after step {step}")

    def trained(self, found, initial):
        """No master is what it was."""
        kept = 5 if any(name.endswith(".previous") for name in found) else 4
        self.assertEqual(len(found), kept * len(initial))
        for name, (dtype, _, data) in initial.items():
            self.assertNotEqual(found[name + ".master"][2],
                                harness.as_fp32(dtype, data), name)

    def check(self, devices, spec):
        daemon = self.daemon(devices)
        job = daemon.submit(spec)
        daemon.wait(job)
        metrics, states = self.reference(daemon, job)
        found = daemon.metrics(job)
        if "eval_steps" not in spec:  # the reference has the first and last
            self.same_metrics(found, metrics)
        every = spec.get("save_steps") or STEPS
        self.assertEqual(sorted(states), list(range(every, STEPS + 1, every)))
        self.assertEqual(daemon.checkpoints(job), sorted(states))
        for step in sorted(states):
            self.same_tensors(daemon.tensors(job, step), states[step], step)
        self.trained(states[STEPS], harness.read_safetensors(
            self.scratch.data / spec["model_name_or_path"] /
            "model.safetensors"))
        norms = [line["grad_norm"] for line in found if "grad_norm" in line]
        if spec.get("max_grad_norm"):  # else clipping was not tried
            self.assertGreater(max(norms), spec["max_grad_norm"])
        return job

    def check_family(self, devices, model, changes):
        name = "-".join(["model", model["family"], model.get("dtype", "fp32"),
                         *(["tied"] if model.get("tied") else [])])
        if not (self.scratch.data / name).exists():
            self.scratch.make_model(name, seed=3, **model)
        if changes.get("lora_dropout"):
            self.check_adapters(devices, {**changes, "model": name})
            return
        self.check(devices, {
            "model_name_or_path": name, "dataset": "train.jsonl",
            "validation_dataset": "validation.jsonl", "max_length": 32,
            "batch_size": BATCH, "max_steps": STEPS, "learning_rate": 0.01,
            "save_steps": 0, "seed": 7, **changes})

    def start_only(self, devices, **flags):
        """A daemon on so many devices, in place of all that run."""
        for daemon in self.daemons.values():
            if not daemon.ended():
                daemon.stop()
        self.daemons[devices] = self.scratch.daemon(
            devices=f"cpu:{devices}", **self.flags)
        self.daemons[devices].start(**flags)
        return self.daemons[devices]

    def check_wide(self, devices, changes):
        if changes.get("lora_dropout"):
            return self.check_adapters(devices, {**WIDE_BATCH, **changes})
        return self.check(devices, {
            "dataset": "train.jsonl", "validation_dataset": "validation.jsonl",
            "max_length": 32, "max_steps": STEPS, "learning_rate": 0.01,
            "save_steps": 0, "seed": 7, **WIDE_BATCH, **changes})

    def adapter_spec(self, changes):
        spec = {
            "method": "lora", "model_name_or_path": "model-False-fp32",
            "dataset": "train.jsonl", "validation_dataset": "validation.jsonl",
            "max_length": 32, "batch_size": BATCH, "micro_batch_size": 2,
            "max_steps": STEPS, "learning_rate": 0.01, "seed": 7,
            "save_steps": 0, **changes}
        spec["model_name_or_path"] = spec.pop("model",
                                              spec["model_name_or_path"])
        return spec

    def check_adapters(self, devices, changes):
        spec = self.adapter_spec(changes)
        daemon = self.daemon(devices)
        job = daemon.submit(spec)
        daemon.wait(job)
        metrics, states = self.reference(daemon, job)
        found = daemon.metrics(job)
        self.same_metrics(found, metrics)
        every = spec["save_steps"] or STEPS
        self.assertEqual(sorted(states), list(range(every, STEPS + 1, every)))
        for step in sorted(states):
            self.same_tensors(daemon.tensors(job, step), states[step], step)
        for name, (_, _, data) in states[STEPS].items():
            self.assertTrue(any(data), f"{name} never changed from zero")
        norms = [line["grad_norm"] for line in found if "grad_norm" in line]
        if "max_grad_norm" in changes and changes["max_grad_norm"]:
            self.assertGreater(max(norms), changes["max_grad_norm"])
        return job


class BitwiseTest(BitwiseCase):
    def test_wide_slots(self):
        """The first job's workers die in the middle of parts, one for lack of
        device memory."""
        daemon = self.start_only(8, worker_kill_at=(
            "1=slot.micro_batch.done:3;4=slot.contribution.copied:7;"
            "6=slot.output.copied:4;2=slot.exhausted:3"))
        for name, changes in WIDE.items():
            with self.subTest(name):
                self.check_wide(8, changes)
        log = daemon.log_path.read_text()
        for worker in "146":
            self.assertIn(f"device worker {worker} killed by signal 9", log)
        self.assertIn("device memory is in pieces; this process ends", log)
        self.assertIn("device worker 2 exited with status 1", log)

    def test_fast_jobs_round_as_their_plan_cuts(self):
        """The first job's workers die in the middle of parts and
        reductions."""
        daemon = self.start_only(8, worker_kill_at=(
            "1=slot.micro_batch.done:3;4=slot.contribution.copied:7;"
            "6=slot.output.copied:4;host=host.chunk.ready:9"))
        for name, changes in FAST.items():
            with self.subTest(name):
                job = self.check_wide(8, {**changes, "determinism": "fast"})
                spec = daemon.job(job)["resolved_spec"]
                self.assertEqual(spec["determinism"], "fast")
                _, states = self.reference(daemon, job, determinism="bitwise")
                self.assertEqual(daemon.tensors(job, STEPS) == states[STEPS],
                                 name in ("fp32", "adapters"))
        for worker in ("device worker 1", "device worker 4",
                       "device worker 6", "host worker"):
            self.assertRegex(daemon.log_path.read_text(),
                             worker + r"( \d+)? killed by signal 9")

    def test_steps_read_weights_that_are_one_update_old(self):
        """The first job's workers die in the middle of slots, reductions and
        updates."""
        daemon = self.start_only(4, worker_kill_at=(
            "1=slot.micro_batch.done:5;2=slot.contribution.copied:4;"
            "host=host.chunk.ready:9;host=host.gather.copied:2"))
        for name, changes in ASYNC.items():
            with self.subTest(name):
                changes = {**changes, "optimizer_mode": "async"}
                if changes.get("lora_dropout"):
                    self.check_adapters(4, changes)
                else:
                    self.check(4, {
                        "dataset": "train.jsonl", "max_length": 32,
                        "validation_dataset": "validation.jsonl",
                        "batch_size": BATCH, "max_steps": STEPS,
                        "learning_rate": 0.01, "save_steps": 0, "seed": 7,
                        **changes})
        for worker in ("device worker 1", "device worker 2", "host worker"):
            self.assertRegex(daemon.log_path.read_text(),
                             worker + r"( \d+)? killed by signal 9")

    def test_steps_whose_fp16_gradients_overflow(self):
        """They leave every bit as it was. Those of few tokens are large.
        Workers die in the middle of slots, reductions and updates."""
        for determinism in ("bitwise", "fast"):
            with self.subTest(determinism):
                self.check_overflows(determinism)

    def check_overflows(self, determinism):
        daemon = self.start_only(4, worker_kill_at=(
            "1=slot.micro_batch.done:5;2=slot.contribution.copied:4;"
            "host=host.chunk.ready:9;host=host.gather.copied:2"))
        job = self.check(4, {
            "model_name_or_path": "model-False-fp32", "dataset": "train.jsonl",
            "validation_dataset": "validation.jsonl", "max_length": 32,
            "batch_size": 2, "micro_batch_size": 1, "max_steps": STEPS,
            "learning_rate": 0.1, "seed": 7, "dtype": "fp16", "save_steps": 1,
            "gradient_groups": 2, "determinism": determinism,
            "plan": {**PLANS["other_cuts"], "width": 2}})
        skipped = [line["step"] for line in daemon.metrics(job)
                   if "loss" in line and "grad_norm" not in line]
        self.assertTrue(1 < min(skipped) <= max(skipped) < STEPS, skipped)
        for step in skipped:
            self.assertEqual(daemon.tensors(job, step),
                             daemon.tensors(job, step - 1))
            self.assertRegex(daemon.log(job),
                             f"step {step}/{STEPS} .*: skipped, the gradients")
        for worker in ("device worker 1", "device worker 2", "host worker"):
            self.assertRegex(daemon.log_path.read_text(),
                             worker + r"( \d+)? killed by signal 9")

    def test_with_one_update_more_or_less_bits_differ(self):
        daemon = self.daemon(2)
        job = daemon.submit({
            "model_name_or_path": "model-False-fp32", "dataset": "train.jsonl",
            "max_length": 32, "batch_size": BATCH, "max_steps": STEPS,
            "learning_rate": 0.01, "optimizer_mode": "async"})
        daemon.wait(job)
        found = daemon.tensors(job, STEPS)
        for mode, same in (("async", True), ("sync", False)):
            _, states = self.reference(daemon, job, optimizer_mode=mode)
            self.assertEqual(
                all(found[name] == value
                    for name, value in states[STEPS].items()), same, mode)

    def test_the_daemons_own_plan_becomes_wide(self):
        """After a few steps are measured, in the middle of the job."""
        daemon = self.daemon(4)
        job = daemon.submit({
            "model_name_or_path": "model-True-bf16", "dataset": "train.jsonl",
            "validation_dataset": "validation.jsonl", "max_length": 32,
            "batch_size": 16, "micro_batch_size": 2, "max_steps": 1_000_000,
            "learning_rate": 0.01, "lr_scheduler_type": "constant", "seed": 7,
            "save_steps": 0, "dtype": "bf16"})
        harness.wait_until(
            lambda: re.search(r"new plan from measured times: .* x[234]",
                              daemon.log(job)), "a wide plan")
        step = daemon.job(job)["step"]
        harness.wait_until(lambda: daemon.job(job)["step"] > step + 4, "steps")
        steps = daemon.finish(job)["step"]
        self.assertEqual(daemon.job(job)["resolved_spec"]["gradient_groups"], 4)
        metrics, states = self.reference(daemon, job, max_steps=steps)
        self.same_metrics(daemon.metrics(job), metrics, steps)
        self.same_tensors(daemon.tensors(job, steps), states[steps], steps)

    def test_a_plan_wider_than_the_devices_that_are_left(self):
        """One of two dies whenever it starts a slot, until it is given up."""
        daemon = self.start_only(2, worker_kill_at=";".join(
            ["1=slot.started:1"] * 5))
        self.check_wide(2, {**WIDE["one_stage"],
                            "plan": {**PLANS["uneven"], "width": 2}})
        self.assertIn("device 1 is lost", daemon.log_path.read_text())
        daemon.stop()

    def test_what_a_family_adds_changes_the_bits(self):
        """So a run that left it out would be noticed."""
        daemon = self.daemon(2)
        for name in ("llama_rope_scaling", "mistral_window"):
            _, model, changes = FAMILIES[name]
            plain = {key: value for key, value in model.items()
                     if key not in ("rope_scaling", "sliding_window")}
            for variant, fields in (("with", model), ("without", plain)):
                self.scratch.make_model(f"{variant}-{name}", seed=3, **fields)
            job = daemon.submit({
                "model_name_or_path": f"with-{name}", "max_length": 32,
                "dataset": "train.jsonl", "batch_size": BATCH,
                "max_steps": STEPS, "seed": 7, "micro_batch_size": 2,
                "dtype": changes["dtype"]})
            daemon.wait(job)
            found = daemon.tensors(job, STEPS)
            for variant, same in (("with", True), ("without", False)):
                _, states = self.reference(
                    daemon, job, model_name_or_path=str(
                        self.scratch.data / f"{variant}-{name}"))
                self.assertEqual(found == states[STEPS], same,
                                 (name, variant))

    def test_masks_follow_the_seed_and_the_probability(self):
        """So a run with a wrong mask would be noticed."""
        daemon = self.daemon(2)
        job = daemon.submit(self.adapter_spec({"lora_dropout": 0.1}))
        daemon.wait(job)
        found = daemon.tensors(job, STEPS)
        for changes, same in (({}, True), ({"lora_dropout": 0.11}, False),
                              ({"lora_dropout": 0}, False)):
            _, states = self.reference(daemon, job, **changes)
            self.assertEqual(found == states[STEPS], same, changes)

    def test_an_adapter_is_gone_on_from(self):
        daemon = self.daemon(2)
        first = daemon.submit(self.adapter_spec({
            "dtype": "bf16", "lora_r": 4, "lora_dropout": 0.1}))
        daemon.wait(first)
        job = self.check_adapters(2, {
            "dtype": "bf16", "adapter_name_or_path": f"job:{first}"})
        spec = daemon.job(job)["resolved_spec"]
        self.assertEqual((spec["lora_r"], spec["lora_dropout"]), (4, 0.1))
        self.assertIn("the base model is in host memory already",
                      daemon.log(job))

    def test_with_another_order_of_addition_bits_differ(self):
        """So the runs above would notice a wrong one."""
        daemon = self.daemon(2)
        job = daemon.submit({
            "model_name_or_path": "model-False-fp32", "dataset": "train.jsonl",
            "max_length": 32, "batch_size": BATCH, "max_steps": STEPS,
            "micro_batch_size": 1, "gradient_groups": 2})
        daemon.wait(job)
        found = daemon.tensors(job, STEPS)
        for changes, same in (({}, True), ({"gradient_groups": 3}, False),
                              ({"micro_batches_per_round": 3}, False),
                              ({"micro_batch_size": 2}, False)):
            _, states = self.reference(daemon, job, **changes)
            self.assertEqual(found == states[STEPS], same, changes)


class SampleTest(unittest.TestCase):
    def test_every_pair_of_values_occurs(self):
        covered = set().union(*map(pairs_of, sample()))
        self.assertEqual(all_pairs() - covered, set())


def add_runs():
    for index, row in enumerate(sample()):
        def run(self, row=row):
            self.check(*self.job(row))
        run.__doc__ = None
        name = "_".join(
            str(FACTORS[factor][row[factor]]).lower() for factor in
            ("devices", "dtype", "plan", "micro_batch_size",
             "micro_batches_per_round", "gradient_groups"))
        setattr(BitwiseTest, f"test_run_{index:02}_{name}", run)
    for name, (devices, changes) in ADAPTERS.items():
        def run_adapters(self, devices=devices, changes=changes):
            self.check_adapters(devices, changes)
        run_adapters.__doc__ = None
        setattr(BitwiseTest, f"test_adapters_{name}", run_adapters)
    for name, case in {**FAMILIES, **FAMILY_ADAPTERS}.items():
        def run_family(self, case=case):
            self.check_family(*case)
        run_family.__doc__ = None
        setattr(BitwiseTest, f"test_family_{name}", run_family)


add_runs()

if __name__ == "__main__":
    unittest.main()
