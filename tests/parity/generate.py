#!/usr/bin/env python3
"""Tiny random checkpoints and what real transformers computes from them.

  generate.py OUT [CASE ...]
                     writes OUT/<case>/{config.json,model.safetensors} as
                     save_pretrained does, OUT/<case>/goldens.safetensors,
                     OUT/<case>/generated.safetensors,
                     OUT/<case>/packed.safetensors and
                     OUT/schedules.safetensors

Runs in the environment that tests/parity/setup makes. The weights are bf16
values (standard deviation 0.2, so that logits are not flat), so fp32 and bf16
runs start from the same numbers. Everything is seeded.

goldens.safetensors, B sequences of at most S tokens, K steps:
  tokens, labels     [K, B, S] int32; labels shifted, -100 where no target
  logits             [B, S, vocab]        step 0's tokens, fp32 model
  token_loss         [B, S]               0 where no target
  grad.<name>        of the mean loss over all targets of step 0
  final.<name>       weights after K AdamW steps
  step_loss, step_norm [K]                mean loss, gradient norm
  split_loss         [3]                  mean loss of step 0 as 1x8, 2x4, 8x1
  bf16.logits, bf16.token_loss, bf16.grad.<name> [1]
                     relative L2 error of the bf16 model against the fp32 one
  eager.*            [1] relative L2 difference of eager attention, and of
                     eager experts, from SDPA and grouped products
  picks              [L, B, S, k] int32, only of models with experts: the
                     experts of step 0's tokens in each layer that has some,
                     ascending; the bf16 model is made to route so, too

generated.safetensors, greedy decoding of the fp32 model with its KV cache:
  lengths            [B] int32: the prompt is that much of step 0's sequence
  tokens             [B, N] int32, what generate() drew behind each prompt

packed.safetensors, transformers itself with each step's sequences in one row:
  final.<name>       [1] relative L2 difference of the K steps' update from that
                     of padded rows
"""

import copy
import dataclasses
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

BATCH, TOKENS, STEPS = 8, 20, 10
LEARNING_RATE, MAX_NORM, WEIGHT_DECAY = 1e-3, 1.0, 0.01
NEW_TOKENS = 20
# A drawn token's logit is above the next one's by at least this much of it, so
# that rounding decides nowhere.
LEAST_MARGIN = 1e-5
# The last picked expert's logit is above the next one's by at least this much,
# in every step: no rounding decides who is picked.
LEAST_PICK_MARGIN = 1e-4
# Shorter than a sequence.
WINDOW = 6
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
               "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}


@dataclasses.dataclass
class Case:
    family: str  # of transformers' class names
    tied: bool
    seed: int
    config: dict = dataclasses.field(default_factory=dict)
    older_spelling: bool = False  # of config.json


CASES = {
    "qwen3_tied": Case("Qwen3", True, 1),
    "qwen3_untied": Case("Qwen3", False, 2),
    "llama_tied": Case("Llama", True, 3, {"rope_parameters": LLAMA3_ROPE},
                       older_spelling=True),
    "llama_untied": Case(
        "Llama", False, 4,
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0,
                             "factor": 4.0},
         "attention_bias": True, "mlp_bias": True}),
    "qwen2_tied": Case("Qwen2", True, 5),
    "qwen2_untied": Case(
        "Qwen2", False, 6,
        {"use_sliding_window": True, "sliding_window": WINDOW,
         "max_window_layers": 1}),
    "mistral_untied": Case("Mistral", False, 7, {"sliding_window": WINDOW}),
    # Products of experts need widths that eight divides.
    "mixtral_untied": Case(
        "Mixtral", False, 11,
        {"num_local_experts": 8, "num_experts_per_tok": 2,
         "sliding_window": WINDOW}),
    "qwen2_moe_untied": Case(
        "Qwen2Moe", False, 14,
        {"num_experts": 8, "num_experts_per_tok": 2,
         "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
         "norm_topk_prob": False}),
    "qwen2_moe_windows": Case(
        "Qwen2Moe", True, 105,
        {"num_experts": 16, "num_experts_per_tok": 4,
         "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
         "norm_topk_prob": True, "mlp_only_layers": [1], "qkv_bias": False,
         "use_sliding_window": True, "sliding_window": WINDOW,
         "max_window_layers": 2}),
    "qwen3_moe_dense_between": Case(
        "Qwen3Moe", False, 1008,
        {"num_experts": 8, "num_experts_per_tok": 2,
         "moe_intermediate_size": 32, "norm_topk_prob": True,
         "mlp_only_layers": [1]}),
    "qwen3_moe_windows": Case(
        "Qwen3Moe", True, 1009,
        {"num_experts": 16, "num_experts_per_tok": 4,
         "moe_intermediate_size": 24, "norm_topk_prob": False,
         "use_sliding_window": True, "sliding_window": WINDOW}),
}


def routers_of(model):
    return [module for module in model.modules()
            if type(module).__name__.endswith("TopKRouter")]


def watch_margins(model):
    """A list that gets, of each call of a router, the least margin."""
    margins = []

    def note(router, _, output):
        values = output[0].detach().sort(dim=-1, descending=True).values
        margins.append(float((values[:, router.top_k - 1]
                              - values[:, router.top_k]).min()))

    for router in routers_of(model):
        router.register_forward_hook(note)
    return margins


def picks_of(model, tokens, lengths):
    """[L, B, S, k], ascending."""
    picks = []
    hooks = [router.register_forward_hook(
        lambda _, __, output: picks.append(output[2].sort(dim=-1).values))
             for router in routers_of(model)]
    with torch.no_grad():
        model(input_ids=tokens, attention_mask=mask_of(lengths))
    for hook in hooks:
        hook.remove()
    return torch.stack(picks).view(len(hooks), BATCH, TOKENS, -1).int()


def route_as(model, picks):
    """Makes the model pick these, whatever its routers find."""
    def give(router, _, output, mine):
        logits, scores, _ = output
        indices = mine.flatten(0, 1).long()
        chosen = logits.softmax(-1, dtype=torch.float).gather(1, indices)
        if getattr(router, "norm_topk_prob", True):  # Mixtral always
            chosen = chosen / chosen.sum(-1, keepdim=True)
        return logits, chosen.to(scores.dtype), indices

    for router, mine in zip(routers_of(model), picks):
        router.register_forward_hook(
            lambda router, inputs, output, mine=mine:
            give(router, inputs, output, mine))
    return model


def make_model(case):
    torch.manual_seed(case.seed)
    sizes = dict(
        hidden_size=40, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, intermediate_size=56,
        vocab_size=211, max_position_embeddings=64,
        tie_word_embeddings=case.tied, use_cache=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    config = getattr(transformers, case.family + "Config")(
        **{**sizes, **case.config})
    config._attn_implementation = "sdpa"
    model = getattr(transformers, case.family + "ForCausalLM")(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            center = 1.0 if name.endswith("norm.weight") else 0.0
            values = center + 0.2 * torch.randn_like(parameter)
            parameter.copy_(values.to(torch.bfloat16).float())
    return model.float()


def use_older_spelling(folder):
    """As transformers 4 wrote it; transformers 5 reads it too."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def make_batches(seed, vocab):
    """STEPS batches of (tokens, lengths); sequence 0 has no padding."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocab, (STEPS, BATCH, TOKENS),
                           generator=generator)
    lengths = torch.randint(2, TOKENS + 1, (STEPS, BATCH),
                            generator=generator)
    lengths[:, 0] = TOKENS
    tokens[torch.arange(TOKENS) >= lengths[..., None]] = 0
    return tokens, lengths


def mask_of(lengths):
    return (torch.arange(TOKENS) < lengths[:, None]).long()


def shifted_labels(tokens, lengths):
    labels = torch.full_like(tokens, -100)
    labels[..., :-1] = tokens[..., 1:]
    labels[torch.arange(TOKENS) + 1 >= lengths[..., None]] = -100
    return labels


def mean_loss(model, tokens, lengths, micro_batches=1):
    """transformers' own loss of a step, with gradients accumulated."""
    labels = tokens.masked_fill(mask_of(lengths) == 0, -100)
    targets = int((shifted_labels(tokens, lengths) != -100).sum())
    total = 0.0
    for part in torch.arange(BATCH).chunk(micro_batches):
        loss = model(input_ids=tokens[part],
                     attention_mask=mask_of(lengths[part]),
                     labels=labels[part], num_items_in_batch=targets).loss
        loss.backward()
        total += float(loss.detach())
    return total


def forward_and_gradients(model, tokens, lengths):
    model.zero_grad()
    with torch.no_grad():
        logits = model(input_ids=tokens,
                       attention_mask=mask_of(lengths)).logits.float()
    labels = shifted_labels(tokens, lengths)
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none")
    mean_loss(model, tokens, lengths)
    result = {"logits": logits * mask_of(lengths)[..., None],
              "token_loss": losses.view(BATCH, TOKENS)}
    for name, parameter in model.named_parameters():
        result["grad." + name] = parameter.grad.detach().float().clone()
    model.zero_grad()
    return result


def optimizer_of(model):
    """Weight decay on matrices only, as transformers' Trainer groups them."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY},
         {"params": vectors, "weight_decay": 0.0}], lr=LEARNING_RATE)


def packed_loss(model, tokens, lengths):
    """As mean_loss, of one row of all sequences; positions tell them apart."""
    rows = [row[:length] for row, length in zip(tokens, lengths)]
    positions = torch.cat([torch.arange(len(row)) for row in rows])[None]
    ids = torch.cat(rows)[None]
    labels = ids.masked_fill(positions == 0, -100)
    loss = model(input_ids=ids, position_ids=positions, labels=labels,
                 num_items_in_batch=int((labels != -100).sum())).loss
    loss.backward()
    return float(loss.detach())


def train(model, tokens, lengths, step_loss=mean_loss):
    optimizer = optimizer_of(model)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(step_loss(model, tokens[step], lengths[step]))
        norms.append(float(torch.nn.utils.clip_grad_norm_(
            model.parameters(), MAX_NORM)))
        optimizer.step()
    result = {"final." + name: parameter.detach().clone()
              for name, parameter in model.named_parameters()}
    result["step_loss"] = torch.tensor(losses)
    result["step_norm"] = torch.tensor(norms)
    return result


def relative(value, reference):
    return ((value - reference).norm() / reference.norm()).reshape(1)


def with_attention(model, implementation):
    other = copy.deepcopy(model)
    other.set_attn_implementation(implementation)
    if routers_of(other):
        other.set_experts_implementation(implementation)
    return other


def goldens_of(model, folder, tokens, lengths):
    goldens = {"tokens": tokens.int(),
               "labels": shifted_labels(tokens, lengths).int()}
    first = (tokens[0], lengths[0])
    exact = forward_and_gradients(model, *first)
    goldens.update(exact)
    goldens["split_loss"] = torch.tensor(
        [mean_loss(copy.deepcopy(model), *first, micro_batches=n)
         for n in (1, 2, 8)])
    # As users load it: rotary frequencies stay in fp32.
    bf16_model = type(model).from_pretrained(
        folder, dtype=torch.bfloat16, attn_implementation="sdpa")
    if routers_of(model):
        goldens["picks"] = picks_of(model, *first)
        route_as(bf16_model, goldens["picks"])
    bf16 = forward_and_gradients(bf16_model, *first)
    eager = forward_and_gradients(with_attention(model, "eager"), *first)
    for name, reference in exact.items():
        goldens["bf16." + name] = relative(bf16[name], reference)
        goldens["eager." + name] = relative(eager[name], reference)
    start = {"final." + n: p.detach().clone()
             for n, p in model.named_parameters()}
    eager_end = train(with_attention(model, "eager"), tokens, lengths)
    end = train(copy.deepcopy(model), tokens, lengths)
    goldens.update(end)
    for name, value in start.items():
        goldens["eager." + name] = relative(eager_end[name] - value,
                                            end[name] - value)
    return goldens


def packed_noise(model, goldens, tokens, lengths):
    end = train(copy.deepcopy(model), tokens, lengths, packed_loss)
    return {"final." + name: relative(
        end["final." + name] - start.detach(),
        goldens["final." + name] - start.detach())
            for name, start in model.named_parameters()}


def generated(model, tokens, lengths):
    model.generation_config.eos_token_id = None  # nothing ends
    drawn = []
    for row, length in zip(tokens[0], lengths[0]):
        prompt = row[None, :length]
        out = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), use_cache=True,
            do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0,
            output_logits=True, return_dict_in_generate=True)
        for logits in out.logits:
            first, second = logits[0].topk(2).values
            if (first - second) < LEAST_MARGIN * first.abs():
                raise ValueError("two logits are nearly equal: other seed")
        drawn.append(out.sequences[0, length:])
    return {"lengths": lengths[0].int(), "tokens": torch.stack(drawn).int()}


def schedules():
    """Factors of transformers' schedules: warm-up 4, 20 steps, then 0."""
    make = {"constant": transformers.get_constant_schedule_with_warmup,
            "linear": transformers.get_linear_schedule_with_warmup,
            "cosine": transformers.get_cosine_schedule_with_warmup}
    result = {}
    for name, function in make.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)],
                                    lr=LEARNING_RATE)
        extra = {} if name == "constant" else {"num_training_steps": 20}
        schedule = function(optimizer, num_warmup_steps=4, **extra)
        rates = []
        for _ in range(21):
            rates.append(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
        result[name] = torch.tensor(rates, dtype=torch.float64)
    return result


def as_stored(case, name):
    """A name in memory, as the model's files have it."""
    if case.family == "Mixtral":
        return name.replace(".mlp.", ".block_sparse_moe.")
    return name


def check_margins(margins):
    if min(margins, default=1) < LEAST_PICK_MARGIN:
        raise ValueError("an expert is picked by a hair: other seed")


def write_case(case, folder):
    model = make_model(case)
    margins = watch_margins(model)  # of its copies, too
    tokens, lengths = make_batches(case.seed + 100, model.config.vocab_size)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if case.older_spelling:
        use_older_spelling(folder)
    goldens = goldens_of(model, folder, tokens, lengths)
    packed = packed_noise(model, goldens, tokens, lengths)
    drawn = generated(model, tokens, lengths)
    for file, tensors in (("goldens", goldens), ("packed", packed),
                          ("generated", drawn)):
        safetensors.torch.save_file(
            {as_stored(case, key): value.contiguous()
             for key, value in tensors.items()},
            folder / f"{file}.safetensors")
    check_margins(margins)


def main():
    out = pathlib.Path(sys.argv[1])
    only = sys.argv[2:]
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, case in CASES.items():
        if only and name not in only:
            continue
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        write_case(case, folder)
    safetensors.torch.save_file(schedules(), out / "schedules.safetensors")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: generate.py OUT [CASE ...]")
    main()
