"""Tests of gpu-check's parts that need neither daemon nor GPU."""

import json
import math
import os
import pathlib
import struct
import sys
import tempfile
import types
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).absolute().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests/integration")]

import bench  # noqa: E402  found by the line before
import check  # noqa: E402
import fault  # noqa: E402
import fp16  # noqa: E402
import growth  # noqa: E402
import harness  # noqa: E402
import jobs  # noqa: E402
import lending  # noqa: E402
import machine  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
import shapes  # noqa: E402
from outcome import Failed, OutOfMemory, Skipped  # noqa: E402

PROBE = """roundhouse-gpus 1
driver=580.65.06
gpu=0
uuid=GPU-00-0
name=NVIDIA H100 80GB HBM3
memory_total_bytes=85520809984
gpu=2
fault=GPU is lost
end=2
"""


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class MachineTest(Scratch):
    def test_a_report_of_the_probe(self):
        found = machine.parse_probe(PROBE)
        self.assertEqual(found["driver"], "580.65.06")
        self.assertEqual(found["gpus"][0]["memory_total_bytes"], 85520809984)
        self.assertEqual(found["gpus"][1],
                         {"index": 2, "fault": "GPU is lost"})

    def test_a_report_that_is_cut_off_is_refused(self):
        for text in ("", "roundhouse-gpus 2\nend=0\n",
                     PROBE.replace("end=2\n", ""),
                     PROBE.replace("end=2", "end=3")):
            with self.assertRaises(ValueError, msg=text):
                machine.parse_probe(text)

    def test_chosen_gpus_come_in_their_order(self):
        gpus = [{"index": index} for index in (0, 1, 3, 4)]
        def indices(devices):
            return [g["index"] for g in machine.chosen(gpus, devices)]
        self.assertEqual(indices("cuda"), [0, 1, 3, 4])
        self.assertEqual(indices("cuda:4,0-1"), [4, 0, 1])
        with self.assertRaisesRegex(ValueError, "no GPU 2"):
            indices("cuda:1-3")

    def test_memory_of_a_card_that_two_devices_share(self):
        gib = 1 << 30
        large = {"index": 3, "memory_total_bytes": 80 * gib}
        small = {"index": 3, "memory_total_bytes": 24 * gib}
        self.assertEqual(jobs.device_memory([large]), 22 * gib)
        self.assertEqual(jobs.device_memory([large, small]), 22 * gib)
        self.assertEqual(jobs.device_memory([large], 2), 22 * gib)
        self.assertEqual(jobs.device_memory([small], 2), 10 * gib)
        run = types.SimpleNamespace(gpus=[small, large])
        case = bench.Case("one as two", "tiny", {}, share=2)
        self.assertEqual(bench.flags_of(run, case),
                         {"devices": "cuda:3,3", "device_memory": 10 * gib})
        self.assertEqual(
            bench.flags_of(run, bench.Case("all", "tiny", {})), {})
        large = bench.flags_of(run, bench.Case("8B", "tiny", {}, arena=0.9))
        self.assertEqual(list(large), ["host_memory"])
        self.assertGreater(large["host_memory"], jobs.host_memory() * 1.2)

    def test_a_plan_is_asked_for_devices_of_the_cards_memory(self):
        asked = []

        def client(*words, check):
            asked.append(words)
            return types.SimpleNamespace(returncode=1, stderr="no")

        run = types.SimpleNamespace(
            gpus=[{"index": 0, "name": "NVIDIA H100 80GB HBM3"}],
            options=types.SimpleNamespace(rehearse=False))
        daemon = types.SimpleNamespace(
            client=client, flags={"device_memory": 22 << 30,
                                  "host_memory": 1 << 30})
        spec = {"max_length": 8, "batch_size": 1, "micro_batch_size": 1,
                "determinism": "fast"}
        with unittest.mock.patch.object(bench, "count", return_value=2):
            self.assertEqual(bench.predict(run, daemon, "m", spec),
                             {"reason": "no"})
        self.assertIn("2xh100:24.00GiB", asked[0])

    def test_host_memory_of_a_machine_that_grows_is_told(self):
        with unittest.mock.patch.dict(os.environ,
                                      ROUNDHOUSE_HOST_MEMORY_GIB="0.5"):
            self.assertEqual(machine.available_memory(), 1 << 29)
            self.assertEqual(jobs.host_memory(0.5), 1 << 28)

    def test_a_scratch_lies_where_it_is_told_and_its_logs_are_kept(self):
        kept = []
        run = types.SimpleNamespace(
            options=types.SimpleNamespace(programs=self.folder),
            log=lambda name, text: kept.append((name.name, text)))
        with unittest.mock.patch.dict(os.environ,
                                      ROUNDHOUSE_SCRATCH=str(self.folder)):
            with self.assertRaises(Failed):
                with jobs.scratch_of(run) as scratch:
                    self.assertEqual(scratch.folder.parent, self.folder)
                    scratch.daemon().log_path.write_text("words")
                    scratch.daemon()  # never started
                    raise Failed("no")
        self.assertEqual(kept, [("daemon.log", "words")])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_growth_is_of_every_process_that_was_there(self):
        more, wrong = growth.growth({"daemon": 70, "worker 0": 50},
                                    {"daemon": 90, "worker 0": 40, "new": 99},
                                    most=20)
        self.assertEqual((more, wrong), ({"daemon": 20, "worker 0": -10}, []))
        _, wrong = growth.growth({"daemon": 70, "worker 0": 50},
                                 {"daemon": 91}, most=20)
        self.assertEqual(wrong, ["daemon holds 21 bytes more",
                                 "worker 0 was replaced"])
        self.assertGreater(growth.anonymous_bytes(os.getpid()), 1 << 20)
        warm, last = growth.STEPS["cuda"]
        self.assertEqual(last - warm, 1000)

    def longest(self, planned, *outcomes, deadline=math.inf):
        """What becomes of rows that are trained with these outcomes."""
        details = {"predicted": planned, "spec": {}}
        with unittest.mock.patch.object(bench, "try_length",
                                        side_effect=outcomes) as tried:
            try:
                bench.train_longest(
                    None, None, None, {"batch_size": 1},
                    {"max_position_embeddings": 1000}, details, deadline)
            finally:
                self.assertEqual(
                    [str(call.args[3]["max_length"])
                     for call in tried.call_args_list],
                    list(details.get("tries", {})))
        return details["tries"]

    def test_rows_as_long_as_planned_run_or_are_refused(self):
        planned, refused = {"longest_sequence": 2000}, Skipped("refused")
        self.assertEqual(self.longest(planned, None), {"960": "passed"})
        # Between what passed and what did not, four in all.
        self.assertEqual(self.longest(planned, refused, None, None, refused),
                         {"960": "skipped: refused", "704": "passed",
                          "832": "passed", "896": "skipped: refused"})
        self.assertEqual(self.longest(planned, refused, refused, None, None),
                         {"960": "skipped: refused", "704": "skipped: refused",
                          "448": "passed", "576": "passed"})
        self.assertEqual(
            list(self.longest(planned, *3 * [refused], None)),
            ["960", "704", "448", "192"])
        # Nothing lies between, and nothing is tried twice.
        self.assertEqual(list(self.longest({"longest_sequence": 130}, refused,
                                           None)), ["128", "64"])
        with self.assertRaisesRegex(Skipped, "^64 tokens: skipped: refused$"):
            self.longest({"longest_sequence": 70}, refused)
        self.assertEqual(self.longest(planned, None, deadline=0),
                         {"960": "passed"})
        with self.assertRaisesRegex(Skipped, "^960 tokens: skipped: refused$"):
            self.longest(planned, refused, deadline=0)
        with self.assertRaisesRegex(Skipped, "960 tokens: skipped: refused; "
                                    "704 .* 448 .* 192 "):
            self.longest(planned, *4 * [refused])
        # Whatever came next would wait for it.
        with self.assertRaisesRegex(Skipped, "^960 tokens: skipped: long$"):
            self.longest(planned, bench.StillRunning("long"), None)
        with self.assertRaisesRegex(Skipped, "no preset"):
            self.longest({"reason": "no preset"})

    def test_rows_that_are_taken_and_fail_are_a_failure(self):
        planned = {"longest_sequence": 2000}
        with self.assertRaisesRegex(
                Failed, "^960 tokens: failed: no memory; 704 tokens: passed; "
                "832 tokens: failed: no memory; 768 tokens: passed$"):
            self.longest(planned, OutOfMemory("no memory"), None,
                         OutOfMemory("no memory"), None)
        # Shorter ones would say nothing of what it was.
        with self.assertRaisesRegex(Failed, "^960 tokens: failed: a bug$"):
            self.longest(planned, Failed("a bug"))

    def test_a_job_that_found_no_memory_is_told_from_others(self):
        for reason, error in (("DEVICE_MEMORY", OutOfMemory),
                              ("HOST_MEMORY", OutOfMemory),
                              ("INTERNAL", Failed), (None, Failed)):
            daemon = types.SimpleNamespace(
                job=lambda job, reason=reason: {
                    "state": "FAILED", "reason": reason, "message": "words"},
                tail=lambda lines: "")
            with self.assertRaisesRegex(error, "job-1 is FAILED: words") as it:
                jobs.must_run(daemon, "job-1")
            self.assertIs(type(it.exception), error)

    def test_a_try_takes_half_of_the_time_and_leaves_no_job(self):
        details = {"gpus": 1, "spec": {"batch_size": 1}, "tries": {}}
        for left, outcome, asked, state in (
                (math.inf, None, True, "CANCELLED"),
                (1000.0, Skipped("late"), True, "CANCELLED"),
                (0.4, Skipped("late"), True, "RUNNING"),
                (1000.0, OutOfMemory("late"), True, "FAILED"),
                (-1.0, Skipped("late"), False, "RUNNING")):
            daemon = types.SimpleNamespace(
                client=unittest.mock.Mock(),
                job=lambda job, state=state: {"state": state})
            now = bench.time.monotonic()

            def train(*arguments, left=left, now=now, outcome=outcome):
                self.assertAlmostEqual(arguments[6] - now, left / 2, delta=60)
                if outcome is not None:
                    raise outcome
                arguments[5].update(step_seconds=7.0)

            with unittest.mock.patch.multiple(
                    bench, submit=lambda *_: "job-1", train=train):
                try:
                    bench.try_length(
                        None, types.SimpleNamespace(data=self.folder), daemon,
                        {"batch_size": 1, "max_length": 64}, {}, details,
                        now + left)
                except (Skipped, OutOfMemory) as error:
                    self.assertIn("late", str(error))
                    self.assertEqual(isinstance(error, bench.StillRunning),
                                     state == "RUNNING")
            self.assertEqual([call.args for call in
                              daemon.client.call_args_list],
                             [("cancel", "job-1")] if asked else [])
        self.assertEqual(details["step_seconds"], 7.0)
        self.assertEqual(details["spec"], {"batch_size": 1, "max_length": 64})

    def test_models_whose_longest_rows_are_tried(self):
        found = {case.name: case for case in bench.CASES["cuda"]
                 if case.longest}
        self.assertEqual(
            {name: case.published for name, case in found.items()},
            {"Qwen3-1.7B full, longest rows": 73,
             "Llama-3.1-8B LoRA, longest rows": 49})
        self.assertEqual([case.fields.get("method")
                          for case in found.values()], [None, "lora"])
        for case in bench.CASES["cuda"][:-1]:
            self.assertGreater(case.reserve, 0, case.name)
        for case in found.values():
            self.assertEqual(case.config()["max_position_embeddings"], 262144)

    def test_cases_of_a_suite_are_counted(self):
        path = self.folder / "suite.json"
        none = {"passed": 0, "failed": 0, "skipped": 0}
        self.assertEqual(machine.suite_counts(path), none)
        path.write_text(json.dumps({"testsuites": [{"testsuite": [
            {"result": "COMPLETED"}, {"result": "COMPLETED"},
            {"result": "SKIPPED"},
            {"result": "COMPLETED", "failures": [{"failure": "no"}]}]}]}))
        self.assertEqual(machine.suite_counts(path),
                         {"passed": 2, "failed": 1, "skipped": 1})

    def test_memory_of_a_control_group(self):
        self.assertEqual(machine.group_memory(self.folder), [])
        (self.folder / "memory.max").write_text("max\n")
        (self.folder / "memory.current").write_text("700\n")
        self.assertEqual(machine.group_memory(self.folder), [])
        (self.folder / "memory.max").write_text("1000\n")
        self.assertEqual(machine.group_memory(self.folder), [300])
        (self.folder / "memory.stat").write_text(
            "anon 300\ninactive_file 150\nactive_file 50\n")
        self.assertEqual(machine.group_memory(self.folder), [500])
        self.assertGreater(machine.available_memory(), 0)

    def test_a_torch_without_libraries_is_refused(self):
        (self.folder / "version.py").write_text(
            "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n")
        with self.assertRaisesRegex(ValueError, "libtorch_cpu.so is missing"):
            machine.check_torch(self.folder, self.folder / "worker")

    def test_the_version_of_a_torch(self):
        with self.assertRaisesRegex(ValueError, "version.py"):
            machine.torch_version(self.folder)
        (self.folder / "version.py").write_text(
            "from typing import Optional\n__version__ = '2.11.0+cu130'\n"
            "debug = False\ncuda: Optional[str] = '13.0'\n")
        self.assertEqual(machine.torch_version(self.folder),
                         ("2.11.0+cu130", "13.0"))
        (self.folder / "version.py").write_text(
            "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n")
        self.assertEqual(machine.torch_version(self.folder),
                         ("2.11.0+cpu", None))

    def test_modules_of_the_bundle_are_ours_alone(self):
        ours = str(machine.ROOT / "lib/python")
        for path, left in ((f"{ours}:/opt/modules", "/opt/modules"),
                           (ours, None), ("/a:/b", "/a:/b")):
            with unittest.mock.patch.dict(os.environ, PYTHONPATH=path):
                self.assertEqual(
                    machine.given_environment().get("PYTHONPATH"), left)

    def test_libraries_lie_beside_torch(self):
        for name in ("torch/lib", "nvidia/cu13/lib", "nvidia/nccl/lib"):
            (self.folder / name).mkdir(parents=True)
        self.assertEqual(
            machine.library_path(self.folder / "torch"),
            ":".join(str(self.folder / name) for name in
                     ("torch/lib", "nvidia/cu13/lib", "nvidia/nccl/lib")))


class ShapesTest(Scratch):
    def test_published_shapes_have_their_parameters(self):
        for name, count in (("qwen3-1.7b", 1.72e9), ("llama3.1-8b", 8.03e9)):
            found = shapes.parameter_count(shapes.published(name))
            self.assertAlmostEqual(found / count, 1, delta=0.01)

    def test_weights_are_as_the_header_says_and_the_seed_decides(self):
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            shapes.make_model(self.folder / name, shapes.TINY, seed=seed)
        a, b, c = ((self.folder / name / "model.safetensors").read_bytes()
                   for name in "abc")
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)
        tensors = harness.read_safetensors(
            self.folder / "a/model.safetensors")
        self.assertEqual({name: shape for name, (_, shape, _)
                          in tensors.items()},
                         shapes.parameter_shapes(shapes.TINY))
        for name, (dtype, shape, data) in tensors.items():
            self.assertEqual((dtype, len(data)),
                             ("BF16", 2 * shapes.size(shape)), name)
        values = struct.unpack(
            f"<{320 * 64}f",
            harness.as_fp32(*tensors["model.embed_tokens.weight"][::2]))
        self.assertAlmostEqual(sum(values) / len(values), 0, delta=0.001)
        self.assertAlmostEqual(
            (sum(v * v for v in values) / len(values)) ** 0.5, shapes.STD,
            delta=0.001)
        self.assertEqual(struct.unpack("<64f", harness.as_fp32(
            *tensors["model.norm.weight"][::2])), (1.0,) * 64)

    def test_rows_have_as_many_tokens_as_was_asked(self):
        path = self.folder / "rows.jsonl"
        shapes.make_rows(path, 3, 50)
        tokenizer = harness.make_tokenizer()
        rows = [json.loads(line)["text"] for line in path.open()]
        self.assertEqual(len(rows), 3)
        for text in rows:
            self.assertGreaterEqual(len(tokenizer.encode(text).ids), 50)


class BenchTest(unittest.TestCase):
    def test_a_token_costs_six_flops_a_parameter_and_attention(self):
        config = shapes.published("llama3.1-8b")
        # 32 layers of 218,103,808 and the head's 128,256 x 4,096.
        matrices = 32 * 218103808 + 128256 * 4096
        attention = 3 * 4 * 32 * 4096 * 2049 / 2  # half of the pairs
        self.assertEqual(bench.flops_per_token(config, 2048, False),
                         6 * matrices + attention)
        self.assertEqual(bench.flops_per_token(config, 2048, True),
                         4 * matrices + attention)

    def test_figures_are_of_what_was_between(self):
        rates = {"h2d_registered_gbps": 2.0}
        before = {"compute": 1.0, "bubble": 1.0, "h2d": 10**9, "d2h": 0,
                  "causes": {"data": 1.0}}
        after = {"compute": 4.0, "bubble": 2.0, "h2d": 3 * 10**9, "d2h": 400,
                 "causes": {"data": 1.5, "h2d_wait": 0.5}}
        found = bench.measured(before, after, 4, 2.0,
                               {"batch_size": 8, "max_length": 64},
                               shapes.TINY, rates, 1)
        self.assertEqual(found["tokens_per_second"], 1024)
        self.assertEqual(found["step_seconds"], 0.5)
        self.assertEqual(found["bubble_ratio"], 0.25)
        self.assertEqual(found["bubble_seconds_per_step"],
                         {"data": 0.125, "h2d_wait": 0.125})
        self.assertEqual(found["h2d_bytes_per_step"], 5e8)
        self.assertEqual(found["h2d_share_of_measured_link"], 0.5)
        self.assertIsNone(found["d2h_share_of_measured_link"])
        self.assertIsNone(found["share_of_measured_matmul"])
        self.assertEqual(found["bound_reason"],
                         "there is no calibrated rate of d2h")

    def bound(self, compute, bubble, h2d, d2h, gpus=1, rates=(20.0, 10.0)):
        """What bounds a run of 10 s; bytes are in 10^9, rates are those of one
        GPU."""
        before = {"compute": 5.0, "bubble": 7.0, "h2d": 11, "d2h": 13}
        after = {"compute": 5.0 + compute, "bubble": 7.0 + bubble,
                 "h2d": 11 + h2d * 10**9, "d2h": 13 + d2h * 10**9}
        return bench.bound(before, after, 10.0, {
            f"{way}_registered_gbps": gpus * rate
            for way, rate in zip(("h2d", "d2h"), rates)}, gpus)

    def test_a_step_is_bound_by_what_takes_longer(self):
        def found(*arguments, **more):
            it = self.bound(*arguments, **more)
            self.assertNotIn("bound_reason", it)
            return tuple(it[f"bound{part}"]
                         for part in ("", "_share", "_aim", "_holds"))
        self.assertEqual(found(9.5, 0.5, 180, 90),
                         ("compute", 0.95, 0.95, True))
        self.assertEqual(found(9.0, 1.0, 100, 50),
                         ("compute", 0.9, 0.95, False))
        self.assertEqual(found(8.0, 2.0, 180, 0),
                         ("transfer", 0.9, 0.9, True))
        # The way that takes longer, not the one with more bytes.
        self.assertEqual(found(6.0, 4.0, 100, 80),
                         ("transfer", 0.8, 0.9, False))
        # Two GPUs: 20 s of theirs, and twice the link.
        self.assertEqual(found(16.0, 4.0, 300, 0, gpus=2),
                         ("compute", 0.8, 0.95, False))
        self.assertEqual(found(14.0, 6.0, 300, 0, gpus=2),
                         ("transfer", 0.75, 0.9, False))
        # Two devices that share one are no more than its time.
        self.assertEqual(found(18.0, 2.0, 210, 0)[0], "transfer")

    def test_what_bounds_a_step_that_cannot_be_told(self):
        for found, reason in (
                (self.bound(1, 1, 1, 1, rates=(0, 0)),
                 "there is no calibrated rate of h2d and d2h"),
                (self.bound(0, 0, 1, 1), "the devices counted no time as yet")):
            self.assertEqual(found, {"bound": None, "bound_reason": reason})

    def test_a_gpu_without_a_data_sheet_is_said(self):
        self.assertEqual(bench.preset_of([{"name": "NVIDIA H100 80GB HBM3"}]),
                         ("h100", 989.5))
        with self.assertRaisesRegex(Skipped, "no preset for NVIDIA T4"):
            bench.preset_of([{"name": "NVIDIA T4"}])


class FaultTest(unittest.TestCase):
    def test_one_other_byte_or_loss_is_not_identical(self):
        calm = ({"a": "1", "b": "2"}, [(1, 0.5, 2.0)])
        self.assertTrue(fault.compare(calm, calm)["bit_identical"])
        other = fault.compare(calm, ({"a": "1", "b": "3"}, [(1, 0.5, 2.0)]))
        self.assertFalse(other["bit_identical"])
        self.assertEqual(other["differing_files"], ["b"])
        missing = fault.compare(calm, ({"a": "1"}, [(1, 0.5, 2.0)]))
        self.assertEqual(missing["differing_files"], ["b"])
        losses = fault.compare(calm, (calm[0], [(1, 0.25, 2.0)]))
        self.assertFalse(losses["bit_identical"])
        self.assertFalse(losses["losses_equal"])

    def recovery(self, total, count):
        name = "roundhouse_recovery_duration_seconds_"
        pages = {name + "sum": {(): total}, name + "count": {(): count}}
        with unittest.mock.patch.object(
                jobs, "series", side_effect=lambda _, name: pages[name]):
            return fault.wait_for_recovery(None)

    def test_a_recovery_is_a_figure_and_no_failure(self):
        self.assertEqual(self.recovery(3.0, 2.0), 1.5)
        with unittest.mock.patch.object(fault, "RECOVERY_SECONDS", 0):
            self.assertIsNone(self.recovery(0.0, 0.0))


class OrderTest(unittest.TestCase):
    def left(self, seconds, sections=None, name="bench"):
        """What a section may take, and the one after bench."""
        sections = list(check.SECTIONS) if sections is None else sections
        run = check.Run(types.SimpleNamespace(
            seconds=seconds + check.RESERVE_SECONDS, rehearse=False,
            sections=sections), None)
        def look(run, details):
            details["left"] = run.left()
            details["alarm"], _ = check.signal.getitimer(
                check.signal.ITIMER_REAL)
        with (unittest.mock.patch.dict(check.SECTIONS,
                                       {name: look, "growth": look}),
              unittest.mock.patch("builtins.print")):
            found = [check.run_section(each, run)["details"]
                     for each in (name, "growth")]
        return [round(details.get("left", -1)) for details in found] + [
            round(found[0].get("alarm", -1))]

    def test_bench_comes_before_what_may_be_lost(self):
        self.assertEqual(list(check.SECTIONS), [
            "machine", "calibration", "conformance", "gradients", "parity",
            "fault", "device_fault", "lending", "bench", "sanitizer", "fp16",
            "peers", "growth"])
        self.assertEqual(list(check.BUDGETS), list(check.SECTIONS))

    def test_bench_leaves_the_others_their_least(self):
        behind = 20 + 15 + 30 + 30
        self.assertEqual(self.left(400), [400 - behind, 400, 400 - behind])
        self.assertEqual(self.left(400, ["bench", "growth"])[0], 370)
        self.assertEqual(self.left(400, ["machine", "bench"])[0], 400)
        # As far as it has its own.
        self.assertEqual(self.left(100)[0], 30)
        self.assertEqual(self.left(29)[0], -1)
        self.assertEqual(self.left(400, name="fault")[0], 400)


class LendingTest(Scratch):
    def loan(self, seconds, left=0):
        return {"device": 1, "seconds": seconds, "left_bytes": left}

    def test_slots_that_are_done_are_read(self):
        path = self.folder / "samples.csv"
        path.write_text("dispatch,5\nslot,0,1000000000,1500000000,1,2,3,4\n"
                        "layer,0,1,2\nslot,1,0,2000000000,1,2,3,4\n"
                        "slot,1,0,9000000000,1,2,3")
        self.assertEqual(lending.slots(path), [0.5, 2.0])

    def test_a_slot_and_a_second_are_allowed(self):
        self.assertEqual(lending.judge([self.loan(1.4)], 0.5), [])
        wrong, = lending.judge([self.loan(1.0), self.loan(1.6)], 0.5)
        self.assertIn("device 1 was free 1.60 s after the request; a slot took "
                      "0.50 s at most", wrong)

    def test_memory_that_is_not_free_is_a_failure(self):
        self.assertEqual(lending.judge(
            [self.loan(0, None), self.loan(0, lending.SLACK_BYTES)], 1), [])
        wrong, = lending.judge([self.loan(0, lending.SLACK_BYTES + 1)], 1)
        self.assertIn("67108865 bytes of the GPU of device 1", wrong)

    def test_memory_of_a_gpu_that_is_the_devices_alone(self):
        gpus = [{"index": index, "uuid": f"GPU-{index}"}
                for index in (3, 0, 3)]
        self.assertEqual([lending.alone_on(gpus, index)
                          for index in range(4)],
                         [None, "GPU 0", None, None])
        self.assertEqual(lending.left_bytes({"GPU 0": 5}, {"GPU 0": 7},
                                            "GPU 0"), 2)
        self.assertIsNone(lending.left_bytes({}, {"GPU 0": 7}, "GPU 0"))
        self.assertIsNone(lending.left_bytes({"GPU 0": 5}, {"GPU 0": 7}, None))

    def lent(self, devices):
        """What is asked of a daemon with so many devices and a job."""
        asked = []
        run = types.SimpleNamespace(
            gpus=[], options=types.SimpleNamespace(rehearse=True))
        with (unittest.mock.patch.multiple(
                lending, lend=lambda _, index: asked.append(
                    f"lend {index}") or 0.1,
                give_back=lambda _, index, __: asked.append(
                    f"return {index}") or 0.2,
                go_on=lambda _, __, steps, ___: asked.append(
                    f"{steps} steps"), LOANS=2),
              unittest.mock.patch.multiple(
                  jobs, devices=lambda _: devices * [{}],
                  must_run=lambda *_: asked.append("it runs"))):
            loans = lending.lend_in_turn(run, None, "job", {}, 0)
        self.assertEqual([loan["seconds"] for loan in loans], [0.1, 0.1])
        return asked

    def test_a_job_goes_on_with_the_others_or_waits(self):
        self.assertEqual(self.lent(2), [
            "lend 0", "1 steps", "return 0", "2 steps",
            "lend 1", "1 steps", "return 1", "2 steps"])
        self.assertEqual(self.lent(1), [
            "lend 0", "it runs", "return 0", "2 steps"] * 2)


class DeathTest(unittest.TestCase):
    LOG = ("W roundhouse device worker 0 exited with status 1; its last words\n"
           "E roundhouse device worker 0 device is lost: cudaEventSynchronize: "
           "cudaErrorLaunchFailure (719); this process ends\n")

    def test_the_end_and_the_words_are_found(self):
        ended, words = fault.words_of_the_death(self.LOG)
        self.assertEqual(ended, "exited with status 1")
        self.assertIn("cudaErrorLaunchFailure", words)
        ended, words = fault.words_of_the_death(
            "what():  CUDA error: unspecified launch failure\n"
            "device worker 0 killed by signal 6; its last words:\n")
        self.assertEqual(ended, "killed by signal 6")
        self.assertEqual(words, "CUDA error: unspecified launch failure")

    def test_one_that_did_not_end_or_ended_otherwise_is_a_failure(self):
        for log, words in (
                ("", "did not end"),
                (self.LOG.replace("worker 0 exited", "worker 1 exited"),
                 "did not end"),
                (self.LOG.replace("is lost", "is well"),
                 "exited with status 1.* did not say")):
            with self.assertRaisesRegex(Failed, words):
                fault.words_of_the_death(log)


class PeersTest(Scratch):
    def gpus(self, *masks):
        return [{"index": index, "uuid": f"GPU-{index}",
                 **({} if mask is None else {"peers": mask})}
                for index, mask in enumerate(masks)]

    def test_who_reaches_whom_is_as_the_probe_says(self):
        found = machine.parse_probe(PROBE.replace(
            "gpu=2", "peers=36\ngpu=2"))["gpus"][0]
        self.assertEqual(peers.reached(found), [2, 5])
        gpus = self.gpus(0b110, 0, None)
        self.assertEqual(peers.reach_words(gpus), {
            "GPU 0 reaches": "GPU 1, GPU 2", "GPU 1 reaches": "none",
            "GPU 2 reaches": "not known"})
        for masks, all_reach in (
                ((0b110, 0b101, 0b011), True), ((0b110, 0b101, 0b001), False),
                ((0b10, None), False), ((0b0,), False), ((), False),
                ((0b1110, 0b1101), True)):  # others may be there
            self.assertEqual(peers.all_reach(self.gpus(*masks)), all_reach,
                             masks)

    def test_one_gpu_as_two_devices_is_skipped(self):
        gpu = {"index": 3, "uuid": "GPU-3", "peers": 0}
        run = types.SimpleNamespace(
            gpus=[gpu, gpu], options=types.SimpleNamespace(rehearse=False))
        details = {}
        with self.assertRaisesRegex(Skipped, "two devices on one GPU"):
            peers.check(run, details)
        self.assertEqual(details, {"GPU 3 reaches": "none"})

    def test_the_group_that_is_there_is_the_last_one(self):
        formed = "I 2 devices add up sums of wide slots between them (group {})"
        over = ("W the devices add up no sums between them (group {}): the "
                "worker of device 0 is gone")
        for lines, group in (
                ([], None), (["device 0 is lost"], None),
                ([formed.format(1)], (2, 1)),
                ([formed.format(1), over.format(1)], None),
                ([over.format(1), formed.format(12)], (2, 12))):
            self.assertEqual(peers.group_in("\n".join(lines)), group, lines)
        with self.assertRaisesRegex(Failed, "no group: .* is gone; not tried"):
            peers.group_in(over.format(3) + "; not tried again\n")

    def test_a_group_that_does_not_come_is_a_failure(self):
        log = self.folder / "daemon.log"
        log.write_text("3 devices add up sums of wide slots between them "
                       "(group 2)\n")
        daemon = types.SimpleNamespace(log_path=log, tail=lambda lines: "words",
                                       ended=lambda: False)
        self.assertEqual(peers.wait_for_group(daemon, 3), 2)
        self.assertEqual(peers.wait_for_group(daemon, 3, after=1), 2)
        with self.assertRaisesRegex(Failed, "3 of 4 devices"):
            peers.wait_for_group(daemon, 4)
        with unittest.mock.patch.object(peers, "GROUP_SECONDS", 0):
            with self.assertRaisesRegex(Failed, "within 0 s:\nwords"):
                peers.wait_for_group(daemon, 3, after=2)
        daemon.ended = lambda: True
        with self.assertRaisesRegex(Failed, "the daemon ended"):
            peers.wait_for_group(daemon, 3, after=2)

    def test_figures_are_of_the_job_alone(self):
        before = {"exchanges": 10, "failed_exchanges": 1,
                  "d2h_gradient_bytes": 1000.0}
        after = {"exchanges": 70, "failed_exchanges": 1,
                 "d2h_gradient_bytes": 7000.0}
        seconds = [9.0] * peers.WARM_UP_STEPS + [2.0, 3.0, 8.0]
        found = peers.figures(before, after,
                              [{"step_seconds": step} for step in seconds])
        self.assertEqual(found, {"step_seconds": 3.0, "exchanges": 60,
                                 "d2h_gradient_bytes_per_step": 6000 / 7,
                                 "failed_exchanges": 0})

    def test_the_plan_is_of_all_layers_and_as_wide_as_there_are_devices(self):
        self.assertEqual(peers.wide_plan(6, 3), {
            "forward": [[0, 2]], "backward": [[3, 6], [0, 2]], "width": 3})

    def entry(self, run, **changes):
        return {"run": run, "determinism": "fast", "bit_identical": True,
                "differing_files": [], "losses_equal": True,
                "exchanges": 0 if run == "off" else 9,
                "failed_exchanges": 0, **changes}

    def test_what_is_wrong_is_said(self):
        good = [self.entry(peers.KILLED, failed_exchanges=2),
                *map(self.entry, ("on", "off", "auto"))]
        self.assertEqual(peers.wrong_with(good, 3), [])
        # Two sums in bf16 go to the host apart.
        self.assertEqual(len(peers.wrong_with(good, 2)), 3)
        self.assertEqual(peers.wrong_with(
            [self.entry("on", exchanges=0), good[2]], 2), [])
        for run, changes, words in (
                ("on", {"bit_identical": False, "differing_files": ["a"]},
                 "on (fast): the checkpoint differs from that without "
                 "exchanges: ['a'], losses equal: True"),
                ("auto", {"exchanges": 0}, "auto (fast): no sums were"),
                (peers.KILLED, {"exchanges": 0}, "killed (fast): no sums were"),
                ("on", {"failed_exchanges": 1}, "1 exchanges failed"),
                ("off", {"exchanges": 1}, "off (fast): there were exchanges")):
            wrong = peers.wrong_with([*good, self.entry(run, **changes)], 3)
            self.assertEqual(len(wrong), 1)
            self.assertIn(words, wrong[0])

    def test_each_run_is_compared_with_its_own_without_exchanges(self):
        runs = peers.Runs([{"run": run, "determinism": determinism}
                           for run, determinism in (
                               ("on", "bitwise"), ("on", "fast"),
                               ("off", "bitwise"), ("off", "fast"))])
        runs.left = [({"a": digest}, []) for digest in "1312"]
        runs.compare()
        self.assertEqual([entry["bit_identical"] for entry in runs.entries],
                         [True, False, True, True])
        self.assertEqual(runs.entries[1]["differing_files"], ["a"])


class Fp16Test(unittest.TestCase):
    FULL = [{"loss": 6.0 - step / 10, "grad_norm": 1.0} for step in range(8)]

    def half(self, skipped=1, off=0.0, scale=None):
        """Steps whose scale is too high, then those of FULL."""
        after = fp16.INITIAL_SCALE * 0.5 ** skipped
        return [{"loss": 6.0, "loss_scale": after if scale is None else scale}
                ] * skipped + [
                    {"loss": step["loss"] + off, "grad_norm": 1.0,
                     "loss_scale": after if scale is None else scale}
                    for step in self.FULL]

    def test_the_steps_after_the_skipped_ones_are_those_of_fp32(self):
        details, wrong = fp16.compare(self.half(skipped=2), self.FULL)
        self.assertEqual(wrong, [])
        self.assertEqual(details["skipped_steps"], 2)
        self.assertEqual(details["last_loss_scale"], 16384)
        self.assertEqual(details["most_apart"], 0)

    def test_what_is_wrong_is_said(self):
        for half, words in (
                (self.half(skipped=0), "nothing overflowed"),
                (self.half(skipped=9), "9 of 17 steps were skipped"),
                (self.half(scale=65536), "scale is 65536 after 1 skipped"),
                (self.half(off=0.3), "0.0500 first losses from fp32's"),
                (self.half(off=math.inf), "a loss is not finite"),
                (self.half() + [{"loss": 6.5, "grad_norm": 1.0,
                                 "loss_scale": 32768}],
                 "the loss did not fall")):
            self.assertIn(words, "; ".join(fp16.compare(half, self.FULL)[1]))


class ReportTest(unittest.TestCase):
    def test_cells(self):
        self.assertEqual([report.cell(value) for value in
                          (None, 0.123456, 12345.6, 7, "a|b\nc")],
                         ["-", "0.1235", "12,346", "7", "a\\|b c"])

    def test_runs_of_sums_between_devices(self):
        entry = {"run": "on", "determinism": "fast", "step_seconds": 0.5,
                 "d2h_gradient_bytes_per_step": 3 * 2**20, "exchanges": 9,
                 "failed_exchanges": 0}
        off = {**entry, "run": "off", "exchanges": 0, "bit_identical": True}
        lines = report.peers_lines({"sections": [{
            "name": "peers", "details": {"devices": 2, "runs": [
                {**entry, "bit_identical": True},
                {**entry, "bit_identical": False}, entry, off]}}]})
        self.assertIn("| devices | 2 |", lines)
        for words in ("| on | fast | 0.5 | 3 | 9 | 0 | same |",
                      "| on | fast | 0.5 | 3 | 9 | 0 | others |",
                      "| on | fast | 0.5 | 3 | 9 | 0 | - |",
                      "| off | fast | 0.5 | 3 | 0 | 0 | - |"):
            self.assertIn(words, lines)
        self.assertEqual(report.peers_lines({"sections": [
            {"name": "peers", "details": {}}]}), [])

    def test_bounds_and_longest_rows(self):
        cases = [
            {"bound": "compute", "bound_share": 0.9716, "bound_aim": 0.95,
             "bound_holds": True},
            {"bound": "transfer", "bound_share": 0.899, "bound_aim": 0.9,
             "bound_holds": False},
            {"bound": None, "bound_reason": "no calibration"},
            {"predicted": {"longest_sequence": 174080},
             "published_thousand_tokens": 73,
             "tries": {"174080": "failed: a\nb", "87040": "passed",
                       "130560": "skipped: no"}},
            {"predicted": {"longest_sequence": 640},
             "tries": {"640": "skipped: no"}}]
        text = "\n".join(report.bench_lines({
            "rehearsal": False, "sections": [{"name": "bench", "details": {
                "cases": [{"case": f"c{i}", "status": "passed", "reason": "",
                           **case} for i, case in enumerate(cases)]}}]}))
        for words in ("| planned | bound |",
                      "| compute, 97.2 % of 95 asked: holds |",
                      "| transfer, 89.9 % of 90 asked: missed |",
                      "- c2: what bounds it is not known: no calibration",
                      "arXiv 2604.27085",
                      "| c3 | 174080 | 87040 | 73 thousand | 174080: failed: "
                      "a b; 87040: passed; 130560: skipped: no |",
                      "| c4 | 640 | - | - | 640: skipped: no |"):
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
