"""What goes through one door of base/, and who goes past it."""

import re

import source

RULES = {
    "clock": "reads of the clock past base/clock.h",
    "descriptors": "descriptors closed past base/files/descriptor.h",
    "sleeps": "sleeps in unit tests",
}
PATTERNS = {
    "clock": re.compile(r"\b(?:clock_gettime|gettimeofday|absl::Now|"
                        r"std::chrono)\b|\btime\((?:nullptr|NULL|0)\)"),
    "descriptors": re.compile(r"(?<![\w.>:])(?:::)?close\("),
    "sleeps": re.compile(r"\b(?:SleepFor|sleep_for|sleep_until|u?sleep|"
                         r"nanosleep)\("),
}
# The programs of the server; a client has a clock in its Environment.
ROOMS = ("base/", "scheduler/", "server/", "worker/")
# A wait with a deadline is CondVar's.
DOORS = {"clock": ("base/clock.cc", "base/mutex.h"),
         "descriptors": ("base/files/descriptor.h",)}


def applies(rule, path, production):
    """Whether the rule is for the file."""
    if rule == "sleeps":
        return path.endswith("_test.cc")
    return production and path.startswith(ROOMS) and path not in DOORS[rule]


def past(rule, text):
    """[(line, what)] of C++ that does it itself."""
    for number, line in enumerate(source.blank(text).splitlines(), start=1):
        found = PATTERNS[rule].search(line)
        if found:
            yield number, found[0].rstrip("(")
