"""gpu-check's section peers: a job with wide slots whose sums of gradients the
devices add up between them (--peers=on), also while a device worker is killed
(kill -9) in the middle of a step, and one whose parts each send theirs to the
host (off). All must leave the same checkpoint, byte for byte, and the same
losses. How long a step takes and what gradients take of the links is told of
each; with --peers=auto, whether the daemon chose it."""

import contextlib
import re
import statistics

import fault
import harness
import jobs
import machine
import shapes
from outcome import Failed, Skipped

# At least: the first ones are not measured.
STEPS, WARM_UP_STEPS = 20, 4
GROUP_SECONDS = 60  # for the workers to start and find each other
DETERMINISMS = ("bitwise", "fast")  # fp32 sums, and those in the job's dtype
KILLED = "on, a worker killed"  # beside the runs "on", "off" and "auto"
# A line of the daemon's log: how many devices of which group, or why none.
GROUP = re.compile(
    r"(?:(\d+) devices add up sums of wide slots|the devices add up no sums) "
    r"between them \(group (\d+)\)(.*)")


# --- what the probe says ---


def reached(gpu):
    """Indices of the GPUs whose memory it reads and writes; None where the
    driver does not say."""
    mask = gpu.get("peers")
    if mask is None:
        return None
    return [index for index in range(mask.bit_length()) if mask >> index & 1]


def all_reach(gpus):
    """Whether --peers=auto takes these: each reaches every other one."""
    return len(gpus) > 1 and all(
        {other["index"] for other in gpus if other is not gpu}
        <= set(reached(gpu) or []) for gpu in gpus)


def reach_words(gpus):
    """{"GPU 0 reaches": "GPU 1, GPU 2"}"""
    words = {}
    for gpu in gpus:
        found = reached(gpu)
        words[f"GPU {gpu['index']} reaches"] = (
            "not known" if found is None else
            ", ".join(f"GPU {index}" for index in found) or "none")
    return words


# --- groups of devices ---


def group_in(log):
    """(devices, number) of the group that is there by the daemon's log; None:
    there is none now. Failed: there will be none."""
    found = GROUP.findall(log)
    if not found:
        return None
    devices, number, words = found[-1]
    if words.endswith("; not tried again"):
        raise Failed(f"the devices form no group{words}")
    return (int(devices), int(number)) if devices else None


def wait_for_group(daemon, devices, after=0):
    """The number of the group of all devices; a later one than `after`."""
    def there():
        found = group_in(daemon.log_path.read_text(errors="replace"))
        if found and found[1] > after:
            return found
        return (0, 0) if daemon.ended() else None
    try:
        members, number = harness.wait_until(there, "a group", GROUP_SECONDS)
    except harness.Failure as late:
        raise Failed("the devices formed no group within "
                     f"{GROUP_SECONDS} s:\n{daemon.tail(10)}") from late
    if members == 0:
        raise Failed(f"the daemon ended:\n{daemon.tail(10)}")
    if members != devices:
        raise Failed(f"{members} of {devices} devices are in the group")
    return number


# --- runs ---


def counted(daemon):
    """Since the daemon started."""
    sums = jobs.series(daemon, "roundhouse_sum_exchanges_total")
    copied = jobs.series(daemon, "roundhouse_pcie_transfer_bytes_total")
    return {
        "exchanges": int(sums[("result", "ok"),]),
        "failed_exchanges": int(sums[("result", "failed"),]),
        "d2h_gradient_bytes": sum(
            value for labels, value in copied.items()
            if {("direction", "d2h"), ("purpose", "gradients")} <= set(labels))}


def figures(before, after, steps):
    """The figures of a job's steps, from counted() before and after it."""
    more = {name: value - before[name] for name, value in after.items()}
    return {
        "step_seconds": statistics.median(
            entry["step_seconds"] for entry in steps[WARM_UP_STEPS:]),
        "d2h_gradient_bytes_per_step":
            more.pop("d2h_gradient_bytes") / len(steps),
        **more}


class Runs:
    """The section's jobs: what is told of each, and what it left."""

    def __init__(self, entries):
        self.entries = entries  # of the report
        self.left = []          # fault.left_by() of each

    def add(self, daemon, name, spec, job, before):
        """`job` has ended; `before`: counted() when it began. Answers how many
        steps it made."""
        steps = jobs.steps(daemon, job)
        self.entries.append({
            "run": name, "determinism": spec["determinism"],
            **figures(before, counted(daemon), steps)})
        self.left.append(fault.left_by(daemon, job, len(steps)))
        return len(steps)

    def train(self, daemon, name, spec):
        before = counted(daemon)
        job = daemon.submit(spec)
        daemon.wait(job)
        self.add(daemon, name, spec, job, before)

    def compare(self):
        """Each with the one without exchanges."""
        wanted = {entry["determinism"]: left for entry, left
                  in zip(self.entries, self.left) if entry["run"] == "off"}
        for entry, left in zip(self.entries, self.left):
            found = fault.compare(wanted[entry["determinism"]], left)
            entry.update({name: found[name] for name in (
                "files", "differing_files", "losses_equal", "bit_identical")})


def exchanges_pay(determinism, devices):
    """Two sums of two bytes an element are no more than one in fp32, and go to
    the host apart."""
    return determinism == "bitwise" or devices > 2


def wrong_with(entries, devices):
    """What is, in words."""
    wrong = []
    for entry in entries:
        name = f"{entry['run']} ({entry['determinism']})"
        if not entry["bit_identical"]:
            wrong.append(f"{name}: the checkpoint differs from that without "
                         f"exchanges: {entry['differing_files']}, losses "
                         f"equal: {entry['losses_equal']}")
        pays = exchanges_pay(entry["determinism"], devices)
        if entry["run"] == "off" or not pays:
            if entry["exchanges"] or entry["failed_exchanges"]:
                wrong.append(f"{name}: there were exchanges")
            continue
        if not entry["exchanges"]:
            wrong.append(f"{name}: no sums were added up between devices")
        # The exchanges fail in which the killed worker took part.
        if entry["failed_exchanges"] and entry["run"] != KILLED:
            wrong.append(f"{name}: {entry['failed_exchanges']} exchanges "
                         "failed")
    return wrong


# --- the section ---


def wide_plan(layers, devices):
    """Every stage on all devices at once."""
    half = layers // 2
    return {"forward": [[0, half - 1]],
            "backward": [[half, layers], [0, half - 1]], "width": devices}


def make_job(run, scratch, devices):
    """(spec, parameters); two micro-batches for each device."""
    config = shapes.TINY if run.options.rehearse else shapes.SMALL
    spec = {**fault.SPEC, **(fault.REHEARSED if run.options.rehearse
                             else fault.ON_GPU)}
    spec.update(batch_size=2 * devices * spec["micro_batch_size"],
                gradient_groups=devices,
                plan=wide_plan(config["num_hidden_layers"], devices))
    shapes.make_model(scratch.data / "model", config)
    shapes.make_rows(scratch.data / "train.jsonl", 4 * spec["batch_size"],
                     spec["max_length"])
    return spec, shapes.parameter_count(config)


def gpus_of(run, details):
    """The GPUs that can form a group; none in a rehearsal."""
    if run.options.rehearse:
        return []
    gpus = machine.separate(run.gpus)
    details.update(reach_words(gpus))
    if len(gpus) < 2:
        raise Skipped("there is one GPU, and two devices on one GPU cannot "
                      "form a group")
    return gpus


@contextlib.contextmanager
def daemon_with(run, scratch, gpus, choice):
    flags = {"peers": choice}
    if gpus:
        flags["devices"] = "cuda:" + ",".join(
            str(gpu["index"]) for gpu in gpus)
    daemon = jobs.daemon_of(run, scratch, **flags)
    daemon.start()
    yield daemon
    daemon.stop()


def disturb(daemon, spec, devices, runs, details):
    """Kills a worker of a job; answers how many steps that made."""
    number = wait_for_group(daemon, devices)
    before = counted(daemon)
    job = daemon.submit({**spec, "max_steps": fault.ENDLESS})
    details["kills"] = fault.kill_in_a_step(daemon, job)
    jobs.wait_for_step(daemon, job, STEPS, harness.DEADLINE_SECONDS)
    daemon.finish(job)
    details["replayed_slots"] = fault.replayed_slots(daemon)
    steps = runs.add(daemon, KILLED, spec, job, before)
    # It was formed again, and the next jobs use it.
    details["groups_formed"] = wait_for_group(daemon, devices, number)
    return steps


def check(run, details):
    gpus = gpus_of(run, details)
    details["auto"] = "not tried: " + (
        "it does not choose exchanges between CPU devices" if not gpus else
        "what comes before it failed" if all_reach(gpus) else
        "not all GPUs reach each other, as far as the driver says")
    runs = Runs(details.setdefault("runs", []))
    with jobs.scratch_of(run) as scratch:
        with daemon_with(run, scratch, gpus, "on") as daemon:
            devices = details["devices"] = len(jobs.devices(daemon))
            spec, details["parameters"] = make_job(run, scratch, devices)
            details["steps"] = disturb(daemon, spec, devices, runs, details)
            specs = [{**spec, "determinism": determinism,
                      "max_steps": details["steps"]}
                     for determinism in DETERMINISMS]
            for each in specs:
                runs.train(daemon, "on", each)
        with daemon_with(run, scratch, gpus, "off") as daemon:
            for each in specs:
                runs.train(daemon, "off", each)
        if all_reach(gpus):
            details["auto"] = "it did not choose exchanges"
            with daemon_with(run, scratch, gpus, "auto") as daemon:
                wait_for_group(daemon, devices)
                details["auto"] = "it chose exchanges"
                runs.train(daemon, "auto", specs[0])
    runs.compare()
    if wrong := wrong_with(runs.entries, devices):
        raise Failed("; ".join(wrong))
