"""Tokens per second and peak memory of training on CPU, beside a plain PyTorch
loop over the same model, batches and threads.

    bazel run //tests/bench:cpu_training -- [--model dense,experts]
        [--length 512,2048] [--dtype fp32,bf16] [--method full,lora]
        [--steps 4] [--runs 3] [--side TEXT] [-o csv]

Per combination, in turn in one run: the PyTorch loop (one process of two
threads) without and with gradient checkpointing, and the daemon with two
workers of one thread under the plan for speed (one fused stage over the whole
model, nothing recomputed) and the plan for memory (a stage a quarter of the
layers, layer recomputation, logits of 256 tokens at once). Batch 16. A model of
about 50 million parameters with random weights; rows of exactly the length.
The model with experts has 16 in each layer, of which a token goes to two; both
of transformers' ways to compute them are there, grouped_mm and eager.

Throughput is that of the steps after the first. Memory is the largest sum of
PSS over all processes of one side, the daemon's included, sampled once a
second: reading it holds up the process that is read. --side: only those with
this text in their names. Needs tests/parity/setup.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME")
                     or pathlib.Path.home() / ".cache")
ORACLE = CACHE / "roundhouse/parity-venv/bin/python"
LOOP = pathlib.Path(__file__).parent / "torch_loop.py"
BATCH = 16
LAYERS = 12
LORA_RANK = 16
SHAPE = {"hidden_size": 512, "intermediate_size": 1536,
         "num_hidden_layers": LAYERS, "num_attention_heads": 8,
         "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 24576,
         "max_position_embeddings": 4096, "tie_word_embeddings": True}
EXPERTS = {"num_experts": 16, "num_experts_per_tok": 2,
           "moe_intermediate_size": 96, "mlp_only_layers": []}
# Sequences: a micro-batch holds about 2,048 tokens.
MICRO_BATCH = {512: 4, 2048: 1}
PLANS = {
    "speed": {"plan": {"forward": [], "backward": [[0, LAYERS]]},
              "gradient_checkpointing": "stage"},
    "memory": {"plan": {"forward": [[0, 3], [4, 7]],
                        "backward": [[8, LAYERS], [4, 7], [0, 3]]},
               "gradient_checkpointing": "layer", "head_token_chunk": 256},
}

Result = collections.namedtuple("Result", "tokens_per_second peak_bytes loss")


class PeakMemory:
    """The largest sum of PSS over the processes `pids()` names."""

    def __init__(self, pids):
        self.pids = pids
        self.peak = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def run(self):
        while not self.ended.wait(1):
            self.peak = max(self.peak, sum(map(pss, self.pids())))


def pss(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass  # It ended between the listing and the reading.
    return 0


def make_model(folder, experts, dtype):
    """Random weights drawn by transformers itself; a byte-level tokenizer."""
    harness.make_model(folder, family="qwen3_moe" if experts else "qwen3")
    config = json.loads((folder / "config.json").read_text())
    config.update(SHAPE, **(EXPERTS if experts else {}),
                  dtype={"fp32": "float32", "bf16": "bfloat16"}[dtype])
    (folder / "config.json").write_text(json.dumps(config))
    subprocess.run([ORACLE, "-c", """
import sys, torch, transformers
torch.manual_seed(1)
config = transformers.AutoConfig.from_pretrained(sys.argv[1])
model = transformers.AutoModelForCausalLM.from_config(config)
print(sum(p.numel() for p in model.parameters()), "parameters", file=sys.stderr)
model.to(config.dtype).save_pretrained(sys.argv[1])
""", folder], check=True)


def make_rows(scratch, folder, length, count):
    """The text as the daemon reads it and the token ids as the loop does."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    chosen = random.Random(length)
    with open(scratch.data / "train.jsonl", "w", encoding="utf-8") as texts, \
            open(scratch.data / "rows", "w", encoding="utf-8") as rows:
        for _ in range(count):
            text = " ".join(chosen.choices(harness.WORDS, k=length))
            ids = tokenizer.encode(text).ids[:length]
            assert len(ids) == length, (len(ids), length)
            texts.write(json.dumps({"text": text}) + "\n")
            rows.write(json.dumps(ids) + "\n")


def summary(seconds, length, memory, loss):
    return Result(BATCH * length * len(seconds) / sum(seconds), memory.peak,
                  loss)


def run_loop(scratch, case, checkpointing=False, experts=None):
    words = [ORACLE, LOOP, "--model", scratch.data / "model",
             "--rows", scratch.data / "rows", "--dtype", case.dtype,
             "--threads", 2, "--batch", BATCH,
             "--micro-batch", MICRO_BATCH[case.length], "--steps", case.steps]
    if case.method == "lora":
        words += ["--lora", LORA_RANK]
    if experts:
        words += ["--experts", experts]
    if checkpointing:
        words.append("--gradient-checkpointing")
    with subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE,
                          text=True) as process:
        with PeakMemory(lambda: [process.pid]) as memory:
            steps = [json.loads(line) for line in process.stdout]
    if process.returncode != 0:
        raise harness.Failure(f"torch_loop.py exited {process.returncode}")
    return summary([step["seconds"] for step in steps[1:]], case.length,
                   memory, steps[-1]["loss"])


def run_daemon(scratch, case, plan):
    daemon = scratch.daemon(devices="cpu:2", device_memory="8GiB",
                            host_memory="8GiB")
    daemon.start()
    micro_batch = MICRO_BATCH[case.length]
    spec = {"model_name_or_path": "model", "dataset": "train.jsonl",
            "max_length": case.length, "batch_size": BATCH,
            "micro_batch_size": micro_batch, "max_steps": case.steps,
            "micro_batches_per_round": BATCH // micro_batch // 2,
            "learning_rate": 1e-4, "lr_scheduler_type": "constant",
            "save_steps": 0, "dtype": case.dtype, **PLANS[plan]}
    if case.method == "lora":
        spec.update(method="lora", lora_r=LORA_RANK, lora_alpha=2 * LORA_RANK,
                    lora_dropout=0, target_modules="all-linear")
    with PeakMemory(lambda: [daemon.process.pid,
                             *harness.children(daemon.process.pid)]) as memory:
        job = daemon.submit(spec)
        daemon.wait(job, seconds=3600)
    steps = [entry for entry in daemon.metrics(job) if "step_seconds" in entry]
    result = summary([step["step_seconds"] for step in steps[1:]],
                     case.length, memory, steps[-1]["loss"])
    daemon.stop()
    return result


OURS = {
    "Roundhouse, plan for speed": lambda *case: run_daemon(*case, "speed"),
    "Roundhouse, plan for memory": lambda *case: run_daemon(*case, "memory"),
}
SIDES = {
    "dense": {
        "PyTorch": run_loop,
        "PyTorch, gradient checkpointing":
            lambda *case: run_loop(*case, checkpointing=True),
        **OURS},
    "experts": {
        "PyTorch, grouped_mm":
            lambda *case: run_loop(*case, experts="grouped_mm"),
        "PyTorch, eager": lambda *case: run_loop(*case, experts="eager"),
        "PyTorch, grouped_mm, gradient checkpointing":
            lambda *case: run_loop(*case, checkpointing=True,
                                   experts="grouped_mm"),
        **OURS},
}

Case = collections.namedtuple("Case", "model length dtype method steps")


def measure(case, sides, runs):
    """{side: [Result]}, the sides taking turns."""
    found = collections.defaultdict(list)
    with harness.Scratch() as scratch:
        make_model(scratch.data / "model", case.model == "experts",
                   case.dtype)
        make_rows(scratch, scratch.data / "model", case.length,
                  BATCH * case.steps)
        for _ in range(runs):
            for side in sides:
                found[side].append(SIDES[case.model][side](scratch, case))
                print(case, side, found[side][-1], file=sys.stderr, flush=True)
    return found


def print_case(case, found, form):
    def median(side, field):
        return statistics.median(getattr(r, field) for r in found[side])

    name = f"{case.model} {case.method} {case.dtype} length {case.length}"
    first = next(iter(found))  # PyTorch, unless --side leaves it out
    for side in found:
        rate = median(side, "tokens_per_second")
        peak = median(side, "peak_bytes")
        cells = [name, side, f"{rate:.0f}",
                 f"{rate / median(first, 'tokens_per_second'):.2f}",
                 f"{peak / 2**20:.0f}",
                 f"{peak / median(first, 'peak_bytes'):.2f}",
                 f"{found[side][-1].loss:.4f}"]
        print(",".join(f'"{cell}"' for cell in cells) if form == "csv"
              else "| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="dense,experts")
    parser.add_argument("--length", default="512,2048")
    parser.add_argument("--dtype", default="fp32,bf16")
    parser.add_argument("--method", default="full,lora")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--side", default="")
    parser.add_argument("-o", dest="form", choices=("table", "csv"),
                        default="table")
    options = parser.parse_args()
    if not ORACLE.exists():
        parser.error(f"{ORACLE} does not exist: run tests/parity/setup")
    models = options.model.split(",")
    for model in models:
        if model not in SIDES:
            parser.error(f"--model: {model}: these are: {', '.join(SIDES)}")
    sides = {model: [side for side in SIDES[model] if options.side in side]
             for model in models}
    if not all(sides.values()):
        parser.error(f"--side: {options.side}: these are: "
                     + ", ".join(side for model in models
                                 for side in SIDES[model]))
    if options.steps < 2:
        parser.error("--steps: at least 2, the first is not counted")
    header = ["case", "side", "tokens/s", "ratio", "peak MiB", "ratio", "loss"]
    if options.form == "table":
        print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    else:
        print(",".join(header))
    for model, length, dtype, method in itertools.product(
            models, map(int, options.length.split(",")),
            options.dtype.split(","), options.method.split(",")):
        case = Case(model, length, dtype, method, options.steps)
        print_case(case, measure(case, sides[model], options.runs),
                   options.form)


if __name__ == "__main__":
    main()
