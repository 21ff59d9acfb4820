"""`roundhouse export` with the real programs: what is written, tensor by
tensor, and what is left when something goes wrong."""

import array
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

EXIT_ERROR, EXIT_NOT_FOUND, EXIT_PRECONDITION, EXIT_QUOTA = 1, 5, 6, 7
EXIT_UNAVAILABLE, EXIT_DETACHED = 8, 130
FILE_DTYPES = {"fp32": "F32", "bf16": "BF16", "fp16": "F16"}
JOB = {"method": "lora", "model_name_or_path": "model",
       "dataset": "train.jsonl", "max_length": 32, "batch_size": 8,
       "micro_batch_size": 2, "max_steps": 4, "learning_rate": 0.01,
       "save_steps": 2, "lora_r": 4, "lora_alpha": 6,
       "target_modules": "all-linear"}
# Runs until it is told to finish; the rate does not depend on when.
LONG = {**JOB, "max_steps": 1_000_000, "lr_scheduler_type": "constant",
        "save_steps": 20, "save_total_limit": 3, "output_name": "long"}
MODULES = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
PREFIX = "base_model.model."
OF_THE_BASE = {"config.json", "generation_config.json", "model.safetensors",
               "tokenizer.json", "tokenizer_config.json"}


# --- the arithmetic, in Python's doubles rounded to fp32 after each step ---

def fp32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def values(tensor):
    found = array.array("f", harness.as_fp32(tensor[0], tensor[2]))
    if sys.byteorder != "little":
        found.byteswap()
    return found


def to_bytes(numbers, file_dtype):
    if file_dtype == "F32":
        return struct.pack(f"<{len(numbers)}f", *numbers)
    if file_dtype == "F16":  # Python rounds to nearest even, too
        return struct.pack(f"<{len(numbers)}e", *numbers)
    out = bytearray()
    for bits, in struct.iter_unpack("<I", to_bytes(numbers, "F32")):
        bits += 0x7fff + (bits >> 16 & 1)
        out += struct.pack("<H", bits >> 16)
    return bytes(out)


def add_product(base, a, b, scale):
    """base + scale * (B A): fp32, the sum over the rank in its order."""
    rows, columns = base[1]
    rank = b[1][1]
    a_values, b_values, out = values(a), values(b), values(base)
    for i in range(rows):
        sums = [0.0] * columns
        for k in range(rank):
            factor = b_values[i * rank + k]
            row = a_values[k * columns:(k + 1) * columns]
            sums = [fp32(s + fp32(factor * x)) for s, x in zip(sums, row)]
        at = i * columns
        for j, total in enumerate(sums):
            out[at + j] = out[at + j] + fp32(scale * total)
    return out


def merged(base, adapter, scale, file_dtype=None):
    """{name: (dtype, shape, bytes)} that a merge is to write."""
    out = {}
    for name, tensor in base.items():
        path = PREFIX + name.removesuffix(".weight")
        numbers = values(tensor)
        if path + ".lora_A.weight" in adapter:
            numbers = add_product(tensor, adapter[path + ".lora_A.weight"],
                                  adapter[path + ".lora_B.weight"],
                                  fp32(scale))
        dtype = file_dtype or tensor[0]
        out[name] = (dtype, tensor[1], to_bytes(numbers, dtype))
    return out


def tensors(folder):
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        found.update(harness.read_safetensors(path))
    return found


def files(folder):
    # Among the server's outputs an export says whose it is.
    return {path.name: path.read_bytes() for path in folder.iterdir()
            if path.name != "roundhouse.json"}


class ExportTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.data = self.scratch.data
        self.daemon = self.scratch.daemon()
        self.outputs = self.daemon.state / "outputs"

    def make_base(self, name="model", **options):
        self.scratch.make_model(name, **options)
        (self.data / name / "generation_config.json").write_text(
            '{"do_sample": true}\n')

    def make_adapter(self, name="adapter", base="model", factor=1.0):
        """As PEFT would save it: rank 3, alpha 4.5, of MODULES."""
        folder, chosen = self.data / name, random.Random(9)
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps({
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 3,
            "lora_alpha": 4.5, "bias": "none", "lora_dropout": 0.0,
            "target_modules": [m.split(".")[1] for m in MODULES],
            "base_model_name_or_path": base}))
        written = {}
        for layer in range(harness.LAYERS):
            for module in MODULES:
                rows, columns = harness.layer_shapes()[module]
                path = f"{PREFIX}model.layers.{layer}.{module}"
                for part, shape in (("A", [3, columns]), ("B", [rows, 3])):
                    numbers = [factor * chosen.gauss(0, 0.3)
                               for _ in range(shape[0] * shape[1])]
                    written[f"{path}.lora_{part}.weight"] = (
                        "F32", shape, to_bytes(numbers, "F32"))
        harness.write_safetensors(folder / "adapter_model.safetensors",
                                  written)
        return written

    def export(self, source, *words, output="out"):
        """The directory; raises unless the client exits 0."""
        done = self.daemon.client("export", source, *words,
                                  f"--output={output}")
        path = pathlib.Path(done.stdout.strip())
        self.assertEqual(path.name, pathlib.Path(output).name)
        return path

    def refused(self, status, *parts, source="adapter", words=("--merge",),
                output="out"):
        before = self.left()
        done = self.daemon.client("export", source, *words,
                                  f"--output={output}", check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        for part in parts:
            self.assertIn(str(part), done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(self.left(), before)

    def left(self):
        """What lies among outputs and data, hidden names too."""
        return sorted(path.name for folder in (self.outputs, self.data)
                      if folder.exists() for path in folder.iterdir())

    def assert_merged(self, folder, base, adapter, scale, dtype=None):
        found = tensors(folder)
        wanted = merged(tensors(base), adapter, scale,
                        dtype and FILE_DTYPES[dtype])
        self.assertEqual(found.keys(), wanted.keys())
        differ = [name for name in wanted if found[name] != wanted[name]]
        self.assertEqual(differ, [])


class ResultTest(ExportTest):
    def test_a_jobs_adapter_and_a_checkpoint_of_it(self):
        self.make_base(tied=True, dtype="bf16")
        self.scratch.make_data("train.jsonl", count=40)
        self.daemon.start()
        job = self.daemon.wait(self.daemon.submit(JOB))
        base = self.data / "model"
        for source, folder in (
                ("job-1", pathlib.Path(job["output_path"])),
                ("job:job-1/checkpoint-2",
                 self.daemon.checkpoint("job-1", 2)),
                (job["name"] + "/checkpoints/4",
                 self.daemon.checkpoint("job-1", 4))):
            name = f"merged-{source[-1]}"
            path = self.export(source, "--merge", output=name)
            self.assertEqual(path, self.outputs / name)
            self.assertEqual(set(files(path)), OF_THE_BASE)
            self.assert_merged(path, base, harness.read_safetensors(
                folder / "adapter_model.safetensors"), 6 / 4)
            for copied in OF_THE_BASE - {"model.safetensors"}:
                self.assertEqual((path / copied).read_bytes(),
                                 (base / copied).read_bytes(), copied)
        self.assertNotEqual(tensors(self.outputs / "merged-2"),
                            tensors(self.outputs / "merged-4"))
        self.assertEqual(tensors(self.outputs / "merged-1"),
                         tensors(self.outputs / "merged-4"))
        # It is a model like any other.
        again = self.daemon.submit({**JOB, "model_name_or_path": "merged-1",
                                    "max_steps": 1})
        self.daemon.wait(again)

    def test_every_dtype_and_biases_stay(self):
        for dtype in ("fp32", "fp16"):
            self.make_base(f"base-{dtype}", dtype=dtype, family="qwen2")
            self.make_adapter(f"on-{dtype}", base=f"base-{dtype}")
        self.daemon.start()
        for dtype in ("fp32", "fp16"):
            base = self.data / f"base-{dtype}"
            adapter = tensors(self.data / f"on-{dtype}")
            for wanted in (None, "fp32", "bf16", "fp16"):
                output = f"{dtype}-{wanted}"
                words = [f"--dtype={wanted}"] if wanted else []
                path = self.export(f"on-{dtype}", "--merge", *words,
                                   output=output)
                self.assert_merged(path, base, adapter, 4.5 / 3, wanted)
                config = json.loads((path / "config.json").read_text())
                self.assertEqual(config["dtype"], {
                    "fp32": "float32", "bf16": "bfloat16",
                    "fp16": "float16"}[wanted or dtype])
        found = tensors(self.outputs / "fp32-None")
        biases = [name for name in found if name.endswith(".bias")]
        self.assertEqual(len(biases), 3 * harness.LAYERS)
        base = tensors(self.data / "base-fp32")
        self.assertEqual([found[name] for name in biases],
                         [base[name] for name in biases])

    def test_as_it_is(self):
        self.make_base(tied=True, dtype="bf16")
        adapter = self.make_adapter()
        (self.data / "model/trainer_state.json").write_text("{}")
        self.daemon.start()
        path = self.export("adapter", output="copy")
        self.assertEqual(set(files(path)), {"adapter_config.json",
                                            "adapter_model.safetensors"})
        self.assertEqual(tensors(path), adapter)
        self.assertEqual((path / "adapter_config.json").read_bytes(),
                         (self.data / "adapter/adapter_config.json")
                         .read_bytes())
        path = self.export("model", output="full")
        self.assertEqual(set(files(path)),
                         OF_THE_BASE | {"trainer_state.json"})
        self.assertEqual(tensors(path), tensors(self.data / "model"))
        path = self.export("model", "--dtype=fp32", output="wide")
        self.assert_merged(path, self.data / "model", {}, 0, "fp32")

    def test_into_a_data_root(self):
        self.make_base()
        adapter = self.make_adapter()
        (self.data / "deep").mkdir()
        self.daemon.start()
        for output in ("deep/one", self.data / "deep/two"):
            path = self.export("adapter", "--merge", output=output)
            self.assertEqual(path.parent, self.data / "deep")
            self.assert_merged(path, self.data / "model", adapter, 1.5)
        done = self.daemon.client("export", "adapter", "--merge",
                                  "--output=three", "-o", "json")
        answer = json.loads(done.stdout)
        self.assertEqual(answer["kind"], "EXPORT_KIND_MERGED")
        self.assertEqual(answer["done_bytes"], answer["total_bytes"])
        self.assertEqual(answer["path"], str(self.outputs / "three"))


class DisturbedTest(ExportTest):
    def setUp(self):
        super().setUp()
        self.make_base(dtype="bf16")
        self.adapter = self.make_adapter()

    def check(self, path):
        self.assert_merged(path, self.data / "model", self.adapter, 1.5)
        self.assertEqual([name for name in self.left()
                          if name.startswith(".")], [])

    def test_the_files_worker_dies(self):
        for number, point in enumerate(
                ("files.merge.rows:1", "files.merge.rows:20",
                 "files.done.before:7", "files.done.after:9")):
            self.daemon.start(worker_kill_at=f"files={point}")
            first = self.daemon.worker("files")
            self.check(self.export("adapter", "--merge", output=f"m{number}"))
            self.assertNotEqual(self.daemon.workers().get("files"), first)
            self.daemon.stop()

    def stopped_export(self):
        """A client in an export whose files worker stands still."""
        self.daemon.start()
        worker = self.daemon.worker("files")
        os.kill(worker, signal.SIGSTOP)
        self.addCleanup(self.continue_worker, worker)
        client = subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", "export", "adapter",
             "--merge", "--output=out"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        harness.wait_until(self.begun, "the export's files")
        return client, worker

    def begun(self):
        return any(path.name.startswith(".roundhouse-export-out-") and
                   (path / "model.safetensors").exists()
                   for path in self.outputs.iterdir())

    def continue_worker(self, worker):
        try:
            os.kill(worker, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def test_kill_9_in_the_middle(self):
        client, worker = self.stopped_export()
        os.kill(worker, signal.SIGKILL)
        out, err = client.communicate(timeout=harness.DEADLINE_SECONDS)
        self.assertEqual(client.returncode, 0, err)
        self.check(pathlib.Path(out.strip()))

    def test_ctrl_c_leaves_nothing(self):
        client, worker = self.stopped_export()
        client.send_signal(signal.SIGINT)
        out, err = client.communicate(timeout=harness.DEADLINE_SECONDS)
        self.assertEqual(client.returncode, EXIT_DETACHED, err)
        self.assertEqual(out, "")
        self.continue_worker(worker)
        harness.wait_until(lambda: not any(self.outputs.iterdir()),
                           "the removal")
        self.check(self.export("adapter", "--merge"))

    def test_a_killed_daemon_leaves_nothing_to_the_next(self):
        client, worker = self.stopped_export()
        self.daemon.kill()
        self.continue_worker(worker)
        client.communicate(timeout=harness.DEADLINE_SECONDS)
        self.assertTrue(self.begun())
        self.daemon.start()
        self.assertEqual(list(self.outputs.iterdir()), [])
        self.check(self.export("adapter", "--merge"))

    def test_a_daemon_that_dies_while_it_finishes(self):
        for point, there in (("daemon.export.before_finish", False),
                             ("daemon.export.before_rename", False),
                             ("daemon.export.after_rename", True)):
            self.daemon.start(kill_at=f"{point}:1")
            done = self.daemon.client("export", "adapter", "--merge",
                                      f"--output={point}", check=False)
            self.assertEqual(done.returncode, EXIT_UNAVAILABLE, done.stderr)
            self.daemon.process.wait(harness.DEADLINE_SECONDS)
            self.daemon.start()
            found = [path.name for path in self.outputs.iterdir()]
            self.assertEqual(found, [point] if there else [])
            if there:
                self.check(self.outputs / point)
            self.assertFalse(
                (self.daemon.state / "export-in-progress").exists())
            self.daemon.stop()

    def test_a_daemon_that_is_stopped_leaves_nothing(self):
        client, worker = self.stopped_export()
        self.daemon.process.send_signal(signal.SIGTERM)
        harness.wait_until(lambda: not any(self.outputs.iterdir()),
                           "the removal")
        self.continue_worker(worker)
        self.daemon.process.wait(harness.DEADLINE_SECONDS)
        client.communicate(timeout=harness.DEADLINE_SECONDS)
        self.assertNotEqual(client.returncode, 0)
        self.assertFalse((self.outputs / "out").exists())

    def test_a_full_disk(self):
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGXFSZ, before)
        self.daemon.start()
        resource.prlimit(self.daemon.worker("files"),
                         resource.RLIMIT_FSIZE,
                         (16384, resource.RLIM_INFINITY))
        self.refused(EXIT_QUOTA, "output: tensor ", "model.safetensors: write",
                     "File too large")
        self.assertEqual(list(self.outputs.iterdir()), [])
        resource.prlimit(self.daemon.worker("files"),
                         resource.RLIMIT_FSIZE,
                         (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.check(self.export("adapter", "--merge"))

    def test_while_a_job_trains(self):
        self.scratch.make_data("train.jsonl", count=40)
        self.daemon.start()
        job = self.daemon.submit(LONG)
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 20, "step")
        paths = [self.export("adapter", "--merge", output=f"m{number}")
                 for number in range(3)]
        end = self.daemon.finish(job)["step"]
        for path in paths:
            self.check(path)
        alone = self.daemon.submit({**LONG, "max_steps": end,
                                    "output_name": "alone"})
        self.daemon.wait(alone)
        steps = self.daemon.checkpoints(job)
        self.assertEqual(steps, self.daemon.checkpoints(alone))
        self.assertGreater(len(steps), 1)
        for step in steps:
            self.assertEqual(self.daemon.tensors(job, step),
                             self.daemon.tensors(alone, step), step)


class RefusedTest(ExportTest):
    def setUp(self):
        super().setUp()
        self.make_base(dtype="bf16")
        self.make_adapter()

    def test_an_output_is_never_overwritten(self):
        self.daemon.start()
        before = files(self.export("adapter", "--merge"))
        self.refused(EXIT_ERROR, "ALREADY_EXISTS", "out: is there already",
                     words=())
        self.assertEqual(files(self.outputs / "out"), before)
        (self.data / "there").mkdir()
        for output in (self.data / "there", self.data / "model"):
            self.refused(EXIT_ERROR, f"{output}: is there already",
                         output=output)
        self.scratch.make_data("train.jsonl", count=8)
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps({**JOB, "output_name": "out"}))
        done = self.daemon.client("submit", "-f", path, check=False)
        self.assertEqual(done.returncode, EXIT_ERROR)
        self.assertIn("out is there already", done.stderr)

    def test_places_that_are_not_for_outputs(self):
        (self.data / "link").symlink_to(self.scratch.folder)
        (self.data / "closed").mkdir()
        self.daemon.start()
        for output, text in (
                ("/tmp/rh-elsewhere", "outside the data roots"),
                ("../out", "leads out of the data roots"),
                ("link/out", "leads out of the data roots"),
                ("gone/out", 'the folder "gone" does not exist under'),
                (".hidden", "does not end in a name"),
                ("a b", "does not end in a name"),
                ("job-3", "is kept for the job of that id"),
                (self.daemon.state / "jobs" / "x", "the server's own")):
            self.refused(EXIT_ERROR, "output", text, output=output)

    def test_sources_that_are_not_there(self):
        self.scratch.make_data("train.jsonl", count=40)
        self.daemon.start()
        self.refused(EXIT_NOT_FOUND, "job-9", source="job-9")
        self.refused(EXIT_NOT_FOUND, "nobody", source="job:nobody")
        self.refused(EXIT_ERROR, "export nowhere: there is no job "
                     "\"nowhere\", and "
                     "\"nowhere\" does not exist", source="nowhere")
        job = self.daemon.submit({**JOB, "max_steps": 5000, "save_steps": 20,
                                  "output_name": "long"})
        harness.wait_until(lambda: self.daemon.checkpoints(job), "checkpoint")
        self.refused(EXIT_PRECONDITION, "has no output", "checkpoint-20",
                     source=job)
        self.refused(EXIT_NOT_FOUND, "has no checkpoint-21", "checkpoint-20",
                     source=f"{job}/checkpoint-21")
        self.export(f"{job}/checkpoint-20", "--merge")

    def test_kinds_that_are_not_there(self):
        self.daemon.start()
        self.refused(EXIT_ERROR, "is a whole model, not an adapter",
                     source="model")
        self.refused(EXIT_ERROR, "flag --dtype: an adapter is exported as it is",
                     words=("--dtype=fp32",))
        self.refused(EXIT_ERROR, "flag --dtype: expected fp32, bf16 or fp16",
                     words=("--merge", "--dtype=int8"))

    def test_a_base_that_is_gone_or_another(self):
        self.daemon.start()
        config = self.data / "adapter/adapter_config.json"
        (self.data / "model").rename(self.data / "moved")
        self.refused(EXIT_ERROR, f"export adapter: {config}", "model",
                     "does not exist")
        self.make_base(family="qwen2")
        shutil.copy(self.data / "moved/model.safetensors",
                    self.data / "model/model.safetensors")
        self.refused(EXIT_ERROR, "export adapter: ",
                     "model.layers.0.self_attn")
        text = json.loads(config.read_text())
        del text["base_model_name_or_path"]
        config.write_text(json.dumps(text))
        self.refused(EXIT_ERROR, "base_model_name_or_path is missing")

    def test_what_fp16_can_not_hold_is_named(self):
        self.make_adapter("large", factor=3000.0)
        self.daemon.start()
        self.refused(EXIT_ERROR, "export large: tensor model.layers.0.",
                     "is no finite number in fp16", source="large",
                     words=("--merge", "--dtype=fp16"))
        self.assertEqual(list(self.outputs.iterdir()), [])
        self.export("large", "--merge", "--dtype=bf16")

    def test_a_corrupt_checkpoint_is_not_exported(self):
        self.scratch.make_data("train.jsonl", count=40)
        self.daemon.start()
        self.daemon.wait(self.daemon.submit(JOB))
        path = (self.daemon.checkpoint("job-1", 2) /
                "adapter_model.safetensors")
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        self.refused(EXIT_PRECONDITION, f"checkpoint-2: {path}: its SHA-256",
                     source="job-1/checkpoint-2")
        self.export("job-1/checkpoint-4", "--merge")


if __name__ == "__main__":
    unittest.main()
