"""What transformers and PEFT wrote goes in and comes out of the real programs:
models and adapters tensor by tensor, merged weights and losses as the real
libraries computed them (generate.py, generate_adapters.py)."""

import array
import json
import os
import pathlib
import re
import shutil
import struct
import sys
import unittest

HERE = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import harness  # noqa: E402  found by the line before
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

GOLDENS = HERE / "goldens"
CASES = ("llama_tied", "llama_untied", "mistral_untied", "mixtral_untied",
         "qwen2_moe_untied", "qwen2_moe_windows", "qwen2_tied", "qwen2_untied",
         "qwen3_moe_dense_between", "qwen3_moe_windows", "qwen3_tied",
         "qwen3_untied")
# The cases with an adapter, and the dtype of the base that it is merged into.
ADAPTERS = {"llama_tied": "F32", "mistral_untied": "BF16",
            "mixtral_untied": "F16", "qwen2_moe_untied": "F32",
            "qwen2_untied": "F16", "qwen3_moe_dense_between": "BF16",
            "qwen3_tied": "F32"}
NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
VOCABULARY, END = 211, 210  # of generate_adapters.py
TOLERANCE = 1e-5  # relative, of a loss
# Limits of merged weights: a share of the largest magnitude in fp32, else units
# in the last place.
FP32_LIMIT, ULP_LIMIT = 1e-6, 1
# One step that changes nothing: what comes out is what went in.
JOB = {"dataset": "rows.jsonl", "validation_dataset": "rows.jsonl",
       "max_length": 32, "batch_size": 8, "micro_batch_size": 4,
       "max_steps": 1, "learning_rate": 0, "dtype": "fp32"}


def ints(tensor):
    return [value for value, in struct.iter_unpack("<i", tensor[2])]


def floats(tensor):
    found = array.array("f", harness.as_fp32(tensor[0], tensor[2]))
    if sys.byteorder != "little":
        found.byteswap()
    return found


def rows_of(case):
    """Step 0's sequences without their padding."""
    tokens = harness.read_safetensors(GOLDENS / case / "goldens.safetensors")[
        "tokens"]
    lengths = ints(harness.read_safetensors(
        GOLDENS / case / "generated.safetensors")["lengths"])
    _, sequences, columns = tokens[1]
    found = ints(tokens)
    return [found[row * columns:row * columns + lengths[row]]
            for row in range(sequences)]


def word(token):
    return "END" if token == END else f"t{token}"


def tokenizer():
    """A word a token, so that rows of tokens can be written as text."""
    made = Tokenizer(models.WordLevel(
        {word(token): token for token in range(VOCABULARY)}, unk_token="t0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def to_dtype(tensor, dtype):
    """The tensor in `dtype`: "BF16" tensors have values that it has, or
    nearly."""
    found, shape, data = tensor
    if dtype == found:
        return tensor
    wide = harness.as_fp32(found, data)
    if dtype == "F16":
        count = len(wide) // 4
        wide = struct.pack(f"<{count}e", *struct.unpack(f"<{count}f", wide))
    return dtype, shape, wide


def ordered(data):
    """16-bit floats as integers in the order of their values."""
    return [-(bits & 0x7fff) if bits & 0x8000 else bits
            for bits, in struct.iter_unpack("<H", data)]


def difference(found, wanted):
    """By its limit: at most 1 is right."""
    if wanted[0] != "F32":
        ulps = max(abs(a - b) for a, b in
                   zip(ordered(found[2]), ordered(wanted[2])))
        return ulps / ULP_LIMIT
    theirs = floats(wanted)
    largest = max(abs(a - b) for a, b in zip(floats(found), theirs))
    return largest / max(map(abs, theirs)) / FP32_LIMIT


class InterchangeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = harness.Scratch()
        cls.scratch.__enter__()
        cls.addClassCleanup(cls.scratch.__exit__)
        cls.daemon = cls.scratch.daemon()
        cls.daemon.start()

    def base(self, case, dtype="BF16"):
        """The case's model with a tokenizer, as `case` under the data root."""
        folder = self.scratch.data / f"{case}-{dtype}"
        if folder.exists():
            return folder
        folder.mkdir()
        tensors = harness.read_safetensors(
            GOLDENS / case / "model.safetensors")
        harness.write_safetensors(
            folder / "model.safetensors",
            {name: to_dtype(tensor, dtype)
             for name, tensor in tensors.items()})
        config = (GOLDENS / case / "config.json").read_text()
        (folder / "config.json").write_text(
            config.replace('"bfloat16"', f'"{NAMES[dtype]}"'))
        tokenizer().save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"eos_token": word(END)}))
        return folder

    def adapter(self, case, base):
        """PEFT's directory, which names this base."""
        folder = self.scratch.data / f"adapter-{base.name}"
        if folder.exists():
            return folder
        shutil.copytree(GOLDENS / case / "adapter", folder)
        os.chmod(folder / "adapter_config.json", 0o644)
        path = folder / "adapter_config.json"
        config = json.loads(path.read_text())
        self.assertEqual(config["base_model_name_or_path"], case)
        config["base_model_name_or_path"] = str(base)
        path.write_text(json.dumps(config))
        return folder

    def run_job(self, case, base, **fields):
        """A job over step 0's sequences: its output, and its name."""
        rows = self.scratch.data / "rows.jsonl"
        rows.write_text("".join(
            json.dumps({"text": " ".join(map(word, row))}) + "\n"
            for row in rows_of(case)))
        job = self.daemon.submit({
            **JOB, "model_name_or_path": base.name, **fields})
        return pathlib.Path(self.daemon.wait(job)["output_path"]), job

    def first_loss(self, job):
        return next(entry["eval_loss"] for entry in self.daemon.metrics(job)
                    if "eval_loss" in entry)

    def same_loss(self, job, case, name):
        wanted, = floats(harness.read_safetensors(
            GOLDENS / case / "adapter_goldens.safetensors")[name])
        found = self.first_loss(job)
        self.assertLessEqual(abs(found / wanted - 1), TOLERANCE,
                             f"{name}: {found}, {wanted} wanted")

    def check_model(self, case):
        base = self.base(case)
        given = harness.read_safetensors(base / "model.safetensors")
        for dtype, kind in (("bf16", "BF16"), ("fp16", "F16"),
                            ("fp32", "F32")):
            output, job = self.run_job(case, base, dtype=dtype)
            self.assertEqual(
                harness.read_safetensors(output / "model.safetensors"),
                {name: to_dtype(tensor, kind)
                 for name, tensor in given.items()})
            self.same_config(base, output, NAMES[kind])
        if case in ADAPTERS:
            self.same_loss(job, case, "base.eval_loss")

    def same_config(self, base, output, dtype):
        """transformers' own, but for the dtype."""
        found, wanted = (json.loads((folder / "config.json").read_text())
                         for folder in (output, base))
        spelling = {"dtype", "torch_dtype"} & wanted.keys()
        self.assertEqual(len(spelling), 1)
        wanted[spelling.pop()] = dtype
        self.assertEqual(found, wanted)

    def check_trained_model(self, case):
        """What a step changed is what comes out."""
        base = self.base(case)
        output, job = self.run_job(case, base, learning_rate=0.01)
        found = harness.read_safetensors(output / "model.safetensors")
        kept = self.daemon.tensors(job, 1)
        self.assertEqual(found, {name: kept[name] for name in found})
        for name, tensor in harness.read_safetensors(
                base / "model.safetensors").items():
            self.assertNotEqual(found[name], to_dtype(tensor, "F32"), name)

    def check_adapter(self, case):
        base = self.base(case)
        adapter = self.adapter(case, base)
        output, job = self.run_job(
            case, base, method="lora", adapter_name_or_path=adapter.name)
        self.assertEqual(
            harness.read_safetensors(output / "adapter_model.safetensors"),
            harness.read_safetensors(adapter / "adapter_model.safetensors"))
        ours, theirs = (json.loads((folder / "adapter_config.json")
                                   .read_text()) for folder in
                        (output, adapter))
        for config in (ours, theirs):
            config["target_modules"].sort()
        self.assertEqual(ours, {name: theirs[name] for name in ours})
        left = {name: value for name, value in theirs.items()
                if name not in ours and value not in (None, False, {}, [])}
        # What is left are options that are off.
        self.assertEqual(left.keys(), {"megatron_core", "peft_version",
                                       "qalora_group_size"})
        self.same_loss(job, case, "eval_loss")

    def check_merge(self, case):
        base = self.base(case, ADAPTERS[case])
        adapter = self.adapter(case, base)
        done = self.daemon.client("export", adapter.name, "--merge",
                                  f"--output=merged-{case}")
        found = harness.read_safetensors(
            pathlib.Path(done.stdout.strip()) / "model.safetensors")
        wanted = harness.read_safetensors(base / "model.safetensors")
        merged = {name.removeprefix("merged."): tensor for name, tensor in
                  harness.read_safetensors(
                      GOLDENS / case / "adapter_goldens.safetensors").items()
                  if name.startswith("merged.")}
        self.assertLessEqual(9, len(merged))
        self.assertEqual(found.keys(), wanted.keys())
        for name, (dtype, shape, data) in wanted.items():
            if name not in merged:
                self.assertEqual(found[name], (dtype, shape, data), name)
                continue
            self.assertEqual(found[name][:2], merged[name][:2], name)
            self.assertNotEqual(found[name][2], data, name)
            self.assertLessEqual(difference(found[name], merged[name]), 1,
                                 name)

    def test_what_is_compared_is_the_goldens(self):
        """Every case there is, and adapters where they are."""
        found = {path.parent.name for path in GOLDENS.glob("*/config.json")}
        self.assertEqual(found, set(CASES))
        self.assertEqual({path.parent.name for path in
                          GOLDENS.glob("*/adapter")}, set(ADAPTERS))
        self.assertEqual({re.match("[a-z]+", case)[0] for case in CASES},
                         {re.match("[a-z]+", case)[0] for case in ADAPTERS})


def add_cases():
    for what, cases in (("model", CASES), ("trained_model", ADAPTERS),
                        ("adapter", ADAPTERS), ("merge", ADAPTERS)):
        for case in cases:
            def run(self, what=what, case=case):
                getattr(self, f"check_{what}")(case)
            setattr(InterchangeTest, f"test_{what}_{case}", run)


add_cases()

if __name__ == "__main__":
    unittest.main()
