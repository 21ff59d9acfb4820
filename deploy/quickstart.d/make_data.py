"""Writes the quickstart's two datasets: small questions with one right answer.

    make_data.py --out DIR [--seed N] [--train N] [--validation N]

Sums in words, the day after or before a date, and conversions of units: as
prompt and completion into DIR/train.jsonl and DIR/validation.jsonl, and as
short conversations into DIR/chat-train.jsonl and DIR/chat-validation.jsonl. No
question is in both a training and a validation file, so that the validation
loss shows what was learned and not what was remembered. A hundred questions of
the validation part with their answers are in DIR/questions.jsonl and
DIR/chat-questions.jsonl. The same arguments give the same bytes.
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
QUESTIONS = 100  # of the validation part, to be asked
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
    """Two disjoint lists of facts, in random order. Every kind gives the same
    share of its facts to the validation part."""
    chosen = random.Random(seed)
    parts = [], []
    for kind in (sums, days, conversions):
        facts = list(kind())
        chosen.shuffle(facts)
        tenth = len(facts) // 10
        parts[0].append(facts[tenth:])
        parts[1].append(facts[:tenth])
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


def prompts(facts):
    for question, answer in facts:
        yield {"prompt": f"{question}\n", "completion": answer}


def conversations(facts, turns):
    """turns questions in each, fewer in the last."""
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
    asked = validation[:QUESTIONS]
    write(args.out / "train.jsonl", prompts(train))
    write(args.out / "validation.jsonl", prompts(validation))
    write(args.out / "questions.jsonl", (
        {"prompt": f"{question}\n", "answer": answer}
        for question, answer in asked))
    write(args.out / "chat-questions.jsonl", (
        {"prompt": question, "answer": answer} for question, answer in asked))
    write(args.out / "chat-train.jsonl", conversations(train, 2))
    write(args.out / "chat-validation.jsonl", conversations(validation, 1))
    print(f"{len(train)} training and {len(validation)} validation questions")


if __name__ == "__main__":
    main()
