"""What a backfill job costs a normal one, and how much it gets.

    bazel run //tests/bench:backfill -- [--steps 40] [--runs 3]

The real daemon, wire, arena and words; eight devices that wait where others
compute (tests/fakes/fake_worker.cc). two_plans.py has the jobs; the backfill
job is wide. Load and daemon share the machine's cores.

    alone, beside  milliseconds of a step of the normal job: the median
    longer         the one over the other
    backfill rate  the backfill job's steps beside the normal job, over those
                   that it makes alone in the same time
    foretold       the same in virtual time (backfill_forecast)
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness
from two_plans import COSTS, DEVICES, PLANS, SPEC

SPEC = {**SPEC, "max_steps": 1_000_000}
# Steps at the beginning, in which times are not known yet.
FIRST_STEPS = 10


def steps_of(daemon, job, count):
    """The lines of `count` more steps of the job, once they are there."""
    begin = len(daemon.metrics(job))
    harness.wait_until(lambda: len(daemon.metrics(job)) >= begin + count,
                       f"{count} more steps", seconds=3600)
    return daemon.metrics(job)[begin:begin + count]


def seconds_a_step(lines):
    return statistics.median(line["step_seconds"] for line in lines)


def run(scratch, plan, steps):
    """Seconds a step of the normal job alone and beside a backfill job, and
    the share of the steps that this one makes alone."""
    daemon = scratch.daemon(devices=f"cpu:{DEVICES}")
    daemon.start(worker_program=scratch.fake_worker(COSTS))
    backfill = daemon.submit({**SPEC, "plan": PLANS["wide"],
                              "priority": "backfill"})
    steps_of(daemon, backfill, FIRST_STEPS)
    second_alone = seconds_a_step(steps_of(daemon, backfill, steps))
    daemon.client("pause", backfill)
    normal = daemon.submit({**SPEC, "plan": PLANS[plan]})
    steps_of(daemon, normal, FIRST_STEPS)
    alone = seconds_a_step(steps_of(daemon, normal, steps))
    daemon.client("resume", backfill)
    steps_of(daemon, normal, FIRST_STEPS)
    begin = len(daemon.metrics(backfill))
    lines = steps_of(daemon, normal, steps)
    made = len(daemon.metrics(backfill)) - begin
    took = sum(line["step_seconds"] for line in lines)
    daemon.client("cancel", normal)
    daemon.client("cancel", backfill)
    daemon.wait(normal, "CANCELLED")
    daemon.wait(backfill, "CANCELLED")
    daemon.stop()
    return alone, seconds_a_step(lines), made * second_alone / took


def foretold(scratch, plan):
    costs = scratch.folder / "costs.csv"
    costs.write_text(COSTS)
    program = pathlib.Path(__file__).parent / "backfill_forecast"
    done = subprocess.run(
        [program, f"--costs={costs}", f"--devices={DEVICES}",
         f"--first={json.dumps(PLANS[plan])}",
         f"--second={json.dumps(PLANS['wide'])}"],
        stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print("| normal job | alone, ms | beside, ms | longer, % | foretold, % "
          "| backfill rate, % | foretold, % |\n"
          "|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for plan in PLANS:
        rows = []
        for _ in range(options.runs):
            with harness.Scratch() as scratch:
                scratch.make_model("model")
                scratch.make_data("train.jsonl", count=32)
                rows.append(run(scratch, plan, options.steps))
                print(plan, json.dumps(rows[-1]), file=sys.stderr, flush=True)
                expected = foretold(scratch, plan)
        alone, beside, rate = (statistics.median(column)
                               for column in zip(*rows))
        longer = expected["beside_ms"] / expected["first_ms"] - 1
        print(f"| {plan} | {1e3 * alone:.1f} | {1e3 * beside:.1f} "
              f"| {100 * (beside / alone - 1):.1f} | {100 * longer:.1f} "
              f"| {100 * rate:.1f} | {100 * expected['second_rate']:.1f} |",
              flush=True)


if __name__ == "__main__":
    main()
