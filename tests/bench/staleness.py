"""Training with an asynchronous optimizer beside a synchronous one.

    bazel run //tests/bench:staleness -- [--seeds 5] [--steps 400] [-o csv]

The quickstart's job (deploy/quickstart.d) in both modes, once a seed, on four
CPU workers: the same data and the same random weights, so all that differs
between the two is that each step reads weights which are one update old. Mean
training loss around some steps (nats per token, of 20 steps), the validation
loss at the end, and the bigram model's.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

PARTS = harness.ROOT / "deploy/quickstart.d"
MODES = ("sync", "async")
WINDOW = 20


def fields():
    """The fields of the quickstart's job file, which has one a line."""
    lines = (PARTS / "job.yaml").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines
                if line and not line.startswith("#"))


def make_inputs(data):
    for script, arguments in (
            ("make_data.py", ("--out", data / "data")),
            ("make_model.py", ("--text", data / "data/train.jsonl", "--out",
                               data / "model"))):
        subprocess.run([sys.executable, PARTS / script, *arguments],
                       check=True, stdout=subprocess.DEVNULL)


def train(daemon, mode, seed, steps):
    """Mean loss up to each of some steps, the last validation loss."""
    spec = {**fields(), "optimizer_mode": mode, "seed": seed,
            "max_steps": steps, "save_steps": 0,
            "output_name": f"{mode}-{seed}"}
    job = daemon.submit("".join(f"{name}: {value}\n"
                                for name, value in spec.items()))
    daemon.wait(job, seconds=3600)
    metrics = daemon.metrics(job)
    losses = [line["loss"] for line in metrics if "loss" in line]
    evaluations = [line["eval_loss"] for line in metrics
                   if "eval_loss" in line]
    marks = [steps * part // 4 for part in (1, 2, 3, 4)]
    return [statistics.mean(losses[max(0, mark - WINDOW):mark])
            for mark in marks], evaluations[-1]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("-o", dest="form", choices=("table", "csv"),
                        default="table")
    options = parser.parse_args()
    if options.seeds < 1 or options.steps < 4:
        parser.error("at least one seed and four steps")
    quarters = [f"step {options.steps * part // 4}" for part in (1, 2, 3, 4)]
    header = ["seed", "optimizer_mode", *quarters, "validation"]

    def show(cells):
        print(",".join(cells) if options.form == "csv"
              else "| " + " | ".join(cells) + " |", flush=True)

    show(header)
    if options.form == "table":
        print("|---" * len(header) + "|")
    final = {mode: [] for mode in MODES}
    with harness.Scratch() as scratch:
        make_inputs(scratch.data)
        daemon = scratch.daemon(devices="cpu:4")
        daemon.start()
        for seed in range(1, options.seeds + 1):
            for mode in MODES:
                losses, validation = train(daemon, mode, seed, options.steps)
                final[mode].append(validation)
                show([str(seed), mode, *(f"{loss:.4f}" for loss in losses),
                      f"{validation:.4f}"])
        daemon.stop()
    for mode in MODES:
        spread = (statistics.stdev(final[mode]) if options.seeds > 1 else 0)
        print(f"{mode}: validation loss {statistics.mean(final[mode]):.4f}, "
              f"standard deviation {spread:.4f}", file=sys.stderr)


if __name__ == "__main__":
    main()
