"""gpu-check's fault section: a job while a device worker is killed (kill -9) in
the middle of a step, and an undisturbed one of as many steps. Both must leave
the same checkpoint, byte for byte, and the same losses."""

import hashlib
import os
import signal

import harness
import jobs
import shapes
from outcome import Failed

# The disturbed job runs until it is told to finish.
ENDLESS = 1_000_000
FIRST_KILL, BETWEEN_KILLS = 3, 5  # steps
MOST_KILLS = 6
PIECE_BYTES = 1 << 22
SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "dtype": "bf16", "save_steps": 0, "seed": 7,
        # Plans follow measured times, and `fast` sums round where a plan cuts.
        "determinism": "bitwise",
        "learning_rate": 1e-3, "lr_scheduler_type": "constant"}
ON_GPU = {"max_length": 512, "batch_size": 16, "micro_batch_size": 2}
REHEARSED = {"max_length": 32, "batch_size": 8, "micro_batch_size": 2}


def replayed_slots(daemon):
    """Slots that were lost with their worker and computed again."""
    return int(sum(value for labels, value in
                   jobs.series(daemon, "roundhouse_slots_total").items()
                   if ("result", "replayed") in labels))


def digest(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            found.update(piece)
    return found.hexdigest()


def digests(daemon, job, step):
    """{file: SHA-256} of a checkpoint's tensors."""
    folder = daemon.checkpoint(job, step)
    found = {path.name: digest(path)
             for path in sorted(folder.glob("*.safetensors"))}
    if not found:
        raise Failed(f"{folder} has no tensors")
    return found


def left_by(daemon, job, step):
    """What must not depend on a kill: digests, losses."""
    return (digests(daemon, job, step),
            [(entry["step"], entry["loss"], entry["grad_norm"])
             for entry in jobs.steps(daemon, job)])


def compare(calm, disturbed):
    """Of two jobs' left_by()."""
    (wanted, losses), (found, other_losses) = calm, disturbed
    differing = sorted(name for name in wanted.keys() | found.keys()
                       if wanted.get(name) != found.get(name))
    return {"files": found, "differing_files": differing,
            "losses_equal": losses == other_losses,
            "bit_identical": not differing and losses == other_losses}


def kill_in_a_step(daemon, job):
    """Kills device worker 0 until a kill has hit a slot; how many it took."""
    for kill in range(MOST_KILLS):
        step = FIRST_KILL + kill * BETWEEN_KILLS
        jobs.wait_for_step(daemon, job, step, harness.DEADLINE_SECONDS)
        before = daemon.worker("0")
        os.kill(before, signal.SIGKILL)
        harness.wait_until(
            lambda: daemon.workers().get("0") not in (None, before),
            "another worker")
        jobs.wait_for_step(daemon, job, step + 1, harness.DEADLINE_SECONDS)
        if replayed_slots(daemon) > 0:
            return kill + 1
    raise Failed(f"none of {MOST_KILLS} kills hit a slot: the steps are too "
                 "short")


def check(run, details):
    with jobs.scratch_of(run) as scratch:
        config = shapes.TINY if run.options.rehearse else shapes.SMALL
        spec = {**SPEC, **(REHEARSED if run.options.rehearse else ON_GPU)}
        shapes.make_model(scratch.data / "model", config)
        shapes.make_rows(scratch.data / "train.jsonl", 4 * spec["batch_size"],
                         spec["max_length"])
        daemon = jobs.daemon_of(run, scratch)
        daemon.start()
        disturbed = daemon.submit({**spec, "max_steps": ENDLESS})
        details["kills"] = kill_in_a_step(daemon, disturbed)
        last = daemon.finish(disturbed)["step"]
        calm = daemon.submit({**spec, "max_steps": last})
        daemon.wait(calm)
        details["replayed_slots"] = replayed_slots(daemon)
        details["steps"] = last
        details["parameters"] = shapes.parameter_count(config)
        details.update(compare(left_by(daemon, calm, last),
                               left_by(daemon, disturbed, last)))
        daemon.stop()
    if not details["bit_identical"]:
        raise Failed("the checkpoint after a worker's death differs from the "
                     f"undisturbed one: {details['differing_files']}, losses "
                     f"equal: {details['losses_equal']}")
