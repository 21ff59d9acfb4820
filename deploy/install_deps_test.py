"""Tests of install-deps: which wheels are asked for, and when none is.

No network and no package manager: dpkg-query says that all is there, pip has
no index."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("install-deps")


def pins(name):
    found = re.search(rf"^{name}=\(\n(.*?)^\)", SCRIPT.read_text(),
                      re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split())


class InstallDepsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="a b")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.wheels = self.folder / "cache/roundhouse/wheels"
        for name, lines in (("dpkg-query", "printf installed"),
                            ("python", "exit 0")):
            program = self.folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/sh\n{lines}\n")
            program.chmod(0o755)

    def have(self, made_from):
        self.wheels.mkdir(parents=True)
        (self.wheels / ".made-from").write_text(made_from + "\n")
        (self.wheels / "wheel").touch()

    def run_script(self, *words):
        return subprocess.run(
            [SCRIPT, *words], capture_output=True, text=True, check=False,
            env={"HOME": str(self.folder), "PIP_NO_INDEX": "1",
                 "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                 "ROUNDHOUSE_PYTHON": str(self.folder / "bin/python"),
                 "XDG_CACHE_HOME": str(self.folder / "cache")})

    def assert_there(self, *words):
        done = self.run_script(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{self.wheels}: there already", done.stderr)
        self.assertTrue((self.wheels / "wheel").exists())

    def assert_wanted(self, wanted, *words):
        done = self.run_script(*words)
        self.assertNotEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{self.wheels}: installing {wanted}\n", done.stderr)

    def test_nothing_twice(self):
        self.have(pins("wheels"))
        self.assert_there()

    def test_what_cuda_made_serves_with_and_without(self):
        self.have(f"{pins('wheels')} {pins('cuda_wheels')}")
        self.assert_there("--cuda")
        self.assert_there()

    def test_without_cuda_nothing_of_it_is_installed(self):
        self.assert_wanted(pins("wheels"))

    def test_cuda_makes_the_folder_anew_and_keeps_it_when_that_fails(self):
        self.have(pins("wheels"))
        self.assert_wanted(f"{pins('wheels')} {pins('cuda_wheels')}", "--cuda")
        self.assert_there()

    def test_pins_are_exact(self):
        for pin in f"{pins('wheels')} {pins('cuda_wheels')}".split():
            self.assertRegex(pin, r"^[a-z0-9-]+==[0-9.]+$")

    def test_unknown_words_are_refused(self):
        for words in (("--gpu",), ("--cuda", "--gpu"), ("cuda",)):
            done = self.run_script(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"unknown argument: {words[-1]}", done.stderr)
            self.assertIn("install-deps --cuda", done.stderr)


if __name__ == "__main__":
    unittest.main()
