"""Makes a tiny Qwen3 model with random weights, and its tokenizer.

    make_model.py --text FILE.jsonl --out DIR [--seed N]

A Hugging Face model directory: a byte-level BPE tokenizer trained on the
strings of the file, with a chat template, and a Qwen3 of about one million
parameters (fp32, tied embeddings). The token that ends a text ends a turn of a
conversation too, as in Qwen's chat models. Weights are normal with a standard
deviation of 0.02, norms one. The same arguments give the same bytes.
"""

import argparse
import array
import json
import pathlib
import random
import struct

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1024
PAD = "<|pad|>"
TURN, END = "<|im_start|>", "<|im_end|>"  # the end of a text and of a turn
# ChatML; the tags say what an assistant's turn is trained on.
CHAT_TEMPLATE = """\
{%- for message in messages %}
  {{- '<|im_start|>' + message['role'] + '\\n' }}
  {%- if message['role'] == 'assistant' %}
    {%- generation %}{{- message['content'] + '<|im_end|>' }}{% endgeneration %}
  {%- else %}{{- message['content'] + '<|im_end|>' }}{% endif %}
  {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""
STD = 0.02
SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
}


def strings(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield "".join(json.loads(line).values())


def make_tokenizer(text):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END, PAD, TURN],
        show_progress=False, min_frequency=20,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_configs(out, tokenizer):
    end, pad = map(tokenizer.token_to_id, (END, PAD))
    write_json(out / "config.json", {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **SHAPE,
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": STD,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": pad,
        "dtype": "float32",
    })
    write_json(out / "generation_config.json",
               {"eos_token_id": end, "pad_token_id": pad})
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": SHAPE["max_position_embeddings"],
    })


def parameters(vocabulary):
    """(name, shape) of every tensor of the file; a norm has one dimension."""
    hidden, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    head = SHAPE["head_dim"]
    queries = SHAPE["num_attention_heads"] * head
    keys = SHAPE["num_key_value_heads"] * head
    layer = {
        "input_layernorm": [hidden],
        "self_attn.q_proj": [queries, hidden],
        "self_attn.k_proj": [keys, hidden],
        "self_attn.v_proj": [keys, hidden],
        "self_attn.o_proj": [hidden, queries],
        "self_attn.q_norm": [head],
        "self_attn.k_norm": [head],
        "post_attention_layernorm": [hidden],
        "mlp.gate_proj": [inner, hidden],
        "mlp.up_proj": [inner, hidden],
        "mlp.down_proj": [hidden, inner],
    }
    yield "model.embed_tokens.weight", [vocabulary, hidden]
    for index in range(SHAPE["num_hidden_layers"]):
        for name, shape in layer.items():
            yield f"model.layers.{index}.{name}.weight", shape
    yield "model.norm.weight", [hidden]


def values(shape, chosen):
    if len(shape) == 1:
        return array.array("f", [1.0]) * shape[0]
    return array.array("f", (chosen.gauss(0.0, STD)
                             for _ in range(shape[0] * shape[1])))


def write_weights(path, vocabulary, seed):
    """One safetensors file; answers the number of parameters."""
    chosen = random.Random(seed)
    header, data, end = {"__metadata__": {"format": "pt"}}, [], 0
    for name, shape in parameters(vocabulary):
        tensor = values(shape, chosen)
        if struct.pack("=I", 1) != struct.pack("<I", 1):
            tensor.byteswap()
        start, end = end, end + 4 * len(tensor)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [start, end]}
        data.append(tensor)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in data:
            tensor.tofile(file)
    return end // 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(strings(args.text))
    tokenizer.save(str(args.out / "tokenizer.json"))
    write_configs(args.out, tokenizer)
    vocabulary = tokenizer.get_vocab_size()
    count = write_weights(args.out / "model.safetensors", vocabulary,
                          args.seed)
    print(f"Qwen3 with {count:,} parameters, vocabulary {vocabulary}")


if __name__ == "__main__":
    main()
