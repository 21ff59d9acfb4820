"""gpu-check's parity section: jobs on the devices of the run whose results the
real transformers and PEFT load and evaluate (tests/parity/job_check.py)."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import jobs
import machine
from outcome import Failed, Skipped

ROOT = pathlib.Path(__file__).absolute().parents[2]
CASES = "qwen3_tied,llama_untied"
NEEDED = "import peft, safetensors, tokenizers, torch, transformers"


def run_group(words, environment, seconds=None):
    """(exit status, stdout, stderr). What the program started dies with it
    when its time is over; after so many seconds, subprocess.TimeoutExpired."""
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output, errors


def check(run, details):
    """With the python3 on PATH and its own modules."""
    python = shutil.which("python3")
    if python is None:
        raise Skipped("there is no python3 on PATH")
    environment = machine.given_environment()
    found = subprocess.run([python, "-c", NEEDED], env=environment,
                           capture_output=True, text=True, check=False)
    if found.returncode != 0:
        words = (found.stderr.strip() or "no words").splitlines()[-1]
        raise Skipped(f"{python}: {words}")
    with tempfile.TemporaryDirectory() as folder:
        scripts = pathlib.Path(folder)
        worker = jobs.with_libraries(scripts, run, "worker/roundhouse-worker")
        probe = jobs.with_libraries(scripts, run,
                                    "worker/probe/roundhouse-gpu-probe")
        flags = jobs.flags(run)
        status, output, errors = run_group(
            [python, "-B", ROOT / "tests/parity/job_check.py",
             run.options.programs, f"--devices={flags['devices']}",
             f"--device-memory={flags['device_memory']}",
             f"--worker-program={worker}", f"--gpu-probe={probe}",
             f"--cases={CASES}"], environment)
    details["cases"] = CASES
    for kind, case, figure, limit in re.findall(
            r"^(\S+)  (\S+)  (\S+)  limit (\S+)$", output, re.M):
        details[f"{kind} {case}"] = f"{figure} of {limit} allowed"
    wrong = re.findall(r"^WRONG: .*$", output, re.M)
    if status != 0 or wrong:
        run.log("job_check.py", output + errors)
        raise Failed("; ".join(wrong) or
                     "\n".join(errors.strip().splitlines()[-20:]))
