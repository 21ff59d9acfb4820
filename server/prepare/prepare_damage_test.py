"""Seeded damage to every file of prepared data, where the job has them and, by
the same links, in the cache that jobs share: prepared again, the bytes are
those of before. And a disk that fails at each site of the helper.

ROUNDHOUSE_DAMAGES says how many (tests/long has the full count),
ROUNDHOUSE_DAMAGE_SEED which.
"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from common import disk  # noqa: E402  found by the line before
from prepare_testing import PREPARE, WORDS, PrepareTest  # noqa: E402

DAMAGES = int(os.environ.get("ROUNDHOUSE_DAMAGES", "60"))
SEED = int(os.environ.get("ROUNDHOUSE_DAMAGE_SEED", "1"))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flip(data, source):
    at = source.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << source.randrange(8)]) + \
        data[at + 1:]


def truncate(data, source):
    return data[:source.randrange(len(data))]


def zeroes(data, source):
    """A page that did not reach the disk."""
    at = source.randrange(len(data))
    return data[:at] + bytes(len(data[at:at + 4096])) + data[at + 4096:]


def remove(_data, _source):
    return None


KINDS = (flip, truncate, zeroes, remove)


class DamageTest(PrepareTest):
    def test_what_is_damaged_is_prepared_again(self):
        source = random.Random(SEED)
        data = self.write(*[{"text": " ".join(WORDS[i % 7:])}
                            for i in range(40)])
        cache = self.folder / "cache"
        options = ("--cache", cache, "--packing")
        self.assertEqual(self.prepare(data, *options).returncode, 0)
        good = contents(self.folder / "out")
        self.assertEqual(len(good), 6)
        done = 0
        for i in range(DAMAGES):
            name = sorted(good)[i % len(good)]
            kind = KINDS[i // len(good) % len(KINDS)]
            bad = kind(good[name], source)
            if bad == good[name]:  # zeroes over zeroes
                continue
            done += 1
            # The cache's entry is the same inode.
            path = self.folder / "out" / name
            path.unlink() if bad is None else path.write_bytes(bad)
            reused = '"reused"' in self.prepare(data, *options).stdout
            self.assertEqual(reused, bad is None, (i, name, kind))
            self.assertEqual(contents(self.folder / "out"), good, (name, kind))
            entry, = (path for path in cache.iterdir() if path.is_dir())
            self.assertEqual(contents(entry), good, (name, kind))
        self.assertGreater(done, DAMAGES * 3 // 4)


class FaultsTest(PrepareTest):
    def run_with(self, fault, out):
        """The helper as the daemon starts it, on a disk that fails."""
        return subprocess.run(
            [sys.executable, PREPARE, "--tokenizer", self.model, "--data",
             self.data, "--out", out, "--max-length", "16", "--split",
             "train", "--cache", self.folder / "cache"],
            capture_output=True, text=True, check=False,
            env={"ROUNDHOUSE_FILE_FAULT_AT": fault})

    def setUp(self):
        super().setUp()
        self.data = self.write(*[{"text": "one two three"}] * 8)
        self.assertEqual(self.run_with("", self.folder / "good").returncode, 0)
        self.good = contents(self.folder / "good")

    def assert_whole_or_none(self, out, what):
        if (out / "manifest.json").exists():
            self.assertEqual(contents(out), self.good, what)
        # On a disk that works it is made, whatever was left.
        self.assertEqual(self.run_with("", out).returncode, 0, what)
        self.assertEqual(contents(out), self.good, what)

    def clear_cache(self):
        for entry in (self.folder / "cache").iterdir():
            if entry.is_dir():
                subprocess.run(["rm", "-r", entry], check=True)

    def test_errors_are_told_with_their_number(self):
        for site in disk.SITES:
            for name, number in (("ENOSPC", 28), ("EIO", 5)):
                if site != disk.LINK:
                    self.clear_cache()
                out = self.folder / f"{site}-{name}"
                done = self.run_with(f"{site}:{name}", out)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn(f'"errno": {number}', done.stderr)
                self.assert_whole_or_none(out, (site, name))

    def test_a_death_at_any_call_leaves_a_whole_split_or_none(self):
        for site in disk.SITES:
            for kind in ("lost", "torn"):
                for after in range(40):
                    self.clear_cache()
                    out = self.folder / f"{site}-{kind}-{after}"
                    if site == disk.LINK and after % 2:
                        self.run_with("", self.folder / "filled")
                    done = self.run_with(f"{site}:{kind}:1:{after}", out)
                    if done.returncode == 0:
                        break
                    self.assertEqual(done.returncode, -signal.SIGKILL,
                                     done.stderr)
                    self.assert_whole_or_none(out, (site, kind, after))
                else:
                    self.fail(f"{site} {kind}: no end")

    def test_what_is_written_wrong_is_noticed(self):
        for site in (disk.ARRAY, disk.MANIFEST):
            self.clear_cache()
            out = self.folder / site
            done = self.run_with(f"{site}:flip", out)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertIn('"errno": 5', done.stderr)
            self.assert_whole_or_none_but_flipped(out)

    def assert_whole_or_none_but_flipped(self, out):
        self.assertEqual(self.run_with("", out).returncode, 0)
        self.assertEqual(contents(out), self.good)

    def test_the_sites_are_those_of_the_daemon(self):
        header = pathlib.Path(__file__).parents[2] / "base/files/file_site.h"
        names = set(re.findall(r'"(prepared\.[a-z]+)"', header.read_text()))
        # This one is the daemon's own.
        self.assertEqual(names - {"prepared.verify"}, set(disk.SITES))


if __name__ == "__main__":
    unittest.main()
