"""Tests of count_tests.py on event files as Bazel writes them."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

COUNT = pathlib.Path(__file__).with_name("count_tests.py")
CASES = """<testsuites><testsuite name="A">
<testcase name="Good" status="run" classname="A"/>
<testcase name="Off" status="notrun" classname="A"/>
<testcase name="Skipped" status="run" classname="A"><skipped/></testcase>
%s</testsuite></testsuites>"""
BAD = '<testcase name="Bad" classname="A"><failure message="x"/></testcase>'


class CountTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="a b")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.events = []

    def result(self, label, status, xml=None):
        outputs = []
        if xml is not None:
            path = self.folder / f"{len(self.events)}.xml"
            path.write_text(xml)
            outputs = [{"name": "test.xml", "uri": path.as_uri()}]
        self.events.append({
            "id": {"testResult": {"label": label, "run": 1}},
            "testResult": {"status": status, "testActionOutput": outputs}})

    def completed(self, label, **fields):
        self.events.append({"id": {"targetCompleted": {"label": label}},
                            **fields})

    def count(self):
        path = self.folder / "events.json"
        path.write_text("".join(json.dumps(e) + "\n" for e in self.events))
        done = subprocess.run([sys.executable, COUNT, path], check=True,
                              capture_output=True, text=True)
        return done.stdout.strip(), done.stderr

    def test_cases_that_ran_are_counted(self):
        self.result("//a:a", "PASSED", CASES % "")
        self.result("//a:b", "FAILED", CASES % BAD)
        counts, errors = self.count()
        self.assertEqual(counts, "2 1")
        self.assertEqual(errors, "FAILED //a:b: A.Bad\n")

    def test_no_report_is_a_failure_unless_passed(self):
        self.result("//a:a", "TIMEOUT")
        self.result("//a:b", "FAILED", "<testsuites><broken")
        counts, errors = self.count()
        self.assertEqual(counts, "0 2")
        self.assertIn("FAILED //a:a: TIMEOUT", errors)

    def test_failure_outside_of_the_cases_counts(self):
        self.result("//a:leaks", "FAILED", CASES % "")
        self.assertEqual(self.count()[0], "0 1")

    def test_target_that_was_not_built(self):
        self.completed("//a:a", completed={"success": True})
        self.completed("//a:b", completed={})
        self.completed("//a:c", aborted={"reason": "ANALYSIS_FAILURE"})
        self.completed("//a:d", completed={})
        self.result("//a:d", "FAILED", CASES % BAD)
        counts, errors = self.count()
        self.assertEqual(counts, "1 3")
        self.assertIn("FAILED //a:b: not built", errors)
        self.assertIn("FAILED //a:c: not built", errors)

    def test_target_of_another_configuration_is_no_failure(self):
        self.completed("//a:cuda", aborted={"reason": "SKIPPED"})
        self.completed("//a:c", aborted={"reason": "INCOMPLETE"})
        counts, errors = self.count()
        self.assertEqual(counts, "0 1")
        self.assertEqual(errors, "FAILED //a:c: not built\n")

    def test_nothing_ran(self):
        self.assertEqual(self.count()[0], "0 0")


if __name__ == "__main__":
    unittest.main()
