"""Counts the test cases of Bazel runs.

    count_tests.py EVENTS.json...     files of --build_event_json_file

Reads each test's XML report, so that the cases of GoogleTest and unittest
files count one by one; names what failed on standard error, prints "PASSED
FAILED" (two numbers) on standard output. A target that was not built, ended
without a report or failed outside of its cases counts as one failed case.
"""

import collections
import json
import sys
import urllib.parse
import xml.etree.ElementTree

Count = collections.namedtuple("Count", "passed failed")


def events(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:  # the last line of an interrupted run
                print(f"{path}: broken event", file=sys.stderr)


def local_path(uri):
    return urllib.parse.unquote(urllib.parse.urlparse(uri).path)


def report_cases(result):
    """[(name, whether it failed)] of one test.xml; none when unreadable.
    Cases that were skipped or disabled ran nothing and are not there."""
    outputs = {o["name"]: o["uri"] for o in result.get("testActionOutput", [])
               if "uri" in o}
    try:
        tree = xml.etree.ElementTree.parse(local_path(outputs["test.xml"]))
    except (KeyError, OSError, xml.etree.ElementTree.ParseError):
        return []
    cases = []
    for case in tree.iter("testcase"):
        skipped = case.find("skipped") is not None
        if skipped or case.get("status") == "notrun":
            continue
        failed = any(case.find(tag) is not None
                     for tag in ("failure", "error"))
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        cases.append((name.strip("."), failed))
    return cases


def count_result(label, result):
    cases = report_cases(result)
    failures = [name for name, failed in cases if failed]
    passed = len(cases) - len(failures)
    if result.get("status") not in ("PASSED", "FLAKY") and not failures:
        # Bazel writes a report of one case itself where the test wrote none.
        failures = [result.get("status", "no status")]
        passed = max(0, len(cases) - 1)
    for name in failures:
        print(f"FAILED {label}: {name}", file=sys.stderr)
    return Count(passed, len(failures))


def count_file(path):
    passed = failed = 0
    tested, unbuilt = set(), set()
    for event in events(path):
        kind = event.get("id", {})
        if "testResult" in kind and "testResult" in event:
            label = kind["testResult"]["label"]
            tested.add(label)
            found = count_result(label, event["testResult"])
            passed += found.passed
            failed += found.failed
        elif "targetCompleted" in kind:
            # SKIPPED: not for this configuration, as CUDA's by default.
            skipped = event.get("aborted", {}).get("reason") == "SKIPPED"
            if not skipped and not event.get("completed", {}).get("success"):
                unbuilt.add(kind["targetCompleted"]["label"])
    for label in sorted(unbuilt - tested):
        print(f"FAILED {label}: not built", file=sys.stderr)
        failed += 1
    return Count(passed, failed)


def main(paths):
    counts = [count_file(path) for path in paths]
    print(sum(c.passed for c in counts), sum(c.failed for c in counts))


if __name__ == "__main__":
    main(sys.argv[1:])
