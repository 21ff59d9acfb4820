"""SIGSTOP of every kind of process: what stands still is given up or waited
for. Every job ends with the bits of the undisturbed run; that of a helper, which
has data of its own, succeeds.

A worker that stands still is killed when its heartbeats stay away (30 s), and
its work is done again by the next one; a nursery when it is asked for a worker
(60 s).  A daemon and a dataset helper that stood still go on: nobody is taken
for dead because its daemon did not look.

ROUNDHOUSE_STOPS: of each kind (1).  The kinds have a daemon each and run beside
each other, for they wait most of the time.  All of them take eight minutes:

    bazel test //tests/long:stopped_processes_test --test_timeout=3600 \
      --test_output=all --test_env=ROUNDHOUSE_STOPS=5
"""

import os
import pathlib
import random
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness
import kill_test

STOPS = int(os.environ.get("ROUNDHOUSE_STOPS", "1"))
SEED = int(os.environ.get("ROUNDHOUSE_SEED", "1"))
# Until a stopped nursery is given up, and a worker after it.
PATIENCE_SECONDS = 300
# Longer than a worker may be silent.
LONG_STOP_SECONDS = 40
HELPER_STOP_SECONDS = 3


class StoppedProcessesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model", seed=4, tied=True)
        self.scratch.make_data("train.jsonl", count=50, seed=1)
        self.scratch.make_data("validation.jsonl", count=5, seed=2)
        daemon = self.scratch.daemon()
        daemon.start()
        job = daemon.submit(kill_test.SPEC)
        daemon.wait(job)
        self.undisturbed = kill_test.KillTest.results(daemon, job)
        daemon.stop()
        self.stopped = {}

    def stop_and_wait(self, daemon, name):
        """Stops a worker for good; answers when another has its place."""
        pid = daemon.worker(name)
        os.kill(pid, signal.SIGSTOP)
        harness.wait_until(lambda: daemon.workers().get(name, pid) != pid,
                           f"another {name} worker", PATIENCE_SECONDS,
                           pause=0.2)

    def stop_nursery(self, daemon, chosen):
        """It is missed when a worker is to be started."""
        os.kill(daemon.worker("nursery"), signal.SIGSTOP)
        name = chosen.choice("01")
        pid = daemon.worker(name)
        os.kill(pid, signal.SIGKILL)
        harness.wait_until(lambda: daemon.workers().get(name, pid) != pid,
                           "a worker from another nursery", PATIENCE_SECONDS,
                           pause=0.2)

    def stop_daemon(self, daemon, seconds):
        """Its workers stay."""
        before = daemon.workers()
        daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        daemon.process.send_signal(signal.SIGCONT)
        self.assertEqual(daemon.workers(), before)

    def running(self, daemon):
        job = daemon.submit(kill_test.SPEC)
        harness.wait_until(lambda: daemon.metrics(job), "the first step",
                           pause=0.001)
        return job

    def one(self, daemon, kind, index, chosen):
        """One stop of a kind's process while a job runs; the job."""
        if kind == "helper":
            # Data that no cache has.
            self.scratch.make_data(f"other{index}.jsonl", count=20000,
                                   seed=index)
            job = daemon.submit({**kill_test.SPEC, "max_steps": 2,
                                 "dataset": f"other{index}.jsonl"})
            pid = harness.wait_until(lambda: self.helper(daemon), "a helper",
                                     pause=0.001)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(HELPER_STOP_SECONDS)
            os.kill(pid, signal.SIGCONT)
            return job
        job = self.running(daemon)
        time.sleep(chosen.uniform(0, 0.1))
        if kind == "nursery":
            self.stop_nursery(daemon, chosen)
        elif kind == "daemon":
            self.stop_daemon(daemon, LONG_STOP_SECONDS if index == 0 else
                             chosen.uniform(0.1, 5))
        else:
            self.stop_and_wait(
                daemon, chosen.choice("01") if kind == "device" else kind)
        return job

    @staticmethod
    def helper(daemon):
        for pid, words in harness.children(daemon.process.pid).items():
            if any(word.endswith("prepare.py") for word in words):
                return pid
        return None

    def all_of(self, kind):
        chosen = random.Random(f"{SEED} {kind}")
        daemon = self.daemons[kind]
        daemon.start()
        for index in range(STOPS):
            job = self.one(daemon, kind, index, chosen)
            daemon.wait(job, seconds=PATIENCE_SECONDS)
            self.assertNotIn("going on from", daemon.log(job))
            if kind != "helper":
                found = kill_test.KillTest.results(daemon, job)
                for name, wanted in self.undisturbed.items():
                    self.assertEqual(found[name], wanted, f"{kind}: {name}")
        daemon.stop()
        self.stopped[kind] = STOPS

    def test_every_kind(self):
        kinds = ("device", "host", "files", "nursery", "daemon", "helper")
        self.daemons = {kind: self.scratch.daemon() for kind in kinds}
        wrong = {}

        def attempt(kind):
            try:
                self.all_of(kind)
            except Exception as error:  # told by the test's own thread
                wrong[kind] = error

        threads = [threading.Thread(target=attempt, args=(kind,))
                   for kind in kinds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for kind, error in wrong.items():
            with self.subTest(kind):
                raise error
        self.assertEqual(self.stopped, dict.fromkeys(kinds, STOPS))
        print(f"{STOPS} stops of each of {', '.join(kinds)} with seed {SEED}: "
              "all jobs ended as they should")


if __name__ == "__main__":
    unittest.main()
