"""Daemons and jobs for the sections of gpu-check that train."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import sys
import urllib.request

import harness
import machine
from outcome import Failed, OutOfMemory

ROOT = pathlib.Path(__file__).absolute().parents[2]
GIB = 1 << 30
# A card of 24 GiB, less what the daemon leaves for CUDA in each worker
# (server/gpu/gpu_choice.h).
CARD_BYTES, RESERVE_BYTES = 24 * GIB, 2 * GIB
# The arena's share of the free host memory. The rest is for the page cache,
# workers and this process.
ARENA_SHARE = 0.7
MEMORY_REASONS = ("DEVICE_MEMORY", "HOST_MEMORY")  # of a failed job
REHEARSED = {"devices": "cpu:2", "device_memory": "256MiB",
             "host_memory": "256MiB"}


def device_memory(gpus, devices_of_each=1):
    return min([CARD_BYTES, *(
        gpu.get("memory_total_bytes", CARD_BYTES) // devices_of_each
        for gpu in gpus)]) - RESERVE_BYTES


def host_memory(share=ARENA_SHARE):
    return int(share * machine.available_memory())


def flags(run):
    """The flags of a daemon on the devices of `run`."""
    if run.options.rehearse:
        return dict(REHEARSED)
    cores = len(os.sched_getaffinity(0))
    return {"devices": run.options.devices,
            "device_memory": device_memory(run.gpus),
            "host_memory": host_memory(),
            "host_threads": max(1, min(16, cores - 2))}


def with_variable(path, name, value, program):
    """`program`, or a script at `path` that starts it with the variable."""
    if not value:
        return program
    path.write_text(f"#!/bin/sh\n{name}={shlex.quote(value)}\nexport {name}\n"
                    f'exec {shlex.quote(str(program))} "$@"\n')
    path.chmod(0o700)
    return path


def with_libraries(folder, run, program):
    """A program of ours, as it finds LibTorch and the driver."""
    found = run.program(program)
    return with_variable(folder / f"{found.name}.sh", "LD_LIBRARY_PATH",
                         run.library_path(), found)


@contextlib.contextmanager
def scratch_of(run):
    """A harness.Scratch whose daemons are those of `run`. If it is left with an
    error, what they have said is kept."""
    harness.ROOT = run.options.programs
    with harness.Scratch() as scratch:
        try:
            yield scratch
        except BaseException:
            log_daemons(run, scratch.daemons)
            raise


def log_daemons(run, daemons):
    for daemon in daemons:
        if daemon.log_path.exists():
            run.log(daemon.log_path,
                    daemon.log_path.read_text(errors="replace"))


def daemon_of(run, scratch, **more):
    """Not started. The daemon starts its children with an environment of its
    own: what they need of ours is in scripts."""
    for program in ("server/roundhoused", "client/roundhouse"):
        run.program(program)
    daemon = scratch.daemon(metrics_listen="127.0.0.1:0",
                            **{**flags(run), **more})
    daemon.fixed["prepare_script"] = ROOT / "server/prepare/prepare.py"
    daemon.fixed["gpu_probe"] = with_libraries(
        daemon.folder, run, "worker/probe/roundhouse-gpu-probe")
    daemon.fixed["worker_program"] = with_libraries(
        daemon.folder, run, "worker/roundhouse-worker")
    daemon.fixed["python"] = with_variable(
        daemon.folder / "python.sh", "PYTHONPATH",
        os.environ.get("PYTHONPATH"), sys.executable)
    return daemon


def series(daemon, name):
    """{(("device", "0"), ...): value} of a metric."""
    address = re.findall(r"metrics on (127\.0\.0\.1:\d+)",
                         daemon.log_path.read_text())[-1]
    with urllib.request.urlopen(f"http://{address}/metrics",
                                timeout=10) as page:
        text = page.read().decode()
    return {tuple(re.findall(r'(\w+)="(.*?)"', labels or "")): float(value)
            for labels, value in re.findall(
                rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.M)}


def devices(daemon):
    return json.loads(daemon.client("device", "-o", "json").stdout)["devices"]


def steps(daemon, job):
    """The optimizer steps so far, from metrics.jsonl."""
    return [entry for entry in daemon.metrics(job) if "step_seconds" in entry]


def wait_for_step(daemon, job, step, seconds):
    """Answers the steps, at least so many; None when `seconds` are over.
    Failed when the job ended before."""
    checked = 0.0

    def enough():
        nonlocal checked
        found = steps(daemon, job)
        if len(found) >= step:
            return found
        checked += 0.01
        if checked > 1:  # about once a second: a call costs more than a look
            checked = 0.0
            must_run(daemon, job)
        return None
    if seconds <= 0:
        return None
    try:
        return harness.wait_until(enough, f"step {step}", seconds=seconds)
    except harness.Failure:
        return None


def must_run(daemon, job):
    found = daemon.job(job)
    if found["state"] in ("FAILED", "CANCELLED", "PAUSED"):
        raise (OutOfMemory if found.get("reason") in MEMORY_REASONS
               else Failed)(f"{job} is {found['state']}: "
                            f"{found.get('message')}\n{daemon.tail(10)}")


def cancel(daemon, job, seconds):
    """Waits until it is over, as long at most. Answers whether it is: a slot
    that a device computes is not broken off."""
    if seconds <= 0:
        return False
    with contextlib.suppress(harness.Failure):
        daemon.client("cancel", job, check=False, seconds=seconds)
        harness.wait_until(
            lambda: daemon.job(job)["state"] in ("CANCELLED", "FAILED"),
            f"the end of {job}", seconds=seconds, pause=0.1)
        return True
    return False
