"""Many clients that ask now and then, beside a job of fake workers: what they
cost its dispatch, and what memory the daemon takes for them.

The clients are raw HTTP/2 connections of one process, over the daemon's socket,
of as many users as the limit of connections needs; so this needs root.

ROUNDHOUSE_CLIENTS: how many (100), ROUNDHOUSE_CALLS: a second, in all (200),
ROUNDHOUSE_SECONDS: of each of three phases (4). README.md has the full counts
and the last result. What it took is printed; only memory and answers are
checked.
"""

import json
import os
import pathlib
import re
import selectors
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness
import http2

CLIENTS = int(os.environ.get("ROUNDHOUSE_CLIENTS", "100"))
CALLS = int(os.environ.get("ROUNDHOUSE_CALLS", "200"))
SECONDS = float(os.environ.get("ROUNDHOUSE_SECONDS", "4"))
MOST_BYTES = 200 << 20  # of the daemon, without the arena
CLIENTS_EACH = 60  # of a user; 64 are let in
FIRST_UID = 71_000
# Some hundreds of slots a second.
COSTS = "layer,forward_ms,recompute_ms,backward_ms\n" + "".join(
    f"{layer},2,{2 if layer < 4 else 0},4\n" for layer in range(5))
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 16, "batch_size": 4, "micro_batch_size": 2,
       "max_steps": 1_000_000, "save_steps": 0}
JOBS, SYSTEM, ACCOUNTS = (
    f"/roundhouse.v1.{name}Service/"
    for name in ("FineTuningJob", "System", "Account"))
ASKED = ((JOBS + "GetFineTuningJob", http2.text_field(1, b"job-1")),
         (JOBS + "ListFineTuningJobs", b""), (SYSTEM + "ListDevices", b""),
         (SYSTEM + "GetServer", b""), (ACCOUNTS + "WhoAmI", b""))


def memory(pid):
    """Resident bytes of a process without those that it shares: the arena."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    kilobytes = {name: int(size) for name, size in
                 re.findall(r"(\w+):\s+(\d+) kB", status)}
    return (kilobytes["VmRSS"] - kilobytes["RssShmem"]) << 10


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1))] if values else None


@unittest.skipUnless(os.geteuid() == 0, "only root can be several users")
class ManyClientsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=12)
        self.samples = self.scratch.folder / "samples.csv"
        self.daemon = self.scratch.daemon(sample_log=self.samples)
        self.daemon.start(worker_program=self.scratch.fake_worker(COSTS))
        self.daemon.submit(JOB)
        harness.wait_until(lambda: self.daemon.job("job-1")["step"] > 0,
                           "a step")
        self.daemon.let_everybody_in()
        self.connections, self.most = [], 0
        self.selector = selectors.DefaultSelector()

    def connect(self):
        for number in range(CLIENTS):
            # The kernel notes who connects.
            os.seteuid(FIRST_UID + number // CLIENTS_EACH)
            try:
                connection = http2.Connection(self.daemon.socket)
            finally:
                os.seteuid(0)
            self.connections.append(connection)
            self.selector.register(connection.socket, selectors.EVENT_READ,
                                   connection)

    def read(self, seconds):
        for key, _ in self.selector.select(seconds):
            key.data.read()
            self.assertFalse(key.data.closed)

    def ask(self, seconds):
        """Calls at an even rate, whoever is slow. The seconds to the answers,
        as this process saw them."""
        sent, took = {}, []
        begin, count = time.monotonic(), 0
        while count < CALLS * seconds or sent:
            due = begin + count / CALLS
            now = time.monotonic()
            if count < CALLS * seconds and now >= due:
                connection = self.connections[count % len(self.connections)]
                path, request = ASKED[count % len(ASKED)]
                stream = connection.call(path, request)
                sent[connection, stream] = now
                count += 1
                continue
            self.read(max(0, due - now) if count < CALLS * seconds else 1)
            now = time.monotonic()
            for key in [key for key in sent if key[1] in key[0].ended]:
                took.append(now - sent.pop(key))
                self.assertIn(key[1], key[0].answered)
            self.most = max(self.most, memory(self.daemon.process.pid))
            if now > begin + seconds + harness.DEADLINE_SECONDS:
                self.fail(f"{len(sent)} calls have no answer")
        return took

    def dispatch(self, work):
        """Seconds of each dispatch while `work` ran, and what it answers."""
        begin = self.samples.stat().st_size
        answer = work()
        with open(self.samples, "rb") as file:
            file.seek(begin)
            lines = file.read().decode().splitlines()
        times = [1e-9 * float(line.split(",")[1]) for line in lines[1:-1]
                 if line.startswith("dispatch,")]
        self.assertGreater(len(times), 10)
        return times, answer

    def test_they_cost_the_job_and_the_memory_little(self):
        alone, _ = self.dispatch(lambda: time.sleep(SECONDS))
        before = memory(self.daemon.process.pid)
        self.connect()
        beside, took = self.dispatch(lambda: self.ask(SECONDS))
        again, _ = self.dispatch(lambda: time.sleep(SECONDS))
        self.assertEqual(len(took), round(CALLS * SECONDS))
        self.assertLess(self.most, MOST_BYTES)
        alone += again
        print(json.dumps({
            "clients": CLIENTS, "calls": len(took), "calls_a_second": CALLS,
            "call_p50_ms": round(1e3 * quantile(took, 0.5), 2),
            "call_p99_ms": round(1e3 * quantile(took, 0.99), 2),
            "dispatches_alone": len(alone), "dispatches_beside": len(beside),
            "dispatch_p50_us": [round(1e6 * quantile(times, 0.5))
                                for times in (alone, beside)],
            "dispatch_p99_us": [round(1e6 * quantile(times, 0.99))
                                for times in (alone, beside)],
            "memory_before_mib": before >> 20,
            "memory_most_mib": self.most >> 20}))
        for connection in self.connections:
            connection.close()
        self.daemon.stop()


if __name__ == "__main__":
    unittest.main()
