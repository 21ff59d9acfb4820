"""deploy/gpu-check's rehearsal: all its sections over the real daemon, workers
and client on CPU devices, and what becomes of one that fails."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).absolute().parents[2]
CHECK = ROOT / "deploy/gpu-check.d/check.py"
SECTIONS = ["machine", "calibration", "conformance", "gradients", "parity",
            "fault", "device_fault", "lending", "bench", "sanitizer", "fp16",
            "peers", "growth"]
SUITE = "worker/device/cpu/cpu_device_test"
PROGRAMS = ("server/roundhoused", "client/roundhouse",
            "worker/roundhouse-worker", "worker/probe/roundhouse-gpu-probe",
            SUITE, "tests/parity/device_goldens_test")
GPU = """roundhouse-gpus 1
driver=580.65.06
gpu=0
uuid=GPU-00-0
name=NVIDIA GeForce RTX 4090
memory_total_bytes=25757220864
pcie_generation=1
pcie_max_generation=4
pcie_width=8
pcie_max_width=16
end=1
"""
TWO_GPUS = """roundhouse-gpus 1
driver=580.65.06
gpu=0
uuid=GPU-00-0
name=NVIDIA GeForce RTX 4090
memory_total_bytes=4294967296
peers=2
gpu=1
uuid=GPU-00-1
name=NVIDIA GeForce RTX 4090
memory_total_bytes=4294967296
peers=1
end=2
"""
# For which the daemon takes CPU devices, between which `auto` would choose
# nothing.
DAEMON = f"""for word; do
  shift
  case $word in
    --devices=cuda:0,1) word=--devices=cpu:2 ;;
    --peers=auto) word=--peers=on ;;
  esac
  set -- "$@" "$word"
done
exec {ROOT}/server/roundhoused "$@"
"""
REHEARSED = (CHECK, "--rehearse")
PRETENDED = ("-c", f"""
import sys
sys.path[:0] = [{str(CHECK.parent)!r}]
import check, fault, jobs, shapes
shapes.SMALL, fault.ON_GPU = shapes.TINY, fault.REHEARSED
jobs.host_memory = lambda: 256 << 20
sys.exit(check.main())
""")


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, *arguments, how=REHEARSED):
        """(exit status, report, what it printed)"""
        out = self.folder / "out"
        done = subprocess.run(
            [sys.executable, "-B", *how, f"--out={out}", *arguments],
            capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        report = json.loads((out / "report.json").read_text())
        self.assertEqual(report["schema"], "roundhouse-gpu-check/1")
        self.assertEqual(report["rehearsal"], "--rehearse" in how)
        self.assertEqual([s["name"] for s in report["sections"]], SECTIONS)
        self.markdown = (out / "report.md").read_text()
        return (done.returncode, {s["name"]: s for s in report["sections"]},
                done.stdout)

    def programs(self, **scripts):
        """A folder as bazel-bin, with some of the programs replaced."""
        folder = self.folder / "programs"
        for program in PROGRAMS:
            path = folder / program
            path.parent.mkdir(parents=True, exist_ok=True)
            script = scripts.get(path.name.replace("-", "_"))
            if script is None:
                path.symlink_to(ROOT / program)
            else:
                path.write_text(f"#!/bin/sh\n{script}\n")
                path.chmod(0o700)
        return f"--programs={folder}"

    def test_a_rehearsal_passes_and_says_what_it_skips(self):
        status, sections, printed = self.check()
        self.assertEqual(status, 0, (sections, printed))
        found = {name: s["status"] for name, s in sections.items()}
        # A machine may have a driver, and its python3 transformers.
        if found["machine"] == "skipped":
            self.assertIn("roundhouse-gpu-probe: ",
                          sections["machine"]["reason"])
        if found["parity"] == "skipped":
            self.assertIn("python3: ", sections["parity"]["reason"])
        self.assertEqual(
            {**found, "machine": "", "parity": ""},
            {"machine": "", "conformance": "passed", "sanitizer": "skipped",
             "gradients": "passed", "parity": "", "fault": "passed",
             "device_fault": "passed", "lending": "passed",
             "peers": "passed", "fp16": "passed", "growth": "passed",
             "calibration": "skipped", "bench": "passed"},
            sections)
        self.assertGreater(sections["machine"]["details"]["host"]["cores"], 0)
        for name in ("sanitizer", "calibration"):
            self.assertIn("needs a GPU", sections[name]["reason"])
        for name, section in sections.items():
            self.assertIn(name, printed)
            self.assertIn(f"| {name} | {section['status']} |", self.markdown)
            self.assertIn(section["reason"], self.markdown)
        self.assertIn("Rehearsal", self.markdown)
        self.suites_ran(sections["conformance"]["details"])
        self.gradients_are_transformers(sections["gradients"]["details"])
        self.assertGreaterEqual(sections["fault"]["details"]["kills"], 1)
        self.assertGreater(sections["fault"]["details"]["recovery_seconds"], 0)
        self.assertIn("| recovery seconds | ", self.markdown)
        self.same_bits(sections["fault"]["details"])
        self.one_device_broke(sections["device_fault"]["details"])
        self.devices_were_lent(sections["lending"]["details"])
        self.sums_cross_between_devices(sections["peers"]["details"])
        self.trains_in_fp16(sections["fp16"]["details"])
        self.holds_no_more(sections["growth"]["details"])
        for case in sections["bench"]["details"]["cases"]:
            self.measured(case)

    def gradients_are_transformers(self, details):
        for test in ("Fp32", "Bf16", "PackedFp32", "PackedBf16",
                     "Fp16WithALossScale"):
            for kind in ("token losses", "step loss", "gradients"):
                words = details[f"{test}, {kind}"]
                self.assertRegex(words, r"^\S+ of \S+ allowed, worst of \d+$")
                self.assertIn(words, self.markdown)
        # Twelve models and seven adapters are computed in two ways.
        self.assertTrue(details["Fp32, step loss"].endswith(" of 38"))

    def suites_ran(self, details):
        suite, = details["suites"]
        self.assertEqual(suite["suite"], SUITE)
        self.assertGreater(suite["passed"], 5)
        self.assertEqual((suite["failed"], suite["skipped"]), (0, 0))

    def same_bits(self, details):
        self.assertTrue(details["bit_identical"])
        self.assertEqual(details["differing_files"], [])
        self.assertGreaterEqual(details["replayed_slots"], 1)
        self.assertGreaterEqual(len(details["files"]), 1)

    def one_device_broke(self, details):
        self.same_bits(details)
        self.assertEqual(details["replaced_workers"], ["0"])
        self.assertIn("exited with status 1", details["ended"])
        self.assertIn("device is lost: a fault was injected",
                      details["words"])

    def devices_were_lent(self, details):
        self.assertEqual((details["devices"], details["loans"]), (2, 4))
        self.assertGreater(details["longest_slot_seconds"], 0)
        for loan in details["of_each"]:
            self.assertLessEqual(loan["seconds"],
                                 1 + details["longest_slot_seconds"])
        self.assertIn("| most seconds to the workers end | ", self.markdown)

    def sums_cross_between_devices(self, details, auto=False):
        self.assertEqual(details["devices"], 2)
        self.assertGreaterEqual(details["kills"], 1)
        self.assertGreaterEqual(details["replayed_slots"], 1)
        self.assertGreaterEqual(details["groups_formed"], 2)
        runs = {(entry["run"], entry["determinism"]): entry
                for entry in details["runs"]}
        self.assertEqual(list(runs), [
            ("on, a worker killed", "bitwise"), ("on", "bitwise"),
            ("on", "fast"), ("off", "bitwise"), ("off", "fast"),
            *([("auto", "bitwise")] if auto else [])])
        for entry in runs.values():
            self.assertTrue(entry["bit_identical"])
            self.assertGreater(entry["step_seconds"], 0)
        # One sum in fp32 is left of two in fp32, or of two in bf16.
        sent = {key: entry["d2h_gradient_bytes_per_step"]
                for key, entry in runs.items()}
        self.assertEqual(2 * sent["on", "bitwise"], sent["off", "bitwise"])
        self.assertEqual(sent["on", "fast"], sent["off", "fast"])
        self.assertEqual(self.markdown.count(" | same |"), 4 if auto else 3)

    def test_gpus_that_reach_each_other(self):
        status, sections, printed = self.check(
            "--sections=machine,peers",
            self.programs(roundhouse_gpu_probe=f"cat <<'E'\n{TWO_GPUS}E",
                          roundhoused=DAEMON), how=PRETENDED)
        self.assertEqual(status, 0, printed)
        details = sections["peers"]["details"]
        self.assertEqual(
            [details[name] for name in ("GPU 0 reaches", "GPU 1 reaches",
                                        "auto")],
            ["GPU 1", "GPU 0", "it chose exchanges"])
        self.sums_cross_between_devices(details, auto=True)

    def trains_in_fp16(self, details):
        self.assertEqual(details["steps"], 40)
        self.assertEqual(details["skipped_steps"], 1)
        self.assertEqual(details["last_loss_scale"], 32768)
        self.assertLess(details["most_apart"], 0.005)

    def holds_no_more(self, details):
        self.assertEqual(details["steps"], 300)
        for process in ("daemon", "worker 0", "worker host"):
            self.assertGreater(details[f"{process}, bytes"], 0)
            self.assertLess(details[f"{process}, bytes more"], 16 << 20)

    def measured(self, case):
        self.assertEqual(case["status"], "passed", case)
        if "tries" in case:
            self.assertEqual(case["tries"], {"128": "passed"})
        self.assertGreaterEqual(case["steps"], 1)
        for figure in ("step_seconds", "tokens_per_second", "model_tflops",
                       "h2d_bytes_per_step", "d2h_bytes_per_step",
                       "arena_bytes"):
            self.assertGreater(case[figure], 0, figure)
        self.assertEqual((case["gpus"], case["pinned_bytes"]), (2, 0))
        self.assertAlmostEqual(
            case["tokens_per_second"] * case["step_seconds"],
            case["spec"]["batch_size"] * case["spec"]["max_length"], places=3)
        self.assertTrue(0 <= case["bubble_ratio"] < 1)
        self.assertIsNone(case["bound"])
        self.assertIn(f"- {case['case']}: what bounds it is not known: there "
                      "is no calibrated rate of h2d and d2h", self.markdown)
        self.assertTrue(case["predicted"]["feasible"])
        self.assertGreater(case["predicted"]["step_seconds"], 0)

    def test_a_section_that_fails_is_exit_status_1(self):
        status, sections, _ = self.check(
            "--sections=machine,conformance",
            self.programs(cpu_device_test="echo no device >&2; exit 3",
                          roundhouse_gpu_probe=f"cat <<'E'\n{GPU}E"))
        self.assertEqual(status, 1)
        self.assertEqual(sections["conformance"]["status"], "failed")
        self.assertIn(f"{SUITE}: exit status 3",
                      sections["conformance"]["reason"])
        self.assertIn("no device", json.dumps(sections["conformance"]))
        self.assertIn(f"==== {SUITE}\nno device",
                      (self.folder / "out/logs.txt").read_text())
        self.assertIn("| conformance | failed |", self.markdown)
        # The others were run all the same, or not asked for.
        self.assertEqual(sections["machine"]["status"], "passed")
        self.assertIn("| 0 | NVIDIA GeForce RTX 4090 | 23.99 | 1.0 x8 | "
                      "4.0 x16 |", self.markdown)
        self.assertEqual(sections["bench"]["reason"], "not among --sections")

    def test_what_there_is_no_time_for_is_skipped(self):
        status, sections, _ = self.check("--seconds=6", "--sections=bench")
        self.assertEqual(status, 0)
        self.assertEqual(sections["bench"]["status"], "skipped")
        self.assertIn("s of --seconds are left", sections["bench"]["reason"])

    def test_a_torch_of_another_version_is_refused(self):
        torch = self.folder / "torch"
        torch.mkdir()
        (torch / "version.py").write_text(
            "__version__ = '2.10.0+cu128'\ncuda: Optional[str] = '12.8'\n")
        done = subprocess.run(
            [sys.executable, "-B", CHECK, "--rehearse",
             f"--torch-dir={torch}"], capture_output=True, text=True,
            check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is torch 2.10.0+cu128 with CUDA 12.8; this build needs "
                      "torch==2.11.0 with CUDA 13.0", done.stderr)


if __name__ == "__main__":
    unittest.main()
