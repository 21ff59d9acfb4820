"""Writes what gpu-check found: report.json, and report.md for people.

report.json has "schema", the version of its form; a field that means something
else comes with another one.
"""

import json

SCHEMA = "roundhouse-gpu-check/1"


def cell(value):
    """A number with three digits, as a table has it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def table(header, rows):
    return ["| " + " | ".join(header) + " |", "|---" * len(header) + "|",
            *("| " + " | ".join(map(cell, row)) + " |" for row in rows), ""]


def gib(count):
    return None if count is None else count / 2**30


def percent(value):
    return None if value is None else f"{100 * value:.1f} %"


def section_of(found, name):
    return next(s for s in found["sections"] if s["name"] == name)


def machine_lines(found):
    details = section_of(found, "machine")["details"]
    if not details.get("host"):
        return []
    host = details["host"]
    lines = [f"Host: {host['processor']}, {host['cores']} cores, "
             f"{gib(host['memory_bytes']):.0f} GiB, {host['numa_nodes']} NUMA "
             f"nodes, Linux {host['kernel']}.", ""]
    if not details.get("gpus"):
        return lines
    lines += [f"Driver {details['driver']}.", ""]
    return lines + table(
        ["GPU", "name", "memory, GiB", "PCIe link now", "at most", "fault"],
        [[gpu["index"], gpu.get("name"), gib(gpu.get("memory_total_bytes")),
          link(gpu, "pcie_generation", "pcie_width"),
          link(gpu, "pcie_max_generation", "pcie_max_width"),
          gpu.get("fault")] for gpu in details["gpus"]])


def link(gpu, generation, width):
    return f"{gpu.get(generation, '?')}.0 x{gpu.get(width, '?')}"


def suite_lines(found):
    suites = section_of(found, "conformance")["details"].get("suites", [])
    if not suites:
        return []
    return ["## Conformance", "", *table(
        ["suite", "passed", "failed", "skipped"],
        [[s["suite"], s["passed"], s["failed"], s["skipped"]]
         for s in suites])]


def figure_lines(found, name, title):
    """A section whose details are plain figures."""
    details = section_of(found, name)["details"]
    rows = [[key.replace("_", " "), value] for key, value in details.items()
            if not isinstance(value, (dict, list))]
    if not rows:
        return []
    return [f"## {title}", "", *table(["figure", "value"], rows)]


SAME = {True: "same", False: "others"}


def peers_lines(found):
    lines = figure_lines(found, "peers", "Sums between devices")
    runs = section_of(found, "peers")["details"].get("runs")
    if not runs:
        return lines
    return lines + table(
        ["--peers", "determinism", "step, s", "gradients D2H, MiB a step",
         "exchanges", "failed", "bytes as with off"],
        [[entry["run"], entry["determinism"], entry["step_seconds"],
          entry["d2h_gradient_bytes_per_step"] / 2**20, entry["exchanges"],
          entry["failed_exchanges"],
          None if entry["run"] == "off" else SAME.get(
              entry.get("bit_identical"))]
         for entry in runs])


def traffic(case, way):
    """The traffic of a step, and its share of what the calibration saw the
    link carry."""
    bytes_ = gib(case.get(f"{way}_bytes_per_step"))
    used = percent(case.get(f"{way}_share_of_measured_link"))
    return bytes_ if used is None else f"{cell(bytes_)} ({used})"


def bound(case):
    """What bounds a step, and how much of what it is to be used to."""
    if case.get("bound") is None:
        return None
    return (f"{case['bound']}, {percent(case['bound_share'])} of "
            f"{100 * case['bound_aim']:.0f} asked: "
            + ("holds" if case["bound_holds"] else "missed"))


def longest_lines(cases):
    cases = [case for case in cases if "tries" in case]
    if not cases:
        return []
    return ["Longest rows, tokens; published: what RoundPipe (arXiv "
            "2604.27085) says of an RTX 4090 (24 GB), in full:", "", *table(
                ["case", "planned", "measured", "published", "tried"],
                [[case["case"], case["predicted"]["longest_sequence"],
                  max((int(length) for length, words in case["tries"].items()
                       if words == "passed"), default=None),
                  thousands(case.get("published_thousand_tokens")),
                  "; ".join(f"{length}: {words}"
                            for length, words in case["tries"].items())]
                 for case in cases])]


def thousands(count):
    return None if count is None else f"{count} thousand"


def bench_lines(found):
    cases = section_of(found, "bench")["details"].get("cases", [])
    if not cases:
        return []
    rows = []
    for case in cases:
        predicted = case.get("predicted", {})
        rows.append([
            case["case"], case.get("step_seconds"),
            predicted.get("step_seconds"), case.get("tokens_per_second"),
            predicted.get("tokens_per_second"), case.get("model_tflops"),
            percent(case.get("mfu")),
            percent(case.get("share_of_measured_matmul")),
            traffic(case, "h2d"), traffic(case, "d2h"),
            percent(case.get("bubble_ratio")),
            percent(predicted.get("bubble_ratio")), bound(case)])
    lines = ["## Bench", "", *table(
        ["case", "step, s", "planned", "tokens/s", "planned",
         "model TFLOP/s", "of the data sheet", "of matmul measured",
         "H2D, GiB a step (of the link)", "D2H", "bubble", "planned",
         "bound"], rows)]
    causes = sorted({cause for case in cases for cause in
                     case.get("bubble_seconds_per_step", {})})
    if causes:
        lines += ["Bubble of a step by cause, seconds:", "", *table(
            ["case", *causes],
            [[case["case"], *(case["bubble_seconds_per_step"].get(cause)
                              for cause in causes)]
             for case in cases if "bubble_seconds_per_step" in case])]
    plans = {case["predicted"]["devices"] for case in cases
             if case.get("predicted", {}).get("devices")}
    if plans:
        lines += [f"Planned: `roundhouse plan` for {', '.join(sorted(plans))}"
                  + (", which this machine has not: a rehearsal."
                     if found["rehearsal"] else "."), ""]
    lines += longest_lines(cases)
    reasons = [f"- {case['case']}: {case['status']}: {cell(case['reason'])}"
               for case in cases if case["reason"]]
    reasons += [f"- {case['case']}: not planned: "
                f"{cell(case['predicted']['reason'])}"
                for case in cases if case.get("predicted", {}).get("reason")]
    reasons += [f"- {case['case']}: what bounds it is not known: "
                f"{case['bound_reason']}"
                for case in cases if "bound_reason" in case]
    return lines + (reasons + [""] if reasons else [])


def markdown(found):
    title = "Rehearsal of gpu-check" if found["rehearsal"] else "gpu-check"
    lines = [f"# {title}", "",
             f"Commit {found['commit']}, {found['started']}, devices "
             f"{found['devices']}, {found['seconds']:.0f} s of "
             f"{found['limit_seconds']:.0f} s.", ""]
    if found["rehearsal"]:
        lines += ["On CPU devices with tiny shapes: no figure of it says "
                  "anything about a GPU.", ""]
    lines += table(["section", "result", "seconds", "reason"],
                   [[s["name"], s["status"], s["seconds"], s["reason"]]
                    for s in found["sections"]])
    lines += machine_lines(found)
    lines += figure_lines(found, "calibration", "Calibration")
    lines += suite_lines(found)
    lines += figure_lines(found, "gradients",
                          "Losses and gradients beside transformers'")
    lines += figure_lines(found, "parity", "Jobs' results in transformers")
    lines += figure_lines(found, "fault", "Fault")
    lines += figure_lines(found, "device_fault", "A device that breaks")
    lines += figure_lines(found, "lending", "Devices that are lent")
    lines += bench_lines(found)
    lines += figure_lines(found, "fp16", "fp16 with a loss scale")
    lines += peers_lines(found)
    lines += figure_lines(found, "growth", "Memory over many steps")
    return "\n".join(lines).rstrip() + "\n"


def write(folder, found):
    (folder / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "report.md").write_text(markdown(found))
