#!/usr/bin/env python3
"""Random adapters and what real PEFT computes with them.

  generate_adapters.py OUT [CASE ...]
                             beside what generate.py wrote: of each case in
                             ADAPTERS OUT/<case>/adapter/, as PEFT saves it, and
                             OUT/<case>/adapter_goldens.safetensors

Runs in the environment that tests/parity/setup makes. Base, batches and names
are generate.py's; A and B are fp32, both random, without dropout. Everything is
seeded.

adapter_goldens.safetensors, over the fp32 base:
  logits             [ROWS, S, vocab]     step 0's first sequences
  token_loss         [B, S]               0 where no target
  grad.<name>        of the mean loss over all targets of step 0
  final.<name>       A and B after K AdamW steps
  step_loss, step_norm [K]
  split_loss         [3]                  mean loss of step 0 as 1x8, 2x4, 8x1
  eval_loss, base.eval_loss [1]
                     mean loss with and without the adapter over step 0's
                     sequences, END behind each that does not end with it
  merged.<name>      what merge_and_unload makes of each adapted matrix of a
                     base in the case's dtype
  bf16.*, eager.*    [1] as in goldens.safetensors
  picks              as there, of models with experts
"""

import copy
import json
import pathlib
import sys

import peft
import safetensors.torch
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parent))
import generate  # noqa: E402  found by the line before

ROWS = 2
END = 210  # the vocabulary's last

# A family each: the adapter, and the dtype of the base that it is merged into.
ADAPTERS = {
    "llama_tied": ({"r": 4, "lora_alpha": 9, "target_modules": "all-linear"},
                   torch.float32),
    "mistral_untied": ({"r": 3, "lora_alpha": 6,
                        "target_modules": "all-linear"}, torch.bfloat16),
    "mixtral_untied": ({"r": 3, "lora_alpha": 5, "target_modules":
                        ["k_proj", "v_proj", "o_proj"]}, torch.float16),
    "qwen2_moe_untied": ({"r": 2, "lora_alpha": 3, "target_modules":
                          ["q_proj", "k_proj", "o_proj"]}, torch.float32),
    "qwen2_untied": ({"r": 5, "lora_alpha": 7.5, "target_modules":
                      ["q_proj", "v_proj", "down_proj"]}, torch.float16),
    # PEFT's all-linear would adapt the experts, too.
    "qwen3_moe_dense_between": (
        {"r": 4, "lora_alpha": 6, "target_modules":
         ["q_proj", "k_proj", "v_proj", "o_proj"]}, torch.bfloat16),
    "qwen3_tied": ({"r": 4, "lora_alpha": 4, "target_modules": "all-linear"},
                   torch.float32),
}


# With another an expert would be picked by a hair.
SEEDS = {"mixtral_untied": 3, "qwen2_moe_untied": 1,
         "qwen3_moe_dense_between": 2}


def save_adapter(name, folder):
    """A and B random, as PEFT writes them."""
    options, _ = ADAPTERS[name]
    base = generate.make_model(generate.CASES[name])
    base.name_or_path = name  # into adapter_config.json
    torch.manual_seed(SEEDS.get(name, generate.CASES[name].seed + 200))
    model = peft.get_peft_model(base, peft.LoraConfig(
        task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for parameter in trainable(model).values():
            parameter.copy_(0.2 * torch.randn_like(parameter))
    # Else PEFT looks for the base's config on the hub.
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink()
    # PEFT keeps the names as a set: another order in every run.
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_adapter(name, folder, dtype=torch.float32, attention="sdpa"):
    base = generate.make_model(generate.CASES[name])
    if dtype != torch.float32:
        # As users load it: rotary frequencies stay in fp32.
        base = type(base).from_pretrained(folder.parent, dtype=dtype)
    base.set_attn_implementation(attention)
    if generate.routers_of(base):
        base.set_experts_implementation(
            "eager" if attention == "eager" else "grouped_mm")
    return peft.PeftModel.from_pretrained(base, folder, is_trainable=True)


def trainable(model):
    """{name in the adapter's file: parameter}"""
    return {name.replace(".default", ""): parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad}


def forward_and_gradients(model, tokens, lengths):
    model.zero_grad()
    mask = generate.mask_of(lengths)
    with torch.no_grad():
        logits = model(input_ids=tokens, attention_mask=mask).logits.float()
    labels = generate.shifted_labels(tokens, lengths)
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none")
    generate.mean_loss(model, tokens, lengths)
    result = {"logits": (logits * mask[..., None])[:ROWS],
              "token_loss": losses.view(labels.shape)}
    for name, parameter in trainable(model).items():
        result["grad." + name] = parameter.grad.detach().clone()
    model.zero_grad()
    return result


def train(model, tokens, lengths):
    # Matrices only: all of them decay.
    optimizer = torch.optim.AdamW(
        trainable(model).values(), lr=generate.LEARNING_RATE,
        weight_decay=generate.WEIGHT_DECAY)
    losses, norms = [], []
    for step in range(generate.STEPS):
        optimizer.zero_grad()
        losses.append(generate.mean_loss(model, tokens[step], lengths[step]))
        norms.append(float(torch.nn.utils.clip_grad_norm_(
            trainable(model).values(), generate.MAX_NORM)))
        optimizer.step()
    result = {"final." + name: parameter.detach().clone()
              for name, parameter in trainable(model).items()}
    result["step_loss"] = torch.tensor(losses)
    result["step_norm"] = torch.tensor(norms)
    return result


def eval_loss(model, tokens, lengths):
    total, targets = 0.0, 0
    with torch.no_grad():
        for row, length in zip(tokens[0], lengths[0]):
            ids = row[:length].tolist()
            ids += [END] * (ids[-1] != END)
            logits = model(input_ids=torch.tensor([ids])).logits[0]
            total += torch.nn.functional.cross_entropy(
                logits[:-1], torch.tensor(ids[1:]), reduction="sum").item()
            targets += len(ids) - 1
    return torch.tensor([total / targets])


def merged(name, folder):
    """The adapted matrices of merge_and_unload, in the case's dtype."""
    dtype = ADAPTERS[name][1]
    base = generate.make_model(generate.CASES[name]).to(dtype)
    model = peft.PeftModel.from_pretrained(base, folder)
    adapted = {".".join(key.split(".")[2:-2]) + ".weight"
               for key in trainable(load_adapter(name, folder))}
    weights = model.merge_and_unload().state_dict()
    return {"merged." + key: weights[key] for key in adapted}


def goldens_of(name, folder):
    case = generate.CASES[name]
    tokens, lengths = generate.make_batches(case.seed + 100, END + 1)
    first = (tokens[0], lengths[0])
    model = load_adapter(name, folder)
    margins = generate.watch_margins(model)
    exact = forward_and_gradients(model, *first)
    goldens = {**exact, **merged(name, folder),
               "eval_loss": eval_loss(model, tokens, lengths),
               "base.eval_loss": eval_loss(generate.make_model(case), tokens,
                                           lengths)}
    goldens["split_loss"] = torch.tensor(
        [generate.mean_loss(copy.deepcopy(model), *first, micro_batches=n)
         for n in (1, 2, 8)])
    bf16_model = load_adapter(name, folder, dtype=torch.bfloat16)
    if generate.routers_of(model):
        goldens["picks"] = generate.picks_of(model, *first)
        generate.route_as(bf16_model, goldens["picks"])
    bf16 = forward_and_gradients(bf16_model, *first)
    eager = forward_and_gradients(
        load_adapter(name, folder, attention="eager"), *first)
    for key, reference in exact.items():
        goldens["bf16." + key] = generate.relative(bf16[key], reference)
        goldens["eager." + key] = generate.relative(eager[key], reference)
    start = {"final." + key: value.detach().clone()
             for key, value in trainable(model).items()}
    end = train(copy.deepcopy(model), tokens, lengths)
    eager_end = train(load_adapter(name, folder, attention="eager"), tokens,
                      lengths)
    goldens.update(end)
    for key, value in start.items():
        goldens["eager." + key] = generate.relative(eager_end[key] - value,
                                                    end[key] - value)
    generate.check_margins(margins)
    return goldens


def main():
    out = pathlib.Path(sys.argv[1])
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    only = sys.argv[2:]
    for name in ADAPTERS:
        if only and name not in only:
            continue
        folder = out / name / "adapter"
        save_adapter(name, folder)
        goldens = goldens_of(name, folder)
        safetensors.torch.save_file(
            {key: value.contiguous() for key, value in
             sorted(goldens.items())},
            out / name / "adapter_goldens.safetensors")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: generate_adapters.py OUT [CASE ...]")
    main()
