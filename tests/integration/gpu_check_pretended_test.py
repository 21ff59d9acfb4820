"""deploy/gpu-check where it believes in a GPU: a probe that names one, workers
that only wait (tests/fakes/fake_worker), suites and calibration that answer.
What it does with a real one is not tested anywhere yet."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).absolute().parents[2]
# Its shapes are for GPUs: tiny ones in their place.
CHECK = f"""
import sys
sys.path[:0] = [{str(ROOT / "deploy/gpu-check.d")!r}]
import check
import bench
import fault
import growth
import shapes
check.BUDGETS["conformance"] = (8, 1)
check.CUDA_BIN = "/nowhere"
shapes.SMALL, fault.ON_GPU = shapes.TINY, fault.REHEARSED
growth.STEPS = {{"cuda": (10, 60)}}
check.SANITIZER_SECONDS = 2
shapes.TINY["max_position_embeddings"] = 512
for case in bench.CASES["cuda"]:
    case.shape = "tiny"
    case.fields = {{**case.fields, **bench.SHORT}}
sys.exit(check.main())
"""
GPU = """roundhouse-gpus 1
driver=580.65.06
gpu=0
uuid=GPU-00-0
name=NVIDIA GeForce RTX 4090
memory_total_bytes=25757220864
memory_free_bytes=25000000000
end=1
"""
COSTS = "layer,forward_ms,recompute_ms,backward_ms\n" + "".join(
    f"{layer},0.5,{0 if layer == 4 else 0.5},1\n" for layer in range(5))
RATES = {"h2d_registered_gbps": 20.0, "d2h_registered_gbps": 20.0,
         "matmul_bf16_tflops": 150.0}
SUITES = ("worker/device/cuda/cuda_device_test",
          "worker/model/cuda/cuda_parity_test",
          "worker/model/cuda/cuda_fused_test")


class PretendedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.programs = self.folder / "programs"
        self.add("server/roundhoused").symlink_to(
            ROOT / "server/roundhoused")
        # Rows of 512 tokens find no memory.
        self.calls = self.folder / "calls"
        self.script("client/roundhouse", f"""echo "$*" >> {self.calls}
case "$*" in *" submit "*bench.yaml*)
  if grep -q '"max_length": 512' "$4"; then
    echo 'too long' >&2
    exit 7
  fi
esac
exec {ROOT}/client/roundhouse "$@\"""")
        costs = self.folder / "costs.csv"
        costs.write_text(COSTS)
        self.script("worker/roundhouse-worker",
                    f'exec "{ROOT}/tests/fakes/fake_worker" '
                    f'"--costs={costs}" "$@"')
        self.script("worker/probe/roundhouse-gpu-probe",
                    f"cat <<'END'\n{GPU}END")
        for suite in SUITES:
            self.script(suite, f'[ "$CUDA_VISIBLE_DEVICES" = GPU-00-0 ] && '
                        f'exec {ROOT}/worker/device/cpu/cpu_device_test "$@"')
        self.script("tests/parity/cuda_goldens_test",
                    f'exec {ROOT}/tests/parity/device_goldens_test '
                    '--gtest_filter="CpuFused/*.Fp32/*" "$@"')
        self.sanitizer("")
        self.script("worker/model/cuda/roundhouse-gpu-calibrate",
                    f"echo '{json.dumps(RATES)}'")

    def add(self, program):
        path = self.programs / program
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def script(self, program, line):
        path = self.add(program)
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o700)

    def sanitizer(self, before, after=""):
        """Runs what it is given, as the real one does."""
        self.script("bin/compute-sanitizer",
                    before + '\nwhile [ "${1#--}" != "$1" ]; do shift; done\n'
                    '"$@" || exit\n' + after)

    def check(self, *arguments):
        """(exit status, sections by name)"""
        out = self.folder / "out"
        done = subprocess.run(
            [sys.executable, "-B", "-c", CHECK, f"--out={out}",
             f"--programs={self.programs}", "--devices=cuda:0", *arguments],
            capture_output=True, text=True, check=False,
            env={**os.environ,
                 "PATH": f"{self.programs}/bin:{os.environ['PATH']}"})
        self.assertIn(done.returncode, (0, 1), done.stderr)
        report = json.loads((out / "report.json").read_text())
        self.assertFalse(report["rehearsal"])
        self.markdown = (out / "report.md").read_text()
        return done.returncode, {s["name"]: s for s in report["sections"]}

    def test_all_sections_come_to_their_figures(self):
        status, sections = self.check(
            "--sections=machine,conformance,gradients,sanitizer,fault,"
            "device_fault,lending,growth,calibration,bench")
        self.assertEqual(status, 0, sections)
        for name in ("machine", "conformance", "gradients", "sanitizer",
                     "fault", "device_fault", "lending", "growth",
                     "calibration", "bench"):
            self.assertEqual(sections[name]["status"], "passed", sections)
        self.assertEqual(sections["calibration"]["details"], RATES)
        self.assertEqual([s["suite"] for s in
                          sections["conformance"]["details"]["suites"]],
                         list(SUITES))
        self.assertEqual(sections["growth"]["details"]["GPU 0, bytes more"], 0)
        # One device: the job waits, and goes on.
        self.assertEqual(sections["lending"]["details"]["devices"], 1)
        self.assertEqual(sections["lending"]["details"]["bytes_left_on_a_gpu"],
                         0)
        cases = sections["bench"]["details"]["cases"]
        self.assertEqual({case["status"] for case in cases}, {"passed"}, cases)
        for case in cases:
            self.measured(case, 2 if "two devices" in case["case"] else 1)
        self.longest_rows(cases)
        self.assertGreater(sections["fault"]["details"]["recovery_seconds"], 0)
        self.assertIn("| recovery seconds | ", self.markdown)
        self.assertNotIn("rehearsal", self.markdown)

    def longest_rows(self, cases):
        found = [case for case in cases if "tries" in case]
        self.assertEqual([case["case"] for case in found],
                         ["Qwen3-1.7B full, longest rows",
                          "Llama-3.1-8B LoRA, longest rows"])
        for case, published in zip(found, (73, 49)):
            self.assertEqual(case["tries"], {
                "512": "skipped: refused at submit: too long",
                "384": "passed", "448": "passed"})
            self.assertEqual(case["spec"]["max_length"], 448)
            self.assertAlmostEqual(
                case["tokens_per_second"] * case["step_seconds"],
                case["spec"]["batch_size"] * 448, places=3)
            self.assertIn(f"| 448 | {published} thousand | 512: skipped: "
                          "refused at submit: too long; 384: passed; 448: "
                          "passed |", self.markdown)
        # One at a time.
        words = self.calls.read_text().splitlines()
        self.assertTrue("".join(
            "c" if " cancel " in line else "s" for line in words
            if " cancel " in line or "bench.yaml" in line).endswith(
                2 * "sscsc"), words)

    def measured(self, case, devices):
        # A card of 24 GiB as the driver counts, less 2 GiB for each worker.
        self.assertEqual(case["device_memory_bytes"],
                         25757220864 // devices - 2 * (1 << 30))
        if devices == 1:
            self.assertEqual(case["predicted"]["devices"], "1xrtx4090:23.99GiB")
        else:
            self.assertIn("share", case["predicted"]["reason"])
        # There is one GPU, however many devices it is.
        self.assertAlmostEqual(case["mfu"] * 165.2, case["model_tflops"])
        self.assertAlmostEqual(case["share_of_measured_matmul"] * 150,
                               case["model_tflops"])
        self.assertAlmostEqual(
            case["h2d_share_of_measured_link"] * 20e9
            * case["step_seconds"] / case["h2d_bytes_per_step"], 1)
        # Its copies take no time.
        self.assertEqual((case["bound"], case["bound_aim"]), ("compute", 0.95))
        self.assertAlmostEqual(case["bound_share"], 1 - case["bubble_ratio"])
        self.assertEqual(case["bound_holds"], case["bound_share"] >= 0.95)
        self.assertIn(f"compute, {100 * case['bound_share']:.1f} % of 95 asked",
                      self.markdown)

    def test_what_the_sanitizer_finds_is_a_failure(self):
        for status, ends in ((0, "passed"), (9, "failed")):
            self.sanitizer('echo "$@" >&2', f'echo "1 error"; exit {status}')
            found, sections = self.check("--sections=machine,sanitizer")
            self.assertEqual(found, status != 0)
            self.assertEqual(sections["sanitizer"]["status"], ends)
        for words in ("--tool=memcheck", SUITES[0], "1 error"):
            self.assertIn(words, sections["sanitizer"]["reason"])
        # A suite that takes too long doesn't undo what the first one showed.
        for late, ends in ((SUITES[0], "skipped"), (SUITES[2], "passed")):
            self.sanitizer(
                'case "$*" in *' + late + "*) sleep 1000;; esac")
            found, sections = self.check("--sections=machine,sanitizer")
            self.assertEqual(found, 0)
            section = sections["sanitizer"]
            self.assertEqual(section["status"], ends)
            self.assertIn(late + " was not over", section["reason"]
                          or section["details"]["not_over"])
        # One that starts nothing finds nothing.
        self.script("bin/compute-sanitizer", "echo 0 errors; exit 0")
        found, sections = self.check("--sections=machine,sanitizer")
        self.assertEqual(found, 0)
        self.assertEqual(sections["sanitizer"]["status"], "skipped")
        self.assertIn("no case of " + SUITES[0] + " had run",
                      sections["sanitizer"]["reason"])
        self.programs.joinpath("bin/compute-sanitizer").unlink()
        found, sections = self.check("--sections=machine,sanitizer")
        self.assertEqual(found, 0)
        self.assertIn("no compute-sanitizer on PATH",
                      sections["sanitizer"]["reason"])

    def test_a_section_without_end_fails_in_time(self):
        self.script(SUITES[0], "exec sleep 1000")
        status, sections = self.check("--sections=machine,conformance")
        self.assertEqual(status, 1)
        self.assertEqual(sections["conformance"]["status"], "failed")
        self.assertEqual(sections["conformance"]["reason"],
                         "no end within 8 s")

    def test_a_suite_that_skips_everything_has_not_passed(self):
        for suite in SUITES:
            self.script(suite, "exit 0")
        status, sections = self.check("--sections=machine,conformance")
        self.assertEqual(status, 1)
        self.assertIn("0 of its cases failed, 0 passed",
                      sections["conformance"]["reason"])

    def test_gradients_that_are_not_transformers_are_a_failure(self):
        for script, words in (
                ("""cat <<'END'
Fp32/0      model.norm.weight       2.00e-05  limit 1.00e-05  own 1.37e-06
[  FAILED  ] Cuda/DeviceGoldens.Fp32/0, where GetParam() = a device
END
exit 1""", "Cuda/DeviceGoldens.Fp32/0"), ("exit 0", "0 passed")):
            self.script("tests/parity/cuda_goldens_test", script)
            status, sections = self.check("--sections=machine,gradients")
            self.assertEqual(status, 1)
            section = sections["gradients"]
            self.assertEqual(section["status"], "failed")
            self.assertIn(words, section["reason"])
            if section["details"]:
                self.assertIn("2.00e-05 of 1.00e-05 allowed", self.markdown)

    def test_a_gpu_that_is_lost_is_a_failure(self):
        self.script("worker/probe/roundhouse-gpu-probe",
                    "printf 'roundhouse-gpus 1\\ngpu=0\\n"
                    "fault=GPU is lost\\nend=1\\n'")
        status, sections = self.check()
        self.assertEqual(status, 1)
        self.assertIn("no GPU 0 that can be used",
                      sections["machine"]["reason"])
        for name in ("conformance", "gradients", "sanitizer", "parity",
                     "fault", "lending", "peers", "growth", "calibration",
                     "bench"):
            self.assertEqual(sections[name]["status"], "skipped")
            self.assertEqual(sections[name]["reason"], "no GPU was found")
        self.assertIn("GPU is lost", self.markdown)


if __name__ == "__main__":
    unittest.main()
