"""Devices that are lent, fenced and lost while jobs run: the memory of one that
is lent is free, jobs go on with the others to the same bits, and it comes back.

ROUNDHOUSE_LOANS: how many loans two jobs live through, as long as they run (8;
docs/reliability.md has the count with 200).
ROUNDHOUSE_SEED: which.
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

LOANS = int(os.environ.get("ROUNDHOUSE_LOANS", "8"))
SEED = int(os.environ.get("ROUNDHOUSE_SEED", random.randrange(1 << 32)))
DEVICES = 3
MANY = 1_000_000
ANNA, OTTO = 72_001, 72_002
FULL = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "validation_dataset": "valid.jsonl", "max_length": 32,
        "batch_size": 8, "micro_batch_size": 2, "max_steps": 12,
        "learning_rate": 0.01, "seed": 1, "save_steps": 0}
LORA = {**FULL, "method": "lora", "lora_r": 4, "lora_alpha": 8,
        "lora_dropout": 0.1, "target_modules": "all-linear", "seed": 2,
        "plan": {"forward": [[0, 3]], "backward": [[4, 4], [0, 3]],
                 "width": 2}, "gradient_groups": 2}


class DeviceLoansTest(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}")
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=60)
        self.scratch.make_data("valid.jsonl", count=12, seed=2)
        self.daemon = self.scratch.daemon(devices=f"cpu:{DEVICES}")
        self.daemon.start()

    def device(self, index):
        listed = self.daemon.client("device", "-o", "json").stdout
        return json.loads(listed)["devices"][index]

    def await_state(self, index, state):
        harness.wait_until(lambda: self.device(index)["state"] == state,
                           f"device {index} {state}", pause=0.02)

    def await_step(self, job, step):
        harness.wait_until(lambda: self.daemon.job(job)["step"] >= step,
                           f"step {step} of {job}", pause=0.02)

    def lend(self, index, *words):
        """Seconds until its worker had ended."""
        before = time.monotonic()
        answer = self.daemon.client("device", "lend", index, *words)
        took = time.monotonic() - before
        self.assertIn(f"device {index} is LENT", answer.stdout)
        self.assertNotIn(str(index), self.daemon.workers())
        return took

    def result(self, job):
        last = self.daemon.checkpoints(job)[-1]
        weights = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                   for path in self.daemon.checkpoint(job, last)
                   .glob("*.safetensors")}
        return weights, [{key: value for key, value in entry.items()
                          if key != "step_seconds"}
                         for entry in self.daemon.metrics(job)]

    def test_bits_and_steps_are_those_without_loans(self):
        steps = max(12, 6 * LOANS)
        specs = [{**FULL, "max_steps": steps}, {**LORA, "max_steps": steps}]
        alone = []
        for spec in specs:
            job = self.daemon.submit(spec)
            self.daemon.wait(job)
            alone.append(self.result(job))
        chosen = random.Random(SEED)
        jobs = [self.daemon.submit(spec) for spec in specs]
        for job in jobs:
            self.await_step(job, 1)
        took, out, loans = [], set(), 0
        while loans < LOANS and any(self.daemon.job(job)["state"] == "RUNNING"
                                    for job in jobs):
            index = chosen.randrange(DEVICES)
            if index in out:
                self.daemon.client("device", "return", index)
                out.remove(index)
            else:
                took.append(self.lend(index))
                out.add(index)
                loans += 1
            if len(out) == DEVICES or (out and chosen.random() < 0.3):
                self.daemon.client("device", "return", min(out))
                out.remove(min(out))
        for index in out:
            self.daemon.client("device", "return", index)
        for job, expected in zip(jobs, alone):
            self.daemon.wait(job)
            self.assertEqual(self.result(job), expected)
        took.sort()
        print(f"{loans} loans during {steps} steps of two jobs; from the "
              f"command to the worker's end {took[len(took) // 2]:.3f} s, "
              f"{took[-1]:.3f} s at most")
        self.assertGreaterEqual(loans, min(LOANS, 4))
        self.daemon.stop()

    def test_with_every_device_lent_a_job_waits_and_goes_on(self):
        job = self.daemon.submit({**FULL, "max_steps": MANY})
        self.await_step(job, 1)
        for index in range(DEVICES):
            self.lend(index, "--note=demo")
        found = self.daemon.job(job)
        self.assertEqual(found["state"], "RUNNING")
        self.assertIn("device 0 is lent to uid:", self.daemon.log(job))
        self.assertEqual(
            self.daemon.client("device", "lend", 0, "--for=1h").returncode, 0)
        step = self.daemon.job(job)["step"]
        # One that begins now waits likewise.
        other = self.daemon.submit({**FULL, "max_steps": 2})
        self.assertEqual(self.daemon.job(job)["step"], step)
        self.daemon.client("device", "return", 1)
        self.await_state(1, "UP")
        self.daemon.wait(other)
        # Samples go to a device that is there.
        self.assertIn("abc", self.daemon.client(
            "sample", other, "--prompt=abc", "--max-new-tokens=4").stdout)
        self.await_step(job, step + 1)
        self.daemon.finish(job)
        self.daemon.stop()

    def test_a_loan_outlives_the_daemon_and_ends_by_itself(self):
        job = self.daemon.submit({**FULL, "max_steps": MANY})
        self.await_step(job, 1)
        self.lend(1)
        self.daemon.client("device", "fence", 2, "--note=its fan is loud")
        self.daemon.kill()
        self.daemon.start()
        self.await_step(job, 1)
        self.await_state(1, "LENT")
        self.await_state(2, "FENCED")
        self.assertEqual(self.device(2)["loan"]["note"], "its fan is loud")
        self.assertEqual(
            {"1", "2"} & set(self.daemon.workers()), set())
        refused = self.daemon.client("device", "lend", 2, check=False)
        self.assertEqual(refused.returncode, 6, refused.stderr)
        self.assertIn("is fenced by", refused.stderr)
        self.daemon.client("device", "unfence", 2)
        self.await_state(2, "UP")
        # The loan's end, in a few seconds.
        self.daemon.client(
            "device", "lend", 1, "--until=" + time.strftime(
                "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2)))
        self.await_state(1, "UP")
        self.assertNotIn("loan", self.device(1))
        self.daemon.finish(job)
        self.daemon.stop()

    def test_a_lost_device_comes_back_without_a_restart(self):
        self.daemon.stop()
        self.daemon.start(worker_kill_at=";".join(
            5 * ["0=slot.micro_batch.done:1"]))
        job = self.daemon.submit({**FULL, "max_steps": MANY})
        self.await_state(0, "LOST")
        self.daemon.client("device", "unfence", 0)
        self.await_state(0, "UP")
        slots = self.device(0)["slots"]
        harness.wait_until(lambda: self.device(0)["slots"] > slots,
                           "slots on device 0")
        self.daemon.finish(job)
        self.daemon.stop()

    def test_a_slot_that_takes_long_does_not_keep_a_device(self):
        self.daemon.stop()
        self.daemon.start(worker_program=self.scratch.fake_worker(
            "layer,forward_ms,recompute_ms,backward_ms\n" + "".join(
                f"{layer},100000,{100000 if layer < 4 else 0},100000\n"
                for layer in range(5))))
        job = self.daemon.submit({**FULL, "max_steps": MANY})
        harness.wait_until(lambda: self.daemon.job(job)["state"] == "RUNNING",
                           "RUNNING")

        def computes():
            # Only what is not computed is counted before a slot's end.
            waited = [self.device(0)[f"{state}_seconds"]
                      for state in ("bubble", "idle")]
            time.sleep(2.5)
            return waited == [self.device(0)[f"{state}_seconds"]
                              for state in ("bubble", "idle")]

        harness.wait_until(computes, "a slot")
        self.lend(0)
        self.assertIn("what device 0 computes takes too long",
                      self.daemon.log_path.read_text())
        self.assertEqual(self.daemon.job(job)["state"], "RUNNING")
        self.daemon.kill()


@unittest.skipUnless(os.geteuid() == 0, "only root can be several users")
class RightsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.daemon = self.scratch.daemon(devices="cpu:2")
        self.daemon.start()
        self.program = self.scratch.folder / "roundhouse"
        shutil.copy(harness.ROOT / "client/roundhouse", self.program)
        self.daemon.let_everybody_in()
        for name, uid in (("anna", ANNA), ("otto", OTTO)):
            self.daemon.client("user", "add", name, f"--uid={uid}")

    def device(self, uid, *words):
        return subprocess.run(
            [self.program, f"--server=unix:{self.daemon.socket}", "device",
             *words], preexec_fn=harness.become(uid), capture_output=True,
            text=True, check=False, timeout=harness.DEADLINE_SECONDS,
            stdin=subprocess.DEVNULL,
            env={"HOME": "/nowhere", "PATH": "/usr/bin:/bin"})

    def test_members_lend_by_right_and_admins_fence(self):
        refused = self.device(ANNA, "lend", "0")
        self.assertEqual(refused.returncode, 7, refused.stderr)
        self.assertIn("roundhouse limit set user:anna lent_devices",
                      refused.stderr)
        self.daemon.client("user", "allow", "anna", "lend")
        self.assertNotEqual(
            self.device(ANNA, "lend", "0", "--for=9h").returncode, 0)
        lent = self.device(ANNA, "lend", "0", "--for=2h", "--note=plots")
        self.assertEqual(lent.returncode, 0, lent.stderr)
        self.assertIn("device 0 is LENT to anna until", lent.stdout)
        self.daemon.client("limit", "set", "server", "host_bytes", "1GiB")
        limits = json.loads(self.daemon.client("limit", "list", "-o",
                                               "json").stdout)["limits"]
        used = {(row["subject"], row["limit"]): row.get("used")
                for row in limits}
        self.assertEqual(used["user:anna", "lent_devices"], 1)
        self.assertEqual(used["server", "host_bytes"], 0)
        self.assertIn("(plots)", self.device(OTTO).stdout)
        self.assertEqual(self.device(OTTO, "return", "0").returncode, 4)
        self.assertEqual(self.device(ANNA, "fence", "1").returncode, 4)
        self.assertEqual(self.device(ANNA, "return", "0").returncode, 0)
        audit = self.daemon.client("audit").stdout
        for word in ("LendDevice", "ReturnDevice", "FenceDevice"):
            self.assertIn(word, audit)
        self.daemon.stop()


if __name__ == "__main__":
    unittest.main()
