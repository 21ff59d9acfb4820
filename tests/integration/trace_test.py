"""`roundhouse trace` of jobs that train: a trace says of each device what its
ledger says, and a file is what other programs take for one."""

import collections
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

DEVICES = 4
ENDLESS = {"model_name_or_path": "model", "dataset": "train.jsonl",
           "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
           "max_steps": 1000000, "save_steps": 0, "max_grad_norm": 1.0,
           "gradient_groups": 1,
           "plan": {"forward": [[0, 1], [2, 2]],
                    "backward": [[3, 4], [1, 2], [0, 0]]}}
MICRO_BATCHES = 4
# The slots of each step: kind, layers.
SLOTS = [("forward", 0, 2), ("forward", 2, 3), ("fused", 3, 5),
         ("backward", 1, 3), ("backward", 0, 1)]
CAUSES = {"h2d_wait", "d2h_wait", "dependency", "optimizer", "data",
          "dispatch", "memory"}
NOT_FOUND, PRECONDITION, QUOTA = 5, 6, 7  # the client's exit codes


class Trace:
    """A file as any reader of trace events sees it; times in nanoseconds."""

    def __init__(self, test, path):
        self.json = json.loads(path.read_text())
        self.about = self.json["otherData"]
        self.names, processes = {}, {}
        self.tracks = collections.defaultdict(list)
        for event in self.json["traceEvents"]:
            test.assertIsInstance(event["pid"], int)
            test.assertIsInstance(event["tid"], int)
            test.assertIsInstance(event["name"], str)
            if event["ph"] == "M":
                if event["name"] == "process_name":
                    processes[event["pid"]] = event["args"]["name"]
                if event["name"] == "thread_name":
                    self.names[event["pid"], event["tid"]] = (
                        processes[event["pid"]], event["args"]["name"])
                continue
            test.assertEqual(event["ph"], "X")
            test.assertGreaterEqual(event["ts"], 0)
            test.assertGreater(event["dur"], 0)
            begin = round(1000 * event["ts"])
            track = self.names[event["pid"], event["tid"]]
            self.tracks[track].append(
                (begin, begin + round(1000 * event["dur"]), event["cat"],
                 event["args"]))
        for name, intervals in self.tracks.items():
            intervals.sort(key=lambda interval: interval[:2])
            for before, after in zip(intervals, intervals[1:]):
                test.assertLessEqual(before[1], after[0], name)

    def device(self, index, track):
        return self.tracks[f"device {index}", track]

    def host(self, track):
        return self.tracks["host", track]


class TraceCase(unittest.TestCase):
    flags = {}

    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=64)
        self.daemon = self.scratch.daemon(devices=f"cpu:{DEVICES}",
                                          **self.flags)
        self.daemon.start()
        self.path = self.scratch.folder / "trace.json"

    def running(self, **fields):
        job = self.daemon.submit({**ENDLESS, **fields})
        self.wait_step(job, 2)
        return job

    def wait_step(self, job, step):
        harness.wait_until(lambda: self.daemon.job(job)["step"] >= step,
                           f"step {step} of {job}", pause=0.02)

    def trace(self, job, steps):
        self.daemon.client("trace", job, "--steps", steps, "--output",
                           self.path)
        return Trace(self, self.path)

    def background(self, job, steps, stderr=subprocess.PIPE):
        process = subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", "trace", job,
             f"--steps={steps}", f"--output={self.path}"],
            stdout=subprocess.PIPE, stderr=stderr, text=True,
            env={**os.environ, "TERM": "xterm"})  # it counts on no dumb one
        self.addCleanup(process.kill)
        return process

    def begun(self, job, steps):
        """A client that records, and its terminal: there it counts steps, and
        it has counted one."""
        terminal, theirs = pty.openpty()
        self.addCleanup(os.close, terminal)
        process = self.background(job, steps, stderr=theirs)
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + harness.DEADLINE_SECONDS
        while not re.search(rb"[1-9]\d* of \d+ steps", shown):
            left = harness.remaining(deadline, "a traced step")
            if select.select([terminal], [], [], left)[0]:
                shown += os.read(terminal, 4096)
        return process, terminal

    def end(self, process, terminal):
        """What else it shows."""
        shown = b""
        try:
            while part := os.read(terminal, 65536):
                shown += part
        except OSError:  # how a terminal ends
            pass
        process.communicate(timeout=harness.DEADLINE_SECONDS)
        return shown.decode()

    def check_devices(self, trace):
        """Tracks compute and wait cover each device's span once, and make the
        bubble ratio that the ledger has."""
        totals = collections.Counter()
        for device in trace.about["devices"]:
            index = device["index"]
            compute = trace.device(index, "compute")
            at = device["start_ns"]
            for begin, end, *_ in sorted(compute + trace.device(index, "wait"),
                                         key=lambda interval: interval[:2]):
                self.assertEqual(begin, at, f"device {index}")
                at = end
            self.assertEqual(at, device["end_ns"])
            span = at - device["start_ns"]
            self.assertAlmostEqual(
                span, sum(device[f"{state}_ns"] for state in
                          ("compute", "bubble", "idle", "fenced")),
                delta=0.001 * span)
            busy = sum(end - begin for begin, end, *_ in compute)
            totals.update(busy=busy, span=span, bubble=device["bubble_ns"],
                          compute=device["compute_ns"])
            self.compare(1 - busy / span, device["bubble_ns"] /
                         (device["compute_ns"] + device["bubble_ns"]),
                         f"device {index}")
        self.compare(1 - totals["busy"] / totals["span"], totals["bubble"] /
                     (totals["compute"] + totals["bubble"]), "all devices")

    def compare(self, traced, ledger, what):
        print(f"{what}: bubble {100 * traced:.3f} % by the trace, "
              f"{100 * ledger:.3f} % by the ledger")
        self.assertAlmostEqual(traced, ledger, delta=0.005, msg=what)


class TraceTest(TraceCase):
    def test_a_trace_and_the_ledgers_agree(self):
        job = self.running()
        trace = self.trace(job, 40)
        self.assertEqual(len(trace.about["devices"]), DEVICES)
        self.check_devices(trace)
        for device in range(DEVICES):
            kinds = {kind for *_, kind, _ in trace.device(device, "wait")}
            self.assertLessEqual(kinds, CAUSES | {"unknown"})
            # One that gets no slot waits to the end.
            self.assertEqual(bool(trace.device(device, "compute")),
                             bool(kinds & CAUSES))

    # A second is full while it stands still, and it publishes before it reads
    # what its workers told meanwhile.
    def test_a_daemon_that_comes_late(self):
        job = self.running()
        recording = self.background(job, 60)
        while recording.poll() is None:
            for number, seconds in ((signal.SIGSTOP, 0.05),
                                    (signal.SIGCONT, 0.03)):
                self.daemon.process.send_signal(number)
                time.sleep(seconds)
        errors = recording.communicate()[1]
        self.assertEqual(recording.returncode, 0, errors)
        self.check_devices(Trace(self, self.path))

    def test_every_step_is_whole(self):
        job = self.running()
        steps = 5
        trace = self.trace(job, steps)
        first = trace.about["first_step"]
        wanted = range(first, first + steps)
        self.assertEqual([args["step"] for *_, args in trace.host("steps")],
                         list(wanted))
        self.assertEqual(trace.about["ended_early"], "")
        found = collections.defaultdict(list)
        slots = {}
        for device in range(DEVICES):
            for *_, kind, args in trace.device(device, "compute"):
                self.assertEqual(args["job"], job)
                found[args["step"]].append(
                    (kind, args["layer_begin"], args["layer_end"],
                     args["micro_batch"]))
                slots[args["slot"]] = args["step"]
        for step in wanted:
            self.assertCountEqual(
                found[step], [(*slot, micro_batch) for slot in SLOTS
                              for micro_batch in range(MICRO_BATCHES)])
        self.check_copies(trace, wanted, slots)
        self.check_host(trace, wanted)

    def check_copies(self, trace, steps, slots):
        """The same bytes in every step, each copy of a slot that computed."""
        moved = collections.Counter()
        for device in range(DEVICES):
            for link in ("h2d", "d2h"):
                for *_, kind, args in trace.device(device, link):
                    moved[args["step"], link, kind] += args["bytes"]
                    self.assertEqual(slots.get(args["slot"], args["step"]),
                                     args["step"])
        for step in steps:
            kinds = {key[1:]: count for key, count in moved.items()
                     if key[0] == step}
            # Rows have as many tokens as they have.
            self.assertEqual(set(kinds), {
                ("h2d", "weights"), ("h2d", "activations"),
                ("d2h", "activations"), ("d2h", "gradients")})
            for what in (("h2d", "weights"), ("d2h", "gradients")):
                self.assertEqual(kinds[what], moved[(steps[0], *what)])

    def check_host(self, trace, steps):
        units = range(harness.LAYERS + 2)
        for track in ("reduce", "optimizer"):
            done = [(args["step"], args["unit"])
                    for *_, args in trace.host(track)]
            for step in steps:
                self.assertCountEqual(
                    [unit for of, unit in done if of == step], units)
        gathered = {args["step"] for *_, args in trace.host("gather")}
        self.assertLessEqual(set(steps), gathered)

    def test_other_jobs_are_there_too(self):
        first, second = self.running(), self.running(seed=2)
        trace = self.trace(first, 20)
        jobs = collections.Counter(
            args["job"] for device in range(DEVICES)
            for *_, args in trace.device(device, "compute"))
        self.assertEqual(set(jobs), {first, second})
        self.assertEqual({args["job"] for *_, args in trace.host("steps")},
                         {first})
        self.check_devices(trace)

    def test_asynchronous_steps_and_standard_output(self):
        job = self.running(optimizer_mode="async")
        self.path.write_text(self.daemon.client(
            "trace", job, "--steps=10", "--output=-").stdout)
        trace = Trace(self, self.path)
        self.assertEqual(len(trace.host("steps")), 10)
        self.check_devices(trace)

    def test_errors(self):
        for words, code, part in (
                (("job-9",), NOT_FOUND, "job-9"),
                (("job-9", "--steps=0"), 2, "steps"),
                (("job-9", "--steps=101"), 2, "at most 100")):
            done = self.daemon.client("trace", *words, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(part, done.stderr)
        job = self.daemon.submit({**ENDLESS, "max_steps": 2})
        self.daemon.wait(job)
        done = self.daemon.client("trace", job, check=False)
        self.assertEqual(done.returncode, PRECONDITION, done.stderr)
        self.assertIn("SUCCEEDED", done.stderr)


class LongTraceTest(TraceCase):
    """Links that make a hundred steps last for most of a minute."""
    flags = {"link_gbps": 0.005}

    def test_a_pause_ends_a_trace_early(self):
        job = self.running()
        recording, terminal = self.begun(job, 100)
        self.daemon.client("pause", job)
        errors = self.end(recording, terminal)
        self.assertEqual(recording.returncode, 0, errors)
        self.assertIn("of 100 steps: the job is PAUSED", errors)
        trace = Trace(self, self.path)
        self.assertLess(trace.about["steps"], 100)
        self.assertGreaterEqual(len(trace.host("steps")),
                                trace.about["steps"])

    def test_a_dead_worker_is_in_the_trace(self):
        job = self.running()
        recording, terminal = self.begun(job, 8)
        os.kill(self.daemon.worker("1"), signal.SIGKILL)
        errors = self.end(recording, terminal)
        self.assertEqual(recording.returncode, 0, errors)
        self.check_devices(Trace(self, self.path))

    def test_an_interrupt_ends_the_recording(self):
        job = self.running()
        recording, terminal = self.begun(job, 100)
        second = self.daemon.client("trace", job, "--output", self.path,
                                    check=False)
        self.assertEqual(second.returncode, QUOTA, second.stderr)
        self.assertIn(f"a trace of {job} is being recorded", second.stderr)
        recording.send_signal(signal.SIGINT)
        self.end(recording, terminal)
        self.assertEqual(recording.returncode, 130)
        self.assertFalse(self.path.exists())

        def taken():
            return self.daemon.client("trace", job, "--steps=1", "--output",
                                      self.path, check=False).returncode == 0
        harness.wait_until(taken, "a second trace")


if __name__ == "__main__":
    unittest.main()
