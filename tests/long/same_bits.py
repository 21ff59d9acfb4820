"""Whether two builds compute the same: jobs of every kind, run by both on this
machine, compared byte by byte.

    same_bits.py BEFORE AFTER

Each is a copy of a test's runfiles, which have daemon, workers and client:

    bazel build //tests/integration:bitwise_test
    cp -rL BIN/tests/integration/bitwise_test.runfiles/roundhouse BEFORE

where BIN is what `bazel info bazel-bin` says. Bits depend on the kind of CPU,
so nothing is stored. Compared are tokens and labels of the prepared data,
losses and norms of every step, weights, masters and moments of the last
checkpoint, and what is exported. Exits with 1 where anything differs.
"""

import hashlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

STEPS = 8
BASE = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "validation_dataset": "validation.jsonl", "max_length": 32,
        "batch_size": 8, "micro_batch_size": 2, "max_steps": STEPS,
        "learning_rate": 0.01, "seed": 7, "save_steps": 4, "eval_steps": 4,
        "dtype": "fp32"}
PLAN = {"forward": [[0, 1], [2, 2]], "backward": [[3, 4], [1, 2], [0, 0]]}
WIDE = {"forward": [[0, 3]], "backward": [[4, 4], [0, 3]], "width": 2}
ADAPTER = {"method": "lora", "lora_r": 4, "lora_alpha": 8,
           "target_modules": "all-linear"}
JOBS = {
    "full": {"plan": PLAN},
    "full_auto": {"micro_batches_per_round": 2, "weight_decay": 0.1},
    "lora_with_dropout": {**ADAPTER, "lora_dropout": 0.1, "plan": PLAN},
    "bf16": {"dtype": "bf16", "plan": PLAN, "max_grad_norm": 0},
    "fp16": {"dtype": "fp16", "plan": PLAN},
    "packed": {"packing": True, "dtype": "bf16", "plan": PLAN},
    "async": {"optimizer_mode": "async", "plan": PLAN},
    "wide": {"plan": WIDE, "gradient_groups": 2},
    "wide_lora": {**ADAPTER, "plan": WIDE, "gradient_groups": 2,
                  "lora_dropout": 0.1, "dtype": "bf16"},
    "fast": {"determinism": "fast", "dtype": "bf16", "plan": PLAN},
}
TOGETHER = ("full", "lora_with_dropout")  # at once, once more


def run(root):
    """{"job/file": hash or text} of all jobs."""
    harness.ROOT = root
    found = {}
    with harness.Scratch() as scratch:
        scratch.make_model("model", seed=3)
        scratch.make_data("train.jsonl", count=60, seed=4)
        scratch.make_data("validation.jsonl", count=12, seed=5)
        daemon = scratch.daemon(devices="cpu:2")
        # Either build has it where it had it then.
        daemon.fixed["prepare_script"] = next(
            pathlib.Path(root).glob("server/*/prepare.py"))
        daemon.start()
        for name, fields in JOBS.items():
            found |= result(daemon, name, submit(daemon, fields))
        both = {name + "_with_another": submit(daemon, JOBS[name])
                for name in TOGETHER}
        for name, job in both.items():
            found |= result(daemon, name, job)
        daemon.stop()
    return found


def submit(daemon, fields):
    return daemon.submit({**BASE, **fields})


def result(daemon, name, job):
    output = pathlib.Path(daemon.wait(job)["output_path"])
    folders = {"data": daemon.directory(job) / "data",
               "checkpoint": daemon.checkpoint(job, STEPS), "output": output}
    found = {f"{name}/metrics": [
        {key: value for key, value in entry.items() if key != "step_seconds"}
        for entry in daemon.metrics(job)]}
    for place, folder in folders.items():
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".safetensors", ".u32", ".u8", ".u64"):
                found[f"{name}/{place}/{path.relative_to(folder)}"] = \
                    hashlib.sha256(path.read_bytes()).hexdigest()
    kinds = {key.split("/")[1] for key in found}
    if kinds != {"metrics", *folders} or not found[f"{name}/metrics"]:
        raise SystemExit(f"{name} left only {sorted(found)}")
    return found


def main(before, after):
    first, second = (run(pathlib.Path(root).absolute())
                     for root in (before, after))
    different = sorted(key for key in first.keys() | second.keys()
                       if first.get(key) != second.get(key))
    for key in different:
        print(f"differs: {key}")
    print(f"{len(first)} results of {len(JOBS) + len(TOGETHER)} jobs: "
          f"{len(different)} differ")
    return 1 if different else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
