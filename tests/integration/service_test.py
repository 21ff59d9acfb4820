"""The daemon as a service: what it tells its manager, and the doctor."""

import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

sys.path.insert(0, str(harness.ROOT / "deploy/install-service.d"))

import daemon_conf

WATCHDOG_SECONDS = 0.2


class Manager:
    """The socket of NOTIFY_SOCKET; `heard` are the lines so far."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.heard = []

    def listen(self):
        self.socket.setblocking(False)
        while True:
            try:
                text = self.socket.recv(4096)
            except BlockingIOError:
                return self.heard
            self.heard += text.decode().splitlines()

    def hears_nothing(self, seconds):
        return not select.select([self.socket], [], [], seconds)[0]

    def wait_for(self, line, count=1):
        harness.wait_until(lambda: self.listen().count(line) >= count,
                           f"{count} times {line}")


class ServiceTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.daemon = self.scratch.daemon()
        self.manager = Manager(self.scratch.folder / "notify")
        self.addCleanup(self.manager.socket.close)
        self.daemon.environment = {
            "NOTIFY_SOCKET": str(self.scratch.folder / "notify"),
            "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))}

    def test_tells_its_manager_how_it_is(self):
        self.daemon.launch()
        self.manager.wait_for("READY=1")
        # What is told is so.
        self.daemon.client("list")
        self.assertEqual(self.manager.heard[0], "READY=1")
        self.assertEqual(self.manager.heard[1],
                         f"STATUS=serving on unix:{self.daemon.socket}, "
                         "2 devices")
        self.manager.wait_for("WATCHDOG=1", count=5)
        for name in ("0", "1", "host", "files", "nursery"):
            environment = pathlib.Path(
                f"/proc/{self.daemon.worker(name)}/environ").read_bytes()
            self.assertNotIn(b"NOTIFY_SOCKET", environment, name)
            self.assertNotIn(b"WATCHDOG", environment, name)
        # A manager reads all the time: what finds its queue full is lost.
        self.manager.listen()
        self.daemon.process.terminate()

        def has_ended():
            self.manager.listen()
            return self.daemon.ended()
        harness.wait_until(has_ended, "the daemon's end")
        self.assertEqual(self.daemon.process.returncode, 0)
        heard = self.manager.listen()
        self.assertIn("STOPPING=1", heard)
        self.assertIn("EXTEND_TIMEOUT_USEC=60000000", heard)
        self.assertLess(heard.index("READY=1"), heard.index("STOPPING=1"))

    def test_a_manager_that_reads_nothing_holds_nobody_up(self):
        self.daemon.launch()
        self.manager.wait_for("READY=1")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            with self.assertRaises(BlockingIOError):
                while True:
                    other.sendto(b"X=1", str(self.scratch.folder / "notify"))
            self.daemon.client("list")
            self.daemon.stop()

    def test_a_daemon_that_can_not_start_is_not_ready(self):
        self.daemon.launch(listen="tcp:1")
        harness.wait_until(self.daemon.ended, "the daemon's end")
        self.assertEqual(self.daemon.process.returncode, 2)
        self.assertEqual(self.manager.listen(), [])

    def test_one_that_stands_still_feeds_nothing(self):
        self.daemon.start()
        self.manager.wait_for("WATCHDOG=1", count=2)
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        harness.wait_until(
            lambda: "T (stopped)" in pathlib.Path(
                f"/proc/{self.daemon.process.pid}/status").read_text(),
            "a daemon that stands still")
        self.manager.listen()
        fed = self.manager.heard.count("WATCHDOG=1")
        self.assertTrue(self.manager.hears_nothing(5 * WATCHDOG_SECONDS))
        os.kill(self.daemon.process.pid, signal.SIGCONT)
        self.manager.wait_for("WATCHDOG=1", count=fed + 1)


class DoctorTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())

    def run_daemon(self, *words):
        return subprocess.run(
            [harness.ROOT / "server/roundhoused", *words], capture_output=True,
            text=True, check=False, timeout=harness.DEADLINE_SECONDS,
            env={"HOME": str(self.scratch.folder), "PATH": "/usr/bin:/bin"})

    def test_the_settings_of_a_service_are_examined(self):
        text = daemon_conf.configuration(self.run_daemon("--help").stdout)
        for key, value in daemon_conf.SERVICE.items():
            self.assertIn(f"\n{key}: {value}\n", text)
        config = self.scratch.folder / "daemon.conf"
        config.write_text(
            text.replace("/var/lib", str(self.scratch.folder))
            .replace("/run/roundhouse", str(self.scratch.folder / "run"))
            .replace("/srv/roundhouse", str(self.scratch.data)))
        # All that is commented out is known, too.
        unknown = config.with_suffix(".all")
        unknown.write_text("\n".join(
            line.removeprefix("#") for line in config.read_text().splitlines()
            if line.startswith("#") and not line.startswith("# ")))
        self.assertNotIn("unknown setting", self.run_daemon(
            "--doctor", f"--config={unknown}").stderr)
        # Where no sandbox hides it the daemon's real folder has no neighbours.
        done = self.run_daemon(
            "--doctor", f"--config={config}", f"--python={sys.executable}",
            f"--worker-program={harness.ROOT}/worker/roundhouse-worker",
            f"--prepare-script={harness.ROOT}/server/prepare/prepare.py")
        self.assertNotEqual(done.returncode, 2, done.stderr)
        for name in ("LibTorch", "Python", "dataset helper", "kernel", "GPUs",
                     "state directory", "socket", "data root"):
            self.assertRegex(done.stdout, rf"(?m)^ok +{name} ")
        self.assertEqual(done.returncode,
                         1 if "\nproblem" in done.stdout else 0, done.stdout)
        # It only looks.
        self.assertFalse((self.scratch.folder / "roundhouse").exists())

    def test_a_problem_has_a_command(self):
        done = self.run_daemon("--doctor", "--data-root=/no/such/folder",
                               "--python=/no/python",
                               f"--state-dir={self.scratch.folder}/state")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^problem +Python +/no/python: ")
        self.assertRegex(done.stdout, r"(?m)^ +-> mkdir /no/such/folder")
        self.assertEqual(self.run_daemon("--doctor", "--nonsense").returncode,
                         2)

    def test_the_client_asks_the_daemon(self):
        daemon = self.scratch.daemon()
        daemon.start()
        done = daemon.client("doctor", "-o", "json", check=False)
        findings = {finding["name"]: finding for finding in
                    json.loads(done.stdout)["findings"]}
        for name in ("address", "connection", "version", "clocks", "LibTorch",
                     "Python", "dataset helper", "state directory"):
            self.assertEqual(findings[name]["verdict"], "VERDICT_OK",
                             findings[name])
        self.assertIn("reserve is held", findings["disk"]["found"])
        problems = [finding for finding in findings.values()
                    if finding["verdict"] == "VERDICT_PROBLEM"]
        self.assertEqual(done.returncode, 1 if problems else 0, problems)
        daemon.stop()
        done = daemon.client("doctor", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("systemctl status roundhoused", done.stdout)


class BackupTest(unittest.TestCase):
    """What docs/admin.md says of backups."""

    SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
            "max_length": 16, "batch_size": 4, "max_steps": 2,
            "save_steps": 1}

    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=8)
        self.daemon = self.scratch.daemon(devices="cpu:1")
        self.daemon.start()
        self.first = self.daemon.submit(self.SPEC)
        self.daemon.wait(self.first)
        self.copy = self.scratch.folder / "copy"

    def restore(self):
        shutil.rmtree(self.daemon.state)
        self.copy.rename(self.daemon.state)
        self.daemon.start()

    def jobs(self):
        return self.daemon.client("list", "-o", "name").stdout.split()

    def test_a_copy_of_a_stopped_daemon_has_everything(self):
        before = self.daemon.job(self.first)
        self.daemon.stop()
        shutil.copytree(self.daemon.state, self.copy)
        self.restore()
        self.assertEqual(self.daemon.job(self.first), before)
        # Its checkpoint serves a new job.
        again = self.daemon.submit({**self.SPEC, "max_steps": 3,
                                    "resume_from_checkpoint":
                                        f"job:{self.first}"})
        self.daemon.wait(again)

    def test_a_copy_of_a_running_one_lacks_what_came_since_its_start(self):
        self.daemon.stop()
        self.daemon.start()
        second = self.daemon.submit(self.SPEC)
        self.daemon.wait(second)
        self.copy.mkdir()
        shutil.copy(self.daemon.state / "jobs.db.backup",
                    self.copy / "jobs.db")
        for name in ("jobs.mark", "jobs", "outputs"):
            path = self.daemon.state / name
            (shutil.copytree if path.is_dir() else shutil.copy)(
                path, self.copy / name)
        self.daemon.kill()
        self.restore()
        self.assertEqual([name.rsplit("/", 1)[1] for name in self.jobs()],
                         [self.first])
        self.assertIn(second, self.daemon.log_path.read_text())
        third = self.daemon.submit(self.SPEC)
        self.assertNotIn(third, (self.first, second))
        self.daemon.wait(third)


if __name__ == "__main__":
    unittest.main()
