"""Jobs that train adapters, with the real programs and a tiny model: what they
leave, what disturbs them not, and which adapters are refused."""

import hashlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

EXIT_ERROR = 1
STEPS = 32
JOB = {"method": "lora", "model_name_or_path": "model",
       "dataset": "train.jsonl", "validation_dataset": "valid.jsonl",
       "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
       "max_steps": 5, "learning_rate": 0.01, "seed": 1, "lora_r": 4,
       "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": "all-linear"}
LONG = {**JOB, "max_steps": STEPS, "save_steps": 0}
# Runs until it is told to finish; the rate does not depend on when.
ENDLESS = {**LONG, "max_steps": 1_000_000, "lr_scheduler_type": "constant"}
MODULES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
           "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
IN_MEMORY = "the base model is in host memory already"


def shards(folder):
    """{file: SHA-256} of a folder's weights."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.glob("*.safetensors")}


class LoraTest(unittest.TestCase):
    known = {}  # job -> its result

    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.data = self.scratch.data
        self.scratch.make_model("model", tied=True, dtype="bf16")
        self.scratch.make_data("train.jsonl", count=40)
        self.scratch.make_data("valid.jsonl", count=8, seed=2)
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def step(self, job):
        return self.daemon.job(job)["step"]

    def wait_step(self, job, step):
        harness.wait_until(lambda: self.step(job) >= step, f"step {step}")

    def wait_state(self, job, state):
        harness.wait_until(lambda: self.daemon.job(job)["state"] == state,
                           state)

    def result(self, job, step=STEPS):
        metrics = [{key: value for key, value in entry.items()
                    if key != "step_seconds"}
                   for entry in self.daemon.metrics(job)]
        return shards(self.daemon.checkpoint(job, step)), metrics

    def undisturbed(self, spec=LONG, steps=STEPS):
        """Models and data are the same in every test: so is its result."""
        text = json.dumps({**spec, "max_steps": steps})
        if text not in self.known:
            job = self.daemon.submit(text)
            self.daemon.wait(job)
            self.known[text] = self.result(job, steps)
        return self.known[text]

    def pause(self, job):
        """The step that it is paused after."""
        self.daemon.client("pause", "--give-back", job)
        self.wait_state(job, "PAUSED")
        return self.step(job)

    def assert_same(self, found, wanted):
        self.assertEqual(set(found[0]), {"adapter_model.safetensors",
                                         "optimizer.safetensors"})
        self.assertEqual(found, wanted)


class OutputTest(LoraTest):
    def test_output_is_a_directory_of_peft(self):
        job = self.daemon.wait(self.daemon.submit(JOB))
        output = pathlib.Path(job["output_path"])
        self.assertEqual({path.name for path in output.iterdir()},
                         {"adapter_config.json", "adapter_model.safetensors",
                          "tokenizer.json", "tokenizer_config.json",
                          "trainer_state.json", "metrics.jsonl",
                          "roundhouse.json"})
        config = json.loads((output / "adapter_config.json").read_text())
        self.assertEqual(config["base_model_name_or_path"],
                         str(self.data / "model"))
        self.assertEqual(
            {key: config[key] for key in
             ("peft_type", "task_type", "r", "lora_alpha", "lora_dropout",
              "bias", "target_modules", "inference_mode", "use_rslora")},
            {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4,
             "lora_alpha": 8, "lora_dropout": 0.1, "bias": "none",
             "target_modules": [name.split(".")[1] for name in MODULES],
             "inference_mode": True, "use_rslora": False})
        tensors = harness.read_safetensors(
            output / "adapter_model.safetensors")
        shapes = harness.layer_shapes()
        wanted = {}
        for layer in range(harness.LAYERS):
            for name in MODULES:
                rows, columns = shapes[name]
                path = f"base_model.model.model.layers.{layer}.{name}"
                wanted[f"{path}.lora_A.weight"] = ("F32", [4, columns])
                wanted[f"{path}.lora_B.weight"] = ("F32", [rows, 4])
        self.assertEqual({name: tensor[:2] for name, tensor in
                          tensors.items()}, wanted)
        for name, (_, _, data) in tensors.items():
            self.assertTrue(any(data), f"{name} never trained")
        log = self.daemon.log(job["name"].rsplit("/", 1)[1])
        self.assertIn("trainable parameters: ", log)

    def test_adapters_learn_and_full_weights_stay(self):
        before = shards(self.data / "model")
        job = self.daemon.submit({**LONG, "lora_dropout": 0})
        self.daemon.wait(job)
        losses = [entry["eval_loss"] for entry in self.daemon.metrics(job)
                  if "eval_loss" in entry]
        self.assertLess(losses[-1], losses[0] - 0.3)
        self.assertEqual(shards(self.data / "model"), before)

    def test_the_base_is_loaded_once_for_jobs_that_follow(self):
        first = self.daemon.submit(JOB)
        self.daemon.wait(first)
        self.assertNotIn(IN_MEMORY, self.daemon.log(first))
        again = self.daemon.submit({**JOB, "seed": 2})
        self.daemon.wait(again)
        self.assertIn(IN_MEMORY, self.daemon.log(again))
        same = self.daemon.submit(JOB)
        self.daemon.wait(same)
        self.assertEqual(self.result(same, 5), self.result(first, 5))
        other = self.daemon.submit({**JOB, "dtype": "fp32"})
        self.daemon.wait(other)
        self.assertNotIn(IN_MEMORY, self.daemon.log(other))

    def test_resolved_spec_gives_the_same_bits(self):
        spec = {key: value for key, value in JOB.items()
                if not key.startswith("lora_") and key != "target_modules"}
        first = self.daemon.submit(spec)
        resolved = self.daemon.wait(first)["resolved_spec"]
        self.assertEqual(
            [resolved[name] for name in ("lora_r", "lora_alpha",
                                         "lora_dropout", "target_modules")],
            [8, 8.0, 0.0, ["q_proj", "v_proj"]])
        second = self.daemon.submit(json.dumps(resolved))
        self.assertEqual(self.daemon.wait(second)["resolved_spec"], resolved)
        self.assertEqual(self.result(second, 5), self.result(first, 5))


class DisturbedTest(LoraTest):
    def test_pause_restart_and_resume_keep_the_bits(self):
        job = self.daemon.submit(ENDLESS)
        self.wait_step(job, 8)
        step = self.pause(job)
        self.daemon.client("resume", job)
        self.wait_step(job, step + 8)
        self.daemon.stop()
        self.daemon.start()
        end = self.daemon.finish(job)["step"]
        self.assertGreaterEqual(self.daemon.log(job).count("going on from"), 2)
        self.assert_same(self.result(job, end), self.undisturbed(ENDLESS, end))

    def test_deaths_of_workers_keep_the_bits(self):
        wanted = self.undisturbed()
        job = self.daemon.submit(LONG)
        killed = []
        for due, name in zip(range(2, STEPS - 8, 3),
                             itertools.cycle(("0", "host", "1"))):
            self.wait_step(job, due)
            pid = self.daemon.workers().get(name)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                killed.append(name)
        self.daemon.wait(job)
        self.assertEqual(set(killed), {"0", "host", "1"})
        self.assert_same(self.result(job), wanted)

    def test_the_files_worker_dies_while_it_loads(self):
        first = self.daemon.submit(JOB)
        self.daemon.wait(first)
        wanted = self.result(first, 5)
        self.daemon.stop()
        for point in ("files.load.tensor:3", "files.init.tensor:2",
                      "files.done.before:1"):
            self.daemon.start(worker_kill_at=f"files={point}")
            job = self.daemon.submit(JOB)
            self.daemon.wait(job)
            self.assertRegex(self.daemon.log(job), r"files worker \d+ killed")
            self.assert_same(self.result(job, 5), wanted)
            self.daemon.stop()

    def test_resume_in_a_new_job(self):
        half = self.daemon.submit({**ENDLESS, "output_name": "half"})
        self.wait_step(half, 8)
        end = self.pause(half) + 8
        # What the checkpoint says of its adapters need not be said again.
        spec = {key: value for key, value in ENDLESS.items()
                if key not in ("lora_r", "lora_alpha", "target_modules")}
        job = self.daemon.submit({**spec, "max_steps": end,
                                  "resume_from_checkpoint": "job:half"})
        self.daemon.wait(job)
        self.assertEqual(self.result(job, end)[0],
                         self.undisturbed(ENDLESS, end)[0])


class RefusedTest(LoraTest):
    def setUp(self):
        super().setUp()
        first = self.daemon.wait(self.daemon.submit(JOB))
        self.adapter = self.data / "adapter"
        shutil.copytree(first["output_path"], self.adapter)

    def edit(self, **fields):
        path = self.adapter / "adapter_config.json"
        path.write_text(json.dumps(
            {**json.loads(path.read_text()), **fields}))

    def submit(self, **fields):
        spec = {key: value for key, value in JOB.items()
                if key not in ("lora_r", "lora_alpha", "lora_dropout",
                               "target_modules")}
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps({**spec, **fields}, indent=1))
        return self.daemon.client("submit", "-f", path, "--wait", check=False)

    def refused(self, *parts, **fields):
        done = self.submit(**{"adapter_name_or_path": "adapter", **fields})
        self.assertEqual(done.returncode, EXIT_ERROR, done.stderr)
        for part in parts:
            self.assertIn(str(part), done.stderr)

    def test_continues_from_its_copy(self):
        done = self.submit(adapter_name_or_path="adapter")
        self.assertEqual(done.returncode, 0, done.stderr)
        log = self.daemon.log("job-2")
        self.assertIn(f"going on from the adapter {self.adapter}", log)
        self.assertNotIn("made for the base model", log)
        self.edit(base_model_name_or_path="Some/Other-7B")
        done = self.submit(adapter_name_or_path="adapter")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('made for the base model "Some/Other-7B"',
                      self.daemon.log("job-3"))

    def test_options_that_are_not_supported(self):
        for fields, text in (
                ({"use_rslora": True}, "use_rslora: true is not supported"),
                ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
                ({"peft_type": "IA3"}, 'peft_type: "IA3" is not supported')):
            before = (self.adapter / "adapter_config.json").read_text()
            self.edit(**fields)
            self.refused("adapter_name_or_path: ", text)
            (self.adapter / "adapter_config.json").write_text(before)

    def test_shapes_dtype_and_tensors_of_another_base(self):
        path = self.adapter / "adapter_model.safetensors"
        whole = harness.read_safetensors(path)
        name = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"

        def refused_with(tensor, *parts):
            tensors = {**whole, name: tensor}
            if tensor is None:
                del tensors[name]
            harness.write_safetensors(path, tensors)
            self.refused("adapter_name_or_path: ", path, name, *parts)
        dtype, shape, data = whole[name]
        refused_with((dtype, shape[::-1], data), f"shape {shape[::-1]} found",
                     f"{shape} expected")
        refused_with(("I32", shape, data), "dtype I32 is not supported")
        refused_with(None, "is missing")
        harness.write_safetensors(path, whole)
        self.edit(r=5)
        self.refused("shape [4, 32] found, [5, 32] expected")

    def other_base(self, name, change, **fields):
        """A copy of the base with change(tensors) and fields of config.json."""
        folder = self.data / name
        shutil.copytree(self.data / "model", folder)
        tensors = harness.read_safetensors(folder / "model.safetensors")
        change(tensors)
        harness.write_safetensors(folder / "model.safetensors", tensors)
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    def test_the_adapter_of_another_base(self):
        def widen(tensors):
            for name, (dtype, shape, data) in tensors.items():
                if ".mlp." in name:
                    sizes = [2 * n if n == harness.INNER else n for n in shape]
                    tensors[name] = (dtype, sizes, 2 * data)

        def flatten(tensors):
            for name in list(tensors):
                if f"layers.{harness.LAYERS - 1}." in name:
                    del tensors[name]
        self.other_base("wider", widen, intermediate_size=2 * harness.INNER)
        self.other_base("flatter", flatten,
                        num_hidden_layers=harness.LAYERS - 1)
        for name in ("wider", "flatter"):  # good bases, by themselves
            done = self.submit(model_name_or_path=name)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.refused(
            "layers.0.mlp.gate_proj.lora_B.weight", f"[{harness.INNER}, 4] "
            f"found, [{2 * harness.INNER}, 4] expected",
            model_name_or_path="wider")
        self.refused("14 tensors have no place", model_name_or_path="flatter")

    def test_fields_that_are_not_the_adapters(self):
        self.refused("lora_r: 16; the adapter in", "has 4", lora_r=16)
        self.refused("target_modules: q_proj; the adapter in",
                     target_modules=["q_proj"])
        self.refused("belongs to method: lora", method="full")

    def test_an_adapter_is_no_base(self):
        done = self.submit(model_name_or_path="adapter")
        self.assertEqual(done.returncode, EXIT_ERROR)
        self.assertIn("is an adapter; name its base model here", done.stderr)
        done = self.submit(model_name_or_path="job:job-1")
        self.assertIn("is an adapter; name its base model here", done.stderr)

    def test_checkpoints_of_the_other_method(self):
        step = self.daemon.checkpoint("job-1", 5)
        done = self.submit(method="full", resume_from_checkpoint=str(step),
                           max_steps=9)
        self.assertEqual(done.returncode, EXIT_ERROR, done.stderr)
        self.assertIn("resume_from_checkpoint: ", done.stderr)
        full = self.submit(method="full", output_name="full")
        self.assertEqual(full.returncode, 0, full.stderr)
        done = self.submit(resume_from_checkpoint="job:full", max_steps=9)
        self.assertEqual(done.returncode, EXIT_ERROR, done.stderr)
        self.assertIn("adapter_config.json", done.stderr)


if __name__ == "__main__":
    unittest.main()
