"""gpu-check's bench section: jobs of several shapes, what they really did, and
what `roundhouse plan` said they would."""

import dataclasses
import json
import shutil
import time

import harness
import jobs
import shapes
from outcome import Failed, OutOfMemory, Skipped

WARM_UP_STEPS = 5  # the daemon looks for a better plan after four
MEASURED_STEPS = 12
# At least: the daemon counts its devices' time once a second.
MEASURED_SECONDS = 2.5
LORA = {"method": "lora", "lora_r": 16, "lora_alpha": 32,
        "target_modules": "all-linear"}
# Presets of `roundhouse plan`, by what NVML calls the GPU, with the data
# sheets' bf16 rates without sparsity in TFLOP/s (docs/planning.md).
PRESETS = {"RTX 3090": ("rtx3090", 71), "RTX 4090": ("rtx4090", 165.2),
           "RTX 5090": ("rtx5090", 209.5), "A800": ("a800", 312),
           "H100": ("h100", 989.5), "H200": ("h200", 989.5)}
# A rehearsal has no GPU to plan for; it asks the same question of this one.
REHEARSED_PRESET = "rtx4090"
LEAST_SECONDS = {"cuda": 20, "cpu": 2}  # of a case
QUOTA, PRECONDITION = 7, 6  # the client's exit codes


class StillRunning(Skipped):
    """A job that could not be ended."""


@dataclasses.dataclass
class Case:
    name: str
    shape: str     # a published model, or "tiny"
    fields: dict   # of the job file
    share: int = 1  # more: the first GPU alone, as so many devices
    longest: bool = False  # with rows as long as planned to fit
    # What RoundPipe (arXiv 2604.27085) publishes as the longest on an RTX 4090,
    # in full, thousand tokens.
    published: int | None = None
    reserve: float = 0.0  # of the time left, kept for the cases behind it
    arena: float = jobs.ARENA_SHARE  # of the host memory that is free

    def config(self):
        if self.shape == "tiny":
            return shapes.TINY
        return {**shapes.published(self.shape),
                "max_position_embeddings": MOST_POSITIONS}


ONE = {"max_length": 64, "batch_size": 1, "micro_batch_size": 1}
LONG = {"max_length": 2048, "batch_size": 16, "micro_batch_size": 4}
EIGHT = {**LONG, "batch_size": 4, "model_init": "random"}
SHORT = {"max_length": 64, "batch_size": 8, "micro_batch_size": 2}
CASES = {
    "cuda": [
        Case("Qwen3-1.7B full", "qwen3-1.7b", LONG, reserve=0.6),
        Case("Qwen3-1.7B LoRA", "qwen3-1.7b", {**LONG, **LORA}, reserve=0.6),
        Case("Qwen3-1.7B LoRA, one GPU as two devices", "qwen3-1.7b",
             {**LONG, **LORA}, share=2, reserve=0.6),
        # Its weights are drawn by the job, for where it is refused nobody
        # needs them. Without clipping it keeps no gradient sums: 116 GiB.
        Case("Llama-3.1-8B full, max_grad_norm 0", "llama3.1-8b",
             {**EIGHT, "max_grad_norm": 0}, reserve=0.7, arena=0.95),
        Case("Llama-3.1-8B full", "llama3.1-8b", EIGHT, reserve=0.6,
             arena=0.95),
        Case("Llama-3.1-8B LoRA", "llama3.1-8b", {**LONG, **LORA},
             reserve=0.6),
        Case("Qwen3-1.7B full, longest rows", "qwen3-1.7b", ONE, longest=True,
             reserve=0.5, published=73),
        # In full it is more than ordinary hosts hold.
        Case("Llama-3.1-8B LoRA, longest rows", "llama3.1-8b",
             {**ONE, **LORA}, longest=True, published=49),
    ],
    "cpu": [
        Case("tiny full", "tiny", SHORT, reserve=0.6),
        Case("tiny full, max_grad_norm 0", "tiny",
             {**SHORT, "max_grad_norm": 0}, reserve=0.5),
        Case("tiny LoRA", "tiny", {**SHORT, **LORA}, reserve=0.5),
        Case("tiny full, longest rows", "tiny", ONE, longest=True),
    ],
}
# Shares of the longest rows planned, tried one after the other until one
# passes. Later tries lie between what passed and what did not.
LONGEST_SHARES = (1.0, 0.75, 0.5)
MOST_TRIES = 4
ROW_TOKENS = 64  # of which lengths are multiples
LONGEST_STEPS = (1, 2)  # to warm up, and measured
MOST_POSITIONS = 1 << 18
# What the step's bound is to be used to at least.
AIMS = {"compute": 0.95, "transfer": 0.90}


# --- arithmetic ---


def flops_per_token(config, length, lora):
    """Floating-point operations that training a token takes, two for each
    multiply and add: the matrices that it meets (not the embedding), and
    attention to the tokens before it. Backward is twice forward; of frozen
    matrices, whose gradients nobody computes, once. Adapters and recomputation
    are not counted."""
    layers = config["num_hidden_layers"]
    matrices = layers * sum(
        shapes.size(shape) for shape in shapes.layer_shapes(config).values()
        if len(shape) == 2) + config["vocab_size"] * config["hidden_size"]
    attention = (2 * layers * config["num_attention_heads"]
                 * shapes.head_dim(config) * (length + 1))
    return (2 if lora else 3) * 2 * matrices + 3 * attention


def preset_of(gpus):
    """(name, TFLOP/s) of the first GPU; Skipped where no data sheet is
    known."""
    for text, preset in PRESETS.items():
        if gpus and text in gpus[0]["name"]:
            return preset
    name = gpus[0]["name"] if gpus else "this device"
    raise Skipped(f"roundhouse plan has no preset for {name}")


def totals(daemon):
    """Sums over all devices since the daemon started."""
    found = {"compute": 0.0, "bubble": 0.0, "h2d": 0, "d2h": 0, "causes": {}}
    for device in jobs.devices(daemon):
        # As protobuf's JSON: int64 is text.
        found["compute"] += float(device.get("compute_seconds", 0))
        found["bubble"] += float(device.get("bubble_seconds", 0))
        found["h2d"] += int(device.get("h2d_bytes", 0))
        found["d2h"] += int(device.get("d2h_bytes", 0))
        for cause in device.get("bubble_causes", []):
            found["causes"][cause["cause"]] = (
                found["causes"].get(cause["cause"], 0.0)
                + float(cause.get("seconds", 0)))
    return found


def total(daemon, name):
    return int(sum(jobs.series(daemon, name).values()))


def share(part, whole):
    return part / whole if whole else None


def bound(before, after, seconds, rates, gpus):
    """What bounds the step, and whether that is used as it should be: transfers
    where a GPU's bytes of either way take longer, at the calibrated rate, than
    its computation took. `rates` as in measured()."""
    compute = after["compute"] - before["compute"]
    bubble = after["bubble"] - before["bubble"]
    missing = [way for way in ("h2d", "d2h")
               if not rates.get(f"{way}_registered_gbps")]
    if missing:
        return {"bound": None, "bound_reason": "there is no calibrated rate of "
                + " and ".join(missing)}
    if not compute + bubble:
        return {"bound": None,
                "bound_reason": "the devices counted no time as yet"}
    link = max((after[way] - before[way])
               / (1e9 * rates[f"{way}_registered_gbps"])
               for way in ("h2d", "d2h"))
    # Devices that share a GPU may both count its time.
    if link > min(compute / gpus, seconds):
        found, used = "transfer", link / seconds
    else:
        found, used = "compute", compute / (compute + bubble)
    return {"bound": found, "bound_share": used, "bound_aim": AIMS[found],
            "bound_holds": used >= AIMS[found]}


def measured(before, after, steps, seconds, spec, config, rates, gpus):
    """What was measured in `seconds`, during which `steps` steps were made.
    `rates` has what all GPUs together can do, as far as it is known."""
    compute = after["compute"] - before["compute"]
    bubble = after["bubble"] - before["bubble"]
    tokens = steps * spec["batch_size"] * spec["max_length"]
    tflops = (tokens / seconds / 1e12 * flops_per_token(
        config, spec["max_length"], spec.get("method") == "lora"))
    found = {
        "steps": steps, "step_seconds": seconds / steps,
        "tokens_per_second": tokens / seconds, "model_tflops": tflops,
        "share_of_measured_matmul": share(
            tflops, rates.get("matmul_bf16_tflops")),
        "h2d_bytes_per_step": (after["h2d"] - before["h2d"]) / steps,
        "d2h_bytes_per_step": (after["d2h"] - before["d2h"]) / steps,
        "bubble_ratio": share(bubble, compute + bubble),
        "bubble_seconds_per_step": {
            cause: (value - before["causes"].get(cause, 0.0)) / steps
            for cause, value in sorted(after["causes"].items())},
    }
    for way in ("h2d", "d2h"):
        rate = rates.get(f"{way}_registered_gbps")
        found[f"{way}_share_of_measured_link"] = share(
            found[f"{way}_bytes_per_step"] * steps / seconds / 1e9, rate)
    return {**found, **bound(before, after, seconds, rates, gpus)}


# --- a case ---


def predict(run, daemon, model, spec):
    """What `roundhouse plan` says of the job on one such GPU."""
    if run.options.rehearse:
        kind = REHEARSED_PRESET
    else:
        try:
            # What the daemon leaves to CUDA is planned for, too.
            memory = daemon.flags["device_memory"] + jobs.RESERVE_BYTES
            kind = f"{preset_of(run.gpus)[0]}:{memory / 2**30:.2f}GiB"
        except Skipped as skipped:
            return {"reason": str(skipped)}
    fields = ["max_length", "batch_size", "micro_batch_size", "determinism"]
    fields += ["max_grad_norm"] if "max_grad_norm" in spec else []
    if spec.get("method") == "lora":
        fields += ["method", "lora_r", "target_modules"]
    done = daemon.client(
        "plan", "--model", model, "--devices", f"{count(daemon)}x{kind}",
        "--host-memory", daemon.flags["host_memory"], "-o", "json",
        *(f"--{field.replace('_', '-')}={spec[field]}" for field in fields),
        check=False)
    if done.returncode not in (0, QUOTA):
        return {"reason": done.stderr.strip()}
    plan = json.loads(done.stdout)
    found = {"devices": f"{count(daemon)}x{kind}",
             "feasible": plan["feasible"],
             "host_bytes": int(plan["host"]["total_bytes"])}
    if not plan["feasible"]:
        return found
    return {**found, "step_seconds": plan["step_seconds"],
            "tokens_per_second": plan["tokens_per_second"],
            "bubble_ratio": plan["bubble_ratio"],
            "bubble_seconds_per_step": plan["bubble"],
            "longest_sequence": int(plan["longest_sequence"])}


def count(daemon):
    return max(1, len(jobs.devices(daemon)))


def make_model(scratch, case, deadline):
    """Its directory; Skipped where the weights do not fit."""
    weights = "model_init" not in case.fields
    folder = scratch.data / (case.shape if weights else f"{case.shape}.empty")
    config = case.config()
    if folder.exists():
        return folder
    size = 2 * shapes.parameter_count(config) if weights else 0
    free = shutil.disk_usage(scratch.data).free
    if size > free // 2:
        raise Skipped(f"its weights are {size} bytes, {scratch.data} has "
                      f"{free} free")
    begun = time.monotonic()
    shapes.make_model(folder, config, weights)
    if time.monotonic() > deadline:
        raise Skipped(f"writing {size} bytes of weights took "
                      f"{time.monotonic() - begun:.0f} s, all of its time")
    return folder


def with_rows(scratch, spec):
    """`spec` with a dataset of rows as long as it allows."""
    rows = scratch.data / f"rows-{spec['max_length']}.jsonl"
    if not rows.exists():
        shapes.make_rows(rows, 4 * spec["batch_size"], spec["max_length"])
    return {**spec, "dataset": rows.name}


def flags_of(run, case):
    """Flags of the daemon that are not those of every case."""
    if case.arena != jobs.ARENA_SHARE:
        return {"host_memory": jobs.host_memory(case.arena)}
    if case.share == 1:
        return {}
    first = run.gpus[0]
    index = str(first["index"])
    return {"devices": "cuda:" + ",".join([index] * case.share),
            "device_memory": jobs.device_memory([first], case.share)}


def submit(daemon, spec):
    """The job's id; Skipped where it is refused."""
    path = daemon.folder / "bench.yaml"
    path.write_text(json.dumps(spec))
    done = daemon.client("submit", "-f", path, "-o", "json", check=False)
    if done.returncode in (QUOTA, PRECONDITION):
        # Too little memory or disk: an answer that the report has.
        raise Skipped("refused at submit: " + done.stderr.strip())
    if done.returncode != 0:
        raise Failed(f"submit: exit status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["name"].rsplit("/", 1)[1]


def train(run, daemon, job, spec, config, details, deadline,
          warm_up=WARM_UP_STEPS, steps=MEASURED_STEPS):
    begun = jobs.wait_for_step(daemon, job, warm_up,
                               deadline - time.monotonic())
    if begun is None:
        raise Skipped(f"it was {daemon.job(job)['state']} at step "
                      f"{len(jobs.steps(daemon, job))} of {warm_up} to "
                      "warm up when its time was over")
    before, first = totals(daemon), len(jobs.steps(daemon, job))
    start = time.monotonic()
    jobs.wait_for_step(daemon, job, first + steps,
                       deadline - time.monotonic())
    time.sleep(max(0.0, start + MEASURED_SECONDS - time.monotonic()))
    last = len(jobs.steps(daemon, job))
    seconds, after = time.monotonic() - start, totals(daemon)
    rates = {name: value * details["gpus"]
             for name, value in run.rates.items()}
    if last == first:
        raise Skipped(f"no step in the {seconds:.0f} s after {first} steps")
    details.update(measured(before, after, last - first, seconds, spec,
                            config, rates, details["gpus"]))
    details["loss"] = jobs.steps(daemon, job)[-1]["loss"]
    # Copies from what is not pinned yet are slower.
    details["pinned_bytes"] = total(daemon, "roundhouse_device_pinned_bytes")
    details["arena_bytes"] = total(daemon, "roundhouse_host_arena_bytes")


def next_length(most, tries):
    """The length of rows to try after `tries`, which has what became of each
    length by its tokens. None: no other length is left."""
    passed = [int(length) for length, found in tries.items()
              if found == "passed"]
    others = [int(length) for length in tries if int(length) not in passed]
    if passed and not others:
        return None  # as long as planned
    if passed or len(others) == len(LONGEST_SHARES):
        length = (max(passed, default=0) + min(others)) // 2
    else:
        length = int(LONGEST_SHARES[len(others)] * most)
    length = max(1, length // ROW_TOKENS) * ROW_TOKENS
    return None if str(length) in tries else length


def try_length(run, scratch, daemon, spec, config, details, deadline):
    """Trains in half of the time that is left at most, and ends the job: others
    may follow it. StillRunning if it could not be ended in the other half."""
    now = time.monotonic()
    found = {"gpus": details["gpus"]}
    job = submit(daemon, with_rows(scratch, spec))
    late = None
    try:
        train(run, daemon, job, spec, config, found,
              now + (deadline - now) / 2, *LONGEST_STEPS)
    except Skipped as skipped:
        late = skipped
    finally:
        ended = jobs.cancel(daemon, job, deadline - time.monotonic())
    if late is not None and not ended:
        raise StillRunning(f"{late}, and its slot had not ended when the "
                           "case's time was over")
    if late is not None:
        raise late
    details.update(found, spec={**details["spec"],
                                "max_length": spec["max_length"]})


def train_longest(run, scratch, daemon, spec, config, details, deadline):
    """Rows as long as planned; where they are refused, find no memory or do
    not end in time, shorter ones, and the figures of the longest that pass."""
    planned = details["predicted"].get("longest_sequence")
    if planned is None:
        raise Skipped("no longest row is planned: "
                      + details["predicted"].get("reason", "not feasible"))
    tries = details["tries"] = {}
    most = min(planned, config["max_position_embeddings"])
    while len(tries) < MOST_TRIES and (not tries
                                       or time.monotonic() < deadline):
        length = next_length(most, tries)
        if length is None:
            break
        try:
            try_length(run, scratch, daemon, {**spec, "max_length": length},
                       config, details, deadline)
        except Skipped as skipped:
            tries[str(length)] = f"skipped: {skipped}"
            if isinstance(skipped, StillRunning):
                break  # a shorter one would wait for it
        except Failed as failed:
            tries[str(length)] = f"failed: {failed}"
            if not isinstance(failed, OutOfMemory):
                break  # its length has nothing to do with it
        else:
            tries[str(length)] = "passed"
    words = "; ".join(f"{length} tokens: {found}"
                      for length, found in tries.items())
    # One that the daemon took has to run.
    if any(found.startswith("failed") for found in tries.values()):
        raise Failed(words)
    if "passed" not in tries.values():
        raise Skipped(words)


def run_case(run, scratch, case, details, deadline):
    daemon = jobs.daemon_of(run, scratch, **flags_of(run, case))
    daemon.start()
    try:
        folder = make_model(scratch, case, deadline)
        spec = {"model_name_or_path": folder.name, "dtype": "bf16",
                "determinism": "fast", "max_steps": 100000, "save_steps": 0,
                "learning_rate": 1e-5, "lr_scheduler_type": "constant",
                **case.fields}
        config = case.config()
        details["parameters"] = shapes.parameter_count(config)
        details["device_memory_bytes"] = daemon.flags["device_memory"]
        details["gpus"] = count(daemon) // case.share
        details["predicted"] = (
            predict(run, daemon, folder.name, spec) if case.share == 1 else
            {"reason": "a plan knows no devices that share a GPU"})
        if case.longest:
            details["published_thousand_tokens"] = case.published
            train_longest(run, scratch, daemon, spec, config, details,
                          deadline)
        else:
            train(run, daemon, submit(daemon, with_rows(scratch, spec)), spec,
                  config, details, deadline)
        if not run.options.rehearse and run.gpus:
            try:
                peak = preset_of(run.gpus)[1]
                details["mfu"] = (details["model_tflops"] / peak
                                  / details["gpus"])
            except Skipped as skipped:
                details["mfu_reason"] = str(skipped)
    finally:
        if not daemon.ended():
            daemon.kill()  # the job has no end


def check(run, details):
    details["cases"] = []
    failed = []
    with jobs.scratch_of(run) as scratch:
        for case in CASES[run.kind]:
            entry = {"case": case.name, "status": "passed", "reason": "",
                     "spec": case.fields}
            details["cases"].append(entry)
            left = run.left() - 2
            begun = time.monotonic()
            try:
                if left < LEAST_SECONDS[run.kind]:
                    raise Skipped(f"{max(0, left):.0f} s are left, it needs "
                                  f"{LEAST_SECONDS[run.kind]} s")
                run_case(run, scratch, case, entry,
                         begun + left * (1 - case.reserve))
            except Skipped as skipped:
                entry.update(status="skipped", reason=str(skipped))
            except (Failed, harness.Failure) as error:
                entry.update(status="failed", reason=str(error))
                failed.append(case.name)
                jobs.log_daemons(run, scratch.daemons[-1:])
            entry["seconds"] = round(time.monotonic() - begun, 2)
    if failed:
        raise Failed(f"{', '.join(failed)}: see the cases' reasons")
    if all(entry["status"] == "skipped" for entry in details["cases"]):
        raise Skipped("no case was measured: "
                      + details["cases"][0]["reason"])
