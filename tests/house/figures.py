#!/usr/bin/env python3
"""Figures of the repository's order, and a check of those that must be zero.

    tests/house/figures.py [--root DIR] [--json | --list RULE]
    tests/house/figures.py [--root DIR] --check | --lower

Reads the files that git tracks. Without an option it prints a table; --list
names each place that breaks a rule (see RULES). --check fails with file and
line for each place that breaks a rule, but for those in not_yet.json: a
number per rule and file, class or room, which may only fall. Where the tree
has fewer, --check fails until --lower has written the lower number; --lower
raises the sum of no rule. Needs Python 3.11 and git, nothing else.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import subprocess
import sys

import builds
import calls
import circles
import doors
import links
import source
import words

CPP = (".cc", ".h", ".cu")
HASH = (".sh", ".yaml", ".yml", ".toml", ".supp", "Dockerfile")
STARLARK = (".bazel", ".bzl", "WORKSPACE")
FUNCTION_LINES = 60
CLASS_FIELDS = 30
PARAMETERS = 6
ROOM_LINES = 5000
SENTENCE_WORDS = 40
SMALL_FILE_LINES = 60
LARGEST = 5  # classes shown

RULES = {
    "comments": "comments that begin with Of, That, Those, Likewise",
    "sentences": f"sentences above {SENTENCE_WORDS} words in ARCHITECTURE.md "
                 "and every README.md",
    "documents": "references to documents that are not in the repository",
    "links": "links and names of files in documents that lead nowhere",
    "functions": f"functions above {FUNCTION_LINES} lines",
    "parameters": f"production functions with more than {PARAMETERS} "
                  "parameters",
    "booleans": "bare true or false as an argument of a call of our own "
                "production functions",
    "fields": f"production classes with methods above {CLASS_FIELDS} fields",
    "rooms": f"rooms above {ROOM_LINES} production lines",
    "circles": "rooms of server, scheduler, worker that include each other in "
               "a circle",
    **doors.RULES,
}
# Counted by what they have too much of, not by places.
SIZES = ("fields", "rooms")
STEP = {"rooms": 250}  # numbers are multiples of it, at least so much above
NOT_YET = pathlib.Path(__file__).parent / "not_yet.json"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a rule is broken; count is what not_yet.json limits by key."""

    key: str
    count: int
    file: str
    line: int
    what: str

    def __str__(self):
        return f"{self.file}:{self.line}: {self.what}"


class Tree:
    """The tracked text files under a root and what is counted in them."""

    def __init__(self, root, paths):
        self.files = {}
        there = []
        for path in paths:
            try:
                text = (root / path).read_text(encoding="utf-8")
            except FileNotFoundError:
                continue  # deleted and not committed
            except (UnicodeDecodeError, IsADirectoryError):
                there.append(path)  # binary, or a submodule
                continue
            there.append(path)
            self.files[path] = text
        self.targets = links.Targets(there, self.files)
        self.builds = builds.Builds()
        for path, text in self.files.items():
            if path.endswith("BUILD.bazel"):
                self.builds.add(path, text)
        readers = {path: source.Reader(text)
                   for path, text in self.files.items() if path.endswith(CPP)}
        self.functions = {
            path: readers[path].functions if path in readers else
            source.python_functions(self.files[path])
            for path in self.files if is_code(path)}
        self.types = []
        self.called = set()  # names that a call of ours may have
        for path, reader in readers.items():
            if self.production(path):
                self.types += [(path, kind) for kind in reader.types]
                self.called |= calls.names(reader)

    def production(self, path):
        """Neither a test nor only for tests."""
        name = path.rpartition("/")[2]
        return (is_code(path) and not path.startswith("tests/") and
                not name.endswith(("_test.cc", "_test.py", "_fuzz.cc")) and
                not self.builds.only_tests(path))

    def lines(self, path):
        return self.files[path].count("\n")

    def comments(self, path):
        """None if nobody knows how comments look there."""
        text = self.files[path]
        if path.endswith(CPP + (".proto",)):
            return source.cpp_comments(text)
        if path.endswith(".html"):
            return source.html_comments(text)
        if path.endswith((".py", *STARLARK)) or text.startswith(
                "#!/usr/bin/env python3"):
            return source.python_comments(text)
        if path.endswith(HASH) or text.startswith(("#!", "# shellcheck")):
            return source.shell_comments(text)
        return None

    # One list of places for each rule.

    def broken(self):
        """{rule: [Place]} of all rules."""
        return {"comments": list(self._comments()),
                "sentences": list(self._sentences(house_documents)),
                "documents": list(self._documents()),
                "links": list(self._links()),
                "functions": list(self._long_functions()),
                "parameters": list(self._many_parameters()),
                "booleans": list(self._booleans()),
                "fields": [Place(kind.name, kind.fields, path,
                                 kind.line, f"{kind.name} has {kind.fields} "
                                 "fields")
                           for path, kind in self.types
                           # Without methods it is a list of values.
                           if kind.fields > CLASS_FIELDS and kind.methods],
                "rooms": [Place(room, count, room, 1,
                                f"has {count} production lines")
                          for room, count in self.room_lines().items()
                          if count > ROOM_LINES],
                "circles": [Place(room, 1, path, line,
                                  f"{room} includes {name}, which leads back "
                                  "to it")
                            for room, path, line, name in circles.circles(
                                {path: text
                                 for path, text in self.files.items()
                                 if path.endswith(CPP) and
                                 self.production(path)})],
                **{rule: list(self._past_doors(rule)) for rule in doors.RULES}}

    def _comments(self):
        for path in self.files:
            for comment in self.comments(path) or ():
                for line, text in words.dialect(comment):
                    yield Place(path, 1, path, line, text)

    def _sentences(self, chosen):
        for path, text in self.files.items():
            if path.endswith(".md") and chosen(path):
                for line, sentence in words.sentences(text):
                    if len(sentence) > SENTENCE_WORDS:
                        yield Place(path, 1, path, line,
                                    f"{len(sentence)} words: "
                                    f"{' '.join(sentence[:8])} ...")

    def _documents(self):
        names = {path.rpartition("/")[2] for path in self.files}
        for path, text in self.files.items():
            if path.startswith("tests/house/") or not (
                    path.endswith(".md") or self.comments(path) is not None):
                continue  # here the names themselves are what is looked for
            if not path.endswith(".md"):
                for comment in self.comments(path):
                    for line, name in words.missing_documents(
                            path, comment.text, self.files, names):
                        yield Place(path, 1, path, comment.line + line - 1,
                                    f"{name} is not in the repository")
                continue
            for line, name in words.missing_documents(path, text, self.files,
                                                      names):
                yield Place(path, 1, path, line,
                            f"{name} is not in the repository")

    def _links(self):
        for path, text in self.files.items():
            if path.endswith(".md"):
                for line, what in links.missing(path, text, self.targets):
                    yield Place(path, 1, path, line, what)

    def _long_functions(self):
        for path, functions in self.functions.items():
            for function in functions:
                if function.lines > FUNCTION_LINES:
                    yield Place(path, 1, path, function.line,
                                f"{function.name} has {function.lines} lines")

    def _past_doors(self, rule):
        for path, text in self.files.items():
            if path.endswith(CPP) and doors.applies(rule, path,
                                                    self.production(path)):
                for line, what in doors.past(rule, text):
                    yield Place(path, 1, path, line, what)

    def _many_parameters(self):
        for path, functions in self.functions.items():
            for function in functions if self.production(path) else ():
                if function.parameters > PARAMETERS:
                    yield Place(path, 1, path, function.line,
                                f"{function.name} has {function.parameters} "
                                "parameters")

    def _booleans(self):
        for path, text in self.files.items():
            if path.endswith(CPP) and self.production(path):
                for found in calls.booleans(text, self.called):
                    yield Place(path, 1, path, found.line,
                                f"{found.name}(... {found.value} ...)")

    # Figures that are reported and not limited.

    def rooms(self):
        """{room: {suffix: [files, lines]}} of production code."""
        found = collections.defaultdict(
            lambda: collections.defaultdict(lambda: [0, 0]))
        for path in self.files:
            if self.production(path):
                suffix = path[path.rindex("."):]
                cell = found[path.rpartition("/")[0]][suffix]
                cell[0] += 1
                cell[1] += self.lines(path)
        return {room: dict(found[room]) for room in sorted(found)}

    def room_lines(self):
        return {room: sum(lines for _, lines in kinds.values())
                for room, kinds in self.rooms().items()}

    def figures(self):
        """Everything, as --json prints it."""
        broken = self.broken()
        largest = sorted(self.types, key=lambda pair: -(
            pair[1].fields + pair[1].methods))[:LARGEST]
        long = broken["functions"]
        small = [path for path in self.builds.library_files
                 if path in self.files and self.production(path) and
                 self.lines(path) < SMALL_FILE_LINES]
        rooms = self.room_lines()
        code = [path for path in self.files if is_code(path)]
        return {
            "classes": [{"name": kind.name, "file": path,
                         "fields": kind.fields, "methods": kind.methods}
                        for path, kind in largest],
            "rooms": self.rooms(),
            "production_lines": sum(rooms.values()),
            "other_lines": sum(map(self.lines, code)) - sum(rooms.values()),
            "functions": sum(map(len, self.functions.values())),
            "long_functions": [str(place) for place in long],
            "long_production_functions": sum(
                self.production(place.file) for place in long),
            "broken": {rule: len(places) for rule, places in broken.items()},
            "sentences": {path: sentence_counts(self.files[path])
                          for path in self.files
                          if path.endswith(".md")},
            "libraries": self.builds.libraries,
            "small_library_files": len(small),
        }


def is_code(path):
    return path.endswith((*CPP, ".py"))


def house_documents(path):
    return path in ("ARCHITECTURE.md",) or path.endswith("README.md")


def sentence_counts(text):
    """[all sentences, those above SENTENCE_WORDS]."""
    found = [len(sentence) for _, sentence in words.sentences(text)]
    return [len(found), sum(count > SENTENCE_WORDS for count in found)]


def tracked(root):
    done = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True,
                          capture_output=True, text=True)
    return [path for path in done.stdout.split("\0") if path]


def table(figures):
    """The figures as Markdown."""
    yield "| class | file | fields | methods |\n|---|---|---:|---:|"
    for kind in figures["classes"]:
        yield (f"| `{kind['name']}` | {kind['file']} | {kind['fields']} | "
               f"{kind['methods']} |")
    yield ("\n| room | files | .cc | .h | .cu | .py | lines |\n"
           "|---|---:|---:|---:|---:|---:|---:|")
    for room, kinds in figures["rooms"].items():
        lines = [kinds.get(suffix, (0, 0))[1] for suffix in (*CPP, ".py")]
        cells = " | ".join(f"{count:,}" for count in lines)
        files = sum(count for count, _ in kinds.values())
        yield f"| {room or '.'} | {files} | {cells} | {sum(lines):,} |"
    broken = figures["broken"]
    yield "\n| figure | |\n|---|---:|"
    yield f"| production lines | {figures['production_lines']:,} |"
    yield f"| lines of tests and what they need | {figures['other_lines']:,} |"
    yield f"| functions | {figures['functions']:,} |"
    for rule, meaning in RULES.items():
        yield f"| {meaning} | {broken[rule]} |"
    yield (f"| functions above {FUNCTION_LINES} lines, production alone | "
           f"{figures['long_production_functions']} |")
    yield f"| BUILD libraries | {figures['libraries']} |"
    yield (f"| their files under {SMALL_FILE_LINES} lines | "
           f"{figures['small_library_files']} |")
    yield (f"\n| document | sentences | above {SENTENCE_WORDS} words |\n"
           "|---|---:|---:|")
    for path, (count, long) in sorted(figures["sentences"].items()):
        yield f"| {path} | {count} | {long} |"
    if figures["long_functions"]:
        yield f"\nFunctions above {FUNCTION_LINES} lines:\n"
        for function in figures["long_functions"]:
            yield f"- {function}"


def counts(places):
    """{key: number} of one rule's places."""
    found = collections.Counter()
    for place in places:
        found[place.key] += place.count
    return found


def problems(broken, not_yet):
    """What --check prints: one line each. Sizes may lie below their number,
    which anyone's commit changes; counts may not."""
    for rule, places in broken.items():
        allowed = not_yet.get(rule, {})
        found = counts(places)
        for place in places:
            if found[place.key] > allowed.get(place.key, 0):
                yield f"{place} ({RULES[rule]}: {found[place.key]}, allowed " \
                      f"{allowed.get(place.key, 0)})"
        for key, number in allowed.items():
            if found[key] == 0 or (rule not in SIZES and found[key] < number):
                yield (f"{key}: {found[key]} {RULES[rule]}, not_yet.json says "
                       f"{number}: run tests/house/figures.py --lower")


def rounded(rule, found):
    """Numbers as not_yet.json has them. A size leaves room for at least a step,
    so that whoever mends a line in a large room may do so."""
    step = STEP.get(rule)
    return {key: number if step is None else (number // step + 2) * step
            for key, number in found.items() if number}


def lowered(broken, not_yet):
    """not_yet with what the tree has. A rule's numbers may move to other keys,
    as when a file gets another name, while their sum does not grow."""
    kept = {}
    for rule, allowed in not_yet.items():
        found = rounded(rule, counts(broken[rule]))
        keys = allowed
        if sum(found.values()) <= sum(allowed.values()):
            keys = allowed = found
        left = {key: min(allowed[key], found[key])
                for key in sorted(keys) if key in found}
        if left:
            kept[rule] = left
    return kept


def read_not_yet():
    return json.loads(NOT_YET.read_text(encoding="utf-8"))


def write_not_yet(numbers):
    NOT_YET.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).parents[2])
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--json", action="store_true")
    modes.add_argument("--list", choices=RULES)
    modes.add_argument("--check", action="store_true")
    modes.add_argument("--lower", action="store_true")
    args = parser.parse_args()
    tree = Tree(args.root, tracked(args.root))
    if args.check:
        found = list(problems(tree.broken(), read_not_yet()))
        print(*found, sep="\n", file=sys.stderr, end="\n" if found else "")
        return 1 if found or not tree.files else 0
    if args.lower:
        write_not_yet(lowered(tree.broken(), read_not_yet()))
    elif args.list:
        for place in tree.broken()[args.list]:
            print(place)
    elif args.json:
        print(json.dumps(tree.figures(), indent=2))
    else:
        print(*table(tree.figures()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
