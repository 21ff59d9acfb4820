"""What scripts and users rely on: flags, config file, metrics, exit codes."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

PROMTOOL = "/usr/bin/promtool"
SHORT = {"model_name_or_path": "model", "dataset": "train.jsonl",
         "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
         "max_steps": 3, "learning_rate": 0.01, "seed": 1}
ENDLESS = {**SHORT, "max_steps": 1_000_000, "save_steps": 0}


class InterfaceTest(unittest.TestCase):
    flags = {}

    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=40)
        self.daemon = self.scratch.daemon(**self.flags)

    def job_file(self, **fields):
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps({**SHORT, **fields}))
        return path

    def run_daemon(self, *words):
        """A daemon that ends by itself. Its programs are this test's: those
        beside a built daemon may be there or not."""
        return subprocess.run(
            [harness.ROOT / "server/roundhoused",
             *(f"--{name.replace('_', '-')}={self.daemon.fixed[name]}"
               for name in ("worker_program", "prepare_script", "python")),
             *map(str, words)],
            capture_output=True, text=True, check=False, timeout=60,
            env={"HOME": str(self.scratch.folder), "PATH": "/usr/bin:/bin"})

    def client(self, status, *words):
        done = self.daemon.client(*words, check=False)
        self.assertEqual(done.returncode, status,
                         (words, done.stdout, done.stderr))
        return done


class LinkTest(unittest.TestCase):
    """The daemon can't be taken down by CUDA, nor the worker by gRPC."""

    def libraries(self, program):
        done = subprocess.run(["ldd", harness.ROOT / program], check=True,
                              capture_output=True, text=True)
        self.assertNotIn("not found", done.stdout)
        return done.stdout

    def test_daemon_has_no_torch_and_the_worker_no_grpc(self):
        torch = re.compile(r"lib(torch|c10|cuda|nccl|gomp)")
        services = re.compile(r"lib(grpc|protobuf|prometheus|civetweb)")
        daemon = self.libraries("server/roundhoused")
        worker = self.libraries("worker/roundhouse-worker")
        client = self.libraries("client/roundhouse")
        self.assertIsNone(torch.search(daemon), daemon)
        self.assertIsNone(services.search(worker), worker)
        self.assertIsNone(torch.search(client), client)
        # The patterns find what is there.
        self.assertIsNotNone(torch.search(worker))
        self.assertIsNotNone(services.search(daemon))


class FlagTest(InterfaceTest):
    def assert_refused(self, message, *words):
        done = self.run_daemon(f"--state-dir={self.daemon.state}",
                               f"--data-root={self.scratch.data}", *words)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(message, done.stderr)

    def test_listens_on_a_unix_socket_only(self):
        for listen in ("tcp:127.0.0.1:7000", "127.0.0.1:7000",
                       "0.0.0.0:7000", "dns:localhost:7000", ":7000"):
            with self.subTest(listen):
                self.assert_refused("--listen", f"--listen={listen}")
        path = f"{self.scratch.folder}/{'x' * 110}"
        self.assert_refused(path, f"--listen=unix:{path}")
        self.assertFalse(self.daemon.state.exists())

    def test_metrics_on_loopback_only(self):
        self.assert_refused('--metrics-listen: "0.0.0.0:9464"',
                            f"--listen=unix:{self.daemon.socket}",
                            "--metrics-listen=0.0.0.0:9464")

    def test_values(self):
        for words, message in (
                (["--device=cpu:2"], "unknown flag --device; did you mean "
                 "--devices?"),
                (["--devices=a\x1b[31mb\nc"], r'got "a\x1b[31mb\nc"'),
                (["--devices"], "flag --devices needs a value, DEVICES"),
                (["--peers=on", "--peers=off"], "flag --peers is given twice"),
                (["--devices=cpu:0"], '--devices: want cpu:N'),
                (["--devices=cuda:"], "--devices: want cuda, or cuda: with "
                 "GPUs by number"),
                (["--host-memory=lots"], '--host-memory: want bytes'),
                (["--device-threads=0"], "--device-threads: want a number"),
                (["--data-root=/nowhere"], '--data-root'),
                (["cpu:2"], '"cpu:2" is not a flag'),
                (["--config=/nowhere"], "--config: cannot read /nowhere: No "
                 "such file or directory")):
            with self.subTest(words):
                done = self.run_daemon(
                    f"--state-dir={self.daemon.state}",
                    f"--listen=unix:{self.daemon.socket}",
                    "--metrics-listen=", *words)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(message, done.stderr)

    def test_every_kept_flag_is_in_help(self):
        text = self.run_daemon("--help").stdout
        for flag in ("state-dir", "devices", "device-threads", "device-memory",
                     "listen", "metrics-listen", "data-root", "host-memory",
                     "config"):
            self.assertRegex(text, rf"(?m)^  --{flag}=\S+ ")

    def test_config_file_has_the_flags_keys_and_flags_win(self):
        second = self.scratch.folder / "more"
        second.mkdir()
        os.rename(self.scratch.data / "train.jsonl", second / "train.jsonl")
        config = self.scratch.folder / "config"
        config.write_text("# a comment\ndevices: cpu:3\n"
                          "host-memory = 64MiB  # small\n"
                          "device-memory: 100MiB\n")
        for key in ("devices", "host_memory", "device_memory"):
            self.daemon.flags.pop(key)
        self.daemon.fixed["data_root"] = f"{self.scratch.data},{second}"
        self.daemon.start(config=config, device_memory="90MiB")
        devices = json.loads(
            self.client(0, "device", "-o", "json").stdout)["devices"]
        self.assertEqual([device["memory_limit_bytes"] for device in devices],
                         [90 << 20] * 3)
        self.daemon.wait(self.daemon.submit(SHORT))
        self.daemon.stop()
        config.write_text("devices: cpu:3\n\nhost-memroy: 1GiB\n")
        self.assert_refused(f'{config}:3: unknown setting "host-memroy"; did '
                            "you mean host-memory?", f"--config={config}")
        config.write_text("devices cpu\n")
        self.assert_refused(f'{config}:1: want "key: value"',
                            f"--config={config}")
        config.write_text("devices: cpu:3\nhost-memory: lots\n")
        self.assert_refused(f"{config}:2: --host-memory: want bytes",
                            f"--config={config}")
        config.write_text("# a socket\nlisten: tcp:1\n")
        self.assert_refused(f'{config}:2: --listen: "tcp:1"',
                            f"--config={config}")

    def test_no_devices(self):
        self.daemon.start(devices="none")
        done = self.client(6, "submit", "-f", self.job_file())
        self.assertIn("--devices=none: no job can run", done.stderr)
        self.client(0, "list")


class ExitCodeTest(InterfaceTest):
    def test_usage(self):
        self.assertIn('unknown command "nope"', self.client(2, "nope").stderr)
        for words in (["get"], ["submit"], ["get", "a", "b"],
                      ["get", "job-1", "-o", "xml"], ["list", "--nope"],
                      ["list", "--state", "happy"]):
            self.assertIn("See: roundhouse", self.client(2, *words).stderr)
        self.assertIn("Usage: roundhouse", self.client(2).stderr)

    def test_unavailable(self):
        done = self.client(8, "list")
        self.assertIn(f"unix:{self.daemon.socket}", done.stderr)

    def test_every_end_of_a_job(self):
        self.daemon.start()
        path = self.job_file()
        job = self.client(0, "submit", "-f", path, "--wait").stdout.strip()
        self.client(0, "watch", job)
        for command in ("pause", "resume", "finish", "cancel"):
            done = self.client(6, command, job)
            self.assertIn(f"roundhouse: {command} {job}: {job} has ended "
                          "(SUCCEEDED); ", done.stderr)
        for command in ("get", "pause", "logs", "watch", "cancel"):
            self.assertIn("there is no job job-77",
                          self.client(5, command, "job-77").stderr)
        (self.scratch.data / "empty.jsonl").write_text("")
        self.client(3, "submit", "-f", self.job_file(dataset="empty.jsonl"),
                    "--wait")
        self.client(3, "watch", "job-2")
        self.client(1, "submit", "-f", self.job_file(max_steps="many"))
        self.client(1, "submit", "-f", self.scratch.folder / "none.yaml")
        self.client(7, "submit", "-f", self.job_file(batch_size=4096,
                                                     micro_batch_size=4096,
                                                     max_length=128))

    def test_cancelled(self):
        self.daemon.start()
        path = self.job_file(**ENDLESS)
        waiting = subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", "submit", "-f", path,
             "--wait"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True)
        self.addCleanup(waiting.kill)
        job = waiting.stdout.readline().strip()
        self.client(0, "cancel", job)
        self.assertEqual(waiting.wait(60), 9)
        waiting.stdout.close()
        self.client(9, "watch", job)

    def test_interrupt_leaves_the_job(self):
        self.daemon.start()
        waiting = subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", "submit", "-f",
             self.job_file(**ENDLESS), "--wait"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(waiting.kill)
        job = waiting.stdout.readline().strip()
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 1, "steps")
        waiting.send_signal(signal.SIGINT)
        errors = waiting.communicate(timeout=60)[1]
        self.assertEqual(waiting.returncode, 130)
        self.assertIn(f"watch {job}", errors)
        self.assertEqual(self.daemon.job(job)["state"], "RUNNING")


class JsonTest(InterfaceTest):
    def test_every_command(self):
        self.daemon.start()
        path = self.job_file(validation_dataset="train.jsonl")
        dry = json.loads(self.client(0, "submit", "-f", path, "--dry-run",
                                     "-o", "json").stdout)
        self.assertEqual(dry["resolved_spec"]["micro_batch_size"], 2)
        done = json.loads(self.client(0, "submit", "-f", path, "--wait",
                                      "-o", "json").stdout)
        job = done["name"].rsplit("/", 1)[1]
        self.assertEqual(job, "job-1")  # a dry run makes none
        found = json.loads(self.client(0, "get", job, "-o", "json").stdout)
        self.assertEqual(found, done)
        self.assertEqual((found["state"], found["step"]), ("SUCCEEDED", 3))
        self.assertEqual([point["step"] for point in found["loss_history"]],
                         [1, 2, 3])
        self.assertEqual([point["step"] for point in found["eval_history"]],
                         [0, 3])
        self.assertEqual(found["loss"], found["loss_history"][2]["loss"])
        self.assertTrue(pathlib.Path(found["output_path"]).is_dir())
        self.assertRegex(found["dataset"]["sha256"], "^[0-9a-f]{64}$")
        self.assertEqual(
            [entry["name"] for entry in
             json.loads(self.client(0, "list", "-o", "json").stdout)["jobs"]],
            [found["name"]])
        for words in (["device"], ["job-template"]):
            json.loads(self.client(0, *words, "-o", "json").stdout)
        for words in (["watch", job], ["logs", job]):
            lines = self.client(0, *words, "-o", "json").stdout.splitlines()
            self.assertTrue([json.loads(line) for line in lines])
        self.check_changes()

    def check_changes(self):
        done = self.client(0, "submit", "-f", self.job_file(**ENDLESS), "-o",
                           "json")
        job = json.loads(done.stdout)["name"].rsplit("/", 1)[1]
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 0, "steps")
        for command, states in (("pause", {"PAUSING", "PAUSED"}),
                                ("resume", {"RUNNING"}),
                                ("cancel", {"CANCELLING", "CANCELLED"})):
            changed = json.loads(
                self.client(0, command, job, "-o", "json").stdout)
            self.assertIn(changed["state"], states)
            if command == "pause":
                harness.wait_until(
                    lambda: self.daemon.job(job)["state"] == "PAUSED",
                    "PAUSED")
        self.daemon.wait(job, "CANCELLED")

    def test_long_history_keeps_the_newest_thousand(self):
        self.daemon.start()
        job = self.daemon.submit({**SHORT, "batch_size": 1, "max_steps": 1010,
                                  "micro_batch_size": 1, "save_steps": 0,
                                  "logging_steps": 100,
                                  "plan": {"forward": [],
                                           "backward": [[0, 4]]}})
        found = self.daemon.wait(job)
        self.assertEqual([point["step"] for point in found["loss_history"]],
                         list(range(11, 1011)))


class LogsTest(InterfaceTest):
    flags = {"devices": "cpu:1"}

    def test_failed_job_shows_reason_and_last_words_of_the_worker(self):
        self.daemon.start(worker_kill_at=";".join(["0=slot.started:1"] * 20))
        job = self.daemon.submit(SHORT)
        found = self.daemon.wait(job, "FAILED")
        self.assertEqual(found["reason"], "NO_HEALTHY_DEVICE")
        done = self.client(0, "logs", job)
        self.assertIn("killed at slot.started", done.stdout)
        self.assertIn("signal 9", done.stdout)
        self.assertIn("FAILED NO_HEALTHY_DEVICE", done.stdout)
        self.assertIn("NO_HEALTHY_DEVICE", done.stderr)
        shown = self.client(0, "logs", "--tail", "1", job).stdout
        self.assertEqual(len(shown.splitlines()), 1)


    def test_a_worker_that_did_not_start_is_in_the_jobs_log(self):
        # The second process refuses its flags before it says hello.
        self.daemon.start(worker_kill_at="0=slot.started:1;0=nowhere")
        job = self.daemon.submit(SHORT)
        self.daemon.wait(job)
        shown = self.client(0, "logs", job).stdout
        self.assertIn("device worker 0 exited with status 1; its last words",
                      shown)
        self.assertIn('want NAME:COUNT, got "nowhere"', shown)


class MetricsTest(InterfaceTest):
    flags = {"devices": "cpu:2", "metrics_listen": "127.0.0.1:0",
             "max_running_jobs": 1}

    def start(self, **flags):
        self.daemon.start(**flags)
        self.address = re.findall(r"metrics on (127\.0\.0\.1:\d+)",
                                  self.daemon.log_path.read_text())[-1]

    def page(self):
        url = f"http://{self.address}/metrics"
        with urllib.request.urlopen(
                url, timeout=harness.DEADLINE_SECONDS) as answer:
            return answer.read().decode()

    def values(self, name, page=None):
        """{labels: value}, labels as sorted (name, value) pairs."""
        found = {}
        for labels, value in re.findall(
                rf"^roundhouse_{name}(?:{{(.*)}})? (\S+)$",
                page or self.page(), re.M):
            pairs = re.findall(r'(\w+)="([^"]*)"', labels)
            found[tuple(sorted(pairs))] = float(value)
        return found

    def test_page_is_clean_and_names_nothing(self):
        self.start()
        secret = {"output_name": "secret-name", "metadata": {"a": "secret"}}
        running = self.daemon.submit({**ENDLESS, **secret})
        waiting = self.daemon.submit(SHORT)
        harness.wait_until(lambda: self.daemon.job(running)["step"] > 2,
                           "steps")
        # It is counted just after others see that it is QUEUED.
        harness.wait_until(
            lambda: self.values("jobs").get((("state", "QUEUED"),)) == 1,
            "QUEUED")
        page = self.page()
        for name in ("device_time_seconds_total", "device_bubble_ratio",
                     "device_up", "pcie_transfer_bytes_total", "slots_total",
                     "step_duration_seconds_count",
                     "slot_dispatch_latency_seconds_count",
                     "job_loss", "job_steps_total", "job_tokens_total",
                     "job_eta_timestamp_seconds", "host_arena_bytes",
                     "host_arena_limit_bytes", "queue_wait_seconds_count"):
            self.assertTrue(self.values(name, page), name)
        jobs = self.values("jobs", page)
        self.assertEqual(jobs[(("state", "QUEUED"),)], 1)
        self.assertEqual(jobs[(("state", "RUNNING"),)], 1)
        self.assertEqual(set(self.values("job_loss", page)),
                         {(("job", running),)})
        for secret in ("secret", "train.jsonl", str(self.scratch.folder),
                       self.daemon.job(running)["uid"]):
            self.assertNotIn(secret, page)
        samples = [line for line in page.splitlines() if line[:1] != "#"]
        self.assertFalse([line for line in samples if "/" in line])
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=page,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout + done.stderr, "")

    def test_host_memory_by_kind(self):
        self.start()
        # A plan of its own: the daemon's may become wide, with more
        # contributions.
        job = self.daemon.submit({
            **ENDLESS, "plan": {"forward": [[0, 1]],
                                "backward": [[2, 4], [0, 1]]}})

        def held():
            return {dict(labels)["kind"]: value for labels, value in
                    self.values("host_arena_bytes").items()}
        # They are set one after the other.
        harness.wait_until(lambda: min(held().values(), default=0) > 0,
                           "memory of every kind")
        found = held()
        self.assertEqual(set(found), {"weights", "optimizer", "gradients",
                                      "activations", "other"})
        # fp32: masters and two moments; a sum, and of all but the embedding,
        # which no slot sends, a contribution.
        self.assertEqual(found["optimizer"], 3 * found["weights"])
        embedding = harness.read_safetensors(
            self.scratch.data / "model" / "model.safetensors")[
                "model.embed_tokens.weight"][2]
        self.assertEqual(found["gradients"],
                         2 * found["weights"] - len(embedding))
        self.assertGreater(min(found.values()), 0)
        self.daemon.client("cancel", job)
        self.daemon.wait(job, "CANCELLED")
        harness.wait_until(
            lambda: sum(held().values()) == held()["other"], "memory freed")

    def test_every_part_of_a_job_is_measured(self):
        self.start(worker_kill_at="0=slot.started:3")
        fields = {**SHORT, "validation_dataset": "train.jsonl",
                  "plan": {"forward": [[0, 1]],
                           "backward": [[2, 4], [0, 1]]}}
        job = self.daemon.submit({**fields, "max_steps": 60, "save_steps": 20})
        self.daemon.wait(job)
        page = self.page()
        slots = self.values("slot_duration_seconds_count", page)
        for labels in ((("pass", name), ("phase", phase))
                       for name in ("forward", "fused", "backward",
                                    "evaluate")
                       for phase in ("wait", "h2d", "compute", "d2h")):
            self.assertGreater(slots.get(labels, 0), 0, labels)
        units = 6  # the embedding, four layers, the head
        for name, wanted in (("optimizer_duration", 60 * units),
                             ("checkpoint_duration", 3),
                             ("recovery_duration", 1)):
            self.assertEqual(self.values(f"{name}_seconds_count", page),
                             {(): wanted}, name)
            self.assertGreater(
                self.values(f"{name}_seconds_sum", page)[()], 0, name)
        self.assertEqual(self.values("checkpoint_failures_total", page),
                         {(): 0})
        results = self.values("slots_total", page)
        self.assertGreater(
            results[("device", "0"), ("result", "replayed")], 0)
        self.assertEqual(
            results[("device", "1"), ("result", "replayed")], 0)
        self.assertEqual(
            results[("device", "0"), ("result", "failed")], 0)

    def ticked(self):
        """The device times right after they changed, and bounds of when:
        {device: seconds}, earliest, latest."""
        def sums():
            found = {}
            for labels, value in self.values(
                    "device_time_seconds_total").items():
                device = dict(labels)["device"]
                found[device] = found.get(device, 0) + value
            return found
        before, earliest = sums(), time.monotonic()
        deadline = earliest + 30
        now = before
        while now == before:
            self.assertLess(earliest, deadline)
            start = time.monotonic()
            now = sums()
            if now == before:
                earliest = start
        # A page may have some of a tick's changes.
        while now != before:
            before = now
            time.sleep(0.1)
            now = sums()
        return now, earliest, time.monotonic()

    def test_device_time_sums_to_wall_time(self):
        self.start()
        first, first_earliest, first_latest = self.ticked()
        job = self.daemon.submit(ENDLESS)
        harness.wait_until(lambda: self.daemon.job(job)["step"] > 200, "steps")
        self.daemon.client("cancel", job)
        self.daemon.wait(job, "CANCELLED")
        last, last_earliest, last_latest = self.ticked()
        for device in ("0", "1"):
            spent = last[device] - first[device]
            # Waiting is published that late (device_reports.cc, kNewsNs).
            late = 0.2
            self.assertGreater(
                spent, 0.98 * (last_earliest - first_latest) - late)
            self.assertLess(
                spent, 1.02 * (last_latest - first_earliest) + late)
        states = self.values("device_time_seconds_total")
        for state in ("compute", "bubble", "idle"):
            self.assertGreater(
                states[(("device", "0"), ("state", state))], 0)

    def transferred(self):
        """{(direction, purpose): bytes} of device 0."""
        measured = {}
        for labels, value in self.values("pcie_transfer_bytes_total").items():
            pairs = dict(labels)
            self.assertEqual(pairs["device"], "0")
            measured[pairs["direction"], pairs["purpose"]] = value
        return measured

    def test_transfer_bytes_are_those_of_the_plan(self):
        rows, steps = 16, 3
        (self.scratch.data / "train.jsonl").write_text(
            '{"text": "one two three"}\n' * rows)
        self.start(devices="cpu:1")
        config = json.loads(
            (self.scratch.data / "model/config.json").read_text())

        def elements(shapes):  # each tensor is padded to 64 elements
            total = 0
            for shape in shapes:
                count = 1
                for side in shape:
                    count *= side
                total += -(-count // 64) * 64
            return total
        layer = elements(harness.layer_shapes().values())
        head = elements([[harness.HIDDEN],
                         [config["vocab_size"], harness.HIDDEN]])
        for determinism, dtype, size, sum_size in (
                ("bitwise", "fp32", 4, 4), ("bitwise", "bf16", 2, 4),
                ("fast", "bf16", 2, 2), ("fast", "fp32", 4, 4)):
            before = self.transferred()
            job = self.daemon.submit({
                **SHORT, "max_steps": steps, "save_steps": 0, "dtype": dtype,
                "determinism": determinism,
                "plan": {"forward": [[0, 1]], "backward": [[2, 4], [0, 1]]}})
            found = self.daemon.wait(job)
            tokens = found["dataset"]["train_tokens"] * 8 // rows  # of a step
            activation = tokens * harness.HIDDEN * size  # of one boundary
            wanted = {
                # Stages [0,1], [2,4], [0,1]: inputs, and the last one's
                # gradient.
                ("h2d", "activations"): 4 * activation,
                ("d2h", "activations"): 3 * activation,
                ("h2d", "weights"): (6 * layer + head) * size,
                ("d2h", "gradients"): (4 * layer + head) * sum_size,
                ("d2h", "weights"): 0, ("h2d", "gradients"): 0,
                # Labels are read where they lie.
                ("h2d", "other"): 0, ("d2h", "other"): 0,
            }
            after = self.transferred()
            self.assertEqual(set(after), set(wanted))
            for key, count in wanted.items():
                self.assertAlmostEqual(
                    after[key] - before.get(key, 0), count * steps,
                    delta=0.02 * count * steps, msg=(determinism, dtype, key))


if __name__ == "__main__":
    unittest.main()
