"""One user's connections, calls, streams, messages and slow requests cost the
others nothing and the daemon little memory (attacks.py), with small counts.

    attack_test.py --full     through deploy/run-python: the counts that the
                              faults were found with, and a table of what it
                              cost (docs/reliability.md); ends by itself

The attacker is another user than the one who is served beside it, so this needs
root and is skipped without.
"""

import collections
import json
import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

ATTACKER = 65534  # nobody
FULL = "--full" in sys.argv
MEBIBYTE = 1 << 20
MOST_RSS = 200 * MEBIBYTE
KEPT_RSS = 50 * MEBIBYTE  # more than before, a minute after
# (attack, count in CI, full count)
COUNTS = {"idle": (100, 1000), "watches": (120, 200), "slow_http": (100, 200),
          "gzip_bombs": (2, 6), "job_files": (2, 20),
          "rapid_reset": (100, 50000), "one_rapid_reset": (5000, 50000),
          "half_messages": (3, 64)}

# Some hundreds of slots a second.
COSTS = "layer,forward_ms,recompute_ms,backward_ms\n" + "".join(
    f"{layer},2,{2 if layer < 4 else 0},4\n" for layer in range(5))
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 16, "batch_size": 4, "micro_batch_size": 2,
       "max_steps": 1_000_000, "save_steps": 0}


def rss(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


def cpu_of_children():
    """CPU seconds of the processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class PeakRss:
    """The most while it is entered; sampled every 5 ms."""

    def __init__(self, pid):
        self.pid, self.most, self.over = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.wait(0.005):
            self.most = max(self.most, rss(self.pid))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


@unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
class AttackTest(unittest.TestCase):
    """One daemon for all of them, since what one leaves behind counts for the
    next; another user's job runs on it."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = harness.Scratch()
        cls.scratch.__enter__()
        cls.addClassCleanup(cls.scratch.__exit__)
        cls.scratch.make_model("model")
        cls.scratch.make_data("train.jsonl", count=12)
        cls.daemon = cls.scratch.daemon(metrics_listen="127.0.0.1:0")
        cls.daemon.start(worker_program=cls.scratch.fake_worker(COSTS))
        # The control thread has its turns for a job, whoever attacks.
        cls.daemon.submit(JOB)
        harness.wait_until(lambda: cls.daemon.job("job-1")["step"] > 0,
                           "a step")
        # Whoever may connect is decided by the folder and the socket's mode.
        cls.scratch.folder.chmod(0o755)
        cls.daemon.socket.chmod(0o666)
        log = cls.daemon.log_path.read_text()
        cls.port = re.findall(r"metrics on 127\.0\.0\.1:(\d+)", log)[-1]
        cls.table = []
        cls.served_alone = cls.serve()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()
        for row in cls.table:
            print(json.dumps(row))

    @classmethod
    def serve(cls):
        """Seconds of a call, a watch and a scrape, and CPU seconds of the
        client in a call and a watch: the middle of three. Beside these the
        turns of the daemon's control thread meanwhile."""
        seconds = {"call": [], "watch": [], "scrape": [], "client_cpu": []}
        turns = cls.turns()
        for _ in range(3):
            cpu = cpu_of_children()
            for name, work in (("call", cls.get_job), ("watch", cls.watch),
                               ("scrape", cls.scrape)):
                start = time.monotonic()
                work()
                seconds[name].append(time.monotonic() - start)
            seconds["client_cpu"].append(cpu_of_children() - cpu)
        turns = cls.turns() - turns
        served = {name: statistics.median(values)
                  for name, values in seconds.items()}
        # Each bound is a bucket's upper end.
        bounds = sorted(turns.elements())
        served["turns"] = len(bounds)
        served["turns_p99"] = bounds[int(0.99 * (len(bounds) - 1))]
        served["longest_turn"] = bounds[-1]
        return served

    @classmethod
    def turns(cls):
        """{upper end of a bucket: turns in it}, since the daemon's start."""
        buckets = re.findall(
            r'^roundhouse_event_loop_turn_seconds_bucket{le="(.*?)"} (\d+)$',
            cls.scrape(), re.M)
        found, below = collections.Counter(), 0
        for bound, count in buckets:
            found[float(bound)] = int(count) - below
            below = int(count)
        return found

    @classmethod
    def get_job(cls):
        cls.daemon.client("get", "job-1")

    @classmethod
    def watch(cls):
        # It comes to nothing, but over a stream of its own.
        done = cls.daemon.client("watch", "job-9", check=False)
        if "job-9" not in done.stderr or "streams" in done.stderr:
            raise harness.Failure(done.stderr)

    @classmethod
    def scrape(cls):
        with urllib.request.urlopen(f"http://127.0.0.1:{cls.port}/metrics",
                                    timeout=60) as answer:
            text = answer.read().decode()
        assert "grpc_server_handled_total" in text
        return text

    def attack(self, name):
        """Answers what attacks.py says, after the checks that all share."""
        pid = self.daemon.process.pid
        before = rss(pid)
        count = COUNTS[name][FULL]
        where = self.port if name == "slow_http" else self.daemon.socket
        with PeakRss(pid) as peak:
            attacker = subprocess.Popen(
                [sys.executable, pathlib.Path(__file__).with_name("attacks.py"),
                 name, str(where), str(count), str(ATTACKER)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            with attacker:
                # Others are served while it lasts and while it holds.
                served = self.serve()
                said = json.loads(attacker.stdout.readline())
                held = self.serve()
                attacker.stdin.close()
                self.assertEqual(attacker.wait(harness.DEADLINE_SECONDS), 0)
        row = {"attack": name, "count": count, **said,
               "rss_before_mb": before >> 20, "rss_most_mb": peak.most >> 20,
               "alone_s": self.served_alone, "meanwhile_s": served,
               "held_s": held}
        if FULL:
            time.sleep(60)
            row["rss_after_mb"] = rss(pid) >> 20
            self.assertLess(rss(pid), before + KEPT_RSS)
        self.table.append(row)
        self.assertLess(peak.most, MOST_RSS)
        return said

    def test_connections_that_are_idle(self):
        said = self.attack("idle")
        self.assertEqual(said["opened"] - said["refused"], 64)

    def test_watches_that_wait(self):
        said = self.attack("watches")
        self.assertEqual(said["opened"], 100)
        self.assertEqual(said["refused"], COUNTS["watches"][FULL] - 100)

    def test_requests_at_a_byte_a_second(self):
        self.attack("slow_http")

    def test_messages_that_unpack_to_much(self):
        said = self.attack("gzip_bombs")
        self.assertEqual(said["ended"], said["sent"])

    def test_job_files_that_nest(self):
        said = self.attack("job_files")
        self.assertEqual(said["ended"], said["sent"])

    def test_calls_that_are_reset_at_once(self):
        """On many connections they wait for their user's share."""
        self.attack("rapid_reset")

    def test_calls_that_are_reset_at_once_on_one_connection(self):
        said = self.attack("one_rapid_reset")
        self.assertEqual(said["cut"], 1)

    def test_messages_that_do_not_end(self):
        self.attack("half_messages")


class FewDescriptorsTest(unittest.TestCase):
    def test_a_daemon_with_few_descriptors(self):
        """It raises its limit to the hard one, says so when that is low, and
        serves."""
        with harness.Scratch() as scratch:
            daemon = scratch.daemon()
            daemon.file_limits = (64, 256)
            daemon.start()
            limits = pathlib.Path(
                f"/proc/{daemon.process.pid}/limits").read_text()
            self.assertRegex(limits, r"Max open files\s+256\s+256")
            self.assertIn("at most 256 descriptors",
                          daemon.log_path.read_text())
            held = []
            for _ in range(100):
                held.append(socket.socket(socket.AF_UNIX))
                held[-1].connect(str(daemon.socket))
            # They are the same user's; some were refused. Room is left for
            # work, and for others once it has noticed that they are gone.
            for one in held:
                one.close()
            harness.wait_until(
                lambda: daemon.client("list", check=False).returncode == 0,
                "a place for a client")
            daemon.stop()


if __name__ == "__main__":
    if FULL:
        sys.argv.remove("--full")
    unittest.main()
