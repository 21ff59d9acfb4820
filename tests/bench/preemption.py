"""How soon an urgent job has a device that others' jobs are using: after
`resume`, and after it was loaded.

    bazel run //tests/bench:preemption -- [--rounds 200] [--devices 4]

The real daemon, wire, arena and words; devices that wait where others compute
(tests/fakes/fake_worker.cc). Two normal jobs keep all devices at work. Each
round pauses the urgent job and resumes it a random moment later; then urgent
jobs of one step are submitted one after the other. Load and daemon share the
machine's cores.

    wait   from when the job could go to the beginning of its first slot on a
           device (roundhouse_preemption_latency_seconds)
    slot   the longest slot of the same time
"""

import argparse
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

COSTS = "layer,forward_ms,recompute_ms,backward_ms\n" + "".join(
    f"{layer},4,{4 if layer < 4 else 0},8\n" for layer in range(5))
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 16, "batch_size": 8, "micro_batch_size": 2,
       "max_steps": 1_000_000, "save_steps": 0}


class Log:
    """What --sample-log says from one moment on."""

    def __init__(self, path):
        self.path = path
        self.begin = path.stat().st_size

    def lines(self):
        with open(self.path, encoding="ascii") as log:
            log.seek(self.begin)
            return log.read().splitlines()[1:-1]

    def waits(self):
        return sorted(int(line.split(",")[1]) / 1e6 for line in self.lines()
                      if line.startswith("urgent,"))

    def longest_slot(self):
        """In milliseconds, with the waits in it."""
        slots = [line.split(",") for line in self.lines()
                 if line.startswith("slot,")]
        return max((int(slot[3]) - int(slot[2])) / 1e6 for slot in slots)


def row(name, log):
    waits, slot = log.waits(), log.longest_slot()
    at = lambda share: waits[int(share * (len(waits) - 1))]
    print(f"| {name} | {len(waits)} | {at(0.5):.1f} | {at(0.99):.1f} | "
          f"{waits[-1]:.1f} | {slot:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with harness.Scratch() as scratch:
        scratch.make_model("model")
        scratch.make_data("train.jsonl", count=24)
        samples = scratch.folder / "samples"
        daemon = scratch.daemon(devices=f"cpu:{options.devices}",
                                max_running_jobs=4, host_memory="1GiB",
                                sample_log=samples)
        daemon.start(worker_program=scratch.fake_worker(COSTS))
        for _ in range(2):
            job = daemon.submit(JOB)
            harness.wait_until(lambda: daemon.job(job)["step"] > 2,
                               f"steps of {job}")
        print("| the urgent job | times | wait p50, ms | p99, ms | most, ms | "
              "longest slot, ms |\n|---|---|---|---|---|---|")
        urgent = daemon.submit({**JOB, "priority": "urgent"})
        harness.wait_until(lambda: daemon.job(urgent)["step"] > 2,
                           f"steps of {urgent}")
        log = Log(samples)
        for _ in range(options.rounds):
            daemon.client("pause", urgent)
            time.sleep(draw.uniform(0.1, 0.3))
            daemon.client("resume", urgent)
            time.sleep(draw.uniform(0.1, 0.3))
        row("is resumed", log)
        daemon.client("cancel", urgent)
        daemon.wait(urgent, "CANCELLED")
        log = Log(samples)
        for _ in range(options.rounds // 4):
            daemon.wait(daemon.submit({**JOB, "priority": "urgent",
                                       "max_steps": 1}))
        row("is loaded", log)
        daemon.stop()


if __name__ == "__main__":
    main()
