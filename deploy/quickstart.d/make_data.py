"""Writes the quickstart's two datasets: dates, to be written in words.

    make_data.py --out DIR [--seed N] [--train N] [--validation N]

DIR/train.jsonl and DIR/validation.jsonl have prompts and completions: a date
in digits, and the same date in words. DIR/chat-train.jsonl and
DIR/chat-validation.jsonl have short conversations about the same dates, which
ask for the day after. No date is asked in both a training and a validation
file, so the validation loss shows what was learned and not what was
remembered. DIR/questions.jsonl and DIR/chat-questions.jsonl have a hundred
questions of the validation part with their answers. The same arguments give
the same bytes.
"""

import argparse
import calendar
import datetime
import json
import os
import pathlib
import random

FIRST = datetime.date(1990, 1, 1)
LAST = datetime.date(2039, 12, 31)
QUESTIONS = 100  # of the validation part, to be asked


def in_words(date):
    """As people write it: 5 March 2024."""
    return f"{date.day} {calendar.month_name[date.month]} {date.year}"


def same_day(date):
    """The question and the answer of the first job."""
    return f"Write {date} in words.", in_words(date)


def next_day(date):
    """The question and the answer of the adapter's job."""
    return (f"Write the day after {date} in words.",
            in_words(date + datetime.timedelta(days=1)))


def split(seed, train, validation):
    """Two lists of dates in random order; none is in both."""
    dates = [FIRST + datetime.timedelta(days=day)
             for day in range((LAST - FIRST).days + 1)]
    if train + validation > len(dates):
        raise SystemExit(f"--train and --validation: {train + validation} "
                         f"dates, and there are only {len(dates)}")
    random.Random(seed).shuffle(dates)
    return dates[validation:validation + train], dates[:validation]


def prompts(facts):
    for question, answer in facts:
        yield {"prompt": f"{question}\n", "completion": answer}


def questions(facts, end=""):
    for question, answer in facts:
        yield {"prompt": question + end, "answer": answer}


def conversations(facts, turns):
    """As many questions in each as turns, fewer in the last."""
    for first in range(0, len(facts), turns):
        messages = []
        for question, answer in facts[first:first + turns]:
            messages += [{"role": "user", "content": question},
                         {"role": "assistant", "content": answer}]
        yield {"messages": messages}


def write(path, rows):
    part = path.with_suffix(".part")
    with open(part, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    os.replace(part, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", type=int, default=6000)
    parser.add_argument("--validation", type=int, default=400)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train, validation = split(args.seed, args.train, args.validation)
    first, second = ([list(map(fact, dates)) for dates in (train, validation)]
                     for fact in (same_day, next_day))
    write(args.out / "train.jsonl", prompts(first[0]))
    write(args.out / "validation.jsonl", prompts(first[1]))
    write(args.out / "questions.jsonl", questions(first[1][:QUESTIONS], "\n"))
    write(args.out / "chat-train.jsonl", conversations(second[0], 2))
    write(args.out / "chat-validation.jsonl", conversations(second[1], 1))
    write(args.out / "chat-questions.jsonl", questions(second[1][:QUESTIONS]))
    print(f"{len(train)} training and {len(validation)} validation dates")


if __name__ == "__main__":
    main()
