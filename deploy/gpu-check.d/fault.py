"""gpu-check's sections fault and device_fault: a job while a device worker is
killed (kill -9) in the middle of a step, or while its device breaks in the
middle of a slot (a kernel that traps; a CPU device says that it is lost), and
an undisturbed one of as many steps. Both must leave the same checkpoint, byte
for byte, and the same losses."""

import hashlib
import os
import re
import signal

import harness
import jobs
import shapes
from outcome import Failed

# The disturbed job runs until it is told to finish.
ENDLESS = 1_000_000
FIRST_KILL, BETWEEN_KILLS = 3, 5  # steps
MOST_KILLS = 6
RECOVERY_SECONDS = 20.0  # to wait for; only a figure
PIECE_BYTES = 1 << 22
# The device of worker 0 breaks in its 20th micro-batch: after its first slot,
# and with any plan long before the last step.
BREAKS_AT, BROKEN_STEPS = 20, 16
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


def recovery_seconds(daemon):
    """From the death of a worker that had a slot to its device's next one,
    the mean; None: there was none yet."""
    total, count = (
        sum(jobs.series(
            daemon, f"roundhouse_recovery_duration_seconds_{part}").values())
        for part in ("sum", "count"))
    return total / count if count else None


def wait_for_recovery(daemon):
    """The same, None if it does not come; while a job has slots."""
    try:
        return harness.wait_until(lambda: recovery_seconds(daemon),
                                  "a slot of the new worker",
                                  seconds=RECOVERY_SECONDS, pause=0.1)
    except harness.Failure:
        return None


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
    """Compares what two jobs left, as left_by() reads it."""
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


def make_job(run, scratch):
    """(spec, parameters) of what both sections train."""
    config = shapes.TINY if run.options.rehearse else shapes.SMALL
    spec = {**SPEC, **(REHEARSED if run.options.rehearse else ON_GPU)}
    shapes.make_model(scratch.data / "model", config)
    shapes.make_rows(scratch.data / "train.jsonl", 4 * spec["batch_size"],
                     spec["max_length"])
    return spec, shapes.parameter_count(config)


def compare_with_calm(daemon, spec, disturbed, details):
    """Trains as many steps undisturbed, and fills `details`."""
    last = daemon.job(disturbed)["step"]
    calm = daemon.submit({**spec, "max_steps": last})
    daemon.wait(calm)
    details["replayed_slots"] = replayed_slots(daemon)
    details["steps"] = last
    details.update(compare(left_by(daemon, calm, last),
                           left_by(daemon, disturbed, last)))


def must_be_identical(details):
    if not details["bit_identical"]:
        raise Failed("the checkpoint after a worker's death differs from the "
                     f"undisturbed one: {details['differing_files']}, losses "
                     f"equal: {details['losses_equal']}")


def must_have_lost_one_device(details):
    if details["replaced_workers"] != ["0"]:
        raise Failed("the device of worker 0 broke, and these workers were "
                     f"replaced: {details['replaced_workers']}")
    if details["replayed_slots"] == 0:
        raise Failed("no slot was lost with the device, and computed again")


def check(run, details):
    with jobs.scratch_of(run) as scratch:
        spec, details["parameters"] = make_job(run, scratch)
        daemon = jobs.daemon_of(run, scratch)
        daemon.start()
        disturbed = daemon.submit({**spec, "max_steps": ENDLESS})
        details["kills"] = kill_in_a_step(daemon, disturbed)
        details["recovery_seconds"] = wait_for_recovery(daemon)
        daemon.finish(disturbed)
        compare_with_calm(daemon, spec, disturbed, details)
        daemon.stop()
        must_be_identical(details)


def words_of_the_death(log):
    """How device worker 0 ended, and what it said of its device: of the
    daemon's log. LibTorch may end it first, when it frees what it has there."""
    ends = re.findall(r"device worker 0 ((?:exited|killed) [^;\n]*)", log)
    words = re.findall(r"device is lost: .*|CUDA error: .*", log)
    if not ends:
        raise Failed("device worker 0 did not end: its device did not break, "
                     "or it did not see it")
    if not words:
        raise Failed(f"device worker 0 {ends[0]}, and did not say that its "
                     "device is lost")
    return ends[0], words[0]


def pids_of(daemon):
    """{"0": pid, ..., "host": pid, "files": pid}, once all are there."""
    devices = [str(i) for i in range(len(jobs.devices(daemon)))]
    return {name: daemon.worker(name) for name in [*devices, "host", "files"]}


def check_device(run, details):
    with jobs.scratch_of(run) as scratch:
        spec, details["parameters"] = make_job(run, scratch)
        daemon = jobs.daemon_of(run, scratch,
                                worker_kill_at=f"0=slot.fault:{BREAKS_AT}")
        daemon.start()
        before = pids_of(daemon)
        disturbed = daemon.submit({**spec, "max_steps": BROKEN_STEPS})
        daemon.wait(disturbed)
        details["ended"], details["words"] = words_of_the_death(
            daemon.log_path.read_text(errors="replace"))
        after = pids_of(daemon)
        details["replaced_workers"] = sorted(
            name for name, pid in before.items() if after[name] != pid)
        compare_with_calm(daemon, spec, disturbed, details)
        daemon.stop()
        must_have_lost_one_device(details)
        must_be_identical(details)
