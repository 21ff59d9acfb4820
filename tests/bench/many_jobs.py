"""How soon a device hears of its next slot when 16 jobs of 8 users run, beside
one job, and what the daemon's CPU time is. As root: each user is another uid.

    bazel run //tests/bench:many_jobs -- [--seconds 20] [--devices 4]

The real daemon, wire, arena and words; devices that wait where others compute
(tests/fakes/fake_worker.cc). Load and daemon share the machine's cores.

    dispatch  from the answer that made a slot possible to the device's receipt
              of its command, of slots that a device waited for
    CPU       the daemon's CPU time a slot
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

COSTS = "layer,forward_ms,recompute_ms,backward_ms\n" + "".join(
    f"{layer},2,{2 if layer < 4 else 0},4\n" for layer in range(5))
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 16, "batch_size": 8, "micro_batch_size": 2,
       "max_steps": 1_000_000, "save_steps": 0}
FIRST_UID = 73_001
USERS, JOBS_EACH = 8, 2


class Lab:
    def __init__(self, scratch, devices):
        self.scratch = scratch
        self.samples = scratch.folder / "samples"
        self.daemon = scratch.daemon(devices=f"cpu:{devices}",
                                     max_running_jobs=USERS * JOBS_EACH,
                                     host_memory="1GiB",
                                     sample_log=self.samples)
        self.daemon.start(worker_program=scratch.fake_worker(COSTS))
        self.program = scratch.folder / "roundhouse"
        shutil.copy(harness.ROOT / "client/roundhouse", self.program)
        self.daemon.let_everybody_in()
        for user in range(USERS):
            self.daemon.client("user", "add", f"user{user}",
                               f"--uid={FIRST_UID + user}")

    def submit(self, user):
        path = self.scratch.folder / f"user{user}.json"
        path.write_text(json.dumps(JOB))
        path.chmod(0o644)
        done = subprocess.run(
            [self.program, f"--server=unix:{self.daemon.socket}", "submit",
             "-f", path, "-o", "name"],
            preexec_fn=harness.become(FIRST_UID + user), capture_output=True,
            text=True, check=True, timeout=harness.DEADLINE_SECONDS,
            stdin=subprocess.DEVNULL,
            env={"HOME": "/nowhere", "PATH": "/usr/bin:/bin"})
        return done.stdout.strip().rsplit("/", 1)[-1]

    def cpu_seconds(self):
        fields = pathlib.Path(
            f"/proc/{self.daemon.process.pid}/stat").read_text()
        ticks = fields.rsplit(")", 1)[1].split()
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")

    def measure(self, jobs, seconds):
        """Dispatch latencies in microseconds, slots and CPU seconds of a time
        in which all of `jobs` make steps."""
        for job in jobs:
            harness.wait_until(lambda: self.daemon.job(job)["step"] > 2,
                               f"steps of {job}")
        begin = self.samples.stat().st_size
        cpu = self.cpu_seconds()
        time.sleep(seconds)
        cpu = self.cpu_seconds() - cpu
        with open(self.samples, encoding="ascii") as log:
            log.seek(begin)
            lines = log.read().splitlines()[1:-1]
        waits = sorted(int(line.split(",")[1]) / 1e3 for line in lines
                       if line.startswith("dispatch,"))
        slots = sum(line.startswith("slot,") for line in lines)
        return waits, slots, cpu


def row(name, waits, slots, cpu, seconds):
    at = lambda share: waits[int(share * (len(waits) - 1))]
    return (f"| {name} | {slots / seconds:.0f} | {at(0.5):.0f} | "
            f"{at(0.99):.0f} | {len(waits)} | {1e6 * cpu / slots:.0f} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--devices", type=int, default=4)
    options = parser.parse_args()
    print("| jobs | slots a second | dispatch p50, µs | p99, µs | of | "
          "CPU a slot, µs |\n|---|---|---|---|---|---|")
    with harness.Scratch() as scratch:
        scratch.make_model("model")
        scratch.make_data("train.jsonl", count=24)
        lab = Lab(scratch, options.devices)
        jobs = [lab.submit(0)]
        print(row("1", *lab.measure(jobs, options.seconds), options.seconds),
              flush=True)
        for user in range(USERS):
            while len(jobs) < JOBS_EACH * (user + 1):
                jobs.append(lab.submit(user))
        print(row(f"{len(jobs)} of {USERS} users",
                  *lab.measure(jobs, options.seconds), options.seconds),
              flush=True)
        lab.daemon.stop()


if __name__ == "__main__":
    main()
