"""Tests of the systemd unit with systemd's own tools, which start nothing."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).absolute().parent / "systemd"
UNIT = FOLDER / "roundhoused.service"
# `systemd-analyze security`: 0 is closed, 10 open. What is still open stands in
# the unit with its reason.
MOST_EXPOSURE = 2.3
ANALYZE = shutil.which("systemd-analyze")


def values(key):
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)


class SystemdUnitTest(unittest.TestCase):
    def analyze(self, *words):
        if ANALYZE is None:
            self.skipTest("no systemd-analyze (apt-get install systemd)")
        with tempfile.TemporaryDirectory() as scratch:
            # The program of the unit is not on this machine.
            unit = pathlib.Path(scratch) / UNIT.name
            unit.write_text(re.sub("^ExecStart=.*", "ExecStart=/bin/true",
                                   UNIT.read_text(), flags=re.MULTILINE))
            return subprocess.run(
                [ANALYZE, *words, unit], capture_output=True, text=True,
                check=False, env={"PATH": "/usr/bin:/bin", "HOME": scratch,
                                  "SYSTEMD_PAGER": "", "LANG": "C.UTF-8"})

    def test_systemd_takes_every_line(self):
        done = self.analyze("verify", "--man=no")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout + done.stderr, "")

    def test_a_line_that_systemd_does_not_know_fails(self):
        text = UNIT.read_text()
        self.assertNotIn("NoSuchSetting", text)
        if ANALYZE is None:
            self.skipTest("no systemd-analyze (apt-get install systemd)")
        with tempfile.TemporaryDirectory() as scratch:
            unit = pathlib.Path(scratch) / UNIT.name
            unit.write_text(text.replace("Type=notify", "NoSuchSetting=1"))
            done = subprocess.run([ANALYZE, "verify", "--man=no", unit],
                                  capture_output=True, text=True, check=False)
        self.assertIn("NoSuchSetting", done.stderr)

    def test_exposure(self):
        done = self.analyze("security", "--offline=true", "--no-pager")
        found = re.search(r"Overall exposure level .*: ([0-9.]+)", done.stdout)
        self.assertIsNotNone(found, done.stdout + done.stderr)
        self.assertLessEqual(float(found[1]), MOST_EXPOSURE, done.stdout)

    def test_what_the_daemon_needs(self):
        # Each is asked for by name somewhere else: docs/operations.md,
        # server/workers/dispatch_priority.h, descriptor_limit.h.
        for key, value in (("Type", "notify"), ("LimitMEMLOCK", "infinity"),
                           ("LimitRTPRIO", "2"), ("LimitNOFILE", "16384"),
                           ("LimitCORE", "0"), ("KillMode", "mixed"),
                           ("CapabilityBoundingSet", ""),
                           ("UMask", "0027"), ("User", "roundhouse")):
            self.assertEqual(values(key), [value], key)
        self.assertEqual(values("FileDescriptorStoreMax"), [])
        # The first would take LimitRTPRIO back; the second makes openat2
        # ENOSYS, and no file of a job could be opened.
        for key in ("RestrictRealtime", "RestrictSUIDSGID"):
            self.assertEqual(values(key), [], key)

    def test_the_socket_has_a_group_of_its_own(self):
        tmpfiles = (FOLDER / "roundhouse.tmpfiles").read_text()
        users = (FOLDER / "roundhouse.sysusers").read_text()
        self.assertRegex(
            tmpfiles,
            r"(?m)^d /run/roundhouse 2750 roundhouse roundhouse-users -$")
        self.assertRegex(
            tmpfiles, r"(?m)^d /var/lib/roundhouse 0750 roundhouse roundhouse ")
        self.assertRegex(users, r"(?m)^g roundhouse-users - -$")
        self.assertRegex(users, r"(?m)^u roundhouse - ")


if __name__ == "__main__":
    unittest.main()
