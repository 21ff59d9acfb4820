"""Runs one unittest file and reports its cases to Bazel (XML_OUTPUT_FILE).

    python_test.py FILE     through deploy/run-python; see bazel/python_test.bzl
"""

import importlib.util
import os
import sys
import time
import unittest
from xml.sax.saxutils import quoteattr


class Result(unittest.TextTestResult):
    """A result that keeps every case: (name, seconds, failure text)."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cases = []

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()
        self.before = len(self.failures) + len(self.errors)

    def stopTest(self, test):
        super().stopTest(test)
        found = (self.failures + self.errors)[self.before:]
        self.cases.append((test.id(), time.monotonic() - self.started,
                           "\n".join(text for _, text in found)))


def write_xml(path, result):
    outside = [("outside of a case", 0.0, text) for test, text in
               result.errors if not isinstance(test, unittest.TestCase)]
    cases = result.cases + outside
    failed = sum(bool(text) for _, _, text in cases)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<testsuites><testsuite name="python" '
                   f'tests="{len(cases)}" failures="{failed}">\n')
        for name, seconds, text in cases:
            file.write(f"<testcase name={quoteattr(name)} "
                       f'time="{seconds:.3f}">')
            if text:
                file.write(f"<failure message={quoteattr(text)}/>")
            file.write("</testcase>\n")
        file.write("</testsuite></testsuites>\n")


def main(path):
    spec = importlib.util.spec_from_file_location("the_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    runner = unittest.TextTestRunner(verbosity=2, resultclass=Result)
    result = runner.run(suite)
    if xml := os.environ.get("XML_OUTPUT_FILE"):
        write_xml(xml, result)
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
