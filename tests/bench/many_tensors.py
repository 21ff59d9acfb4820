"""What so many tensors as Qwen3-235B-A22B has cost the daemon, its workers and
the client: a model with all of its 94 layers, 128 experts and 36,096 tensors of
experts, in 118 files, and widths so small that nothing else takes time.

    bazel run //tests/bench:many_tensors -- [--layers 94] [--experts 128]

    seconds       of a call, or until the job or export is that far
    CPU           of daemon, workers and helpers
    beyond arena  the most anonymous memory that a process had meanwhile, which
                  the arena is no part of: daemon, device worker, host worker,
                  files worker, client
    longest turn  of the daemon's event loop: the end of its bucket
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

FILES = 118
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 16, 2, 1, 8, 8
MIB = 1 << 20
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "hidden_size": HIDDEN, "intermediate_size": 3 * INNER,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM, "moe_intermediate_size": INNER,
    "num_experts_per_tok": 8, "norm_topk_prob": True, "vocab_size": None,
    "max_position_embeddings": 128, "rope_theta": 1000000.0,
    "tie_word_embeddings": False, "dtype": "bfloat16"}
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 16, "batch_size": 8, "micro_batch_size": 4,
       "max_steps": 2, "save_steps": 2, "save_total_limit": 2,
       "dtype": "bf16"}
POLL_SECONDS = 0.02
SECONDS = 600  # at most, for anything


def layer_shapes(experts):
    shapes = {
        "input_layernorm": [HIDDEN],
        "self_attn.q_proj": [HEADS * HEAD_DIM, HIDDEN],
        "self_attn.k_proj": [KV_HEADS * HEAD_DIM, HIDDEN],
        "self_attn.v_proj": [KV_HEADS * HEAD_DIM, HIDDEN],
        "self_attn.o_proj": [HIDDEN, HEADS * HEAD_DIM],
        "self_attn.q_norm": [HEAD_DIM], "self_attn.k_norm": [HEAD_DIM],
        "post_attention_layernorm": [HIDDEN], "mlp.gate": [experts, HIDDEN]}
    for expert in range(experts):
        for name, shape in (("gate", [INNER, HIDDEN]), ("up", [INNER, HIDDEN]),
                            ("down", [HIDDEN, INNER])):
            shapes[f"mlp.experts.{expert}.{name}_proj"] = shape
    return shapes


def make_model(folder, layers, experts):
    """Answers how many tensors it has."""
    folder.mkdir()
    tokenizer = harness.make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": harness.EOS}))
    vocabulary = tokenizer.get_vocab_size()
    (folder / "config.json").write_text(json.dumps({
        **CONFIG, "num_hidden_layers": layers, "num_experts": experts,
        "vocab_size": vocabulary}))
    shapes = {"model.embed_tokens.weight": [vocabulary, HIDDEN]}
    for layer in range(layers):
        for name, shape in layer_shapes(experts).items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    shapes["model.norm.weight"] = [HIDDEN]
    shapes["lm_head.weight"] = [vocabulary, HIDDEN]
    chosen = random.Random(1)
    names = list(shapes)
    of_file = -(-len(names) // FILES)
    where = {}
    for number in range(FILES):
        file = f"model-{number + 1:05}-of-{FILES:05}.safetensors"
        part = names[number * of_file:(number + 1) * of_file]
        where.update(dict.fromkeys(part, file))
        tensors = {}
        for name in part:
            dtype, data = harness.random_values(shapes[name], "bf16", chosen)
            tensors[name] = dtype, shapes[name], data
        harness.write_safetensors(folder / file, tensors)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": where}))
    return len(names)


class Watched:
    """A process' memory beyond the arena and its CPU time, as long as it
    lives."""

    def __init__(self):
        self.anonymous = 0
        self.cpu = 0.0

    def look(self, pid):
        process = pathlib.Path(f"/proc/{pid}")
        try:
            status = (process / "status").read_text()
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return  # ended meanwhile
        found = re.search(r"^RssAnon:\s+(\d+)", status, re.M)
        if found:
            self.anonymous = max(self.anonymous, int(found[1]) << 10)
        self.cpu = ((int(fields[11]) + int(fields[12])) /
                    os.sysconf("SC_CLK_TCK"))


class Lab:
    def __init__(self, daemon):
        self.daemon = daemon
        self.lock = threading.Lock()
        self.seen = {}  # (role, pid): Watched
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def stop(self):
        self.stopped.set()
        self.thread.join()

    def run(self):
        while not self.stopped.wait(POLL_SECONDS):
            self.look()

    def look(self):
        found = {("daemon", self.daemon.process.pid)}
        if self.daemon.ended():
            return
        for pid, words in harness.children(self.daemon.process.pid).items():
            role = next((word.removeprefix("--role=") for word in words
                         if word.startswith("--role=")), "helper")
            found.add((role, pid))
        for pid, words in harness.children(os.getpid()).items():
            if words[0].endswith("client/roundhouse"):
                found.add(("client", pid))
        with self.lock:
            for key in found:
                self.seen.setdefault(key, Watched()).look(key[1])

    def turns(self):
        """{upper end of a bucket: turns in it}."""
        port = re.findall(r"metrics on (127\.0\.0\.1:\d+)",
                          self.daemon.log_path.read_text())[-1]
        with urllib.request.urlopen(f"http://{port}/metrics",
                                    timeout=60) as answer:
            buckets = re.findall(
                r'^roundhouse_event_loop_turn_seconds_bucket'
                r'{le="(.*?)"} (\d+)$', answer.read().decode(), re.M)
        found, below = collections.Counter(), 0
        for bound, count in buckets:
            found[float(bound)] = int(count) - below
            below = int(count)
        return found

    def measure(self, name, work, restarts=False):
        """Prints a row of what `work` took, and answers its result."""
        turns = collections.Counter() if restarts else self.turns()
        with self.lock:
            before = sum(one.cpu for one in self.seen.values())
            for one in self.seen.values():
                one.anonymous = 0
        begin = time.monotonic()
        result = work()
        seconds = time.monotonic() - begin
        self.look()
        with self.lock:
            cpu = sum(one.cpu for one in self.seen.values()) - before
            most = collections.Counter()
            for (role, _), one in self.seen.items():
                most[role] = max(most[role], one.anonymous)
        longest = max(+(self.turns() - turns), default=0)
        memory = ", ".join(f"{most[role] / MIB:.0f}" for role in
                           ("daemon", "device", "host", "files", "client"))
        print(f"| {name} | {seconds:.2f} | {cpu:.2f} | {memory} | "
              f"{1e3 * longest:g} |", flush=True)
        return result


def wait_for_step(daemon, job, step):
    harness.wait_until(
        lambda: any(line.get("step", 0) >= step
                    for line in daemon.metrics(job)),
        f"step {step} of {job}", SECONDS)


def resume(daemon, lab, spec):
    job = daemon.submit({**spec, "max_steps": 1_000_000})
    harness.wait_until(lambda: daemon.checkpoints(job), "a checkpoint",
                       SECONDS)

    def stop_and_go_on():
        daemon.stop()
        step = daemon.metrics(job)[-1]["step"] + 1
        daemon.start()
        wait_for_step(daemon, job, step)

    lab.measure("stop with a checkpoint, start, next step", stop_and_go_on,
                restarts=True)
    daemon.client("cancel", job)
    daemon.wait(job, "CANCELLED", seconds=SECONDS)


def run(scratch, count):
    daemon = scratch.daemon(devices="cpu:1", host_memory="1GiB",
                            metrics_listen="127.0.0.1:0")
    daemon.start()
    lab = Lab(daemon)
    try:
        print(f"{count:,} tensors\n\n| what | seconds | CPU, s | beyond arena, "
              "MiB (daemon, device, host, files, client) | longest turn, ms |\n"
              "|---|---|---|---|---|")
        lab.measure("`model show`",
                    lambda: daemon.client("model", "show", "model"))
        for method in ("full", "lora"):
            spec = {**JOB, "method": method}
            if method == "lora":
                spec["target_modules"] = "all-linear"
            path = scratch.folder / f"{method}.json"
            path.write_text(json.dumps(spec))
            lab.measure(f"{method}: dry run", lambda: daemon.client(
                "submit", "-f", path, "--dry-run", seconds=SECONDS))
            job = lab.measure("submit", lambda: daemon.submit(spec))
            lab.measure("to the first step (prepare, load)",
                        lambda: wait_for_step(daemon, job, 1))
            lab.measure("second step, checkpoint, result",
                        lambda: daemon.wait(job, seconds=SECONDS))
            resume(daemon, lab, spec)
            words = ["--merge"] if method == "lora" else []
            lab.measure("export" + (" --merge" if words else ""),
                        lambda: daemon.client(
                            "export", job, *words, "--output",
                            f"{method}-exported", seconds=SECONDS))
    finally:
        lab.stop()
    daemon.stop()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=94)
    parser.add_argument("--experts", type=int, default=128)
    options = parser.parse_args()
    with harness.Scratch() as scratch:
        count = make_model(scratch.data / "model", options.layers,
                           options.experts)
        scratch.make_data("train.jsonl", count=24)
        run(scratch, count)


if __name__ == "__main__":
    main()
