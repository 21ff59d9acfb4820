"""Bad input through the real programs: every refusal names what is wrong."""

import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

EXIT_ERROR, EXIT_JOB_FAILED, EXIT_QUOTA = 1, 3, 7
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
       "max_steps": 6, "learning_rate": 0.01, "seed": 1}


class BadInputTest(unittest.TestCase):
    flags = {"max_running_jobs": 1}

    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.data = self.scratch.data
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=40)
        self.daemon = self.scratch.daemon(**self.flags)

    def submit(self, text=None, **fields):
        """The client's answer to a job file, --wait."""
        if not self.daemon.process:
            self.daemon.start()
        path = self.scratch.folder / "job.yaml"
        path.write_text(text or json.dumps({**JOB, **fields}, indent=1))
        return self.daemon.client("submit", "-f", path, "--wait", check=False)

    def assert_refused(self, *parts, text=None, status=EXIT_ERROR, **fields):
        """Refused at submit; no job was made."""
        done = self.submit(text, **fields)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        for part in parts:
            self.assertIn(str(part), done.stderr)
        # The job file is named once, and no word of gRPC's.
        self.assertNotRegex(done.stderr,
                            "submit(?! --upload)|INVALID_ARGUMENT")
        jobs = json.loads(self.daemon.client("list", "-o", "json").stdout)
        self.assertEqual(jobs.get("jobs", jobs), [])
        return done.stderr

    def assert_fails(self, reason, *parts, **fields):
        """Taken, then FAILED; the client's text, the job and its log agree.
        Answers the job's JSON."""
        done = self.submit(**fields)
        self.assertEqual(done.returncode, EXIT_JOB_FAILED, done.stderr)
        job = self.daemon.job(done.stdout.strip())
        self.assertEqual((job["state"], job["reason"]), ("FAILED", reason))
        logs = self.daemon.client("logs", done.stdout.strip())
        for part in parts:
            for where in (job["message"], logs.stdout, done.stderr,
                          logs.stderr):
                self.assertIn(str(part), where)
        self.assertIn(reason, logs.stdout)
        self.assertIn(reason, logs.stderr)
        return job

    def assert_takes_jobs(self):
        """What was refused or failed left the daemon in good order."""
        done = self.submit(output_name="after", max_steps=2)
        self.assertEqual(done.returncode, 0, done.stderr)

    def edit_config(self, **fields):
        path = self.data / "model/config.json"
        config = {**json.loads(path.read_text()), **fields}
        path.write_text(json.dumps(config))

    def edit_tensors(self, change):
        path = self.data / "model/model.safetensors"
        tensors = harness.read_safetensors(path)
        change(tensors)
        harness.write_safetensors(path, tensors)


    def weights(self):
        return self.data / "model/model.safetensors"


class MixtureTest(BadInputTest):
    """What only models with experts can have wrong."""

    def setUp(self):
        super().setUp()
        shutil.rmtree(self.data / "model")
        self.scratch.make_model("model", family="qwen3_moe")

    def test_an_expert_too_few_or_too_many(self):
        self.edit_config(num_experts=harness.EXPERTS + 1)
        self.assert_refused(self.weights(), "mlp.gate.weight",
                            f"[{harness.EXPERTS}, {harness.HIDDEN}] found",
                            f"[{harness.EXPERTS + 1}, {harness.HIDDEN}] "
                            "expected")
        self.edit_config(num_experts=harness.EXPERTS)
        last = f"model.layers.2.mlp.experts.{harness.EXPERTS - 1}."
        self.edit_tensors(lambda tensors: tensors.pop(last + "up_proj.weight"))
        self.assert_refused(self.data / "model", "missing from the weights: "
                            f"'{last}up_proj.weight'")

    def test_an_expert_with_no_place(self):
        name = "model.layers.0.mlp.experts.{}.up_proj.weight"

        def add_one(tensors):
            tensors[name.format(harness.EXPERTS)] = tensors[name.format(0)]
        self.edit_tensors(add_one)
        self.assert_refused("has no place for", name.format(harness.EXPERTS))

    def test_experts_where_config_json_has_none(self):
        self.edit_config(mlp_only_layers=[])
        self.assert_refused(
            self.data / "model", "missing from the weights: "
            f"'model.layers.{harness.DENSE_LAYER}.mlp.gate.weight'")
        self.edit_config(mlp_only_layers=[harness.LAYERS])
        self.assert_refused(self.data / "model/config.json",
                            "mlp_only_layers: layer 4 of 4")

    def test_an_expert_of_another_shape(self):
        name = "model.layers.3.mlp.experts.1.down_proj.weight"

        def turn(tensors):
            dtype, shape, data = tensors[name]
            tensors[name] = (dtype, shape[::-1], data)
        self.edit_tensors(turn)
        self.assert_refused(self.weights(), name, f"[24, {harness.HIDDEN}] "
                            "found", f"[{harness.HIDDEN}, 24] expected")

    def test_config_json_that_contradicts_itself(self):
        self.edit_config(num_experts_per_tok=harness.EXPERTS + 1)
        self.assert_refused("num_experts_per_tok: 5 of 4 experts")
        self.edit_config(num_experts_per_tok=2, num_local_experts=8)
        self.assert_refused("num_experts: 4 contradicts num_local_experts, "
                            "which is 8")

    def test_quantized_experts(self):
        self.edit_config(quantization_config={"quant_method": "mxfp4"})
        self.assert_refused(self.data / "model/config.json",
                            "quantization_config")

    def test_adapters_of_experts_modules(self):
        self.assert_refused(
            "target_modules: up_proj, down_proj: a model with experts has "
            "adapters of its attention only; all-linear is q_proj, k_proj, "
            "v_proj, o_proj", method="lora",
            target_modules=["q_proj", "up_proj", "down_proj"])

    def test_a_router_of_nan_ends_the_job(self):
        name = "model.layers.0.mlp.gate.weight"

        def poison(tensors):
            dtype, shape, data = tensors[name]
            tensors[name] = (dtype, shape, struct.pack(
                f"<{len(data) // 4}f", *[math.nan] * (len(data) // 4)))
        self.edit_tensors(poison)
        self.assert_fails("NON_FINITE_LOSS", "loss")


class ModelTest(BadInputTest):
    def test_truncated_safetensors(self):
        whole = self.weights().read_bytes()
        self.weights().write_bytes(whole[:-100])
        self.assert_refused("model_name_or_path", self.weights(), "truncated",
                            len(whole) - 100, f"{len(whole)} expected")
        self.weights().write_bytes(whole[:100])
        self.assert_refused(self.weights(), "truncated: 100 bytes found")
        self.weights().write_bytes(whole)
        self.assert_takes_jobs()

    def test_missing_safetensors(self):
        whole = self.weights().read_bytes()
        self.weights().unlink()
        self.assert_refused(self.data / "model", "neither model.safetensors")
        shard = "model-00001-of-00002.safetensors"
        (self.data / "model" / shard).write_bytes(whole)
        lost = "model-00002-of-00002.safetensors"
        (self.data / "model/model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"model.norm.weight": lost,
                                       "model.embed_tokens.weight": shard}}))
        self.assert_refused(self.data / "model" / lost, "is missing")

    def test_configurations_at_and_beyond_the_limits(self):
        """Whatever a configuration says, the daemon answers and goes on."""
        config = (self.data / "model/config.json").read_text()
        for fields, *words in (
                ({"num_hidden_layers": 512}, "num_hidden_layers",
                 "512 is outside [1, 511]"),
                ({"num_hidden_layers": 4096}, "num_hidden_layers", "[1, 511]"),
                ({"num_hidden_layers": 511}, None),
                ({"hidden_size": 65536, "intermediate_size": 1 << 20,
                  "num_hidden_layers": 511}, "model_name_or_path: ", "bytes"),
                ({"num_attention_heads": 1024, "num_key_value_heads": 1024,
                  "head_dim": 1024, "hidden_size": 65536,
                  "vocab_size": 1 << 21}, "model_name_or_path: ", "bytes")):
            self.edit_config(**fields)
            for flags in (("--dry-run",), ()):
                with self.subTest(fields, flags=flags):
                    path = self.scratch.folder / "job.json"
                    path.write_text(json.dumps(
                        {**JOB, "model_init": "random", "max_steps": 1}))
                    if not self.daemon.process:
                        self.daemon.start()
                    done = self.daemon.client("submit", "-f", path, *flags,
                                              check=False)
                    if words != [None]:
                        self.assertNotEqual(done.returncode, 0)
                        for word in words:
                            self.assertIn(word, done.stderr)
                    self.assertIsNone(self.daemon.process.poll())
            (self.data / "model/config.json").write_text(config)

    def test_missing_tensor(self):
        name = "model.layers.2.mlp.up_proj.weight"
        self.edit_tensors(lambda tensors: tensors.pop(name))
        self.assert_refused(self.data / "model", f"missing from the weights: "
                            f"{name!r}")

    def test_shape_mismatch_with_config(self):
        self.edit_config(intermediate_size=harness.INNER + 32)
        self.assert_refused(
            self.weights(), "model.layers.0.mlp.gate_proj.weight",
            f"[{harness.INNER}, {harness.HIDDEN}] found",
            f"[{harness.INNER + 32}, {harness.HIDDEN}] expected")

    def test_unsupported_architecture(self):
        self.edit_config(architectures=["GptOssForCausalLM"],
                         model_type="gpt_oss")
        self.assert_refused(self.data / "model/config.json",
                            "'GptOssForCausalLM'", "LlamaForCausalLM")

    def test_unsupported_dtype_of_a_file(self):
        name = "model.norm.weight"

        def to_integers(tensors):
            tensors[name] = ("I32", *tensors[name][1:])
        self.edit_tensors(to_integers)
        self.assert_refused(self.weights(), name, "dtype I32")

    def test_broken_config_and_tokenizer(self):
        path = self.data / "model/tokenizer.json"
        path.write_text("{}")
        self.assert_fails("INVALID_DATASET", path, "unreadable tokenizer")
        path.unlink()
        done = self.submit()
        self.assertEqual(done.returncode, EXIT_ERROR)
        self.assertIn(f"{path.parent} has no tokenizer.json; name the folder "
                      "that has it", done.stderr)
        path = self.data / "model/config.json"
        path.write_text("{\n")
        self.assertIn(f"{path}: parse error at line 2", self.submit().stderr)

    def test_model_that_vanishes_while_the_job_waits(self):
        first = self.daemon
        first.start()
        running = first.submit({**JOB, "max_steps": 1_000_000,
                                "save_steps": 0})
        waiting = first.submit({**JOB, "output_name": "second"})
        harness.wait_until(
            lambda: first.job(waiting)["state"] == "QUEUED", "QUEUED")
        # Loaded: it would fail for want of its weights otherwise.
        harness.wait_until(lambda: first.metrics(running), "first step")
        self.weights().unlink()
        first.client("cancel", running)
        job = first.wait(waiting, "FAILED")
        self.assertEqual(job["reason"], "INVALID_MODEL")
        self.assertIn("neither model.safetensors", job["message"])


class JobFileTest(BadInputTest):
    def test_unsupported_dtype_of_a_job(self):
        self.assert_refused("dtype: expected auto, fp32, bf16 or fp16", '"fp64"',
                            dtype="fp64")

    def test_fp16_with_an_asynchronous_optimizer(self):
        self.assert_refused("optimizer_mode: async does not go with fp16",
                            "loss scale", fp16=True, optimizer_mode="async")

    def test_unknown_field(self):
        self.assert_refused(
            "job.yaml:3: learnig_rate: unknown field; did you mean "
            "learning_rate?", text="model_name_or_path: model\n"
            "dataset: train.jsonl\nlearnig_rate: 3\n")

    def test_one_thing_under_two_names(self):
        self.assert_refused(
            "job.yaml:3: base_model: model_name_or_path (line 1) says the "
            "same; keep one of them", text="model_name_or_path: model\n"
            "dataset: train.jsonl\nbase_model: model\n")
        self.assert_refused("per_device_train_batch_size", "micro_batch_size",
                            per_device_train_batch_size=2)

    def test_what_is_no_job_file(self):
        self.assert_refused("job.yaml:2: not YAML", text="dataset: [a\n")
        self.assert_refused("model_name_or_path", text="dataset: a\n")
        for content in ("\0", "[" * 10_000, "- a\n", "&a [*a]"):
            self.assert_refused("job.yaml", text=content)

    def test_path_outside_the_data_roots(self):
        outside = self.scratch.folder / "outside.jsonl"
        harness.make_data(outside, count=5)
        (self.data / "link.jsonl").symlink_to(outside)
        (self.data / "folder").symlink_to(self.scratch.folder)
        for path, what in (
                (outside, "is outside the data roots"),
                ("../outside.jsonl", "leads out of the data roots"),
                (self.data / "../outside.jsonl", "leads out of"),
                ("link.jsonl", "leads out of the data roots"),
                ("folder/outside.jsonl", "leads out of the data roots"),
                ("none.jsonl", "does not exist under the data roots")):
            with self.subTest(path):
                self.assert_refused(f'dataset: "{path}" {what}',
                                    dataset=str(path))
        self.assert_refused('model_name_or_path: "/etc" is outside',
                            model_name_or_path="/etc")

    def test_wrong_plan(self):
        self.assert_refused("plan", "layer",
                            plan={"forward": [[0, 9]], "backward": [[3, 4]]})
        stages = {"forward": [[0, 2]], "backward": [[3, 4], [0, 2]]}
        for groups, widths, *words in (
                (2, {"backward_width": [1, 3]}, "backward_width[1]",
                 "gradient_groups is 2"),
                (8, {"forward_width": [[3, 4]]}, "forward_width[0]",
                 "3 + 4 groups"),
                (8, {"width": 8}, "forward_width[0]", "8 devices wide",
                 "this server has")):
            with self.subTest(widths):
                self.assert_refused(
                    "plan", *words, batch_size=8, gradient_groups=groups,
                    plan={**stages, **widths})


class DataTest(BadInputTest):
    def test_malformed_line(self):
        path = self.data / "bad.jsonl"
        path.write_text('{"text": "one"}\n{"text": \n{"text": "two"}\n')
        job = self.assert_fails("INVALID_DATASET", f"{path}:2: not JSON",
                                dataset="bad.jsonl")
        self.assertEqual(job["step"], 0)
        path.write_text('{"text": "one"}\n\n{"txt": "two"}\n')
        self.assert_fails("INVALID_DATASET", f"{path}:3:", "'txt'",
                          dataset="train.jsonl",
                          validation_dataset="bad.jsonl")
        self.assert_takes_jobs()

    def test_empty_dataset(self):
        path = self.data / "empty.jsonl"
        for text in ("", "\n \n"):
            path.write_text(text)
            self.assert_fails("INVALID_DATASET",
                              f"{path}: the dataset is empty",
                              dataset="empty.jsonl")

    def test_length_above_what_the_model_allows(self):
        for packing in (False, True):
            self.assert_refused(
                "max_length: 129 tokens; the model allows 128",
                "max_position_embeddings", max_length=129, packing=packing)

    def test_packed_rows_are_as_long_as_the_model_allows_at_most(self):
        texts = ["one two " * count for count in (3, 20, 200)]
        (self.data / "rows.jsonl").write_text("".join(
            json.dumps({"text": text}) + "\n" for text in texts * 3))
        done = self.submit(dataset="rows.jsonl", packing=True, max_length=128,
                           batch_size=2, max_steps=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        manifest = json.loads((self.daemon.directory(done.stdout.strip()) /
                               "data/train/manifest.json").read_text())
        self.assertEqual(manifest["max_row_tokens"], 128)
        self.assertEqual(manifest["truncated"], 3)
        self.assertLess(manifest["packed_rows"], 9)

    def test_longer_rows_are_cut_and_counted(self):
        texts = ["one two" * count for count in (1, 2, 40, 100)]
        (self.data / "long.jsonl").write_text("".join(
            json.dumps({"text": text}) + "\n" for text in texts))
        counts = [len(encoding.ids) + 1 for encoding in  # with its end token
                  harness.make_tokenizer().encode_batch(texts)]
        self.assertEqual([count > 32 for count in counts],
                         [False, False, True, True])
        done = self.submit(dataset="long.jsonl", batch_size=4, max_steps=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        dataset = self.daemon.job(done.stdout.strip())["dataset"]
        self.assertEqual(dataset["train_sequences"], 4)
        self.assertEqual(dataset["train_truncated"], 2)
        self.assertEqual(dataset["train_tokens"],
                         sum(min(count, 32) for count in counts))


class NonFiniteTest(BadInputTest):
    def poison(self, value):
        def change(tensors):
            dtype, shape, data = tensors["model.layers.2.mlp.up_proj.weight"]
            tensors["model.layers.2.mlp.up_proj.weight"] = (
                dtype, shape, struct.pack("<f", value) + data[4:])
        self.edit_tensors(change)

    def test_weights_with_nan_or_infinity(self):
        for value in (float("nan"), float("inf")):
            for clip in (0, 1):
                with self.subTest(value=value, clip=clip):
                    self.poison(value)
                    job = self.assert_fails(
                        "NON_FINITE_LOSS", "step 1: the loss is not finite",
                        "last good checkpoint: none", max_grad_norm=clip)
                    self.assertEqual(job["step"], 0)

    def test_validation_loss_of_nan_weights(self):
        self.poison(float("nan"))
        self.assert_fails("NON_FINITE_LOSS", "evaluation after step 0",
                          validation_dataset="train.jsonl")

    def test_last_good_checkpoint_is_kept_and_loads(self):
        # One row of the data has a token whose embedding is infinite.
        token = harness.make_tokenizer().token_to_id("~")

        def change(tensors):
            dtype, shape, data = tensors["model.embed_tokens.weight"]
            at = 4 * token * shape[1]
            tensors["model.embed_tokens.weight"] = (
                dtype, shape, data[:at] + struct.pack("<f", float("inf"))
                + data[at + 4:])
        self.edit_tensors(change)
        with open(self.data / "train.jsonl", "a", encoding="utf-8") as file:
            file.write('{"text": "one ~"}\n')
        job = self.assert_fails("NON_FINITE_LOSS", "the loss is not finite",
                                "last good checkpoint: /", save_steps=1,
                                seed=3, save_total_limit=1)
        name = job["name"].rsplit("/", 1)[1]
        last = pathlib.Path(job["last_checkpoint_path"])
        step = int(last.name.rsplit("-", 1)[1])
        self.assertIn(f"step {step + 1}: ", job["message"])
        self.assertIn(f"last good checkpoint: {last}", job["message"])
        self.assertEqual(
            [path.name for path in last.parent.glob("checkpoint-*")],
            [last.name])
        self.scratch.make_data("good.jsonl", count=40)
        done = self.submit(resume_from_checkpoint=f"job:{name}",
                           dataset="good.jsonl", max_steps=step + 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"going on from {last}\n", self.daemon.log("job-2"))
        self.assertEqual([entry["step"] for entry in
                          self.daemon.metrics("job-2")],
                         [step + 1, step + 2])


class HostMemoryTest(BadInputTest):
    flags = {"host_memory": "3MiB"}

    def test_refused_with_bytes_needed_and_limit(self):
        text = self.assert_refused(
            "model_name_or_path: the job needs", "of host memory",
            f"the limit is {3 << 20} bytes (3.0 MiB)",
            status=EXIT_QUOTA)
        needed = int(text.split("the job needs ")[1].split()[0])
        # fp32 weights, masters, two moments, gradient sums of each parameter.
        self.assertGreater(needed, 5 * os.path.getsize(
            self.data / "model/model.safetensors"))


class DeviceMemoryTest(BadInputTest):
    flags = {"device_memory": "160KiB"}

    def test_refused_when_a_layer_fits_no_device(self):
        self.assert_refused("model_name_or_path", "layer", 160 << 10,
                            status=EXIT_QUOTA)


class DeviceMemoryOfPlanTest(BadInputTest):
    flags = {"device_memory": "300KiB"}

    def test_own_plan_that_fits_no_device_is_refused(self):
        self.assert_refused(
            "plan: a slot of the plan", "backward[1] of layers 0 to 3, needs",
            300 << 10,
            status=EXIT_QUOTA,
            plan={"forward": [[0, 0], [1, 1], [2, 2], [3, 3]],
                  "backward": [[4, 4], [0, 3]]})


class FullDiskTest(BadInputTest):
    """The files worker gets EFBIG as it would get ENOSPC."""

    def setUp(self):
        super().setUp()
        # A refused write must be an error, not SIGXFSZ: on a full disk there
        # is no signal. Children inherit what is ignored.
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGXFSZ, before)
        self.daemon.start()

    def fill(self, full):
        limit = 4096 if full else resource.RLIM_INFINITY
        resource.prlimit(self.daemon.worker("files"),
                         resource.RLIMIT_FSIZE,
                         (limit, resource.RLIM_INFINITY))

    def files_of(self, folder):
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    def paused_by_the_disk(self, job):
        harness.wait_until(
            lambda: self.daemon.job(job)["state"] == "PAUSED", "PAUSED")
        found = self.daemon.job(job)
        self.assertEqual(found["reason"], "STORAGE_FULL")
        self.assertIn("File too large", found["message"])
        return found

    def test_checkpoint_that_does_not_fit(self):
        job = self.daemon.submit({**JOB, "max_steps": 100_000,
                                  "save_steps": 0})
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 2, "steps")
        self.daemon.client("pause", "--give-back", job)
        harness.wait_until(
            lambda: self.daemon.job(job)["state"] == "PAUSED", "PAUSED")
        step = self.daemon.job(job)["step"]
        first = self.daemon.checkpoint(job, step)
        self.fill(True)
        before = self.files_of(first)
        self.daemon.client("resume", job)
        harness.wait_until(lambda: self.daemon.job(job)["step"] > step,
                           "more steps")
        self.daemon.client("finish", job)
        found = self.paused_by_the_disk(job)
        self.assertIn("tmp-", found["message"])
        self.assertIn(f"it goes on after step {step}", found["message"])
        self.assertEqual(found["memory"], "KEPT")
        last = int(re.search(r"asked to finish: its last step is (\d+)",
                             self.daemon.log(job))[1])
        self.assertEqual(found["step"], last)
        self.assertEqual(found["last_checkpoint_path"], str(first))
        self.assertEqual(self.files_of(first), before)
        names = [path.name for path in first.parent.iterdir()]
        self.assertEqual([n for n in names if "tmp-" in n], [])
        self.fill(False)
        self.daemon.client("resume", job)
        found = self.daemon.wait(job)
        self.assertEqual(found["attempts"], 2)  # the second went on
        self.assertIn(last, self.daemon.checkpoints(job))
        self.assertEqual(found["reason"], "JOB_REASON_UNSPECIFIED")
        self.assertTrue(pathlib.Path(found["output_path"]).is_dir())

    def test_pause_that_cannot_save(self):
        job = self.daemon.submit({**JOB, "max_steps": 100_000,
                                  "save_steps": 0})
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 2, "steps")
        self.fill(True)
        self.daemon.client("pause", "--give-back", job)
        self.paused_by_the_disk(job)
        self.daemon.client("cancel", job)


class CorruptCheckpointTest(BadInputTest):
    def paused(self):
        """A job with checkpoints of steps 2, 4 and of where it paused."""
        job = self.daemon.submit({**JOB, "max_steps": 5000, "save_steps": 2,
                                  "save_total_limit": 3})
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 8, "steps")
        self.daemon.client("pause", "--give-back", job)
        harness.wait_until(
            lambda: self.daemon.job(job)["state"] == "PAUSED", "PAUSED")
        return job, sorted(
            int(path.name.split("-")[1])
            for path in self.daemon.directory(job).glob("checkpoint-*"))

    def check(self, damage, *parts):
        self.daemon.start()
        job, steps = self.paused()
        bad, good = (self.daemon.checkpoint(job, step)
                     for step in (steps[-1], steps[-2]))
        damage(bad)
        self.daemon.client("resume", job)
        harness.wait_until(
            lambda: "going on from" in self.daemon.log(job), "resuming")
        log = self.daemon.log(job)
        self.assertIn(f"going on from {good}\n", log)
        self.assertIn(f"checkpoint {bad} is not used: {bad}/", log)
        for part in parts:
            self.assertIn(part, log)
        self.assertTrue(bad.with_name(bad.name + ".corrupt").is_dir())
        harness.wait_until(
            lambda: self.daemon.job(job)["step"] > steps[-1], "steps")
        self.daemon.client("cancel", job)
        self.daemon.wait(job, "CANCELLED")

    def test_flipped_bit(self):
        def flip(folder):
            path = folder / "optimizer.safetensors"
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 4
            path.write_bytes(data)
        self.check(flip, "optimizer.safetensors: its SHA-256")

    def test_truncated_shard(self):
        def cut(folder):
            os.truncate(folder / "model.safetensors", 1000)
        self.check(cut, "model.safetensors: 1000 bytes,", "bytes expected")

    def test_missing_shard(self):
        self.check(lambda folder: (folder / "model.safetensors").unlink(),
                   "model.safetensors: missing")

    def test_broken_manifest(self):
        self.check(lambda folder: (folder / "checkpoint.json").write_text("{"),
                   "checkpoint.json: ")

    def assert_not_taken(self, *parts, **fields):
        """Refused at submit, after the one job that is there."""
        done = self.submit(**fields)
        self.assertEqual(done.returncode, EXIT_ERROR, done.stderr)
        for part in ("resume_from_checkpoint", *parts):
            self.assertIn(str(part), done.stderr)
        jobs = json.loads(self.daemon.client("list", "-o", "json").stdout)
        self.assertEqual(len(jobs["jobs"]), 1)

    def test_named_checkpoint_that_does_not_fit_is_refused(self):
        self.daemon.start()
        job, steps = self.paused()
        folder = self.daemon.checkpoint(job, steps[-1])
        self.assert_not_taken(
            f"{folder}: its dtype is fp32, the job's is bf16",
            resume_from_checkpoint=str(folder), dtype="bf16", max_steps=5000)
        self.assert_not_taken(
            f"step {steps[-1]} is not below max_steps {steps[-1]}",
            resume_from_checkpoint=f"job:{job}", max_steps=steps[-1])
        self.scratch.make_model("tied", tied=True)
        self.assert_not_taken(
            f"{folder}/", "lm_head.weight", "is none of the job's model",
            model_name_or_path="tied", max_steps=5000,
            resume_from_checkpoint=str(folder))
        (folder / "model.safetensors").unlink()
        self.assert_not_taken(
            folder / "model.safetensors", "missing",
            resume_from_checkpoint=str(folder), max_steps=5000)
        self.assertTrue(folder.is_dir())  # another job's: left alone

    def test_steps_by_epochs_are_known_after_validation(self):
        self.daemon.start()
        job, steps = self.paused()
        last = steps[-1]
        # Five steps an epoch of 40 sequences.
        self.assert_fails(
            "INVALID_DATASET", f"step {last} is not below the 5 steps",
            "1 epochs of 40 sequences", num_train_epochs=1, max_steps=-1,
            resume_from_checkpoint=f"job:{job}")

    def test_other_data_in_a_new_job_is_a_warning(self):
        self.daemon.start()
        job, steps = self.paused()
        self.scratch.make_data("other.jsonl", count=40, seed=9)
        done = self.submit(resume_from_checkpoint=f"job:{job}",
                           dataset="other.jsonl", max_steps=steps[-1] + 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = self.daemon.job("job-2")
        log = self.daemon.log("job-2")
        self.assertRegex(log, "WARNING: .* was trained on tokens with SHA-256")
        for name in (job, "job-2"):
            self.assertIn(self.daemon.job(name)["dataset"]["sha256"], log)
        self.assertNotEqual(found["dataset"]["sha256"],
                            self.daemon.job(job)["dataset"]["sha256"])

    def test_other_batches_in_a_new_job_are_a_warning(self):
        """The rows that come again or not at all are counted."""
        self.daemon.start()
        job, steps = self.paused()
        spec = self.daemon.job(job)["resolved_spec"]
        size, step = spec["batch_size"], steps[-1]
        same = {"resume_from_checkpoint": f"job:{job}", "max_steps": step + 1}
        self.submit(**same)
        self.daemon.wait("job-2")
        self.assertNotIn("WARNING", self.daemon.log("job-2"))
        self.submit(**same, batch_size=size // 2)
        self.daemon.wait("job-3")
        log = self.daemon.log("job-3")
        self.assertRegex(
            log, f"WARNING: .*checkpoint-{step} has {step} steps with "
            f"batch_size: {size} and seed: {spec['seed']}; this job, with "
            f"batch_size: {size // 2} and seed: {spec['seed']}, goes on with "
            f"step {step + 1} of its own order, where rows are trained on "
            f"again {step * (size - size // 2)} times "
            r"\(the first: lines \d+(, \d+)*\); say "
            f"batch_size: {size} and seed: {spec['seed']} to go on where it "
            "was")

    def test_other_data_in_the_same_job_fails_it(self):
        """Prepared data that are damaged are prepared again, but from what
        the job was submitted with only."""
        self.daemon.start()
        job, _ = self.paused()
        manifest = self.daemon.directory(job) / "data/train/manifest.json"
        manifest.write_text(manifest.read_text().replace('"', "'"))
        self.scratch.make_data("train.jsonl", count=40, seed=9)
        self.daemon.client("resume", job)
        found = self.daemon.wait(job, "FAILED")
        self.assertEqual(found["reason"], "INVALID_DATASET")
        for text in ("the prepared data are damaged", "train.jsonl",
                     "changed since the job was submitted"):
            self.assertIn(text, found["message"])


if __name__ == "__main__":
    unittest.main()
