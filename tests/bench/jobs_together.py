"""Two jobs that share the devices, beside the same two one after the other.

    bazel run //tests/bench:jobs_together -- [--steps 40] [--runs 3] [-o csv]

The real daemon, wire, arena and words; eight devices that wait where others
compute (tests/fakes/fake_worker.cc), so two cores are enough. two_plans.py has
the jobs.

    seconds    from the first job's start to the last one's end
    bubble     of that time, devices that computed nothing
    first job  how much longer its steps take than alone
"""

import argparse
import datetime
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness
from two_plans import COSTS, DEVICES, PLANS, SPEC

SPEC = {**SPEC, "batch_size": 16}
PAIRS = [("pipeline", "pipeline"), ("wide", "wide"), ("pipeline", "wide")]


def seconds(text):
    return datetime.datetime.fromisoformat(
        text.replace("Z", "+00:00")).timestamp()


def run(scratch, plans, steps, at_once):
    """Seconds from start to end, share of bubbles, the first job's seconds a
    step."""
    daemon = scratch.daemon(devices=f"cpu:{DEVICES}",
                            max_running_jobs=at_once)
    daemon.start(worker_program=scratch.fake_worker(COSTS))
    # Validated before any of them starts.
    blockers = [daemon.submit({**SPEC, "max_steps": 1_000_000})
                for _ in range(at_once)]
    jobs = [daemon.submit({**SPEC, "plan": PLANS[plan], "max_steps": steps})
            for plan in plans]
    for job in jobs:
        harness.wait_until(lambda: daemon.job(job)["state"] == "QUEUED",
                           "QUEUED")
    for job in blockers:
        daemon.client("cancel", job)
        daemon.wait(job, "CANCELLED")
    found = [daemon.wait(job, seconds=3600) for job in jobs]
    took = (max(seconds(job["end_time"]) for job in found)
            - min(seconds(job["start_time"]) for job in found))
    compute = sum(float(use["compute_seconds"]) for job in found
                  for use in job["device_use"])
    step = statistics.median(line["step_seconds"]
                             for line in daemon.metrics(jobs[0])[1:])
    daemon.stop()
    return took, 1 - compute / (DEVICES * took), step


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("-o", dest="form", choices=("table", "csv"),
                        default="table")
    options = parser.parse_args()
    header = ["jobs", "one after the other, s", "bubble", "at once, s",
              "bubble", "goodput", "first job"]
    if options.form == "table":
        print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    else:
        print(",".join(header))
    for plans in PAIRS:
        rows = []
        for _ in range(options.runs):
            with harness.Scratch() as scratch:
                scratch.make_model("model")
                scratch.make_data("train.jsonl", count=32)
                one = run(scratch, plans, options.steps, 1)
                both = run(scratch, plans, options.steps, 2)
                rows.append((*one, *both))
                print(plans, json.dumps(rows[-1]), file=sys.stderr,
                      flush=True)
        one_s, one_bubble, one_step, both_s, both_bubble, both_step = (
            statistics.median(column) for column in zip(*rows))
        cells = [f"{plans[0]} and {plans[1]}", f"{one_s:.1f}",
                 f"{100 * one_bubble:.1f} %", f"{both_s:.1f}",
                 f"{100 * both_bubble:.1f} %", f"{one_s / both_s:.2f}",
                 f"{both_step / one_step:.2f}"]
        print(",".join(cells) if options.form == "csv"
              else "| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
