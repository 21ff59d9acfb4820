"""Prints the quickstart's result and checks its promises.

    result.py --home DIR --metrics METRICS.txt --seconds FIRST,ALL

DIR has, of each of the two jobs, the answer of `roundhouse get -o json`
(job.json, chat-job.json), those of `roundhouse sample -o json` before and
after it (before.json, after.json, chat-before.json, chat-after.json), and the
questions that these were asked with their answers (data/questions.jsonl,
data/chat-questions.jsonl). METRICS.txt is one scrape of the daemon. Exit status
1 when a job did not succeed, the full run's validation loss is not MARGIN nats
below that of a bigram count model on the same tokens, or the adapter's did not
fall.
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
    """Validation loss before the first and after the last step."""
    if job["state"] != "SUCCEEDED":
        raise SystemExit(f"quickstart: {job['name']} ended {job['state']}: "
                         f"{job.get('message', '')}")
    points = job.get("eval_history", [])
    steps = [int(point.get("step", 0)) for point in points]
    if len(points) < 2 or steps[0] != 0 or steps[-1] != int(job["step"]):
        raise SystemExit(f"quickstart: evaluations at steps {steps}, wanted "
                         f"0 and {job['step']}")
    # float(): protobuf's JSON has a loss of NaN as text.
    return float(points[0]["loss"]), float(points[-1]["loss"])


def exactly_right(answers, questions):
    """(right, asked): completions that are the answers, word for word."""
    samples = json.loads(answers.read_text())["samples"]
    lines = questions.read_text(encoding="utf-8").splitlines()
    if not samples or len(samples) != len(lines):
        raise SystemExit(f"quickstart: {answers.name} has {len(samples)} "
                         f"samples, {questions.name} {len(lines)} questions")
    right = sum(sample["completion"].strip() == json.loads(line)["answer"]
                for sample, line in zip(samples, lines))
    return right, len(samples)


def show_job(home, prefix, title):
    """Prints one job's lines; its losses and its record."""
    job = json.loads((home / f"{prefix}job.json").read_text())
    output = pathlib.Path(job["output_path"])
    if not any(output.glob("*config.json")):
        raise SystemExit(f"quickstart: there is nothing at {output}")
    before, after = losses(job)
    right = [exactly_right(home / f"{prefix}{when}.json",
                           home / "data" / f"{prefix}questions.jsonl")
             for when in ("before", "after")]
    heading = f"{title} ({job['step']} steps)"
    print(f"\n{heading:37} {'before':>9} {'after':>9}")
    print(f"{'  validation loss, nats per token':37} {before:9.4f} {after:9.4f}")
    asked = f"  exactly right of {right[0][1]} questions"
    print(f"{asked:37} {right[0][0]:9d} {right[1][0]:9d}")
    return before, after, job


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=pathlib.Path, required=True)
    parser.add_argument("--metrics", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", required=True)
    args = parser.parse_args()
    devices = device_seconds(args.metrics.read_text())
    if not devices:
        raise SystemExit("quickstart: the metrics name no device")

    _, after, job = show_job(args.home, "", "full, from random weights")
    bigram = float(job["dataset"]["bigram_validation_loss"])
    text = "  bigram model's loss"
    print(f"{text:47} {bigram:9.4f}")
    print(f"  model  {job['output_path']}")
    chat_before, chat_after, chat_job = show_job(args.home, "chat-",
                                                 "LoRA on it, chat")
    print(f"  adapter  {chat_job['output_path']}")
    print("\nbubble ratio (idle while a job had work)")
    for device in sorted(devices, key=int):
        print(f"  device {device}   {bubble_ratio(devices[device]):6.1%}")
    first, whole = args.seconds.split(",")
    print(f"time         {first} s the first job's part, {whole} s in all",
          flush=True)
    if not after <= bigram - MARGIN:
        sys.exit(f"quickstart: the validation loss did not end {MARGIN} nats "
                 "below the bigram model's")
    if not chat_after < chat_before:
        sys.exit("quickstart: the adapter's validation loss did not fall")


if __name__ == "__main__":
    main()
