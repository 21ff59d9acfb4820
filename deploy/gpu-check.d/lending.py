"""gpu-check's lending section: devices are lent and returned while a job runs.
It measures the time from the request to the end of the device's worker, looks
whether the GPU's memory is free then, and whether the job goes on."""

import time

import fault
import growth
import harness
import jobs
from outcome import Failed, Skipped

LOANS = 4
# The worker is to have ended within a slot and a second of the request.
LIMIT_SECONDS = 1.0
MIB = 1 << 20
# Others, such as a desktop, may have taken so much of a GPU meanwhile.
SLACK_BYTES = 64 * MIB
MOST_SECONDS = 80  # of check.py's budget; the rest is for starting and ending
ENDING_SECONDS = 3  # before check.py would end the section itself


def slots(path):
    """The seconds of each slot that is done (server/observe/timing_log.h)."""
    found = []
    for line in path.read_text().splitlines(keepends=True):
        kind, *numbers = line.strip().split(",")
        if kind == "slot" and line.endswith("\n") and len(numbers) == 7:
            found.append((int(numbers[2]) - int(numbers[1])) / 1e9)
    return found


def lend(daemon, index):
    """Seconds from the request until the device's worker had ended."""
    worker = daemon.worker(str(index))
    begun = time.monotonic()
    daemon.client("device", "lend", index, "--note=gpu-check")
    took = time.monotonic() - begun
    state = jobs.devices(daemon)[index]["state"]
    if state != "LENT":
        raise Failed(f"device {index} is {state}, {took:.1f} s after it was "
                     "lent")
    if worker in harness.children(daemon.process.pid):
        raise Failed(f"device {index} is lent, and its worker has not ended")
    return took


def give_back(daemon, index, end):
    """Seconds until it had a worker again; None: `end` came first."""
    begun = time.monotonic()
    daemon.client("device", "return", index)
    try:
        harness.wait_until(
            lambda: jobs.devices(daemon)[index]["state"] == "UP",
            f"device {index} UP", seconds=max(0.0, end - begun), pause=0.1)
    except harness.Failure:
        return None
    return time.monotonic() - begun


def alone_on(gpus, index):
    """The name of a GPU that is the device's alone, as growth.gpu_bytes has it;
    None: there is none."""
    if index >= len(gpus):
        return None
    shared = sum(gpu["uuid"] == gpus[index]["uuid"] for gpu in gpus) > 1
    return None if shared else f"GPU {gpus[index]['index']}"


def left_bytes(before, after, name):
    """What is left on a GPU of what a daemon had there; None: not known."""
    if name not in before or name not in after:
        return None
    return after[name] - before[name]


def judge(loans, longest_slot):
    """What is wrong with [{"device", "seconds", "left_bytes"}]."""
    wrong = [f"device {loan['device']} was free {loan['seconds']:.2f} s after "
             f"the request; a slot took {longest_slot:.2f} s at most, and "
             f"{LIMIT_SECONDS:.0f} s more are allowed"
             for loan in loans
             if loan["seconds"] > longest_slot + LIMIT_SECONDS]
    return wrong + [f"{loan['left_bytes']} bytes of the GPU of device "
                    f"{loan['device']} are not free while it is lent"
                    for loan in loans
                    if (loan["left_bytes"] or 0) > SLACK_BYTES]


def go_on(daemon, job, steps, end):
    """Waits for so many steps more."""
    done = len(jobs.steps(daemon, job))
    if jobs.wait_for_step(daemon, job, done + steps,
                          end - time.monotonic()) is None:
        raise Failed(f"{job} did not make {steps} steps more:\n"
                     f"{daemon.tail(10)}")


def lend_in_turn(run, daemon, job, before, end):
    """Lends one device after the other, as `judge` takes it."""
    count = len(jobs.devices(daemon))
    loans = []
    for number in range(LOANS):
        index = number % count
        loan = {"device": index, "seconds": lend(daemon, index)}
        name = alone_on(run.gpus, index)
        loan["left_bytes"] = left_bytes(before, growth.gpu_bytes(run), name)
        loans.append(loan)
        if count > 1:
            go_on(daemon, job, 1, end)
        else:
            jobs.must_run(daemon, job)  # it waits
        loan["return_seconds"] = give_back(daemon, index, end)
        if loan["return_seconds"] is None:
            raise Failed(f"device {index} was returned and is not UP:\n"
                         f"{daemon.tail(10)}")
        go_on(daemon, job, 2, end)
    return loans


def check(run, details):
    with jobs.scratch_of(run) as scratch:
        spec, details["parameters"] = fault.make_job(run, scratch)
        before = growth.gpu_bytes(run)
        samples = scratch.folder / "samples.csv"
        daemon = jobs.daemon_of(run, scratch, sample_log=samples)
        daemon.start()
        end = time.monotonic() + min(MOST_SECONDS,
                                     run.left() - ENDING_SECONDS)
        try:
            job = daemon.submit({**spec, "max_steps": fault.ENDLESS})
            if jobs.wait_for_step(daemon, job, 3,
                                  end - time.monotonic()) is None:
                raise Skipped("no time for three steps")
            loans = lend_in_turn(run, daemon, job, before, end)
            longest = max(slots(samples))
        finally:
            if not daemon.ended():
                daemon.kill()
    details["devices"] = len({loan["device"] for loan in loans})
    details["loans"] = len(loans)
    details["most_seconds_to_the_workers_end"] = max(
        loan["seconds"] for loan in loans)
    details["longest_slot_seconds"] = longest
    details["most_seconds_to_the_next_worker"] = max(
        loan["return_seconds"] for loan in loans)
    left = [loan["left_bytes"] for loan in loans
            if loan["left_bytes"] is not None]
    details["bytes_left_on_a_gpu"] = max(left, default=None)
    details["of_each"] = loans
    wrong = judge(loans, longest)
    if wrong:
        raise Failed("; ".join(wrong))
