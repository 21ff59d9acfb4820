"""gpu-check's gradients section: losses and gradients that the GPU computes of
tiny checkpoints and adapters, beside what transformers and PEFT computed of
them (tests/parity/device_goldens.h)."""

import pathlib
import re
import subprocess

import machine
from outcome import Failed

ROOT = pathlib.Path(__file__).absolute().parents[2]
GOLDENS = ROOT / "tests/parity/goldens"
SUITES = {"cuda": "tests/parity/cuda_goldens_test",
          "cpu": "tests/parity/device_goldens_test"}
# tests/parity/figures.cc: test, what, figure, limit, how far transformers is
# from itself.
FIGURE = re.compile(r"^(\w+)/\d+ +(\S.*?) +(\S+)  limit (\S+)(?:  own \S+)?$",
                    re.M)


def worst_of_each_kind(output):
    """{"Fp32, gradients": "5.04e-06 of 1.00e-05 allowed, worst of 402"}"""
    worst, counts = {}, {}
    for test, what, figure, limit in FIGURE.findall(output):
        loss = re.match(r"\w+ loss(es)?(?=,)", what)
        kind = f"{test}, {loss[0] if loss else 'gradients'}"
        counts[kind] = counts.get(kind, 0) + 1
        share = float(figure) / float(limit)
        # A figure that is no number is the worst there is.
        if kind not in worst or not share <= worst[kind][0]:
            worst[kind] = share, f"{figure} of {limit} allowed"
    return {kind: f"{words}, worst of {counts[kind]}"
            for kind, (_, words) in worst.items()}


def check(run, details):
    suite = SUITES[run.kind]
    ran = run.options.out / f"{pathlib.Path(suite).name}.json"
    ran.unlink(missing_ok=True)  # --out may have been used before
    done = subprocess.run(
        [run.program(suite), f"--gtest_output=json:{ran}"],
        capture_output=True, text=True, check=False,
        env={**run.environment(), "ROUNDHOUSE_PARITY_GOLDENS": str(GOLDENS)})
    details.update(worst_of_each_kind(done.stdout))
    counts = machine.suite_counts(ran)
    if done.returncode != 0 or counts["failed"] or not counts["passed"]:
        run.log(suite, done.stdout + done.stderr)
        wrong = re.findall(r"^\[  FAILED  \] (\S+),", done.stdout, re.M)
        raise Failed(f"{suite}: exit status {done.returncode}, "
                     f"{counts['failed']} of its cases failed, "
                     f"{counts['passed']} passed: "
                     + (", ".join(dict.fromkeys(wrong))
                        or done.stderr.strip()[-1000:]))
    if not details:
        raise Failed(f"{suite} printed no figure")
