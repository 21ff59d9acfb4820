"""Checks and measures this build on this machine's GPU, and reports it.

    deploy/gpu-check [--devices cuda|cuda:LIST] [--torch-dir DIR] [--out DIR]
                     [--seconds 480] [--sections NAME,...]
    deploy/gpu-check --rehearse    on CPU devices with tiny shapes; what needs
                                   a GPU is skipped, and said

Sections, one after the other: machine, calibration, conformance, gradients,
parity, fault, device_fault, lending, bench, sanitizer, fp16, peers, growth.
Each passes, fails or is skipped with a reason, also when too little of
--seconds is left; bench leaves those behind it the least that they need, as far
as it has that itself. Writes
report.json and report.md into --out, a new folder in the current one unless
given, after each section what is known by then, and into logs.txt there all
that the programs of one that failed have said. Exit status: 0 nothing failed, 1
something did, 2 usage.

--torch-dir is the folder of an installed torch==2.11.0 with CUDA 13.0, where
the worker finds LibTorch: in a bundle that of the python3 on PATH unless given,
in a built tree the wheels of deploy/install-deps. --programs is where the
programs lie, as bazel-bin has them (a bundle: its own folder).
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).absolute().parent
ROOT = HERE.parents[1]  # of the tree, of a bundle or of runfiles
sys.path[:0] = [str(HERE), str(ROOT / "tests/integration")]

import machine  # noqa: E402  found by the line before
import report  # noqa: E402
from outcome import Failed, Skipped  # noqa: E402

# What a section may take at most, and what it needs at least, in seconds.
BUDGETS = {"machine": (60, 5), "calibration": (45, 15),
           "conformance": (90, 10), "gradients": (60, 10),
           "parity": (90, 20), "fault": (90, 20), "device_fault": (60, 20),
           "lending": (90, 20),
           "bench": (480, 30), "sanitizer": (110, 20), "fp16": (45, 15),
           "peers": (120, 30), "growth": (90, 30)}
REHEARSED = {name: (limit, 2) for name, (limit, _) in BUDGETS.items()}
# Kept for the report, and for ending what a section started.
RESERVE_SECONDS = 5
# The suites that every device must pass; need a device, or fail.
SUITES = {
    "cuda": ("worker/device/cuda/cuda_device_test",
             "worker/model/cuda/cuda_parity_test",
             "worker/model/cuda/cuda_fused_test"),
    "cpu": ("worker/device/cpu/cpu_device_test",),
}
# The suites among them that call kernels of ours.
SANITIZED = ("worker/device/cuda/cuda_device_test",
             "worker/model/cuda/cuda_fused_test")
# GPUs that a suite has cases for; three are a group with one that is not next
# to the first, and eight would take NCCL longer than there is time.
SUITE_GPUS = {"worker/device/cuda/cuda_device_test": 3}
CUDA_BIN = "/usr/local/cuda/bin"
CALIBRATE = "worker/model/cuda/roundhouse-gpu-calibrate"
SANITIZER_SECONDS = 50  # of a suite, which a memory check slows many times
# What traps on purpose, and NCCL, whose start alone would take too long.
LEFT_OUT = "--gtest_filter=-*.ABrokenDeviceIsLost/*:*/PeersConformance.*"
# Errors that CUDA's functions return are no kernel's, and libraries provoke
# some. Status 9 says that one was found.
SANITIZER_FLAGS = ("--report-api-errors=no", "--error-exitcode=9")
LAST_LINES = 20  # of a program that failed
LOG_CHARACTERS = 1 << 20  # of one in logs.txt


class Run:
    """What the sections share: the arguments, what was found so far, time."""

    def __init__(self, options, torch):
        self.options, self.torch = options, torch
        self.deadline = time.monotonic() + options.seconds
        self.gpus = []       # machine's, those that can be used
        self.rates = {}      # calibration's
        self.kind = "cpu" if options.rehearse else "cuda"
        self.kept = 0        # seconds, for the sections behind this one

    def left(self):
        return (self.deadline - RESERVE_SECONDS - self.kept
                - time.monotonic())

    def program(self, path):
        found = self.options.programs / path
        if not found.exists():
            raise Failed(f"{found} is missing")
        return found

    def library_path(self):
        """LibTorch's libraries and what this process was given. Nothing else
        may lead to the driver in a container."""
        own = ([] if self.torch is None
               else [machine.library_path(self.torch)])
        given = os.environ.get("LD_LIBRARY_PATH")
        return ":".join(own + ([given] if given else []))

    def environment(self, gpus=1):
        """The environment of a program that loads LibTorch. It sees `gpus`
        GPUs, if there are so many."""
        found = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"),
                 "LANG": "C.UTF-8", "ROUNDHOUSE_REQUIRE_DEVICES": "1"}
        if self.library_path():
            found["LD_LIBRARY_PATH"] = self.library_path()
        if self.gpus:
            found["CUDA_VISIBLE_DEVICES"] = ",".join(
                gpu["uuid"] for gpu in machine.separate(self.gpus)[:gpus])
        return found

    def log(self, name, text):
        """Keeps all that a program said, in one file for all of them."""
        with open(self.options.out / "logs.txt", "a",
                  encoding="utf-8") as file:
            file.write(f"==== {name}\n{text[-LOG_CHARACTERS:]}\n")

    def needs_gpu(self):
        if self.options.rehearse:
            raise Skipped("needs a GPU; this is a rehearsal on CPU devices")
        if not self.gpus:
            raise Skipped("no GPU was found")

    def needs_device(self):
        if not self.options.rehearse:
            self.needs_gpu()


def last_lines(text):
    return "\n".join(text.strip().splitlines()[-LAST_LINES:])


# --- sections: fill `details`, raise Failed or Skipped ---


def check_machine(run, details):
    details["host"] = machine.host()
    if run.torch is not None:
        details["torch"] = str(run.torch)
    probe = run.program("worker/probe/roundhouse-gpu-probe")
    done = subprocess.run([probe], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = last_lines(done.stderr) or f"exit status {done.returncode}"
        raise (Skipped if run.options.rehearse else Failed)(words)
    details.update(machine.parse_probe(done.stdout))
    usable = [gpu for gpu in details["gpus"] if "fault" not in gpu]
    try:
        run.gpus = machine.chosen(usable, run.options.devices)
    except ValueError as error:
        raise Failed(str(error)) from error
    if not run.gpus:
        raise Failed("the driver knows no GPU that can be used")


def check_conformance(run, details):
    run.needs_device()
    details["suites"] = []
    wrong = []
    for suite in SUITES[run.kind]:
        path = run.options.out / f"{pathlib.Path(suite).name}.json"
        path.unlink(missing_ok=True)  # --out may have been used before
        done = subprocess.run(
            [run.program(suite), f"--gtest_output=json:{path}"],
            capture_output=True, text=True, check=False,
            env=run.environment(SUITE_GPUS.get(suite, 1)))
        entry = {"suite": suite, "exit_status": done.returncode,
                 **machine.suite_counts(path)}
        details["suites"].append(entry)
        if done.returncode != 0 or entry["failed"] or not entry["passed"]:
            entry["words"] = last_lines(done.stdout + done.stderr)
            run.log(suite, done.stdout + done.stderr)
            wrong.append(f"{entry['suite']}: exit status {done.returncode}, "
                         f"{entry['failed']} of its cases failed, "
                         f"{entry['passed']} passed")
    if wrong:
        raise Failed("; ".join(wrong))


def check_sanitizer(run, details):
    run.needs_gpu()
    import parity  # pylint: disable=import-outside-toplevel
    tool = shutil.which("compute-sanitizer",
                        path=f"{os.environ.get('PATH', '')}:{CUDA_BIN}")
    if tool is None:
        raise Skipped("there is no compute-sanitizer on PATH, which is part of "
                      "the CUDA Toolkit")
    details["suites"] = []
    for suite in SANITIZED:
        ran = run.options.out / f"{pathlib.Path(suite).name}.sanitizer.json"
        ran.unlink(missing_ok=True)
        try:
            status, output, errors = parity.run_group(
                [tool, "--tool=memcheck", "--target-processes=all",
                 *SANITIZER_FLAGS, run.program(suite), LEFT_OUT,
                 f"--gtest_output=json:{ran}"],
                run.environment(), SANITIZER_SECONDS)
        except subprocess.TimeoutExpired as error:
            late = (f"{suite} was not over within {SANITIZER_SECONDS} s under "
                    "compute-sanitizer")
            if not details["suites"]:
                raise Skipped(late) from error
            details["not_over"] = late
            return
        if status != 0:
            run.log(f"{suite} under compute-sanitizer", output + errors)
            raise Failed(f"{suite} under compute-sanitizer: exit status "
                         f"{status}\n" + last_lines(output + errors))
        # A tool of another release than the driver's may start nothing, and
        # find no error in it.
        if not machine.suite_counts(ran)["passed"]:
            run.log(f"{suite} under compute-sanitizer", output + errors)
            idle = (f"{tool} ended with status 0 and no case of {suite} had "
                    "run\n" + last_lines(output + errors))
            if not details["suites"]:
                raise Skipped(idle)
            details["not_run"] = idle
            return
        details["suites"].append(suite)


def check_growth(run, details):
    run.needs_device()
    import growth  # pylint: disable=import-outside-toplevel
    growth.check(run, details)


def check_calibration(run, details):
    run.needs_gpu()
    done = subprocess.run([run.program(CALIBRATE)], capture_output=True,
                          text=True, check=False, env=run.environment())
    if done.returncode != 0:
        raise Failed(last_lines(done.stderr))
    run.rates = json.loads(done.stdout)
    details.update(run.rates)


def check_gradients(run, details):
    run.needs_device()
    import gradients  # pylint: disable=import-outside-toplevel
    gradients.check(run, details)


def check_parity(run, details):
    run.needs_device()
    import parity  # pylint: disable=import-outside-toplevel
    parity.check(run, details)


def check_fault(run, details):
    run.needs_device()
    import fault  # pylint: disable=import-outside-toplevel
    fault.check(run, details)


def check_device_fault(run, details):
    run.needs_device()
    import fault  # pylint: disable=import-outside-toplevel
    fault.check_device(run, details)


def check_lending(run, details):
    run.needs_device()
    import lending  # pylint: disable=import-outside-toplevel
    lending.check(run, details)


def check_peers(run, details):
    run.needs_device()
    import peers  # pylint: disable=import-outside-toplevel
    peers.check(run, details)


def check_fp16(run, details):
    run.needs_device()
    import fp16  # pylint: disable=import-outside-toplevel
    fp16.check(run, details)


def check_bench(run, details):
    run.needs_device()
    import bench  # pylint: disable=import-outside-toplevel
    bench.check(run, details)


# In their order: bench has the figures that this is for, and takes all the time
# that it is given.
SECTIONS = {"machine": check_machine, "calibration": check_calibration,
            "conformance": check_conformance, "gradients": check_gradients,
            "parity": check_parity, "fault": check_fault,
            "device_fault": check_device_fault, "lending": check_lending,
            "bench": check_bench,
            "sanitizer": check_sanitizer, "fp16": check_fp16,
            "peers": check_peers, "growth": check_growth}


# --- orchestration ---


NOT_YET = "not run yet"


class TooLong(Exception):
    pass


@contextlib.contextmanager
def at_most(seconds):
    def stop(*_):
        raise TooLong(f"no end within {seconds:.0f} s")
    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def kept_by_bench(run, budgets):
    """The least of the sections behind it, as far as it has its own."""
    names = list(SECTIONS)
    behind = sum(budgets[name][1] for name in names[names.index("bench") + 1:]
                 if name in run.options.sections)
    return max(0, min(behind, run.left() - budgets["bench"][1]))


def run_section(name, run):
    """{"name", "status", "seconds", "reason", "details"}"""
    begun = time.monotonic()
    details = {}
    status, reason = "passed", ""
    budgets = REHEARSED if run.options.rehearse else BUDGETS
    limit, least = budgets[name]
    run.kept = 0
    try:
        if run.left() < least:
            raise Skipped(f"{max(0, run.left()):.0f} s of --seconds are left, "
                          f"it needs {least} s")
        if name == "bench":
            run.kept = kept_by_bench(run, budgets)
        with at_most(min(limit, run.left())):
            SECTIONS[name](run, details)
    except Skipped as skipped:
        status, reason = "skipped", str(skipped)
    except Exception as error:  # pylint: disable=broad-except
        # Whatever a section does, the others run and the report is written.
        status = "failed"
        reason = (str(error) if isinstance(error, (Failed, TooLong))
                  else f"{type(error).__name__}: {error}")
    seconds = round(time.monotonic() - begun, 2)
    print(f"{name:12} {status:8} {seconds:7.1f} s  "
          f"{reason.splitlines()[0] if reason else ''}".rstrip(), flush=True)
    return {"name": name, "status": status, "seconds": seconds,
            "reason": reason, "details": details}


def left_out(name, reason):
    return {"name": name, "status": "skipped", "seconds": 0.0,
            "reason": reason, "details": {}}


def commit():
    bundle = ROOT / "bundle.json"
    if bundle.exists():
        return json.loads(bundle.read_text())["commit"]
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always",
                           "--dirty"], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() or "unknown"


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--devices", default="cuda")
    parser.add_argument("--torch-dir", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT)
    options = parser.parse_args()
    if not re.fullmatch(r"cuda(:[0-9,-]+)?", options.devices):
        parser.error("--devices: want cuda or cuda:LIST")
    options.sections = options.sections.split(",")
    for name in options.sections:
        if name not in SECTIONS:
            parser.error(f"--sections: {name}: these are: "
                         f"{', '.join(SECTIONS)}")
    options.programs = options.programs.absolute()
    return parser, options


def find_torch(options):
    """The folder of --torch-dir, checked; None: the programs know it."""
    if options.torch_dir is not None:
        folder = options.torch_dir.absolute()
    elif (ROOT / "bundle.json").exists():
        folder = machine.installed_torch()
    else:
        return None
    machine.check_torch(folder, options.programs / "worker/roundhouse-worker")
    return folder


def main():
    parser, options = parse_arguments()
    try:
        torch = find_torch(options)
    except ValueError as error:
        parser.error(str(error))
    started = datetime.datetime.now(datetime.timezone.utc)
    if options.out is None:
        options.out = pathlib.Path(
            f"gpu-check-{started.strftime('%Y%m%d-%H%M%S')}")
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    run = Run(options, torch)
    begun = time.monotonic()
    found = {
        "schema": report.SCHEMA, "rehearsal": options.rehearse,
        "commit": commit(), "started": started.isoformat(timespec="seconds"),
        "limit_seconds": options.seconds,
        "devices": "cpu" if options.rehearse else options.devices,
        "sections": [left_out(name, "not among --sections"
                              if name not in options.sections else NOT_YET)
                     for name in SECTIONS]}
    for index, name in enumerate(SECTIONS):
        if name in options.sections:
            found["sections"][index] = run_section(name, run)
        # Each time: whoever has lent the machine may end this at any moment.
        found["seconds"] = round(time.monotonic() - begun, 2)
        found["failed"] = [section["name"] for section in found["sections"]
                           if section["status"] == "failed"]
        report.write(options.out, found)
    print(f"{options.out}/report.md: {len(found['failed'])} sections failed")
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
