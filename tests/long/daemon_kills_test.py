"""Kill -9 of the daemon at random moments, while several clients submit, cancel,
pause and resume jobs (docs/reliability.md: R1, R3 and R11).

What clients were told is a model of what has to be there afterwards: every
acknowledged job is in the store, once, also when its submit was repeated with
the same request id before, during and after a kill; no job that nobody asked
for is; no job makes a transition that the state machine has not; and what was
asked for comes about: cancelled jobs end CANCELLED, all others SUCCEEDED.

ROUNDHOUSE_KILLS: how many (8). ROUNDHOUSE_SEED: of moments and operations. All
of them:

    bazel test //tests/long:daemon_kills_test --test_timeout=7200 \
      --test_output=all --test_env=ROUNDHOUSE_KILLS=1000
"""

import json
import os
import pathlib
import random
import sqlite3
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

KILLS = int(os.environ.get("ROUNDHOUSE_KILLS", "8"))
SEED = int(os.environ.get("ROUNDHOUSE_SEED", "1"))
CLIENTS = 3
# Submits with a request id that is known already, per kill.
RETRIES_A_KILL = 10
LAYERS = 5  # the last one is the head, which is never recomputed
COSTS = "layer,forward_ms,recompute_ms,backward_ms\n" + "".join(
    f"{layer},0.2,{0.2 if layer < LAYERS - 1 else 0},0.4\n"
    for layer in range(LAYERS))
SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "max_length": 16, "batch_size": 4, "micro_batch_size": 2,
        "max_steps": 3, "save_steps": 2}
FINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}
STATES = ("VALIDATING QUEUED LOADING RUNNING PAUSING PAUSED RECOVERING "
          "FINALIZING CANCELLING SUCCEEDED FAILED CANCELLED").split()
# base/job_state.h, written down a second time.
ARROWS = {
    "VALIDATING": {"QUEUED", "PAUSED", "CANCELLED"},
    "QUEUED": {"LOADING", "PAUSED", "CANCELLED"},
    "LOADING": {"RUNNING", "PAUSING", "RECOVERING", "QUEUED", "PAUSED"},
    "RUNNING": {"FINALIZING", "PAUSING", "RECOVERING", "PAUSED"},
    "PAUSING": {"PAUSED", "RECOVERING"},
    "PAUSED": {"QUEUED", "RUNNING", "FINALIZING", "CANCELLED"},
    "RECOVERING": {"LOADING", "QUEUED", "RUNNING", "PAUSED"},
    "FINALIZING": {"SUCCEEDED", "PAUSED", "RECOVERING"},
    "CANCELLING": {"CANCELLED"},
}


def legal(before, after):
    if before in FINAL:
        return False
    return after in ARROWS[before] or after in ("FAILED", "CANCELLING")


class Load:
    """One client: what it asked for, and what it was told."""

    def __init__(self, daemon, path, name):
        self.daemon = daemon
        self.path = path
        self.name = name
        self.random = random.Random(f"{SEED} {name}")
        self.jobs = {}  # request id -> job id, or None: not answered yet
        self.cancelled = set()  # told so
        self.to_cancel = set()  # asked for
        self.retries = 0
        self.wrong = []

    def call(self, *words):
        return self.daemon.client(*words, check=False)

    def submit(self, request):
        done = self.call("submit", "-f", self.path, "--request-id", request,
                         "-o", "json")
        if done.returncode != 0:
            return  # killed meanwhile; it is asked again
        job = json.loads(done.stdout)["name"].rsplit("/", 1)[1]
        known = self.jobs[request]
        if known not in (None, job):
            self.wrong.append(f"{request} made {known} and {job}")
        self.jobs[request] = job

    def known_jobs(self):
        return [job for job in self.jobs.values() if job]

    def step(self):
        choice = self.random.random()
        jobs = self.known_jobs()
        if choice < 0.2 or not jobs:
            request = f"{self.name}-{len(self.jobs)}"
            self.jobs[request] = None
            self.submit(request)
        elif choice < 0.7:
            self.submit(self.random.choice(sorted(self.jobs)))
            self.retries += 1
        elif choice < 0.8:
            job = self.random.choice(jobs[-6:])
            self.to_cancel.add(job)
            if self.call("cancel", job).returncode == 0:
                self.cancelled.add(job)
        else:
            words = self.random.choice([["pause"], ["pause", "--give-back"],
                                        ["resume"], ["resume"]])
            self.call(*words, self.random.choice(jobs[-6:]))

    def run(self, stop):
        while not stop.is_set():
            self.step()

    def settle(self):
        """Asks again for what was not answered."""
        for request, job in self.jobs.items():
            while job is None:
                self.submit(request)
                job = self.jobs[request]


class DaemonKillsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=12)
        self.daemon = self.scratch.daemon()
        self.daemon.fixed["worker_program"] = self.scratch.fake_worker(COSTS)
        path = self.scratch.folder / "load.json"
        path.write_text(json.dumps(SPEC))
        self.loads = [Load(self.daemon, path, f"client{i}")
                      for i in range(CLIENTS)]

    def kill_again_and_again(self):
        """Answers the seconds from each start to the first call served."""
        chosen = random.Random(SEED)
        seconds = []
        for _ in range(KILLS):
            time.sleep(chosen.uniform(0.05, 1.2))
            self.daemon.kill()
            begun = time.monotonic()
            self.daemon.start()
            seconds.append(time.monotonic() - begun)
        return seconds

    def end_all(self, jobs):
        """Resumes what is paused, until every job has ended."""
        for job in jobs:
            def ended(job=job):
                state = self.daemon.job(job)["state"]
                if state == "PAUSED":
                    self.daemon.client("resume", job, check=False)
                return state in FINAL
            harness.wait_until(ended, f"the end of {job}", seconds=600,
                               pause=0.05)

    def check_store(self):
        """{job: its states, oldest first}, of the stopped daemon's store."""
        store = sqlite3.connect(f"file:{self.daemon.state}/jobs.db?mode=ro",
                                uri=True)
        numbers = [row[0] for row in store.execute("SELECT number FROM jobs")]
        self.assertEqual(len(numbers), len(set(numbers)))
        histories = {f"job-{number}": [] for number in numbers}
        for number, state in store.execute(
                "SELECT job, state FROM events WHERE type = 'state' "
                "ORDER BY revision"):
            histories[f"job-{number}"].append(STATES[state - 1])
        requests = dict(store.execute("SELECT request_id, job FROM requests"))
        store.close()
        for job, states in histories.items():
            self.assertEqual(states[0], "VALIDATING", job)
            for before, after in zip(states, states[1:]):
                self.assertTrue(legal(before, after),
                                f"{job}: {before} -> {after} of {states}")
        return histories, requests

    def test_nothing_acknowledged_is_lost_or_done_twice(self):
        self.daemon.start()
        stop = threading.Event()
        threads = [threading.Thread(target=load.run, args=(stop,))
                   for load in self.loads]
        for thread in threads:
            thread.start()
        try:
            seconds = self.kill_again_and_again()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        for load in self.loads:
            load.settle()
            while load.retries < RETRIES_A_KILL * KILLS / CLIENTS:
                load.submit(load.random.choice(sorted(load.jobs)))
                load.retries += 1
            self.assertEqual(load.wrong, [])
        told = {request: job for load in self.loads
                for request, job in load.jobs.items()}
        self.assertEqual(len(set(told.values())), len(told))
        self.end_all(told.values())
        self.daemon.stop()
        histories, requests = self.check_store()
        self.assertEqual(set(histories), set(told.values()))
        self.assertEqual({request: f"job-{number}"
                          for request, number in requests.items()}, told)
        cancelled = set().union(*(load.cancelled for load in self.loads))
        asked = set().union(*(load.to_cancel for load in self.loads))
        for job, states in histories.items():
            may_be = ({"CANCELLED"} if job in cancelled else
                      {"CANCELLED", "SUCCEEDED"} if job in asked else
                      {"SUCCEEDED"})
            self.assertIn(states[-1], may_be, f"{job}: {states}")
        print(f"{KILLS} kills with seed {SEED}: {len(histories)} jobs, "
              f"{len(cancelled)} cancelled, "
              f"{sum(map(len, histories.values()))} transitions, "
              f"{sum(load.retries for load in self.loads)} retries; "
              f"serving again after at most {max(seconds):.2f} s")


if __name__ == "__main__":
    unittest.main()
