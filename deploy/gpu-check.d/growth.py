"""gpu-check's growth section: a job of many steps, after which the workers, the
daemon and the GPU hold no more memory than they did when it had warmed up."""

import re
import subprocess
import time

import jobs
import machine
import shapes
from outcome import Failed, Skipped

MIB = 1 << 20
# A step that lost 18 kB would show. The first steps are where allocators fill.
LIMIT_BYTES = 16 * MIB
STEPS = {"cuda": (100, 1100), "cpu": (100, 400)}  # warmed up, and the last
MOST_SECONDS = 80  # of check.py's budget; the rest is for starting and ending
ENDING_SECONDS = 2  # before check.py would end the section itself
# Little: the worker's pool on the GPU has it from the start, and what is lost
# shows when the pool must grow.
GPU_MEMORY = 1 << 30
SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "dtype": "bf16", "save_steps": 0, "seed": 7, "max_length": 64,
        "batch_size": 8, "micro_batch_size": 2, "learning_rate": 1e-3,
        "lr_scheduler_type": "constant"}


def anonymous_bytes(pid):
    """Memory of its own; the arena and files are not."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        kib, = re.findall(r"^Anonymous:\s+(\d+) kB$", file.read(), re.M)
    return 1024 * int(kib)


def gpu_bytes(run):
    """{"GPU 0": bytes in use}, of all processes."""
    if run.options.rehearse:
        return {}
    done = subprocess.run(
        [run.program("worker/probe/roundhouse-gpu-probe")],
        capture_output=True, text=True, check=True)
    chosen = {gpu["uuid"] for gpu in run.gpus}
    return {f"GPU {gpu['index']}":
            gpu["memory_total_bytes"] - gpu["memory_free_bytes"]
            for gpu in machine.parse_probe(done.stdout)["gpus"]
            if gpu.get("uuid") in chosen and "memory_free_bytes" in gpu}


def memory(run, daemon):
    processes = {"daemon": daemon.process.pid,
                 **{f"worker {name}": pid
                    for name, pid in daemon.workers().items()}}
    return {**{name: anonymous_bytes(pid)
               for name, pid in sorted(processes.items())}, **gpu_bytes(run)}


def growth(before, after, most=LIMIT_BYTES):
    """({name: bytes more}, what is wrong with it)"""
    found = {name: after.get(name, 0) - held for name, held in before.items()}
    wrong = [f"{name} holds {more} bytes more" for name, more in found.items()
             if more > most]
    wrong += [f"{name} was replaced" for name in before if name not in after]
    return found, wrong


def check(run, details):
    warm, last = STEPS[run.kind]
    with jobs.scratch_of(run) as scratch:
        config = shapes.TINY if run.options.rehearse else shapes.SMALL
        shapes.make_model(scratch.data / "model", config)
        shapes.make_rows(scratch.data / "train.jsonl", 4 * SPEC["batch_size"],
                         SPEC["max_length"])
        more = {} if run.options.rehearse else {"device_memory": GPU_MEMORY}
        daemon = jobs.daemon_of(run, scratch, **more)
        daemon.start()
        try:
            job = daemon.submit({**SPEC, "max_steps": 10 * last})
            begun = time.monotonic()
            end = begun + min(MOST_SECONDS, run.left() - ENDING_SECONDS)
            if jobs.wait_for_step(daemon, job, warm,
                                  end - time.monotonic()) is None:
                raise Skipped(f"no time for {warm} steps")
            pids, before = daemon.workers(), memory(run, daemon)
            if jobs.wait_for_step(daemon, job, last,
                                  end - time.monotonic()) is None:
                raise Skipped(f"no time for {last} steps: it made "
                              f"{len(jobs.steps(daemon, job))} in "
                              f"{time.monotonic() - begun:.0f} s")
            after = memory(run, daemon)
            if daemon.workers() != pids:
                raise Failed("a worker was replaced meanwhile:\n"
                             + daemon.tail(10))
        finally:
            if not daemon.ended():
                daemon.kill()
    details["steps"] = last - warm
    more, wrong = growth(before, after)
    details.update({f"{name}, bytes": held for name, held in after.items()})
    details.update({f"{name}, bytes more": held
                    for name, held in more.items()})
    if wrong:
        raise Failed(f"after {last - warm} steps " + ", ".join(wrong))
