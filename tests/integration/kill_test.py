"""Kill -9 of device workers, the host worker, the files worker, the nursery that
workers are forked from, and the daemon: every run ends with the bits of the
undisturbed one.

A worker's death costs its own unfinished work only: the step goes on, no
checkpoint is read, no step is done twice. A daemon's death goes on from the
last checkpoint when the next one starts on the same state directory.

Half of the kills come at named points (base/kill_point.h), half at random
times. ROUNDHOUSE_KILLS: kills of each kind of process (25). ROUNDHOUSE_SEED: of
the random times and of how often a point is passed before it kills. 100 each:

    bazel test //tests/integration:kill_test --test_timeout=3600 \
      --test_env=ROUNDHOUSE_KILLS=100
"""

import collections
import os
import pathlib
import random
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

KILLS = int(os.environ.get("ROUNDHOUSE_KILLS", "25"))
SEED = int(os.environ.get("ROUNDHOUSE_SEED", "1"))
STEPS, SAVE_STEPS = 60, 2
KILLS_A_JOB = 13  # of one process: what fits into STEPS
MOST_RUNS = 10 + KILLS  # of one half; a run may kill less than planned
SPEC = {
    "model_name_or_path": "model", "dataset": "train.jsonl",
    "validation_dataset": "validation.jsonl", "max_length": 32,
    "batch_size": 8, "max_steps": STEPS, "micro_batch_size": 2,
    "micro_batches_per_round": 3, "gradient_groups": 2,
    "learning_rate": 0.01, "seed": 5, "save_steps": SAVE_STEPS,
    "save_total_limit": 3,
    "plan": {"forward": [[0, 0], [1, 3]],
             "backward": [[4, 4], [2, 3], [0, 1]]},
}

# Points, and how often one is passed at least and at most before it kills. A
# worker must finish something between two deaths, or it would be given up.
POINTS = {
    "device": {
        "slot.received": (3, 12), "slot.started": (3, 12),
        "slot.micro_batch.done": (4, 24), "slot.output.copied": (4, 24),
        "slot.contribution.copied": (20, 90), "slot.output.raised": (4, 24),
        "slot.done.before": (2, 12), "slot.done.after": (2, 12)},
    "host": {
        "host.gather.copied": (3, 8), "host.gather.raised": (3, 8),
        "host.chunk.computed": (30, 200), "host.chunk.ready": (30, 200),
        "host.chunk.copied": (30, 200), "host.chunk.done": (30, 200),
        "host.unit.published": (2, 10), "host.done.before": (3, 24),
        "host.done.after": (3, 24)},
    # Per save two files with 184 tensors; the first save of a process may be
    # the one that its predecessor did not end.
    "files": {
        "files.load.tensor": (1, 46), "files.save.tensor": (190, 360),
        "files.save.before_fsync": (3, 4), "files.save.after_fsync": (3, 4),
        "files.done.before": (2, 2), "files.done.after": (2, 2)},
    # A life of the daemon reaches a few saves.
    "daemon": {
        "daemon.save.before_fsync": (1, 4),
        "daemon.save.before_rename": (1, 4),
        "daemon.save.after_rename": (1, 4)},
}
WORKERS = ("device", "host", "files")
# A nursery has no points; half as many kills, all at random times. It dies
# about when workers do, which need it then.
DISTURBED = (*WORKERS, "nursery")
RANDOM_PHASES = {
    "device": ["random.stepping"], "host": ["random.stepping"],
    "nursery": ["random.stepping"],
    "files": ["random.saving"],
    "daemon": ["random.loading", "random.stepping"],
}


class KillTest(unittest.TestCase):
    # One kind of job; kill_adapter_test.py has another.
    spec, points, kill_count = SPEC, POINTS, KILLS
    model = {"tied": True}
    draws = {"model_init": "random"}  # the fields that make it draw weights
    mortal_devices = "cpu:1"  # of daemons that die

    @classmethod
    def setUpClass(cls):
        print(f"ROUNDHOUSE_SEED={SEED} ROUNDHOUSE_KILLS={cls.kill_count}",
              flush=True)
        cls.named_count = (cls.kill_count + 1) // 2
        cls.random_count = cls.kill_count - cls.named_count
        cls.scratch = harness.Scratch()
        cls.scratch.__enter__()
        cls.addClassCleanup(cls.scratch.__exit__)
        cls.scratch.make_model("model", seed=4, **cls.model)
        cls.scratch.make_data("train.jsonl", count=50, seed=1)
        cls.scratch.make_data("validation.jsonl", count=5, seed=2)
        cls.kills = collections.Counter()  # of (kind, phase)
        daemon = cls.scratch.daemon()
        daemon.start()
        job = daemon.submit(cls.spec)
        daemon.wait(job)
        cls.undisturbed = cls.results(daemon, job)
        daemon.stop()

    @staticmethod
    def results(daemon, job):
        """What must not depend on any kill."""
        metrics = [{name: value for name, value in line.items()
                    if name != "step_seconds"} for line in daemon.metrics(job)]
        output = pathlib.Path(daemon.job(job)["output_path"])
        return {
            "metrics": metrics,
            "checkpoint": daemon.tensors(job, STEPS),
            "trainer_state": (daemon.checkpoint(job, STEPS) /
                              "trainer_state.json").read_text(),
            "export": {name: tensor for path in output.glob("*.safetensors")
                       for name, tensor in
                       harness.read_safetensors(path).items()},
        }

    def same_results(self, daemon, job):
        found = self.results(daemon, job)
        for name, wanted in self.undisturbed.items():
            if isinstance(wanted, dict):
                self.assertEqual(found[name].keys(), wanted.keys())
                differ = [key for key in wanted
                          if found[name][key] != wanted[key]]
                self.assertEqual(differ, [], name)
            else:
                self.assertEqual(found[name], wanted, name)

    def count(self, kind, phase):
        self.kills[kind, phase] += 1

    def enough(self, kind, phases, wanted):
        """The report of one half of a kind's kills."""
        for phase in phases:
            print(f"{kind:8}{phase:28}{self.kills[kind, phase]:4} kills",
                  flush=True)
        total = sum(self.kills[kind, phase] for phase in phases)
        self.assertGreaterEqual(total, wanted, kind)
        if wanted >= len(phases):
            for phase in phases:
                self.assertGreater(self.kills[kind, phase], 0, phase)

    def missing(self, kind, phases, wanted):
        return wanted - sum(self.kills[kind, phase] for phase in phases)

    # --- workers ---

    def nursery_deaths(self, daemon):
        # Workers that it was asked for tell of its death, too.
        return len(re.findall(r"nursery\.cc:\d+ nursery killed by signal 9",
                              daemon.log_path.read_text()))

    def same_step(self, daemon, job):
        """No checkpoint was read and no step done twice."""
        log = daemon.log(job)
        self.assertNotIn("going on from", log)
        steps = [int(step) for step in
                 re.findall(rf" step (\d+)/{STEPS} loss", log)]
        self.assertEqual(steps, list(range(1, STEPS + 1)))

    def planned(self, chosen, kind, count):
        """`count` kill points, all of a kind in turn."""
        points = []
        for index in range(count):
            names = list(self.points[kind])
            done = sum(self.kills[kind, point] for point in names)
            point = names[(done + index) % len(names)]
            # A job is loaded once, by its first process.
            if point == "files.load.tensor" and index > 0:
                point = "files.save.tensor"
            points.append((point,
                           chosen.randint(*self.points[kind][point])))
        return points

    def plan_named(self, chosen):
        """{worker index: [(point, count), ...]} of one run, and kinds."""
        plan, kinds = {}, {"0": "device", "1": "device", "2": "host",
                           "3": "files"}
        for kind, indices in (("device", "01"), ("host", "2"), ("files", "3")):
            left = self.missing(kind, self.points[kind], self.named_count)
            points = self.planned(chosen, kind,
                                  min(max(left, 0), KILLS_A_JOB))
            for place, index in enumerate(indices):
                plan[index] = points[place::len(indices)]
        return plan, kinds

    def test_workers_at_named_points(self):
        chosen = random.Random(SEED)
        for _ in range(MOST_RUNS):
            plan, kinds = self.plan_named(chosen)
            if not any(plan.values()):
                break
            daemon = self.scratch.daemon()
            daemon.start(worker_kill_at=";".join(
                f"{index}={point}:{count}" for index, points in plan.items()
                for point, count in points))
            job = daemon.submit(self.spec)
            daemon.wait(job)
            self.same_step(daemon, job)
            self.same_results(daemon, job)
            daemon.stop()
            deaths = collections.Counter(daemon.killed_workers())
            for index, points in plan.items():
                self.assertLessEqual(deaths[index], len(points))
                for point, _ in points[:deaths[index]]:
                    self.count(kinds[index], point)
        for kind in WORKERS:
            self.enough(kind, self.points[kind], self.named_count)

    def test_files_worker_while_it_draws_weights(self):
        spec = {**self.spec, **self.draws, "max_steps": 2}
        found = []
        for point in ("", "files.init.tensor:20"):
            daemon = self.scratch.daemon()
            daemon.start(worker_kill_at=f"files={point}" if point else "")
            job = daemon.submit(spec)
            daemon.wait(job)
            found.append(daemon.tensors(job, 2))
            daemon.stop()
            self.assertEqual(daemon.killed_workers(),
                             ["3"] if point else [])
        print(f"{'files':8}{point.split(':')[0]:28}   1 kills", flush=True)
        self.assertEqual(*found)

    def saving(self, daemon, job):
        return any(daemon.directory(job).glob(".tmp-checkpoint-*"))

    def steps_done(self, daemon, job):
        return max((line["step"] for line in daemon.metrics(job)), default=0)

    def kill_worker(self, daemon, job, kind, chosen):
        """Kills one at a random time of its phase; whether it did."""
        if kind == "files":
            harness.wait_until(
                lambda: self.saving(daemon, job) or
                self.steps_done(daemon, job) >= STEPS, "a save", pause=0.001)
        time.sleep(chosen.uniform(0, 0.02 if kind == "files" else 0.05))
        name = chosen.choice("01") if kind == "device" else kind
        pid = daemon.workers().get(name)
        if pid is None or self.steps_done(daemon, job) >= STEPS:
            return False
        saving = self.saving(daemon, job)
        os.kill(pid, signal.SIGKILL)
        if kind == "files" and not saving:
            self.count(kind, "random.between_saves")
        else:
            self.count(kind, RANDOM_PHASES[kind][0])
        return True

    def disturb(self, daemon, job, chosen):
        """Random kills of one job, until it has all its steps; how many of
        each kind."""
        due = {kind: 1 for kind in DISTURBED}
        killed = collections.Counter()
        while (step := self.steps_done(daemon, job)) < STEPS:
            ready = [kind for kind in due if due[kind] <= step and
                     self.missing(kind, RANDOM_PHASES[kind], self.random_count) > 0]
            chosen.shuffle(ready)
            for kind in ready:
                if self.kill_worker(daemon, job, kind, chosen):
                    killed[kind] += 1
                # It has finished something when it is due again.
                due[kind] = self.steps_done(daemon, job) + 2 * SAVE_STEPS
            if not ready:
                time.sleep(0.002)
        return killed

    def test_workers_at_random_times(self):
        chosen = random.Random(SEED + 1)
        daemon = self.scratch.daemon()
        daemon.start()
        killed = collections.Counter()
        for _ in range(MOST_RUNS):
            if all(self.missing(kind, RANDOM_PHASES[kind], self.random_count) <= 0
                   for kind in DISTURBED):
                break
            job = daemon.submit(self.spec)
            harness.wait_until(lambda job=job: self.steps_done(daemon, job),
                               "the first step")
            killed += self.disturb(daemon, job, chosen)
            daemon.wait(job)
            self.same_step(daemon, job)
            self.same_results(daemon, job)
        daemon.stop()
        self.assertEqual(len(daemon.killed_workers()),
                         sum(killed[kind] for kind in WORKERS))
        self.assertEqual(self.nursery_deaths(daemon), killed["nursery"])
        for kind in DISTURBED:
            self.enough(kind, RANDOM_PHASES[kind], self.random_count)

    # --- the daemon ---

    def finish_after_deaths(self, daemon, job):
        """The last life of a daemon whose earlier ones ended in kills."""
        daemon.start()
        daemon.wait(job)
        self.same_results(daemon, job)
        daemon.stop()
        self.assertIn("going on from", daemon.log(job))

    def started_job(self, daemon):
        """A job that has its first checkpoint; with it the daemon died."""
        daemon.start(kill_at="daemon.save.after_rename:1")
        job = daemon.submit(self.spec)
        harness.wait_until(daemon.ended, "the first checkpoint")
        return job

    def lives(self, kind, phases, wanted, one_life):
        """Runs jobs through deaths of their daemon until there are enough.
        one_life(daemon, job, index) kills and answers the phase, or None when
        the job ended first."""
        for _ in range(MOST_RUNS):
            if self.missing(kind, phases, wanted) <= 0:
                break
            daemon = self.scratch.daemon(devices=self.mortal_devices)
            job = self.started_job(daemon)
            for _ in range(KILLS_A_JOB):
                left = self.missing(kind, phases, wanted)
                if left <= 0:
                    break
                phase = one_life(daemon, job, wanted - left)
                if phase is None:
                    break
                self.count(kind, phase)
            if not daemon.ended():
                daemon.stop()
            self.finish_after_deaths(daemon, job)
        self.enough(kind, phases, wanted)

    def output(self, daemon, job):
        """There once the job is done."""
        return daemon.directory(job).parents[1] / "outputs" / job

    def test_daemon_at_named_points(self):
        chosen = random.Random(SEED + 2)
        points = list(self.points["daemon"])

        def one_life(daemon, job, index):
            point = points[index % len(points)]
            count = chosen.randint(*self.points["daemon"][point])
            daemon.launch(kill_at=f"{point}:{count}")
            done = self.output(daemon, job)
            harness.wait_until(lambda: daemon.ended() or done.exists(),
                               "the daemon's death or the job's end")
            if not daemon.ended():
                return None
            self.assertEqual(daemon.process.returncode, -signal.SIGKILL)
            return point

        self.lives("daemon", points, self.named_count, one_life)

    def test_daemon_at_random_times(self):
        chosen = random.Random(SEED + 3)

        def log_lines(daemon, job, text):
            return daemon.log(job).count(text)

        def one_life(daemon, job, index):
            phase = RANDOM_PHASES["daemon"][index % 2]
            # Each life logs "starting JOB", then its own steps.
            waited = "starting " if phase.endswith("loading") else " loss "
            before = log_lines(daemon, job, waited)
            daemon.launch()
            # The last kill may have come after the last step.
            done = self.output(daemon, job)
            harness.wait_until(
                lambda: log_lines(daemon, job, waited) > before or
                done.exists(), "the job's start")
            time.sleep(chosen.uniform(0, 0.3))
            if self.steps_done(daemon, job) >= STEPS:
                return None
            daemon.kill()
            return phase

        self.lives("daemon", RANDOM_PHASES["daemon"], self.random_count, one_life)


if __name__ == "__main__":
    unittest.main()
