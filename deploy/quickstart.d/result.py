"""Prints the quickstart's result and checks its promise.

    result.py --job JOB.json --metrics METRICS.txt --seconds N

JOB.json is the answer of `roundhouse get -o json`, METRICS.txt one scrape of
the daemon. Exit status 1 when the job did not succeed or its validation loss
is not MARGIN nats below that of a bigram count model on the same tokens.
"""

import argparse
import json
import pathlib
import re
import sys

MARGIN = 0.2
SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')


def device_seconds(metrics):
    """{device: {state: seconds}} of a Prometheus text page."""
    devices = {}
    for line in metrics.splitlines():
        found = SAMPLE.match(line)
        if not found or found[1] != "roundhouse_device_time_seconds_total":
            continue
        labels = dict(LABEL.findall(found[2]))
        states = devices.setdefault(labels["device"], {})
        states[labels["state"]] = float(found[3])
    return devices


def bubble_ratio(seconds):
    busy = seconds.get("compute", 0.0)
    bubble = seconds.get("bubble", 0.0)
    if busy <= 0.0:
        raise SystemExit("quickstart: a device has computed nothing")
    return bubble / (busy + bubble)


def losses(job):
    """Validation loss before the first and after the last step, and the
    bigram model's."""
    points = job.get("eval_history", [])
    steps = [int(point.get("step", 0)) for point in points]
    if len(points) < 2 or steps[0] != 0 or steps[-1] != int(job["step"]):
        raise SystemExit(f"quickstart: evaluations at steps {steps}, wanted "
                         f"0 and {job['step']}")
    # float(): protobuf's JSON has a loss of NaN as text.
    return (float(points[0]["loss"]), float(points[-1]["loss"]),
            float(job["dataset"]["bigram_validation_loss"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", type=pathlib.Path, required=True)
    parser.add_argument("--metrics", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", required=True)
    args = parser.parse_args()
    job = json.loads(args.job.read_text())
    if job["state"] != "SUCCEEDED":
        raise SystemExit(f"quickstart: the job ended {job['state']}: "
                         f"{job.get('message', '')}")
    before, after, bigram = losses(job)
    devices = device_seconds(args.metrics.read_text())
    if not devices:
        raise SystemExit("quickstart: the metrics name no device")
    output = pathlib.Path(job["output_path"])
    if not (output / "config.json").is_file():
        raise SystemExit(f"quickstart: there is no model at {output}")

    print(f"\nvalidation loss, nats per token ({job['step']} steps)")
    print(f"  before            {before:7.4f}")
    print(f"  after             {after:7.4f}")
    print(f"  bigram model      {bigram:7.4f}")
    print("bubble ratio (idle while the job had work)")
    for device in sorted(devices, key=int):
        print(f"  device {device}          "
              f"{bubble_ratio(devices[device]):7.1%}")
    print(f"model               {output}")
    print(f"time                {args.seconds} s", flush=True)
    if not after <= bigram - MARGIN:
        sys.exit(f"quickstart: the validation loss did not end {MARGIN} nats "
                 "below the bigram model's")


if __name__ == "__main__":
    main()
