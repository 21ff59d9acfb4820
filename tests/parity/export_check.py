#!/usr/bin/env python3
"""Loads what a job exported with the real transformers or PEFT and compares.

  export_check.py [JOB.json STATE_DIR]

JOB.json is what `roundhouse get JOB -o json` printed for a job with a
validation_dataset, STATE_DIR its daemon's; without them, those that
deploy/quickstart left. Runs in the environment that tests/parity/setup makes.
Checks that from_pretrained takes the directory with no key missing, left over
or of another shape; that every tensor is the file's, bit for bit, in the file's
dtype; that the tokenizer encodes and decodes as the job's data were encoded;
and that the mean loss which transformers computes over the validation tokens is
the one that the workers computed after the last step. Exits 0 when all agree.

The directory of a LoRA job is an adapter: PEFT loads it over the base model
that it names, and its tensors and the loss are compared.
"""

import argparse
import array
import json
import os
import pathlib
import sys
import warnings

import peft
import safetensors.torch
import torch
import transformers

# Relative difference of mean losses: rounding only.
LOSS_LIMIT = {torch.float32: 2e-6, torch.bfloat16: 1e-3}


class Mismatch(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Mismatch(what)


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto", output_loading_info=True,
        attn_implementation="sdpa")
    for kind, keys in info.items():
        require(not keys, f"from_pretrained: {kind}: {keys}")
    return model.eval()


def load_adapter(folder):
    config = peft.PeftConfig.from_pretrained(folder)
    base = load(config.base_model_name_or_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # of missing keys
        return peft.PeftModel.from_pretrained(base, folder).eval()


def check_adapter(model, folder):
    written = safetensors.torch.load_file(folder / "adapter_model.safetensors")
    loaded = peft.get_peft_model_state_dict(model)
    require(set(loaded) == set(written),
            f"tensors of one side only: {set(loaded) ^ set(written)}")
    for name, tensor in written.items():
        require(tensor.dtype == torch.float32 and
                torch.equal(loaded[name], tensor), f"{name} differs")
    return len(written), model.dtype


def check_tensors(model, folder):
    written = {}
    for path in sorted(folder.glob("*.safetensors")):
        written.update(safetensors.torch.load_file(path))
    require(written, f"{folder}: no safetensors")
    loaded = model.state_dict()
    tied = model.config.tie_word_embeddings
    extra = set(loaded) - set(written)
    require(extra == ({"lm_head.weight"} if tied else set()),
            f"tensors that only the model has: {extra}")
    for name, tensor in written.items():
        require(loaded[name].dtype == tensor.dtype and
                torch.equal(loaded[name], tensor), f"{name} differs")
    return len(written), next(iter(written.values())).dtype


def read_sequences(folder):
    """[(line in the dataset, token ids, labels)]"""
    def values(name, code):
        found = array.array(code)
        found.frombytes((folder / name).read_bytes())
        return found
    tokens, labels = values("tokens.u32", "I"), values("labels.u8", "B")
    ends, lines = values("offsets.u64", "Q"), values("lines.u32", "I")
    return [(line, tokens[begin:end].tolist(), labels[begin:end].tolist())
            for line, begin, end in zip(lines, ends, ends[1:])]


def check_tokenizer(tokenizer, sequences, dataset):
    with open(dataset, encoding="utf-8") as file:
        rows = [json.loads(line) if line.strip() else None for line in file]
    for line, tokens, _ in sequences:
        row = rows[line - 1]
        text = row["text"] if "text" in row else (row["prompt"]
                                                  + row["completion"])
        found = tokenizer(text)["input_ids"]
        require([*found, tokenizer.eos_token_id][:len(tokens)] == tokens,
                f"{text!r}: {found} is not {tokens}")


def mean_loss(model, sequences):
    total, targets = 0.0, 0
    with torch.no_grad():
        for _, tokens, labels in sequences:
            logits = model(torch.tensor([tokens])).logits[0].float()
            wanted = torch.tensor(
                [token if label else -100
                 for token, label in zip(tokens[1:], labels[1:])])
            total += torch.nn.functional.cross_entropy(
                logits[:-1], wanted, reduction="sum",
                ignore_index=-100).item()
            targets += int((wanted >= 0).sum())
    return total / targets, targets


def check(job, state, tokenizer=transformers.AutoTokenizer):
    """The relative difference of the losses, and its limit; `tokenizer` is
    the class that loads the result's."""
    folder = pathlib.Path(job["output_path"])
    if (folder / "adapter_config.json").exists():
        model = load_adapter(folder)
        count, dtype = check_adapter(model, folder)
    else:
        model = load(folder)
        count, dtype = check_tensors(model, folder)
    print(f"{folder}: {count} tensors, {dtype}, equal")
    sequences = read_sequences(
        state / "jobs" / job["uid"] / "data" / "validation")
    check_tokenizer(tokenizer.from_pretrained(folder), sequences,
                    job["resolved_spec"]["validation_dataset"])
    print(f"tokenizer: {len(sequences)} rows encode to the same tokens")
    last = job["eval_history"][-1]
    require(last["step"] == job["total_steps"], "no evaluation at the end")
    loss, targets = mean_loss(model, sequences)
    difference = abs(loss - last["loss"]) / loss
    print(f"loss over {targets} targets: transformers {loss:.9f}, the workers "
          f"{last['loss']:.9f}, relative difference {difference:.2e} of "
          f"{LOSS_LIMIT[dtype]:.0e} allowed")
    require(difference <= LOSS_LIMIT[dtype], "the losses differ")
    return difference, LOSS_LIMIT[dtype]


def main():
    home = pathlib.Path(os.environ.get(
        "XDG_STATE_HOME", pathlib.Path.home() / ".local/state"))
    quickstart = home / "roundhouse/quickstart"
    parser = argparse.ArgumentParser()
    parser.add_argument("job", nargs="?", type=pathlib.Path,
                        default=quickstart / "job.json")
    parser.add_argument("state", nargs="?", type=pathlib.Path,
                        default=quickstart / "state")
    args = parser.parse_args()
    try:
        check(json.loads(args.job.read_text(encoding="utf-8")), args.state)
    except Mismatch as mismatch:
        print(f"export_check: {mismatch}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
