"""`roundhouse plan` through a daemon without devices: published models, from
their config.json alone."""

import collections
import json
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

MODELS = harness.ROOT / "scheduler/testdata/models"
GIB = 1 << 30
OVER_A_LIMIT = 7  # the client's exit code
# Parameters and whether this build trains it; the counts are published.
PUBLISHED = {"qwen3-1.7b": (1.72e9, True), "llama3.1-8b": (8.03e9, True),
             "gpt-oss-20b": (20.9e9, False), "qwen3-32b": (32.8e9, True),
             "qwen3-235b": (235e9, True)}
CAUSES = ("fill_and_drain", "weights", "gradients", "end_of_step")


class PlanTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = cls.enterClassContext(harness.Scratch())
        for name in PUBLISHED:
            folder = cls.scratch.data / name
            folder.mkdir()
            shutil.copy(MODELS / name / "config.json", folder / "config.json")
        cls.daemon = cls.scratch.daemon(devices="none")
        cls.daemon.start()

    def run_plan(self, model, devices, *more, check=True):
        return self.daemon.client("plan", "--model", model, "--devices",
                                  devices, *more, check=check)

    def plan(self, model, devices, *more):
        """The answer of a plan that may not fit."""
        done = self.run_plan(model, devices, "-o", "json", *more, check=False)
        self.assertIn(done.returncode, (0, OVER_A_LIMIT), done.stderr)
        plan = json.loads(done.stdout)
        self.assertEqual(plan["feasible"], done.returncode == 0)
        return plan

    def assert_adds_up(self, plan):
        """Each device's time is the step's; each byte is named."""
        step = plan["step_seconds"]
        self.assertGreater(step, 0)
        bubble = dict.fromkeys(CAUSES, 0.0)
        for device in plan["devices"]:
            for cause in CAUSES:
                bubble[cause] += device["bubble"][cause]
            self.assertAlmostEqual(
                (device["compute_seconds"] + sum(device["bubble"].values())) /
                step, 1, places=6)
            self.assertLessEqual(device["used_bytes"], device["memory_bytes"])
        for cause in CAUSES:
            self.assertAlmostEqual(bubble[cause], plan["bubble"][cause],
                                   places=6)
        self.assertAlmostEqual(
            plan["bubble_ratio"],
            sum(bubble.values()) / step / len(plan["devices"]), places=6)
        self.assertAlmostEqual(plan["tokens_per_second"] * step /
                               plan["tokens_per_step"], 1, places=6)
        host = plan["host"]
        self.assertEqual(host["total_bytes"],
                         host["base_bytes"] + host["state_bytes"] +
                         host["boundary_bytes"] + host["contribution_bytes"])

    def test_published_models_on_eight_cards(self):
        for name, (parameters, trainable) in PUBLISHED.items():
            with self.subTest(name):
                plan = self.plan(name, "8xrtx4090", "--max-length=2048",
                                 "--batch-size=64", "--micro-batch-size=4",
                                 "--method=lora" if name == "qwen3-235b"
                                 else "--method=full")
                self.assertAlmostEqual(plan["parameters"] / parameters, 1,
                                       delta=0.01)
                self.assertEqual(plan["trainable"], trainable)
                self.assertTrue(plan["feasible"])
                self.assertEqual(len(plan["devices"]), 8)
                self.assertEqual(plan["tokens_per_step"], 64 * 2048)
                self.assert_adds_up(plan)

    # The bytes of docs/design/memory.md.
    def test_a_32b_on_one_card(self):
        plan = self.plan("qwen3-32b", "1xrtx4090", "--max-length=2048",
                         "--host-memory=800GiB")
        self.assertTrue(plan["feasible"], plan)
        self.assertEqual(plan["host"]["state_bytes"], 18 * plan["parameters"])
        self.assertEqual(plan["host"]["base_bytes"], 0)
        self.assertLessEqual(plan["host"]["total_bytes"], 800 * GIB)
        self.assert_adds_up(plan)

    def test_lora_of_235b_at_31k_and_64k(self):
        options = ("--method=lora", "--batch-size=1", "--host-memory=800GiB")
        plan = self.plan("qwen3-235b", "1xrtx4090", "--max-length=31000",
                         *options)
        self.assertTrue(plan["feasible"], plan)
        self.assertEqual(plan["host"]["base_bytes"], 2 * plan["parameters"])
        self.assertEqual(plan["host"]["state_bytes"],
                         20 * plan["trained_parameters"])
        self.assert_adds_up(plan)
        longer = self.plan("qwen3-235b", "1xa800", "--max-length=64000",
                           *options)
        self.assertTrue(longer["feasible"], longer)
        self.assertGreater(longer["longest_sequence"], 64000)

    def test_eight_rows_of_235b_fit_the_published_server(self):
        options = ("--batch-size=8", "--host-memory=800GiB")
        lora = self.plan("qwen3-235b", "8xrtx4090", "--method=lora",
                         "--max-length=31000", *options)
        self.assertTrue(lora["feasible"], lora)
        self.assert_adds_up(lora)
        self.assertGreater(lora["longest_sequence"], 48000)
        full = self.plan("qwen3-32b", "8xrtx4090", "--max-length=33000",
                         *options)
        self.assertTrue(full["feasible"], full)
        self.assertGreater(full["longest_sequence"], 33000)

    def test_missing_bytes_are_counted(self):
        plan = self.plan("qwen3-32b", "8xrtx4090", "--host-memory=512GiB")
        self.assertFalse(plan["feasible"])
        self.assertEqual(plan["host_missing_bytes"],
                         plan["host"]["total_bytes"] - 512 * GIB)
        self.assertEqual(plan["longest_sequence_limit"],
                         "SEQUENCE_LIMIT_HOST_MEMORY")
        plan = self.plan("qwen3-32b", "8xrtx4090", "--max-length=1000000")
        self.assertFalse(plan["feasible"])
        self.assertEqual(plan["device_missing_bytes"],
                         plan["device_needed_bytes"] - 24 * GIB)
        self.assertEqual(plan["devices"], [])
        done = self.run_plan("qwen3-32b", "8xrtx4090", "--host-memory=512GiB",
                             check=False)
        self.assertEqual(done.returncode, OVER_A_LIMIT)
        self.assertIn("of host memory (", done.stdout)

    def test_the_longest_sequence_fits_and_no_more(self):
        options = ("--batch-size=1", "--micro-batch-size=1")
        found = self.plan("llama3.1-8b", "1xrtx4090", *options)
        longest = found["longest_sequence"]
        self.assertEqual(found["longest_sequence_limit"],
                         "SEQUENCE_LIMIT_DEVICE_MEMORY")
        for tokens, fits in ((longest, True), (longest + 1, False)):
            plan = self.plan("llama3.1-8b", "1xrtx4090", *options,
                             f"--max-length={tokens}")
            self.assertEqual(plan["feasible"], fits, tokens)

    def test_trace(self):
        path = self.scratch.folder / "trace.json"
        plan = self.plan("gpt-oss-20b", "2xrtx4090,2xrtx3090",
                         "--max-length=2048", "--trace", path)
        self.assert_adds_up(plan)
        self.assertNotIn("timeline", plan)
        events = json.loads(path.read_text())["traceEvents"]
        names = {(event["pid"], event["tid"]): event["args"]["name"]
                 for event in events if event["name"] == "thread_name"}
        tracks = collections.defaultdict(list)
        for event in events:
            if event["ph"] == "X":
                # Whole nanoseconds.
                start, length = (round(1000 * event[key])
                                 for key in ("ts", "dur"))
                tracks[event["pid"], event["tid"]].append(
                    (start, start + length, event["cat"]))
        self.assertEqual(set(tracks), set(names))
        kinds = set()
        for intervals in tracks.values():
            end = 0
            for start, stop, kind in sorted(intervals):
                self.assertGreaterEqual(start, end)
                self.assertGreater(stop, start)
                end = stop
                kinds.add(kind)
        self.assertLessEqual({"forward", "recompute", "backward", "weights",
                              "gradients", "activations", "reduce",
                              "optimizer"}, kinds)
        self.assertEqual(sorted(names.values()),
                         sorted(4 * ["compute", "h2d", "d2h"] +
                                ["optimizer", "reduce"]))

    def test_slower_arithmetic_takes_longer(self):
        options = ("--max-length=2048", "--batch-size=32")
        slow = self.plan("llama3.1-8b", "4xrtx4090", *options)
        fast = self.plan("llama3.1-8b", "4xrtx4090", "--fp16-accumulation",
                         *options)
        self.assertLess(fast["step_seconds"], slow["step_seconds"])
        self.assertEqual(slow["sources"][0]["tflops"], 165.2)
        self.assertEqual(fast["sources"][0]["tflops"], 330.3)

    def test_sums_in_fp32_take_more_bytes(self):
        """What is not said is fast, as of a job on GPUs. Adapters' are fp32."""
        options = ("--max-length=1024", "--batch-size=8")
        for model, method in (("qwen3-32b", "full"), ("qwen3-235b", "lora")):
            default, fast, bitwise = [
                self.plan(model, "8xrtx4090", f"--method={method}", *options,
                          *word) for word in
                ((), ("--determinism=fast",), ("--determinism=bitwise",))]
            self.assertEqual(default, fast)
            self.assertEqual(fast == bitwise, method == "lora")
            if method == "full":  # of other plans, so not just twice
                self.assertLess(fast["host"]["contribution_bytes"],
                                bitwise["host"]["contribution_bytes"])

    def test_devices_of_another_memory(self):
        options = ("--max-length=2048", "--batch-size=16")
        whole = self.plan("llama3.1-8b", "1xh100", *options)
        card = self.plan("llama3.1-8b", "1xh100:24GiB", *options)
        self.assertEqual(int(card["devices"][0]["memory_bytes"]), 24 * GIB)
        self.assertLessEqual(int(card["devices"][0]["used_bytes"]), 24 * GIB)
        self.assertLess(int(card["longest_sequence"]),
                        int(whole["longest_sequence"]))
        refused = self.run_plan("llama3.1-8b", "1xh100:24", check=False)
        self.assertIn('"24" is no memory of a device', refused.stderr)

    def test_an_8b_in_full_on_a_host_of_128_gib(self):
        options = ("--max-length=2048", "--batch-size=16",
                   "--micro-batch-size=4", "--host-memory=128GiB")
        free = self.plan("llama3.1-8b", "1xrtx4090", *options,
                         "--max-grad-norm=0")
        self.assertTrue(free["feasible"], free)
        self.assertAlmostEqual(int(free["host"]["total_bytes"]) / GIB, 117.4,
                               delta=0.1)
        clipped = self.plan("llama3.1-8b", "1xrtx4090", *options)
        self.assertFalse(clipped["feasible"], clipped)
        self.assertAlmostEqual(int(clipped["host_missing_bytes"]) / GIB, 13.8,
                               delta=0.1)

    def test_without_clipping_no_sums_are_kept(self):
        options = ("--max-length=1024", "--batch-size=16",
                   "--micro-batch-size=1")
        clipped, free = [
            self.plan("qwen3-32b", "8xrtx4090", *options, *word)
            for word in ((), ("--max-grad-norm=0",))]
        parameters = int(clipped["trained_parameters"])
        saved = (int(clipped["host"]["state_bytes"])
                 - int(free["host"]["state_bytes"]))
        self.assertEqual(int(clipped["host"]["state_bytes"]), 18 * parameters)
        # All but the embedding's.
        self.assertEqual(saved, 4 * (parameters - 151936 * 5120))
        self.assertLess(free["step_seconds"], clipped["step_seconds"])

    def test_a_file_means_its_directory(self):
        by_file = self.plan("qwen3-1.7b/config.json", "h100")
        self.assertEqual(by_file, self.plan("qwen3-1.7b", "h100"))

    def test_errors_name_the_field(self):
        for words, part in (
                (("nothing", "h100"), "nothing"),
                (("../outside", "h100"), "flag --model: "),
                (("qwen3-1.7b", "8x24GiB"), 'flag --devices: "8x24GiB": '),
                (("qwen3-1.7b", "h100", "--method=dpo"), "flag --method: "),
                (("qwen3-1.7b", "h100", "--determinism=exact"),
                 "flag --determinism: "),
                (("qwen3-1.7b", "h100", "--max-grad-norm=-1"),
                 "flag --max-grad-norm: "),
                (("qwen3-1.7b", "h100", "--micro-batch-size=9"),
                 "flag --micro-batch-size: ")):
            done = self.run_plan(*words, check=False)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stdout, "")

    # Planning is all that it does with jobs: it says so.
    def test_submit_says_why_not(self):
        path = self.scratch.folder / "job.json"
        path.write_text(json.dumps({"model_name_or_path": "qwen3-1.7b",
                                    "dataset": "train.jsonl"}))
        done = self.daemon.client("submit", "-f", path, check=False)
        self.assertEqual(done.returncode, 6)
        self.assertIn("--devices=none", done.stderr)

    def test_gpt_oss_is_planned_for_and_not_trained(self):
        (self.scratch.data / "train.jsonl").write_text('{"text": "one"}\n')
        daemon = self.scratch.daemon(devices="cpu:1")
        daemon.start()
        path = self.scratch.folder / "mixture.json"
        path.write_text(json.dumps({"model_name_or_path": "gpt-oss-20b",
                                    "dataset": "train.jsonl"}))
        done = daemon.client("submit", "-f", path, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"roundhouse: {path}:1: model_name_or_path: ",
                      done.stderr)
        self.assertIn("'GptOssForCausalLM'", done.stderr)
        daemon.stop()


if __name__ == "__main__":
    unittest.main()
