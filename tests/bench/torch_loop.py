"""The baseline of cpu_training: a plain PyTorch loop over a transformers model.

    torch_loop.py --model DIR --rows FILE --dtype fp32|bf16 --threads N
                  --batch N --micro-batch N --steps N [--lora R]
                  [--gradient-checkpointing] [--experts eager|grouped_mm]

FILE holds rows of token ids, a JSON list a line, all of one length. Writes one
JSON line a step to standard output: {"step", "seconds", "loss"}; seconds are
those of the step alone. Runs in the environment of tests/parity/setup.
"""

import argparse
import json
import time

import torch
import transformers

LEARNING_RATE = 1e-4
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LORA_TARGETS = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--lora", type=int, default=0)
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--experts", choices=("eager", "grouped_mm"))
    return parser.parse_args()


def make_model(options):
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.model, dtype=dtype)
    model.config.use_cache = False
    if options.experts:
        model.set_experts_implementation(options.experts)
    if options.lora:
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(
            r=options.lora, lora_alpha=2 * options.lora,
            target_modules=ATTENTION if options.experts else LORA_TARGETS,
            task_type="CAUSAL_LM"))
    if options.gradient_checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable()
    return model.train()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    model = make_model(options)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.0,
                                  fused=True)
    with open(options.rows, encoding="utf-8") as file:
        rows = torch.tensor([json.loads(line) for line in file])
    for step in range(options.steps):
        start = time.monotonic()
        first = step * options.batch % len(rows)
        batch = rows[first:first + options.batch]
        total = 0.0
        for micro_batch in batch.split(options.micro_batch):
            share = len(micro_batch) / len(batch)
            loss = model(input_ids=micro_batch, labels=micro_batch).loss * share
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(json.dumps({"step": step + 1, "loss": total,
                          "seconds": time.monotonic() - start}), flush=True)


if __name__ == "__main__":
    main()
