"""--yield=auto: a device on whose GPU somebody else's process computes is left
to it and comes back, jobs go on to the same bits, and what the daemon says.

The real probe over a fake NVML (tests/fakes/fake_nvml.cc), whose GPUs have the
names of CPU devices; the foreign process is one of this test's.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

FAKES = harness.ROOT / "tests/fakes"
PROBE = harness.ROOT / "worker/probe/roundhouse-gpu-probe"
GIB = 1 << 30
DEVICES, BUSY = 3, 1
MANY = 1_000_000
FULL = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "validation_dataset": "valid.jsonl", "max_length": 32,
        "batch_size": 8, "micro_batch_size": 2, "learning_rate": 0.01,
        "lr_scheduler_type": "constant",
        "seed": 1, "save_steps": 0}
# No test waits a minute.
BACK_SECONDS = 2


class YieldTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=60)
        self.scratch.make_data("valid.jsonl", count=12, seed=2)
        self.nvml = self.scratch.folder / "nvml.txt"
        self.on_gpu({})
        probe = self.scratch.folder / "probe.sh"
        probe.write_text(
            f'#!/bin/sh\nROUNDHOUSE_FAKE_NVML="{self.nvml}" exec "{PROBE}" '
            f'"--library={FAKES}/libfake_nvml.so" "$@"\n')
        probe.chmod(0o700)
        self.probe = probe
        self.daemon = self.scratch.daemon(
            devices=f"cpu:{DEVICES}", gpu_probe=probe, **{"yield": "auto"},
            yield_test_seconds=BACK_SECONDS)

    def foreign(self):
        """A process of nobody the daemon knows, until the test ends."""
        process = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def on_gpu(self, processes, gpu=BUSY, lists="Compute"):
        """From now on {pid: (bytes, per cent)} are on that GPU, alone."""
        lines = {"nvmlDeviceGetCount_v2": DEVICES}
        for index in range(DEVICES):
            lines[f"nvmlDeviceGetUUID.{index}"] = f"cpu-{index}"
            lines[f"nvmlDeviceGetMemoryInfo.{index}"] = f"{24 * GIB} 0"
            for each in ("Compute", "Graphics"):
                lines[f"nvmlDeviceGet{each}RunningProcesses_v3.{index}"] = ""
            lines[f"nvmlDeviceGetProcessUtilization.{index}"] = ""
        lines[f"nvmlDeviceGet{lists}RunningProcesses_v3.{gpu}"] = " ".join(
            f"{pid} {held}" for pid, (held, _) in processes.items())
        lines[f"nvmlDeviceGetProcessUtilization.{gpu}"] = " ".join(
            f"{pid} {percent}" for pid, (_, percent) in processes.items())
        changed = self.scratch.folder / "changed.txt"
        changed.write_text("".join(f"{key}={value}\n"
                                   for key, value in lines.items()))
        changed.rename(self.nvml)  # a probe may be reading it

    def device(self, index=BUSY):
        listed = self.daemon.client("device", "-o", "json").stdout
        return json.loads(listed)["devices"][index]

    def await_state(self, state, index=BUSY):
        harness.wait_until(lambda: self.device(index)["state"] == state,
                           f"device {index} {state}", pause=0.02)

    def await_steps(self, job, count):
        step = self.daemon.job(job)["step"]
        harness.wait_until(
            lambda: self.daemon.job(job)["step"] >= step + count,
            f"{count} steps more of {job}", pause=0.02)

    def page(self, path):
        address = re.search(r"metrics on (127\.0\.0\.1:\d+)",
                            self.daemon.log_path.read_text())[1]
        with urllib.request.urlopen(f"http://{address}/{path}") as page:
            return page.read().decode()

    def result(self, job):
        last = self.daemon.checkpoints(job)[-1]
        return (self.daemon.tensors(job, last),
                [{key: value for key, value in entry.items()
                  if key != "step_seconds"}
                 for entry in self.daemon.metrics(job)])

    def test_a_process_has_the_device_and_jobs_go_on_to_the_same_bits(self):
        self.daemon.start(metrics_listen="127.0.0.1:0")
        other = self.foreign()
        # One that idles, and one that draws, take nothing.
        desktop = self.foreign()
        self.on_gpu({other.pid: (GIB, 0)})
        job = self.daemon.submit({**FULL, "max_steps": MANY})
        harness.wait_until(lambda: self.daemon.job(job)["step"] >= 1, "a step")
        self.on_gpu({desktop.pid: (GIB, 90)}, lists="Graphics")
        self.await_steps(job, 2)
        self.assertEqual(self.device()["state"], "UP")
        self.on_gpu({other.pid: (GIB, 35)})
        self.await_state("YIELDED")
        self.assertNotIn(str(BUSY), self.daemon.workers())
        self.assertEqual(self.device()["loan"]["owner"], f"uid:{os.getuid()}")
        self.assertEqual(self.device()["loan"]["process"],
                         {"pid": other.pid, "command": "sleep"})
        self.assertIn(f"sleep (process {other.pid} of uid:{os.getuid()})",
                      self.daemon.client("device").stdout)
        self.assertIn(f"device {BUSY} is left to sleep (process {other.pid} of "
                      f"uid:{os.getuid()}): it computed for 35 % of the time",
                      self.daemon.log_path.read_text())
        self.assertIn(f"device {BUSY} is left to sleep", self.daemon.log(job))
        harness.wait_until(
            lambda: f'roundhouse_device_out_of_use{{device="{BUSY}"}} 1\n'
            in self.page("metrics"), "the metric", pause=0.1)
        harness.wait_until(
            lambda: json.loads(self.page("status.json"))["devices"][BUSY]
            ["out_as"] == "yielded", "the status page", pause=0.1)
        self.await_steps(job, 2)
        # It ends; the driver may tell of it a while yet.
        other.kill()
        other.wait()
        self.await_state("UP")
        self.assertIn(f"device {BUSY} comes back from sleep",
                      self.daemon.log_path.read_text())
        slots = self.device()["slots"]
        harness.wait_until(lambda: self.device()["slots"] > slots,
                           f"slots on device {BUSY}", pause=0.1)
        self.daemon.finish(job)
        self.daemon.wait(job)
        steps = self.daemon.job(job)["step"]
        disturbed = self.result(job)
        self.daemon.stop()
        self.on_gpu({})
        self.daemon.start()
        alone = self.daemon.submit({**FULL, "max_steps": steps})
        self.daemon.wait(alone)
        self.assertEqual(self.result(alone), disturbed)
        self.daemon.stop()

    def test_the_daemons_own_workers_take_nothing(self):
        self.daemon.start()
        self.on_gpu({pid: (20 * GIB, 100)
                     for pid in self.daemon.workers().values()})
        job = self.daemon.submit({**FULL, "max_steps": 5})
        self.daemon.wait(job)
        # Who comes next shows that it was looked at.
        self.on_gpu({self.foreign().pid: (20 * GIB, 0)}, gpu=0)
        self.await_state("YIELDED", 0)
        self.assertEqual(self.device()["state"], "UP")
        self.daemon.stop()

    def test_a_loan_a_fence_and_a_process_hold_one_device(self):
        self.daemon.start()
        self.on_gpu({self.foreign().pid: (GIB, 35)})
        self.await_state("YIELDED")
        lent = self.daemon.client("device", "lend", BUSY, "--note=plots")
        self.assertIn(f"device {BUSY} is LENT to", lent.stdout)
        self.on_gpu({})
        # The other device's process shows when the first one's minute is over.
        self.on_gpu({self.foreign().pid: (GIB, 35)}, gpu=0)
        self.await_state("YIELDED", 0)
        self.on_gpu({})
        self.await_state("UP", 0)
        self.assertEqual(self.device()["state"], "LENT")
        second = self.foreign()
        self.on_gpu({second.pid: (GIB, 35)})
        harness.wait_until(
            lambda: f"device {BUSY} is left to sleep (process {second.pid} "
            in self.daemon.log_path.read_text(), "the second process")
        returned = self.daemon.client("device", "return", BUSY)
        self.assertIn(f"device {BUSY} is YIELDED to sleep", returned.stdout)
        self.daemon.client("device", "fence", BUSY)
        self.await_state("FENCED")
        self.daemon.client("device", "unfence", BUSY)
        self.await_state("YIELDED")
        # Taken back from this process, not from the next.
        self.daemon.client("device", "return", BUSY)
        self.await_state("UP")
        self.on_gpu({self.foreign().pid: (GIB, 35)})
        self.await_state("YIELDED")
        self.daemon.stop()

    def test_who_is_there_at_the_start_has_it_before_a_worker(self):
        self.on_gpu({self.foreign().pid: (GIB, 35)})
        self.daemon.start()
        self.await_state("YIELDED")
        self.assertEqual(self.device().get("worker_restarts", 0), 0)
        self.assertEqual(self.device().get("worker_pid", 0), 0)
        job = self.daemon.submit({**FULL, "max_steps": 3})
        self.daemon.wait(job)
        # It is no row of the store: another daemon looks anew.
        self.daemon.kill()
        self.daemon.start()
        self.await_state("YIELDED")
        self.daemon.kill()
        self.on_gpu({})
        self.daemon.start()
        self.await_state("UP")
        self.daemon.stop()

    def test_a_driver_that_tells_nothing_is_said_once(self):
        self.probe.write_text(
            f'#!/bin/sh\nexec "{PROBE}" --library=libnone.so.1 "$@"\n')
        self.daemon.start()
        text = "processes on GPUs are not seen"
        harness.wait_until(
            lambda: text in self.daemon.log_path.read_text(), text)
        self.daemon.wait(self.daemon.submit({**FULL, "max_steps": 2}))
        self.assertEqual(self.daemon.log_path.read_text().count(text), 1)
        self.daemon.stop()


class ProcessIdsTest(unittest.TestCase):
    def test_a_namespace_of_process_ids_is_refused_by_name(self):
        scratch = self.enterContext(harness.Scratch())
        daemon = scratch.daemon(devices="cuda", **{"yield": "auto"},
                                gpu_probe="/bin/false")
        daemon.prefix = ["unshare", "--user", "--map-root-user", "--pid",
                         "--fork", "--kill-child"]
        with self.assertRaises(harness.Failure):
            daemon.start()
        self.assertEqual(daemon.process.returncode, 1)
        text = daemon.log_path.read_text()
        self.assertIn("roundhoused: --yield=auto: the NVIDIA driver tells "
                      "process ids of the machine", text)
        self.assertIn("--pid=host", text)


if __name__ == "__main__":
    unittest.main()
