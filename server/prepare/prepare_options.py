"""The settings of the dataset helper: from its command line, from JSON, or from
both (prepare.py has what they mean)."""

import argparse
import datetime
import json
import sys

from common.reporting import json_type, unique_object
from prepare_processes import MAX_PROCESSES
from rows.dataset import Choice
from rows.formats import COLUMNS, FORMAT_NAMES

SPLITS = ("train", "validation")
TRUNCATIONS = ("right", "left", "drop", "split")
MAX_DATA_FILES = 128
# The settings that the output depends on, and what they are by default.
DEFAULTS = {"truncation": "right", "packing": False, "seed": 42,
            "template_date": None}
# Settings that say which rows are read, and as what; None where nothing does.
CHOICES = ("format", "columns", "max_samples", "validation_split")


def choice(options):
    """Which rows are read, and as what."""
    return Choice(options.format, options.columns, options.max_samples,
                  options.validation_split or 0.0,
                  options.split == "validation", options.seed)


def settings(options):
    names = ["max_length", "split", *DEFAULTS]
    values = {name: getattr(options, name) for name in names}
    for name in CHOICES:
        if getattr(options, name) is not None:
            values[name] = getattr(options, name)
    date = values["template_date"]
    values["template_date"] = date.isoformat() if date else None
    return values


def parse_date(text):
    return datetime.date.fromisoformat(text)


def parse_columns(text):
    """{our name: the file's}, of a JSON object."""
    columns = json.loads(text, object_pairs_hook=unique_object)
    if not isinstance(columns, dict):
        raise ValueError("columns must be a JSON object")
    for ours, theirs in columns.items():
        if ours not in COLUMNS or not isinstance(theirs, str):
            raise ValueError(f"columns: {ours!r} is none of "
                             f"{', '.join(COLUMNS)}")
    return columns


def parse_options(arguments):
    parser = argparse.ArgumentParser(prog="prepare.py", allow_abbrev=False)
    for name in ("tokenizer", "out", "bigram-from", "cache", "options"):
        parser.add_argument("--" + name)
    for name in ("data", "data-name"):
        parser.add_argument("--" + name, action="append")
    for name in ("max-length", "seed", "preview", "max-samples",
                 "processes"):
        parser.add_argument("--" + name, type=int)
    parser.add_argument("--validation-split", type=float)
    parser.add_argument("--format", choices=FORMAT_NAMES)
    parser.add_argument("--columns", type=parse_columns)
    for name in ("packing", "validate"):
        parser.add_argument("--" + name, action="store_true", default=None)
    parser.add_argument("--split", choices=SPLITS)
    parser.add_argument("--truncation", choices=TRUNCATIONS)
    parser.add_argument("--template-date", type=parse_date)
    options = parser.parse_args(arguments)
    if options.options is not None:
        merge_json_options(parser, options)
    for name, value in DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    check_options(parser, options)
    return options


def check_options(parser, options):
    to_files = options.preview is None and not options.validate
    if options.preview is not None and options.validate:
        parser.error("preview and validate exclude each other")
    if not to_files:
        options.split = options.split or "train"
        for name in ("out", "bigram_from", "cache"):
            if getattr(options, name) is not None:
                parser.error(f"{name} does not go with preview or validate")
    needed = ["tokenizer", "data", "max_length", "split"]
    for name in needed + ["out"] * to_files:
        if getattr(options, name) is None:
            parser.error(f"{name} is missing")
    if options.data_name and len(options.data_name) != len(options.data):
        parser.error("data_name must be given for each data")
    if len(options.data) > MAX_DATA_FILES:
        parser.error(f"at most {MAX_DATA_FILES} files of data")
    if not 2 <= options.max_length < 1 << 31:
        parser.error("max_length must be from 2 to 2147483647")
    if options.max_samples is not None and options.max_samples < 1:
        parser.error("max_samples must be at least 1")
    share = options.validation_split
    if share is not None and not 1e-6 <= share <= 0.5:
        parser.error("validation_split must be from 0.000001 to 0.5")
    if options.processes is None or options.preview is not None:
        options.processes = 1
    if not 1 <= options.processes <= MAX_PROCESSES:
        parser.error(f"processes must be from 1 to {MAX_PROCESSES}")
    if options.preview is not None and not 1 <= options.preview <= 1000:
        parser.error("preview must be from 1 to 1000")


def merge_json_options(parser, options):
    text = sys.stdin.read() if options.options == "-" else options.options
    try:
        given = json.loads(text, object_pairs_hook=unique_object)
    except ValueError as error:
        parser.error(f"--options: {error}")
    if not isinstance(given, dict):
        parser.error("--options must be a JSON object")
    for name, value in given.items():
        if name == "options" or not hasattr(options, name):
            parser.error(f"--options: unknown setting {name!r}")
        if getattr(options, name) is not None:
            parser.error(f"{name} is given twice")
        setattr(options, name, json_option(parser, name, value))


def json_option(parser, name, value):
    """The value as the command line would give it."""
    types = {"max_length": int, "seed": int, "preview": int, "packing": bool,
             "validate": bool, "max_samples": int, "validation_split": float,
             "columns": dict, "processes": int}
    if name in ("data", "data_name"):
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, str) for one in values):
            parser.error(f"--options: {name} is no string and no list of some")
        return values
    if type(value) is not types.get(name, str):
        parser.error(f"--options: {name} is {json_type(value)}")
    choices = {"split": SPLITS, "truncation": TRUNCATIONS,
               "format": tuple(FORMAT_NAMES)}.get(name)
    if name == "columns":
        return json_columns(parser, value)
    if choices and value not in choices:
        parser.error(f"--options: {name} {value!r} is not one of "
                     f"{', '.join(choices)}")
    if name == "template_date":
        try:
            return parse_date(value)
        except ValueError as error:
            parser.error(f"--options: {name}: {error}")
    return value


def json_columns(parser, value):
    try:
        return parse_columns(json.dumps(value))
    except ValueError as error:
        parser.error(f"--options: {error}")
