"""Writes the quickstart's dataset: small questions with one right answer.

    make_data.py --out DIR [--seed N] [--train N] [--validation N]

Sums in words, the day after or before a date, and conversions of units, as
prompt and completion, into DIR/train.jsonl and DIR/validation.jsonl. No
question is in both files, so that the validation loss shows what was learned
and not what was remembered. The same arguments give the same bytes.
"""

import argparse
import calendar
import json
import os
import pathlib
import random

ONES = ("zero one two three four five six seven eight nine ten eleven twelve "
        "thirteen fourteen fifteen sixteen seventeen eighteen nineteen").split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
UNITS = (  # one of the first is so many of the second
    ("metres", "centimetres", 100), ("kilometres", "metres", 1000),
    ("centimetres", "millimetres", 10), ("kilograms", "grams", 1000),
    ("tonnes", "kilograms", 1000), ("litres", "millilitres", 1000),
    ("litres", "centilitres", 100), ("euros", "cents", 100),
)
YEAR = 2025  # any year without a 29th of February


def in_words(number):
    """0 to 199, as it is written: one hundred and twenty-three."""
    if number >= 100:
        rest = number - 100
        return "one hundred" + (f" and {in_words(rest)}" if rest else "")
    if number < 20:
        return ONES[number]
    tens, ones = divmod(number, 10)
    return TENS[tens - 2] + (f"-{ONES[ones]}" if ones else "")


def sums():
    for a in range(1, 100):
        for b in range(1, 100):
            yield (f"What is {in_words(a)} plus {in_words(b)}?",
                   f"{in_words(a)} plus {in_words(b)} is {in_words(a + b)}.")


def days():
    dates = [f"{day} {calendar.month_name[month]}" for month in range(1, 13)
             for day in range(1, calendar.monthrange(YEAR, month)[1] + 1)]
    for before, date in zip(dates[-1:] + dates, dates):
        yield (f"Which day comes after {before}?",
               f"the day after {before} is {date}.")
        yield (f"Which day comes before {date}?",
               f"the day before {date} is {before}.")


def conversions():
    for large, small, factor in UNITS:
        for count in range(2, 100):
            yield (f"How many {small} are {count} {large}?",
                   f"{count} {large} are {count * factor} {small}.")


def split(seed, train, validation):
    """Two disjoint lists of questions, in random order. Every kind gives the
    same share of its questions to the validation part."""
    chosen = random.Random(seed)
    parts = [], []
    for kind in (sums, days, conversions):
        questions = list(kind())
        chosen.shuffle(questions)
        tenth = len(questions) // 10
        parts[0].append(questions[tenth:])
        parts[1].append(questions[:tenth])
    return [take(chosen, *args) for args in zip(parts, (train, validation))]


def take(chosen, kinds, count):
    """count questions, all of the smaller kinds first, no more than there
    are."""
    taken = []
    for left, kind in zip(range(len(kinds), 0, -1), sorted(kinds, key=len)):
        taken += kind[:max(0, count - len(taken)) // left]
    if len(taken) < count:
        raise SystemExit(f"there are only {len(taken)} of {count} questions")
    chosen.shuffle(taken)
    return taken


def write(path, questions):
    part = path.with_suffix(".part")
    with open(part, "w", encoding="utf-8") as file:
        for question, answer in questions:
            file.write(json.dumps({"prompt": f"{question}\n",
                                   "completion": answer}) + "\n")
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
    write(args.out / "train.jsonl", train)
    write(args.out / "validation.jsonl", validation)
    print(f"{len(train)} training and {len(validation)} validation questions")


if __name__ == "__main__":
    main()
