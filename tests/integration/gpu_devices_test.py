"""--devices=cuda: the real daemon and the real GPU probe over a fake NVML
(tests/fakes/fake_nvml.cc), with fake workers where a GPU would compute."""

import json
import os
import pathlib
import re
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

FAKES = harness.ROOT / "tests/fakes"
PROBE = harness.ROOT / "worker/probe/roundhouse-gpu-probe"
GPUS, LOST, GIB = 8, 3, 1 << 30
COSTS = "layer,forward_ms,recompute_ms,backward_ms\n" + "".join(
    f"{layer},0.1,{0 if layer == harness.LAYERS else 0.1},0.2\n"
    for layer in range(harness.LAYERS + 1))
SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "max_length": 16, "batch_size": 16, "micro_batch_size": 2,
        "max_steps": 4, "save_steps": 0}


def answers(**more):
    """What the fake NVML says of eight GPUs, one of them lost."""
    lines = {"nvmlSystemGetDriverVersion": "580.65.06",
             "nvmlEventSetWait_v2": "1 79",
             "nvmlDeviceGetCount_v2": GPUS}
    for gpu in range(GPUS):
        lines |= {f"{function}.{gpu}": value for function, value in {
            "nvmlDeviceGetUUID": f"GPU-00-{gpu}",
            "nvmlDeviceGetName": "NVIDIA GeForce RTX 4090",
            "nvmlDeviceGetMemoryInfo": f"{24 * GIB} {3 * GIB}",
            "nvmlDeviceGetTemperature": 40 + gpu,
            "nvmlDeviceGetCurrPcieLinkGeneration": 4,
            "nvmlDeviceGetMaxPcieLinkGeneration": 4,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceRegisterEvents": ""}.items()}
    lines[f"nvmlDeviceGetHandleByIndex_v2.{LOST}"] = "error 15"
    return "".join(f"{key}={value}\n" for key, value in (lines | more).items())


class GpuDevicesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.nvml = self.scratch.folder / "nvml.txt"
        self.nvml.write_text(answers())
        costs = self.scratch.folder / "costs.csv"
        costs.write_text(COSTS)
        self.worker = self.script(
            "worker.sh", f'exec "{FAKES}/fake_worker" "--costs={costs}" "$@"')
        self.probe = self.script(
            "probe.sh", f'ROUNDHOUSE_FAKE_NVML="{self.nvml}" exec "{PROBE}" '
            f'"--library={FAKES}/libfake_nvml.so" "$@"')

    def script(self, name, line):
        path = self.scratch.folder / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o700)
        return path

    def daemon(self, devices, **flags):
        """Not started; the memory of its devices is the GPUs' own."""
        daemon = self.scratch.daemon(devices=devices, gpu_probe=self.probe,
                                     **flags)
        del daemon.flags["device_memory"]
        daemon.fixed["worker_program"] = self.worker
        return daemon

    def refused(self, devices, **flags):
        """(exit status, what the daemon says) of one that must not start."""
        daemon = self.daemon(devices, **flags)
        with self.assertRaises(harness.Failure):
            daemon.start()
        return daemon.process.returncode, daemon.log_path.read_text()

    def devices(self, daemon):
        done = daemon.client("device", "-o", "json")
        return json.loads(done.stdout)["devices"]

    def metrics(self, daemon):
        address = re.search(r"metrics on (127\.0\.0\.1:\d+)",
                            daemon.log_path.read_text())[1]
        with urllib.request.urlopen(f"http://{address}/metrics") as page:
            return page.read().decode()

    def test_it_starts_and_trains_with_seven_of_eight(self):
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=32)
        daemon = self.daemon("cuda", metrics_listen="127.0.0.1:0")
        daemon.start()
        well = [gpu for gpu in range(GPUS) if gpu != LOST]
        self.assertIn(f"GPU {LOST}: GPU is lost; starting with 7 of 8 GPUs",
                      daemon.log_path.read_text())
        # What is the default on GPUs; fp32 models have nothing to round.
        for fields, word in (({}, "fast"), ({"dtype": "bf16"}, "fast"),
                             ({"determinism": "bitwise"}, "bitwise")):
            found = daemon.wait(daemon.submit({**SPEC, **fields}))
            self.assertEqual(found["resolved_spec"]["determinism"], word)
        self.assertEqual(
            [(d["kind"], d["product_name"], d["uuid"],
              int(d["memory_limit_bytes"])) for d in self.devices(daemon)],
            [("cuda", "NVIDIA GeForce RTX 4090", f"GPU-00-{gpu}", GIB)
             for gpu in well])
        self.assertIn("NVIDIA GeForce RTX 4090",
                      daemon.client("device").stdout)
        # Each worker was shown its own GPU.
        stands = re.findall(r"device worker (\d).* stands for (\S+)",
                            daemon.log_path.read_text())
        self.assertEqual(sorted(stands), [
            (str(i), f"GPU-00-{gpu}") for i, gpu in enumerate(well)])
        self.check_metrics(daemon, well)
        daemon.stop()

    def check_metrics(self, daemon, well):
        page = self.metrics(daemon)
        for device, gpu in enumerate(well):
            for line in (
                    "roundhouse_device_temperature_celsius"
                    f'{{device="{device}"}} {40 + gpu}',
                    f'roundhouse_pcie_link_info{{device="{device}",'
                    'generation="4",width="8"} 1',
                    f'roundhouse_pcie_link_ratio{{device="{device}"}} 0.5'):
                self.assertIn(line + "\n", page)
        self.assertIn("roundhouse_gpu_probe_failures_total 0\n", page)
        harness.wait_until(
            lambda: 'roundhouse_device_xid_errors_total{device="1"} 1\n'
            in self.metrics(daemon), "the Xid", pause=0.1)
        self.assertIn('roundhouse_device_xid_errors_total{device="0"} 0\n',
                      page)
        self.assertIn("device 1, GPU 1: the driver reports Xid 79",
                      daemon.log_path.read_text())
        # Another GPU is lost, the others are warmer: seen within 15 s.
        changed = self.scratch.folder / "changed.txt"
        changed.write_text(answers(**{
            "nvmlDeviceGetHandleByIndex_v2.0": "error 15",
            "nvmlDeviceGetTemperature.1": 77}))
        changed.rename(self.nvml)  # a probe may be reading it
        harness.wait_until(
            lambda: 'roundhouse_device_gpu_lost{device="0"} 1\n'
            in self.metrics(daemon), "the next probe", pause=0.1)
        page = self.metrics(daemon)
        self.assertIn(
            'roundhouse_device_temperature_celsius{device="1"} 77\n', page)
        self.assertNotIn(
            'roundhouse_device_temperature_celsius{device="0"}', page)

    def test_listed_gpus_come_in_their_order(self):
        daemon = self.daemon("cuda:6,0-1")
        daemon.start(device_memory="512MiB")
        self.assertEqual(
            [(d["uuid"], int(d["memory_limit_bytes"]))
             for d in self.devices(daemon)],
            [(f"GPU-00-{gpu}", GIB // 2) for gpu in (6, 0, 1)])
        daemon.stop()

    def test_a_gpu_listed_twice_is_two_devices(self):
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=32)
        daemon = self.daemon("cuda:6,0,6")
        daemon.start(device_memory="512MiB")
        self.assertEqual([d["uuid"] for d in self.devices(daemon)],
                         ["GPU-00-6", "GPU-00-0", "GPU-00-6"])
        daemon.wait(daemon.submit(SPEC))
        daemon.stop()
        status, text = self.refused("cuda:6,0,6")
        self.assertEqual(status, 2)
        self.assertIn(f"GPU 6 has {3 * GIB} bytes (3.0 GiB) free, CUDA itself "
                      f"takes {2 * GIB} bytes (2.0 GiB) for each of 2 devices",
                      text)

    def test_a_listed_gpu_must_be_there_and_well(self):
        status, text = self.refused(f"cuda:0,{LOST}")
        self.assertEqual(status, 1)
        self.assertIn(f"--devices: GPU {LOST}: GPU is lost", text)
        status, text = self.refused("cuda:8")
        self.assertEqual(status, 2)
        self.assertIn("--devices: there is no GPU 8; the driver knows 8", text)

    def test_a_driver_that_hangs_is_a_clear_failure(self):
        self.nvml.write_text(answers(nvmlInit_v2="hang"))
        start = time.monotonic()
        status, text = self.refused("cuda", gpu_probe_seconds=1)
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual(status, 1)
        self.assertIn("--devices=cuda: no report of the GPU probe within 1s: "
                      "killed (a call of the NVIDIA driver hangs)", text)

    def test_a_probe_that_hangs_stalls_nothing(self):
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=32)
        started = self.scratch.folder / "probes"
        self.probe = self.script("noted.sh", f'echo "$$" >> "{started}"\n'
                                 f'exec "{self.probe}" "$@"')
        daemon = self.daemon("cuda", metrics_listen="127.0.0.1:0")
        daemon.start(gpu_probe_seconds=600)
        # From now on whatever asks the driver never comes back.
        hanging = self.scratch.folder / "hanging.txt"
        hanging.write_text(answers(nvmlInit_v2="hang"))
        before = set(started.read_text().split())
        hanging.rename(self.nvml)
        harness.wait_until(
            lambda: set(started.read_text().split()) - before, "the next probe",
            pause=0.1)
        probe = int(started.read_text().split()[-1])
        names = [daemon.submit({**SPEC, "seed": seed}) for seed in range(3)]
        daemon.client("pause", names[2], check=False)
        daemon.client("cancel", names[2], check=False)
        for name in names[:2]:
            daemon.wait(name)
        self.assertEqual(len(self.devices(daemon)), GPUS - 1)
        self.assertIn("roundhouse_gpu_probe_failures_total 0\n",
                      self.metrics(daemon))
        os.kill(probe, 0)  # it hung all that time
        daemon.stop()
        with self.assertRaises(ProcessLookupError):
            os.kill(probe, 0)

    def test_no_driver_is_a_clear_failure(self):
        self.probe = self.script("none.sh",
                                 f'exec "{PROBE}" --library=libnone.so.1')
        status, text = self.refused("cuda")
        self.assertEqual(status, 1)
        self.assertIn("--devices=cuda: the GPU probe exited with status 2: "
                      "roundhouse-gpu-probe: no NVIDIA driver: libnone.so.1",
                      text)

    def test_a_worker_that_cannot_be_ends_the_start(self):
        self.worker = self.script(
            "unable.sh", f'exec "{harness.ROOT}/worker/roundhouse-worker" '
            '"$@"')
        daemon = self.daemon("cuda:0")
        daemon.launch()
        harness.wait_until(daemon.ended, "the daemon's end")
        text = daemon.log_path.read_text()
        self.assertEqual(daemon.process.returncode, 1, text)
        self.assertRegex(text, r"roundhoused: device worker 0 exited with "
                         r"status 2; its last words:\n.*--device=cuda:0: ")
        self.assertEqual(text.count("--device=cuda:0: "), 2)  # worker, daemon


if __name__ == "__main__":
    unittest.main()
