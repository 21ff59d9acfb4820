"""Prints the quickstart's result and checks its promises.

    result.py --home DIR --metrics METRICS.txt --seconds FIRST,ALL

DIR has, of each of the two jobs, the answer of `roundhouse get -o json`
(job.json, chat-job.json), those of `roundhouse sample -o json` before and
after it (before.json, after.json, chat-before.json, chat-after.json), and the
questions that these were asked with their answers (data/questions.jsonl,
data/chat-questions.jsonl). METRICS.txt is one scrape of the daemon. Exit status
1 when a job did not succeed, the full run's validation loss is not MARGIN nats
below that of a bigram count model on the same tokens, the adapter's did not
fall, or either answers less than RIGHT of its questions exactly right.
"""

import argparse
import json
import pathlib
import re
import sys
import typing

MARGIN = 0.2
RIGHT = 0.7
SHOWN = 40  # characters of an answer
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


def asked(answers, questions):
    """[(question, completion, wanted)], as they were asked."""
    samples = json.loads(answers.read_text())["samples"]
    lines = questions.read_text(encoding="utf-8").splitlines()
    if not samples or len(samples) != len(lines):
        raise SystemExit(f"quickstart: {answers.name} has {len(samples)} "
                         f"samples, {questions.name} {len(lines)} questions")
    facts = map(json.loads, lines)
    return [(fact["prompt"].strip(), sample["completion"].strip(),
             fact["answer"]) for sample, fact in zip(samples, facts)]


def exactly_right(answers):
    """How many completions are what was wanted, character for character."""
    return sum(completion == wanted for _, completion, wanted in answers)


def short(text):
    """In ASCII, as a terminal may see it, and not too long."""
    text = ascii(text)[1:-1]
    return text if len(text) <= SHOWN else f"{text[:SHOWN - 3]}..."


class Shown(typing.NamedTuple):
    """What was printed of one job."""

    before: float  # validation losses
    after: float
    right: float  # share of the questions, after it
    job: dict
    instance: list  # one of asked(), before and after it

    def print_rest(self, kind):
        """Prints the instance, and where the result is."""
        print(f"  for instance  {self.instance[0][0]}")
        for when, (_, completion, _) in zip(("before", "after"),
                                            self.instance):
            print(f"    {when:6}  {short(completion)}")
        print(f"  {kind}  {self.job['output_path']}")


def show_job(home, prefix, title):
    """Prints one job's lines and returns what they show."""
    job = json.loads((home / f"{prefix}job.json").read_text())
    output = pathlib.Path(job["output_path"])
    if not any(output.glob("*config.json")):
        raise SystemExit(f"quickstart: there is nothing at {output}")
    before, after = losses(job)
    answers = [asked(home / f"{prefix}{when}.json",
                     home / "data" / f"{prefix}questions.jsonl")
               for when in ("before", "after")]
    right = [exactly_right(found) for found in answers]
    heading = f"{title} ({job['step']} steps)"
    print(f"\n{heading:37} {'before':>9} {'after':>9}")
    text = "  validation loss, nats per token"
    print(f"{text:37} {before:9.4f} {after:9.4f}")
    count = f"  exactly right of {len(answers[0])} questions"
    print(f"{count:37} {right[0]:9d} {right[1]:9d}")
    return Shown(before, after, right[1] / len(answers[1]), job,
                 [found[0] for found in answers])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=pathlib.Path, required=True)
    parser.add_argument("--metrics", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", required=True)
    args = parser.parse_args()
    devices = device_seconds(args.metrics.read_text())
    if not devices:
        raise SystemExit("quickstart: the metrics name no device")

    first = show_job(args.home, "", "full, from random weights")
    bigram = float(first.job["dataset"]["bigram_validation_loss"])
    text = "  bigram model's loss"
    print(f"{text:47} {bigram:9.4f}")
    first.print_rest("model")
    chat = show_job(args.home, "chat-", "LoRA on it, chat")
    chat.print_rest("adapter")
    print("\nbubble ratio (idle while a job had work)")
    for device in sorted(devices, key=int):
        print(f"  device {device}   {bubble_ratio(devices[device]):6.1%}")
    first_seconds, seconds = args.seconds.split(",")
    print(f"time         {first_seconds} s the first job's part, "
          f"{seconds} s in all", flush=True)
    if not first.after <= bigram - MARGIN:
        sys.exit(f"quickstart: the validation loss did not end {MARGIN} nats "
                 "below the bigram model's")
    if not chat.after < chat.before:
        sys.exit("quickstart: the adapter's validation loss did not fall")
    for shown in (first, chat):
        if shown.right < RIGHT:
            sys.exit(f"quickstart: {shown.job['name']} answers "
                     f"{shown.right:.0%} of its questions exactly right, "
                     f"wanted {RIGHT:.0%}")


if __name__ == "__main__":
    main()
