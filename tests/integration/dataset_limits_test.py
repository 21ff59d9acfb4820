"""What datasets, templates and a shortage of descriptors may not do to a
daemon and to others."""

import contextlib
import json
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

# A template that takes about a second of CPU time for one row, and so many
# rows, would take an hour.
SLOW = ("{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}"
        "{% endfor %}{% for m in messages %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% endfor %}")
SLOW_ROWS = 4000
CHAT = {"messages": [{"role": "assistant", "content": "one two three"}]}
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 2, "max_steps": 1}
SLOW_JOB = {**JOB, "model_name_or_path": "slow", "dataset": "slow.jsonl"}


class DatasetLimitsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_model("slow")
        (self.scratch.data / "slow/chat_template.jinja").write_text(SLOW)
        self.scratch.make_data("train.jsonl", count=20)
        (self.scratch.data / "slow.jsonl").write_text(
            (json.dumps(CHAT) + "\n") * SLOW_ROWS)
        self.daemon = self.scratch.daemon(dataset_processes=2)
        self.daemon.start()

    def helpers(self):
        return [pid for pid, words in
                harness.children(self.daemon.process.pid).items()
                if any("prepare.py" in word for word in words)]

    def ask(self, what, model, data):
        return subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", "dataset", what, data,
             f"--model={model}", "--max-length=32"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"HOME": str(self.scratch.folder)})

    def zombies(self):
        """Children of the daemon that have ended and are not reaped."""
        found = []
        for tasks in pathlib.Path(
                f"/proc/{self.daemon.process.pid}/task").glob("*/children"):
            for child in tasks.read_text().split():
                with contextlib.suppress(OSError):
                    stat = pathlib.Path(f"/proc/{child}/stat").read_text()
                    if stat.rpartition(")")[2].split()[0] == "Z":
                        found.append(child)
        return found

    @contextlib.contextmanager
    def ended(self, processes):
        """Waits for their ends behind its body."""
        ends = [os.pidfd_open(pid) for pid in processes]
        yield
        for end in ends:
            self.assertEqual(select.select(
                [end], [], [], harness.DEADLINE_SECONDS)[0], [end])
            os.close(end)

    def end(self, client):
        client.kill()
        client.wait()

    def test_slow_templates_hold_up_no_job(self):
        slow = self.daemon.submit(SLOW_JOB)
        harness.wait_until(self.helpers, "the slow job's helper")
        self.daemon.wait(self.daemon.submit(JOB))
        self.assertEqual(self.daemon.job(slow)["state"], "VALIDATING")
        self.daemon.client("cancel", slow)
        harness.wait_until(lambda: not self.helpers(), "the helper's end")

    def test_progress_is_told_and_all_processes_end_with_the_job(self):
        (self.scratch.data / "slow/chat_template.jinja").write_text(
            SLOW.replace("2000", "80"))
        (self.scratch.data / "slow.jsonl").write_text(
            (json.dumps(CHAT) + "\n") * 20 * SLOW_ROWS)
        job = self.daemon.submit(SLOW_JOB)
        share = harness.wait_until(
            lambda: self.daemon.job(job).get("data_read"), "progress")
        self.assertLess(share, 1)
        helper, = self.helpers()
        below = harness.wait_until(
            lambda: harness.children(helper), "the helper's own processes")
        with self.ended([helper, *below]):
            self.daemon.client("cancel", job)
        # The daemon is the parent of what the helper leaves.
        harness.wait_until(lambda: not self.zombies(), "them to be reaped")

    def test_slow_previews_hold_up_no_other(self):
        # None of its rows is kept, so that a preview looks for more.
        (self.scratch.data / "slow/chat_template.jinja").write_text(
            SLOW.replace("{{ m.content }}", ""))
        self.addCleanup(self.end, self.ask("preview", "slow", "slow.jsonl"))
        harness.wait_until(self.helpers, "the slow preview's helper")
        done = self.daemon.client("dataset", "preview", "train.jsonl",
                                  "--model", "model", "--max-length", "32")
        self.assertIn("1", done.stdout)
        self.assertEqual(len(self.helpers()), 1)

    def test_a_killed_daemon_leaves_no_helper(self):
        self.daemon.submit(SLOW_JOB)
        self.addCleanup(self.end, self.ask("validate", "slow", "slow.jsonl"))
        helpers = harness.wait_until(
            lambda: (found := self.helpers()) and len(found) == 2 and found,
            "two helpers")
        with self.ended(helpers):
            self.daemon.kill()

    def test_a_daemon_short_of_descriptors_takes_jobs_up_later(self):
        pid = self.daemon.process.pid
        self.daemon.wait(self.daemon.submit(JOB))
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = max(map(int, os.listdir(f"/proc/{pid}/fd")))
        for left in (6, 10):
            resource.prlimit(pid, resource.RLIMIT_NOFILE,
                             (used + 1 + left, before[1]))
            job = self.daemon.submit(JOB | {"seed": left})
            harness.wait_until(
                lambda: "no job is taken up" in self.daemon.tail(1000),
                "the shortage to be told")
            self.assertEqual(self.daemon.job(job)["state"], "VALIDATING")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            self.daemon.wait(job)
        self.assertEqual(self.daemon.process.pid, pid)

    def test_a_limit_on_file_sizes_kills_nobody(self):
        workers = self.daemon.workers()
        for name in ("0", "host", "files"):
            workers[name] = self.daemon.worker(name)
        for name, pid in {"daemon": self.daemon.process.pid,
                          **workers}.items():
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            ignored = int(next(line.split()[1] for line in status.splitlines()
                               if line.startswith("SigIgn:")), 16)
            self.assertTrue(ignored >> (signal.SIGXFSZ - 1) & 1, name)


if __name__ == "__main__":
    unittest.main()
