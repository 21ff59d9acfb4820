"""Jobs on eight fake devices (tests/fakes/fake_worker.cc) through the real
daemon, wire, arena and words."""

import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

FAKE = harness.ROOT / "tests/fakes/fake_worker"
DEVICES, STEPS = 8, 6
SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "max_length": 16, "batch_size": 16, "micro_batch_size": 2,
        "micro_batches_per_round": 4, "gradient_groups": 2,
        "max_steps": STEPS, "save_steps": 0}
# Milliseconds; another one for each pass of each layer.
COSTS = """layer,forward_ms,recompute_ms,backward_ms
0,0.5,0.6,1.1
1,0.7,0.8,1.2
2,0.9,1.0,1.3
3,0.4,0.3,1.4
4,0.8,0,1.5
"""


class FakeWorkerTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        # Equal rows: every step has as many target tokens.
        self.scratch.make_data("train.jsonl", count=1)
        rows = self.scratch.data / "train.jsonl"
        rows.write_text(rows.read_text() * 32)

    def worker(self, costs=COSTS):
        return self.scratch.fake_worker(costs, "--host-gbps=1")

    def start(self, costs=COSTS, **flags):
        daemon = self.scratch.daemon(devices=f"cpu:{DEVICES}", link_gbps=0.5)
        daemon.start(worker_program=self.worker(costs),
                     sample_log=daemon.folder / "samples.csv", **flags)
        return daemon

    def slots(self, daemon):
        """How many each device did."""
        lines = (daemon.folder / "samples.csv").read_text().splitlines()
        return collections.Counter(
            int(line.split(",")[1]) for line in lines
            if line.startswith("slot,"))

    def check_losses(self, daemon, job):
        losses = [line["loss"] for line in daemon.metrics(job)]
        self.assertEqual(len(losses), STEPS)
        for step, loss in enumerate(losses, 1):
            self.assertAlmostEqual(loss / losses[0],
                                   (1 + 1 / (1 + step)) / 1.5)

    def test_a_job_succeeds_and_nothing_was_computed(self):
        daemon = self.start()
        job = daemon.submit(SPEC)
        daemon.wait(job)
        self.check_losses(daemon, job)
        self.assertEqual(set(self.slots(daemon)), set(range(DEVICES)))
        model = harness.read_safetensors(
            self.scratch.data / "model/model.safetensors")
        result = harness.read_safetensors(
            pathlib.Path(daemon.job(job)["output_path"]) / "model.safetensors")
        self.assertEqual(result, model)
        daemon.stop()
        self.assertEqual(daemon.killed_workers(), [])

    def test_links_have_the_rates_that_their_workers_measured(self):
        """The daemon knows none; uploads have one of these workers' own."""
        script = self.worker()
        script.write_text(script.read_text().replace(
            "--host-gbps=1", "--upload-gbps=168"))
        daemon = self.scratch.daemon(devices=f"cpu:{DEVICES}",
                                     metrics_listen="127.0.0.1:0")
        daemon.start(worker_program=script)
        page = re.search(r"metrics on (127\.0\.0\.1:\d+)",
                         daemon.log_path.read_text())[1]

        def rates():
            with urllib.request.urlopen(f"http://{page}/metrics") as answer:
                return [float(value) for value in re.findall(
                    r"^roundhouse_pcie_calibrated_bytes_per_second"
                    r'{.*"h2d".*} (\S+)$', answer.read().decode(), re.M)]

        harness.wait_until(lambda: rates() == DEVICES * [21e9], "all rates")
        daemon.stop()

    def test_it_succeeds_when_workers_die_inside_slots(self):
        daemon = self.start(
            worker_kill_at="3=slot.micro_batch.done:6;"
                           f"{DEVICES - 1}=slot.output.raised:3;"
                           "host=host.done.before:9")
        job = daemon.submit(SPEC)
        daemon.wait(job)
        self.check_losses(daemon, job)
        daemon.stop()
        self.assertEqual(sorted(daemon.killed_workers()),
                         ["3", str(DEVICES - 1), str(DEVICES)])

    def test_it_succeeds_when_one_is_killed_from_outside(self):
        slow = re.sub(r"(\d+\.\d+)", lambda time: str(30 * float(time[0])),
                      COSTS)
        daemon = self.start(slow)
        job = daemon.submit(SPEC)
        harness.wait_until(lambda: daemon.job(job)["step"] >= 1, "a step")
        os.kill(daemon.worker("2"), signal.SIGKILL)
        daemon.wait(job)
        self.check_losses(daemon, job)
        daemon.stop()
        self.assertEqual(daemon.killed_workers(), ["2"])

    def test_adapters_evaluations_and_samples(self):
        daemon = self.start()
        job = daemon.submit({**SPEC, "method": "lora", "eval_steps": 3,
                             "validation_dataset": "train.jsonl"})
        daemon.wait(job)
        self.assertEqual(set(self.slots(daemon)), set(range(DEVICES)))
        daemon.client("sample", job, "-p", "one two", "-o", "json")

    def test_costs_of_another_model_fail_the_job(self):
        daemon = self.start("layer,forward_ms,recompute_ms,backward_ms\n"
                            "0,1,1,1\n1,1,0,1\n")
        job = daemon.wait(daemon.submit(SPEC), "FAILED")
        self.assertIn("the costs are of 1 layers and the head, the model has "
                      "4 layers", job["message"])

    def test_it_is_free_of_torch(self):
        done = subprocess.run(["ldd", FAKE], check=True, capture_output=True,
                              text=True)
        self.assertNotRegex(done.stdout, r"lib(torch|c10|gomp)|not found")


if __name__ == "__main__":
    unittest.main()
