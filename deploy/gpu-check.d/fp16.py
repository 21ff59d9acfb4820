"""gpu-check's fp16 section: a job in fp16 whose first step overflows at the
loss scale that it begins with, and the same one in fp32. Overflows are skipped,
each halves the scale, and what is then trained has the losses of fp32."""

import math

import jobs
import shapes
from outcome import Failed

STEPS = 40
INITIAL_SCALE = 65536
# Few tokens in a step and a last norm of four: gradients are large. All rows
# are one, so that a skipped step only puts off the others.
SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "save_steps": 0, "seed": 7, "max_length": 32, "batch_size": 2,
        "micro_batch_size": 1, "max_steps": STEPS,
        "lr_scheduler_type": "constant"}
# The larger model learns its one row in some steps.
ON_GPU, REHEARSED = {"learning_rate": 2e-5}, {"learning_rate": 1e-4}
WORDS = 2
# How far a loss may be from fp32's, in first losses: it falls far. The larger
# model is 0.0054 away on a CPU, where Adam begins with the signs of gradients.
LIMIT = 0.03


def compare(half, full):
    """(details, what is wrong) of both jobs' steps. One that was skipped has no
    norm; the k-th that was not is the k-th of fp32."""
    made = [entry for entry in half if "grad_norm" in entry]
    skipped = len(half) - len(made)
    apart = [abs(one["loss"] - other["loss"]) / full[0]["loss"]
             for one, other in zip(made, full)]
    details = {"steps": len(half), "skipped_steps": skipped,
               "last_loss_scale": half[-1]["loss_scale"],
               "first_loss": half[0]["loss"], "last_loss": half[-1]["loss"],
               "most_apart": max(apart, default=0.0)}
    wrong = []
    if not all(math.isfinite(entry["loss"]) for entry in half):
        wrong.append("a loss is not finite")
    if skipped == 0:
        wrong.append("no step was skipped: nothing overflowed")
    if len(made) < len(half) / 2:
        wrong.append(f"{skipped} of {len(half)} steps were skipped")
    # Too few steps for the scale to rise.
    if half[-1]["loss_scale"] != INITIAL_SCALE * 0.5 ** skipped:
        wrong.append(f"the loss scale is {half[-1]['loss_scale']} after "
                     f"{skipped} skipped steps")
    if not details["most_apart"] <= LIMIT:
        wrong.append(f"a loss is {details['most_apart']:.4f} first losses from "
                     f"fp32's; {LIMIT} are allowed")
    if not half[-1]["loss"] < half[0]["loss"]:
        wrong.append("the loss did not fall")
    return details, wrong


def check(run, details):
    with jobs.scratch_of(run) as scratch:
        config = shapes.TINY if run.options.rehearse else shapes.SMALL
        spec = {**SPEC, **(REHEARSED if run.options.rehearse else ON_GPU)}
        shapes.make_model(scratch.data / "model", config,
                          last_norm=shapes.FOUR)
        shapes.make_rows(scratch.data / "one.jsonl", 1, WORDS)
        row = (scratch.data / "one.jsonl").read_text()
        (scratch.data / "train.jsonl").write_text(row * spec["batch_size"])
        daemon = jobs.daemon_of(run, scratch)
        daemon.start()
        steps = {}
        for dtype in ("fp16", "fp32"):
            job = daemon.submit({**spec, "dtype": dtype})
            daemon.wait(job)
            steps[dtype] = jobs.steps(daemon, job)
        daemon.stop()
    found, wrong = compare(steps["fp16"], steps["fp32"])
    details.update(found)
    if wrong:
        raise Failed("; ".join(wrong))
