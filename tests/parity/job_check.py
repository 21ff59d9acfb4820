#!/usr/bin/env python3
"""Trains jobs on transformers' and PEFT's directories and loads their results
with the real libraries.

  job_check.py BIN [--cases NAME,...] [--devices cpu:2] [--device-memory 256MiB]
               [--worker-program FILE] [--gpu-probe FILE]
      BIN: bazel-bin with roundhoused, roundhouse and roundhouse-worker built;
      the rest is the daemon's, --cases are generate.py's, all unless given

Runs in the environment that tests/parity/setup makes; tests/parity/run --live
and deploy/gpu-check call it. For every family and dtype a whole model is
trained and an adapter, new and gone on from PEFT's own; export_check.py says
what must then hold of from_pretrained and PeftModel: every tensor, the
tokenizer, the validation loss.
"""

import argparse
import json
import pathlib
import random
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "integration"))

import export_check  # pylint: disable=wrong-import-position
import generate  # pylint: disable=wrong-import-position
import generate_adapters  # pylint: disable=wrong-import-position
import harness  # pylint: disable=wrong-import-position
import interchange_test  # pylint: disable=wrong-import-position

JOB = {"dataset": "train.jsonl", "validation_dataset": "validation.jsonl",
       "max_length": 32, "batch_size": 8, "micro_batch_size": 3,
       "max_steps": 6, "learning_rate": 2e-3}
LORA = {**JOB, "method": "lora", "lora_dropout": 0.1}
NEW = {**LORA, "lora_r": 3, "lora_alpha": 5, "target_modules": "all-linear",
       "packing": True}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def write_rows(path, seed):
    source = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(24):
            tokens = source.choices(range(interchange_test.END),
                                    k=source.randint(2, 24))
            text = " ".join(map(interchange_test.word, tokens))
            file.write(json.dumps({"text": text}) + "\n")


class Check:
    def __init__(self, scratch, daemon):
        self.data, self.daemon = scratch.data, daemon
        self.failed = False

    def base(self, name, dtype):
        """As save_pretrained leaves it, with a tokenizer."""
        folder = self.data / f"{name}.{dtype}"
        case = generate.CASES[name]
        generate.make_model(case).to(DTYPES[dtype]).save_pretrained(folder)
        if case.older_spelling:
            generate.use_older_spelling(folder)
        interchange_test.tokenizer().save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({
            "eos_token": interchange_test.word(interchange_test.END)}))
        return folder

    def adapter(self, name, base):
        folder = base.with_name(f"adapter-{base.name}")
        generate_adapters.save_adapter(name, folder)
        path = folder / "adapter_config.json"
        path.write_text(path.read_text().replace(
            f'"base_model_name_or_path": "{name}"',
            f'"base_model_name_or_path": "{base}"'))
        return folder

    def job(self, kind, base, dtype, spec):
        job = self.daemon.submit(
            {**spec, "model_name_or_path": base.name, "dtype": dtype})
        found = self.daemon.wait(job)
        try:
            # AutoTokenizer makes another tokenizer of a Qwen2 model's file.
            difference, limit = export_check.check(
                found, self.daemon.state, transformers.PreTrainedTokenizerFast)
            print(f"{kind}.loss  {base.name}  {difference:.3g}  limit "
                  f"{limit:.3g}")
        except export_check.Mismatch as mismatch:
            self.failed = True
            print(f"WRONG: {kind} {base.name}: {mismatch}")

    def case(self, name, dtype):
        base = self.base(name, dtype)
        self.job("export.full", base, dtype, JOB)
        self.job("export.adapter", base, dtype, NEW)
        if name in generate_adapters.ADAPTERS:
            adapter = self.adapter(name, base)
            self.job("export.peft_adapter", base, dtype,
                     {**LORA, "adapter_name_or_path": adapter.name})


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--cases", default=",".join(generate.CASES))
    parser.add_argument("--devices", default="cpu:2")
    parser.add_argument("--device-memory", default="256MiB")
    parser.add_argument("--worker-program", type=pathlib.Path)
    parser.add_argument("--gpu-probe", type=pathlib.Path)
    return parser.parse_args()


def main():
    args = parse_arguments()
    harness.ROOT = args.bin
    transformers.utils.logging.disable_progress_bar()
    source = HERE.parents[1]
    with harness.Scratch() as scratch:
        write_rows(scratch.data / "train.jsonl", 1)
        write_rows(scratch.data / "validation.jsonl", 2)
        daemon = scratch.daemon(devices=args.devices,
                                device_memory=args.device_memory)
        daemon.start(worker_program=args.worker_program or
                     harness.ROOT / "worker/roundhouse-worker",
                     gpu_probe=args.gpu_probe or
                     harness.ROOT / "worker/probe/roundhouse-gpu-probe",
                     prepare_script=source / "server/prepare/prepare.py")
        check = Check(scratch, daemon)
        for name in args.cases.split(","):
            for dtype in DTYPES:
                check.case(name, dtype)
        daemon.stop()
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
