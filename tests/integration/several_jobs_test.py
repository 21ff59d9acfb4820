"""Several jobs at once on one daemon: none of them can tell from its bits."""

import hashlib
import os
import pathlib
import random
import signal
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

SEED = random.randrange(1 << 32)
STEPS = 12
FULL = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "validation_dataset": "valid.jsonl", "max_length": 32,
        "batch_size": 8, "micro_batch_size": 2, "max_steps": STEPS,
        "learning_rate": 0.01, "seed": 1, "save_steps": 0,
        "plan": {"forward": [[0, 1], [2, 2]],
                 "backward": [[3, 4], [1, 2], [0, 0]]}}
LORA = {**FULL, "method": "lora", "lora_r": 4, "lora_alpha": 8,
        "lora_dropout": 0.1, "target_modules": "all-linear", "seed": 2,
        "plan": {"forward": [[0, 3]], "backward": [[4, 4], [0, 3]],
                 "width": 2}, "gradient_groups": 2}
BF16 = {**FULL, "dtype": "bf16", "seed": 3, "max_grad_norm": 0,
        "micro_batches_per_round": 2, "gradient_groups": 1, "plan": "auto"}
JOBS = {"full": FULL, "lora": LORA, "bf16": BF16}


def weights(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.glob("*.safetensors")}


class SeveralJobsTest(unittest.TestCase):
    alone = {}  # name -> result of a run with the daemon to itself

    def setUp(self):
        print(f"seed {SEED}")
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=60)
        self.scratch.make_data("valid.jsonl", count=12, seed=2)

    def daemon(self, **flags):
        daemon = self.scratch.daemon(**flags)
        daemon.start()
        return daemon

    def result(self, daemon, job):
        metrics = [{key: value for key, value in entry.items()
                    if key != "step_seconds"}
                   for entry in daemon.metrics(job)]
        return weights(daemon.checkpoint(job, STEPS)), metrics

    def results_alone(self):
        if not self.alone:
            daemon = self.daemon(max_running_jobs=1)
            for name, spec in JOBS.items():
                job = daemon.submit(spec)
                daemon.wait(job)
                self.alone[name] = self.result(daemon, job)
            daemon.stop()
        return self.alone

    def wait_step(self, daemon, job, step):
        harness.wait_until(lambda: daemon.job(job)["step"] >= step,
                           f"step {step} of {job}", pause=0.02)

    def wait_state(self, daemon, job, state):
        harness.wait_until(lambda: daemon.job(job)["state"] == state,
                           f"{job} {state}", pause=0.02)

    def check_same(self, daemon, jobs):
        for name, job in jobs.items():
            daemon.wait(job)
            self.assertEqual(self.result(daemon, job),
                             self.results_alone()[name], name)

    def test_they_run_at_once_with_the_bits_they_have_alone(self):
        daemon = self.daemon(max_running_jobs=1)
        before = daemon.submit({**FULL, "max_steps": 1_000_000})
        self.wait_step(daemon, before, 1)
        jobs = {name: daemon.submit(spec) for name, spec in JOBS.items()}
        for job in jobs.values():
            self.wait_state(daemon, job, "QUEUED")
        # A daemon that has room for all of them starts them in one go.
        daemon.stop()
        daemon.start(max_running_jobs=4)
        daemon.client("cancel", before)
        self.check_same(daemon, jobs)
        times = {name: (daemon.job(job)["start_time"],
                        daemon.job(job)["end_time"])
                 for name, job in jobs.items()}
        last_start = max(start for start, _ in times.values())
        self.assertLess(last_start, min(end for _, end in times.values()),
                        f"they did not run at once: {times}")

    def test_the_bits_survive_workers_that_die(self):
        chosen = random.Random(SEED)
        daemon = self.daemon(max_running_jobs=3, worker_kill_at=(
            "0=slot.micro_batch.done:5;1=slot.output.raised:9;"
            "0=slot.done.before:4;2=host.chunk.ready:7"))
        jobs = {name: daemon.submit(spec) for name, spec in JOBS.items()}
        while any(daemon.job(job)["state"] not in ("SUCCEEDED", "FAILED")
                  for job in jobs.values()):
            name = chosen.choice(["0", "1", "host"])
            pid = daemon.workers().get(name)
            if pid is not None and chosen.random() < 0.2:
                os.kill(pid, signal.SIGKILL)
        self.check_same(daemon, jobs)

    def test_cancelling_and_pausing_one_leaves_the_other(self):
        daemon = self.daemon()
        endless = daemon.submit({**BF16, "max_steps": 1_000_000})
        other = daemon.submit(FULL)
        self.wait_step(daemon, other, 1)
        self.wait_step(daemon, endless, 2)
        daemon.client("pause", endless)
        self.wait_state(daemon, endless, "PAUSED")
        daemon.client("resume", endless)
        self.wait_step(daemon, endless, 3)
        daemon.client("cancel", endless)
        daemon.wait(endless, "CANCELLED")
        self.check_same(daemon, {"full": other})

    def test_a_failing_job_leaves_the_other(self):
        daemon = self.daemon()
        other = daemon.submit(FULL)
        self.scratch.make_model("broken")
        path = self.scratch.data / "broken/model.safetensors"
        tensors = harness.read_safetensors(path)
        dtype, shape, data = tensors["model.layers.2.mlp.up_proj.weight"]
        tensors["model.layers.2.mlp.up_proj.weight"] = (
            dtype, shape, struct.pack("<f", float("nan")) + data[4:])
        harness.write_safetensors(path, tensors)
        failing = daemon.submit({**BF16, "model_name_or_path": "broken"})
        found = daemon.wait(failing, "FAILED")
        self.assertEqual(found["reason"], "NON_FINITE_LOSS")
        self.check_same(daemon, {"full": other})

    def test_a_third_waits_and_starts_when_one_ends(self):
        daemon = self.daemon(max_running_jobs=2)
        running = [daemon.submit({**FULL, "max_steps": 1_000_000})
                   for _ in range(2)]
        for job in running:
            self.wait_step(daemon, job, 1)
        third = daemon.submit(LORA)
        self.wait_state(daemon, third, "QUEUED")
        for job in running:
            self.wait_step(daemon, job, daemon.job(job)["step"] + 3)
        self.assertEqual(daemon.job(third)["state"], "QUEUED")
        daemon.client("cancel", running[0])
        self.check_same(daemon, {"lora": third})
        self.assertEqual(daemon.job(running[1])["state"], "RUNNING")

    def test_an_urgent_job_starts_before_those_that_wait(self):
        daemon = self.daemon(max_running_jobs=1)
        # Nobody of its class gives way.
        first = daemon.submit({**FULL, "max_steps": 1_000_000,
                               "priority": "urgent"})
        self.wait_step(daemon, first, 1)
        waiting = daemon.submit(FULL)
        self.wait_state(daemon, waiting, "QUEUED")
        urgent = daemon.submit({**FULL, "priority": "urgent"})
        self.wait_state(daemon, urgent, "QUEUED")
        daemon.client("cancel", first)
        self.check_same(daemon, {"full": urgent})
        daemon.wait(waiting)
        self.assertGreater(daemon.job(waiting)["start_time"],
                           daemon.job(urgent)["start_time"])
        self.check_same(daemon, {"full": waiting})

    def test_a_priority_changes_at_once_and_no_bit_does(self):
        self.results_alone()
        daemon = self.daemon(max_running_jobs=3)
        jobs = {name: daemon.submit(spec) for name, spec in JOBS.items()}
        draw = random.Random(SEED)
        for step in range(1, STEPS - 1):
            name = draw.choice(list(jobs))
            self.wait_step(daemon, jobs[name], step)
            for word in ("urgent", draw.choice(["urgent", "normal"])):
                daemon.client("priority", jobs[draw.choice(list(jobs))], word,
                              check=False)  # it may have ended
        self.check_same(daemon, jobs)

    def test_a_backfill_job_has_the_bits_that_it_has_alone(self):
        self.results_alone()
        daemon = self.daemon(max_running_jobs=3)
        names = sorted(JOBS)
        backfill = names[SEED % len(names)]
        jobs = {name: daemon.submit({**JOBS[name], "priority": "backfill"}
                                    if name == backfill else JOBS[name])
                for name in names}
        self.assertEqual(daemon.job(jobs[backfill])["priority"], "BACKFILL")
        self.check_same(daemon, jobs)

    def test_a_job_is_put_back_and_forward_while_it_runs(self):
        self.results_alone()
        daemon = self.daemon(max_running_jobs=3)
        beside = daemon.submit({**BF16, "max_steps": 1_000_000})
        job = daemon.submit(FULL)
        for step, word in ((2, "backfill"), (4, "normal"), (6, "backfill"),
                           (8, "normal")):
            self.wait_step(daemon, job, step)
            daemon.client("priority", job, word)
        self.check_same(daemon, {"full": job})
        self.assertEqual(daemon.job(job)["attempts"], 1)
        self.assertEqual(daemon.job(beside)["state"], "RUNNING")

    def test_a_job_that_waits_is_put_forward(self):
        daemon = self.daemon(max_running_jobs=1)
        first = daemon.submit({**FULL, "max_steps": 1_000_000})
        self.wait_step(daemon, first, 1)
        waiting, later = daemon.submit(FULL), daemon.submit(FULL)
        self.wait_state(daemon, later, "QUEUED")
        daemon.client("priority", later, "urgent")
        daemon.kill()
        daemon.start()
        daemon.client("cancel", first)
        self.check_same(daemon, {"full": later})
        daemon.wait(waiting)
        self.assertGreater(daemon.job(waiting)["start_time"],
                           daemon.job(later)["start_time"])

    def test_a_job_waits_for_host_memory_that_others_have(self):
        # One takes some 3 MiB of state and buffers, all of it at once.
        daemon = self.daemon(host_memory="6MiB")
        first = daemon.submit({**FULL, "max_steps": 1_000_000})
        self.wait_step(daemon, first, 1)
        second = daemon.submit(FULL)
        self.wait_state(daemon, second, "QUEUED")
        self.wait_step(daemon, first, daemon.job(first)["step"] + 3)
        self.assertEqual(daemon.job(second)["state"], "QUEUED")
        daemon.client("cancel", first)
        self.check_same(daemon, {"full": second})

    def test_both_go_on_after_the_daemon_died(self):
        daemon = self.daemon()
        jobs = {"full": daemon.submit({**FULL, "save_steps": 3}),
                "lora": daemon.submit({**LORA, "save_steps": 3})}
        for job in jobs.values():
            self.wait_step(daemon, job, 4)
        daemon.kill()
        daemon.start()
        self.check_same(daemon, jobs)

    def test_sigterm_saves_all(self):
        daemon = self.daemon()
        jobs = {"full": daemon.submit(FULL), "bf16": daemon.submit(BF16)}
        for job in jobs.values():
            self.wait_step(daemon, job, 2)
        daemon.stop()
        for job in jobs.values():
            self.assertTrue(daemon.checkpoints(job))
        daemon.start()
        self.check_same(daemon, jobs)


if __name__ == "__main__":
    unittest.main()
