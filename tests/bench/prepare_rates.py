"""Preparing many short conversations beside `datasets.map`, in one run.

    prepare_rates.py [--rows 1000000] [--seed 1]

Run in the environment that tests/parity/setup makes, which has transformers
and datasets; nothing of Bazel's is needed. Both read the same JSON Lines with
the same tokenizer and chat template, on one core and on two, kept there by
sched_setaffinity. `datasets` reads the file into its cache and makes token ids
with apply_chat_template, in batches of 1,000, by one process a core. The
dataset helper makes masks of what is trained as well, checks each row, hashes
the file before and behind, and writes arrays that are synced. Both must find
the same number of tokens.

Prints for each: seconds, rows and tokens a second, CPU seconds of all its
processes, the most memory that these had at once (PSS, looked at ten times a
second), and for the helper how long a second job on the same data takes.
"""

import argparse
import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREPARE = ROOT / "server/prepare/prepare.py"
MAX_LENGTH = 1024
VOCABULARY = 8000
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}"""
LOOKS_A_SECOND = 10


# --- Inputs ------------------------------------------------------------------


def sentences():
    """English, of our own documents."""
    texts = [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))]
    found = [sentence for text in texts
             for sentence in re.split(r"(?<=[.?!])\s+", text)
             if 20 < len(sentence) < 120]
    return texts, found


def make_model(folder, texts):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>", "chat_template": CHATML}))


def make_rows(path, rows, seed, said):
    source = random.Random(seed)
    with open(path, "w") as file:
        for _ in range(rows):
            answer = " ".join(source.choices(said, k=source.choice([1, 2])))
            file.write(json.dumps({"messages": [
                {"role": "user", "content": source.choice(said)},
                {"role": "assistant", "content": answer}]}) + "\n")


# --- The two sides, each in a process of its own -----------------------------


def run_map(folder, cores):
    import datasets
    import pyarrow.compute
    from transformers import AutoTokenizer
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    data = datasets.load_dataset(
        "json", data_files=str(folder / "rows.jsonl"), split="train",
        cache_dir=str(folder / f"map{cores}"))

    def encode(batch):
        found = tokenizer.apply_chat_template(
            batch["messages"], truncation=True, max_length=MAX_LENGTH,
            return_dict=True,
            tokenizer_kwargs={"return_attention_mask": False})
        return {"input_ids": found["input_ids"],
                "length": list(map(len, found["input_ids"]))}

    data = data.map(encode, batched=True, remove_columns=data.column_names,
                    num_proc=cores if cores > 1 else None)
    tokens = pyarrow.compute.sum(data.data.column("length")).as_py()
    (folder / f"map{cores}.json").write_text(
        json.dumps({"rows": len(data), "tokens": tokens}))


def helper_command(folder, cores, out):
    return [sys.executable, PREPARE, "--tokenizer", folder / "model", "--data",
            folder / "rows.jsonl", "--out", folder / out, "--cache",
            folder / f"cache{cores}", "--max-length", MAX_LENGTH, "--split",
            "train", "--processes", cores]


def map_command(folder, cores):
    return [sys.executable, __file__, "--map", folder, "--cores", cores]


# --- Measuring ---------------------------------------------------------------


class Watch(threading.Thread):
    """The most memory of a process and those below it."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid = pid
        self.most_bytes = 0
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(1 / LOOKS_A_SECOND):
            self.most_bytes = max(self.most_bytes, tree_bytes(self.pid))


def tree_bytes(pid):
    try:
        own = re.search(r"^Pss: +(\d+)", pathlib.Path(
            f"/proc/{pid}/smaps_rollup").read_text(), re.M)
        below = "".join(task.read_text() for task in pathlib.Path(
            f"/proc/{pid}/task").glob("*/children")).split()
    except OSError:
        return 0  # it has ended
    return (int(own[1]) << 10 if own else 0) + sum(map(tree_bytes, below))


def measure(command, cores):
    """Seconds, CPU seconds, most bytes; fails where the command does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    environment = dict(os.environ, TOKENIZERS_PARALLELISM="false",
                       HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, set(cores)))
    watch = Watch(process.pid)
    watch.start()
    status = process.wait()
    seconds = time.monotonic() - start
    watch.over.set()
    watch.join()
    if status != 0:
        sys.exit(f"{command} ended with {status}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return seconds, cpu, watch.most_bytes


def row(name, cores, rows, tokens, found):
    seconds, cpu, most = found
    print(f"{name:15} {cores:5} {seconds:8.1f} {rows / seconds:9,.0f} "
          f"{tokens / seconds:10,.0f} {cpu:8.1f} {most / 2**20:8,.0f}",
          flush=True)
    return rows / seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--map", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.map:
        run_map(options.map, options.cores)
        return
    here = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        texts, said = sentences()
        make_model(folder / "model", texts)
        make_rows(folder / "rows.jsonl", options.rows, options.seed, said)
        size = (folder / "rows.jsonl").stat().st_size
        print(f"{options.rows:,} conversations, {size / 2**20:,.0f} MiB\n"
              "what            cores  seconds    rows/s   tokens/s  CPU s    "
              "   MiB", flush=True)
        rates = {}
        for cores in (1, 2):
            out = f"out{cores}"
            found = measure(helper_command(folder, cores, out), here[:cores])
            manifest = json.loads((folder / out / "manifest.json").read_text())
            assert manifest["rows"] == options.rows
            tokens = manifest["tokens"]
            ours = row("prepare.py", cores, options.rows, tokens, found)
            again = measure(helper_command(folder, cores, out + "again"),
                            here[:cores])
            row("  once more", cores, options.rows, tokens, again)
            theirs = row("datasets.map", cores, options.rows, tokens, measure(
                map_command(folder, cores), here[:cores]))
            found = json.loads((folder / f"map{cores}.json").read_text())
            assert found == {"rows": options.rows, "tokens": tokens}, found
            shutil.rmtree(folder / f"map{cores}")
            rates[cores] = ours, theirs
        for cores, (ours, theirs) in rates.items():
            print(f"{cores} core(s): {ours / theirs:.2f} times the rows/s of "
                  "datasets.map")
        print(f"two cores beside one: prepare.py {rates[2][0] / rates[1][0]:.2f}"
              f", datasets.map {rates[2][1] / rates[1][1]:.2f}")


if __name__ == "__main__":
    main()
