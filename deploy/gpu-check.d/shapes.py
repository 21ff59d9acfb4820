"""Makes models of a given shape with random weights, as gpu-check trains them.

    shapes.py CONFIG.json OUT    OUT: a Hugging Face directory

Weights are bf16: norms are one (the last may be told), matrices are cut from
one table of normal numbers (standard deviation 0.02) at random places, so that
gigabytes cost seconds. The tokenizer is a tiny one, whatever the vocabulary's
size. The same arguments give the same bytes.
"""

import array
import json
import pathlib
import random
import struct
import sys

ROOT = pathlib.Path(__file__).absolute().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

import harness  # noqa: E402  found by the line before

STD = 0.02
# Odd, so that the rows of a matrix begin at different places.
TABLE_VALUES = (1 << 19) + 7
ONE, FOUR = 0x3F80, 0x4080  # as bf16

QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
         "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "attention_bias": False, "attention_dropout": 0.0,
         "use_sliding_window": False, "tie_word_embeddings": True}
# For the fault section on a GPU: steps of some tens of milliseconds.
SMALL = {**QWEN3, "hidden_size": 768, "intermediate_size": 2048,
         "num_hidden_layers": 6, "num_attention_heads": 12,
         "num_key_value_heads": 6, "head_dim": 64, "vocab_size": 8192,
         "max_position_embeddings": 2048}
# For a rehearsal.
TINY = {**QWEN3, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 320,
        "max_position_embeddings": 128}


def published(name):
    """config.json of a published model."""
    path = ROOT / "scheduler/testdata/models" / name / "config.json"
    return json.loads(path.read_text())


def head_dim(config):
    return config.get("head_dim") or (config["hidden_size"]
                                      // config["num_attention_heads"])


def layer_shapes(config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = head_dim(config)
    queries = config["num_attention_heads"] * head
    keys = config["num_key_value_heads"] * head
    shapes = {
        "input_layernorm": [hidden],
        "self_attn.q_proj": [queries, hidden],
        "self_attn.k_proj": [keys, hidden],
        "self_attn.v_proj": [keys, hidden],
        "self_attn.o_proj": [hidden, queries],
        "post_attention_layernorm": [hidden],
        "mlp.gate_proj": [inner, hidden],
        "mlp.up_proj": [inner, hidden],
        "mlp.down_proj": [hidden, inner],
    }
    if config["model_type"] == "qwen3":
        shapes.update({"self_attn.q_norm": [head], "self_attn.k_norm": [head]})
    return shapes


def parameter_shapes(config):
    """{name: shape} of every tensor of a Llama or Qwen3 without biases."""
    vocabulary, hidden = config["vocab_size"], config["hidden_size"]
    shapes = {"model.embed_tokens.weight": [vocabulary, hidden]}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in layer_shapes(config).items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    shapes["model.norm.weight"] = [hidden]
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [vocabulary, hidden]
    return shapes


def size(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


def parameter_count(config):
    return sum(map(size, parameter_shapes(config).values()))


def normal_table(chosen):
    values = array.array("f", (chosen.gauss(0.0, STD)
                               for _ in range(TABLE_VALUES)))
    if sys.byteorder != "little":
        values.byteswap()
    halves = array.array("H", values.tobytes())  # low half first
    return memoryview(halves[1::2].tobytes())


def write_weights(path, config, chosen, last_norm):
    table = normal_table(chosen)
    shapes = parameter_shapes(config)
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * size(shape)
        header[name] = {"dtype": "BF16", "shape": shape,
                        "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            if len(shape) == 1:
                norm = last_norm if name == "model.norm.weight" else ONE
                file.write(struct.pack("<H", norm) * shape[0])
                continue
            left, start = 2 * size(shape), 2 * chosen.randrange(TABLE_VALUES)
            while left > 0:
                piece = table[start:start + left]
                file.write(piece)
                left, start = left - len(piece), 0


def make_model(folder, config, weights=True, seed=1, last_norm=ONE):
    """Without `weights` for what only looks at the configuration."""
    folder.mkdir(parents=True)
    tokenizer = harness.make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": harness.EOS}))
    (folder / "config.json").write_text(json.dumps(
        {**config, "eos_token_id": tokenizer.token_to_id(harness.EOS),
         "torch_dtype": "bfloat16"}, indent=1))
    if weights:
        write_weights(folder / "model.safetensors", config,
                      random.Random(seed), last_norm)


def make_rows(path, count, tokens, seed=1):
    """JSON Lines of texts with at least so many tokens: a word is one or
    more."""
    chosen = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            text = " ".join(chosen.choices(harness.WORDS, k=tokens))
            file.write(json.dumps({"text": text}) + "\n")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: shapes.py CONFIG.json OUT")
    config = json.loads(pathlib.Path(sys.argv[1]).read_text())
    make_model(pathlib.Path(sys.argv[2]), config)
    print(f"{parameter_count(config):,} parameters")


if __name__ == "__main__":
    main()
