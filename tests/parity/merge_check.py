#!/usr/bin/env python3
"""Compares `roundhouse export --merge` with PEFT's merge_and_unload.

  merge_check.py BIN    BIN: bazel-bin with roundhoused, roundhouse and
                        roundhouse-worker built

Runs in the environment that tests/parity/setup makes; tests/parity/run --live
calls it. For every family and dtype a tiny base and a random adapter are saved
by transformers and PEFT, merged by the daemon and by PEFT, and compared:

  merge.weights  largest difference of a tensor over its largest magnitude in
                 fp32; in bf16 and fp16 in units in the last place
  merge.logits   of the merged model and of the adapter over its base, fp32:
                 largest difference over the largest logit

What differs beyond the order of addition: in a 16-bit base PEFT adds the fp32
delta and rounds once, as we do; an adapter that is itself kept in 16 bits it
rounds before, too, and we do not.
"""

import pathlib
import sys
import tempfile

import peft
import torch
import transformers

HERE = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "integration"))

import generate  # pylint: disable=wrong-import-position
import harness  # pylint: disable=wrong-import-position

WEIGHT_LIMITS = {torch.float32: 1e-6, torch.bfloat16: 1, torch.float16: 1}
LOGIT_LIMIT = 1e-5
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16",
         torch.float16: "fp16"}


def make_adapter(base, folder, seed):
    """A PeftModel with random A and B, saved."""
    torch.manual_seed(seed)
    model = peft.get_peft_model(base, peft.LoraConfig(
        r=5, lora_alpha=7, target_modules="all-linear",
        task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model.eval()


def ulps(a, b):
    """The distance of 16-bit floats: their bits are ordered by magnitude."""
    def ordered(x):
        bits = x.view(torch.int16).int()
        return torch.where(bits < 0, -(bits & 0x7fff), bits)
    return (ordered(a) - ordered(b)).abs().max().item()


def difference(ours, theirs):
    if ours.dtype == torch.float32:
        scale = theirs.abs().max().item()
        return (ours - theirs).abs().max().item() / scale
    return ulps(ours, theirs)


class Check:
    def __init__(self):
        self.failed = False

    def figure(self, kind, what, value, limit):
        good = value <= limit
        self.failed |= not good
        print(f"{kind}  {what}  {value:.3g}  limit {limit:.3g}"
              f"{'' if good else '  TOO LARGE'}")

    def require(self, holds, what):
        if not holds:
            self.failed = True
            print(f"WRONG: {what}")

    def weights(self, what, merged, wanted):
        ours, theirs = merged.state_dict(), wanted.state_dict()
        self.require(ours.keys() == theirs.keys(),
                     f"{what}: {set(ours) ^ set(theirs)}")
        for name, tensor in theirs.items():
            self.require(ours[name].dtype == tensor.dtype, f"{what}: {name}")
        worst = max(difference(ours[name], tensor)
                    for name, tensor in theirs.items())
        self.figure("merge.weights", what, worst,
                    WEIGHT_LIMITS[merged.dtype])

    def case(self, name, dtype, scratch, daemon):
        what = f"{name}.{NAMES[dtype]}"
        base = generate.make_model(generate.CASES[name]).to(dtype)
        folder = scratch.data / f"base-{what}"
        base.save_pretrained(folder)
        base.name_or_path = str(folder)  # into adapter_config.json
        adapter = scratch.data / f"adapter-{what}"
        model = make_adapter(base, adapter, 31)
        done = daemon.client("export", adapter.name, "--merge",
                             f"--output=merged-{what}")
        merged, info = transformers.AutoModelForCausalLM.from_pretrained(
            done.stdout.strip(), dtype="auto", output_loading_info=True,
            attn_implementation="sdpa")
        for kind, keys in info.items():
            self.require(not keys, f"{what}: from_pretrained: {kind}: {keys}")
        merged.eval()
        if dtype == torch.float32:
            tokens = torch.arange(40)[None] % 211
            with torch.no_grad():
                ours = merged(tokens).logits
                theirs = model(tokens).logits
            self.figure("merge.logits", what, difference(ours, theirs),
                        LOGIT_LIMIT)
        self.weights(what, merged, model.merge_and_unload())


def main():
    harness.ROOT = pathlib.Path(sys.argv[1])
    transformers.utils.logging.disable_progress_bar()
    source = HERE.parents[1]
    check = Check()
    with harness.Scratch() as scratch:
        daemon = scratch.daemon(devices="none")
        daemon.start(worker_program=harness.ROOT / "worker/roundhouse-worker",
                     prepare_script=source / "server/prepare/prepare.py")
        for name in generate.CASES:
            for dtype in WEIGHT_LIMITS:
                check.case(name, dtype, scratch, daemon)
        daemon.stop()
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
