"""What gpu-check finds out about a machine, its GPUs and its LibTorch."""

import json
import os
import pathlib
import re
import subprocess

# As deploy/install-deps pins it.
TORCH_VERSION = "2.11.0"
CUDA_VERSION = "13.0"


ROOT = pathlib.Path(__file__).absolute().parents[2]


def given_environment():
    """This process's without what deploy/gpu-check added: for a Python that
    must find its own modules."""
    ours = str(ROOT / "lib/python")
    given = [path for path in os.environ.get("PYTHONPATH", "").split(":")
             if path not in ("", ours)]
    return {**{name: value for name, value in os.environ.items()
               if name != "PYTHONPATH"},
            **({"PYTHONPATH": ":".join(given)} if given else {})}


def first_line(path, pattern):
    try:
        found = re.search(pattern, pathlib.Path(path).read_text(), re.M)
    except OSError:
        return None
    return found[1].strip() if found else None


def host():
    """Processor, cores that may be used, memory and its NUMA nodes."""
    memory = first_line("/proc/meminfo", r"^MemTotal:\s+(\d+) kB")
    return {
        "processor": first_line("/proc/cpuinfo", r"^model name\s*:(.*)$"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory) * 1024,
        "memory_available_bytes": available_memory(),
        # Through which NCCL copies where GPUs do not reach each other.
        "shared_memory_bytes": size_of("/dev/shm"),
        "numa_nodes": len(list(pathlib.Path("/sys/devices/system/node")
                               .glob("node[0-9]*"))),
        "kernel": os.uname().release,
    }


def size_of(folder):
    """The size of the folder's file system in bytes; 0: there is none."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def available_memory():
    """The free memory of the machine, or of the control group if it has less.
    ROUNDHOUSE_HOST_MEMORY_GIB overrides both, for a virtual machine whose
    memory grows as it is used."""
    given = os.environ.get("ROUNDHOUSE_HOST_MEMORY_GIB")
    if given:
        return int(float(given) * 2**30)
    found = int(first_line("/proc/meminfo", r"^MemAvailable:\s+(\d+) kB"))
    return min([1024 * found, *group_memory(pathlib.Path("/sys/fs/cgroup"))])


def group_memory(folder):
    """[bytes] that a control group (version 2 or 1) has left, file pages that
    it can drop counted as free; [] without a limit."""
    for limit, used, stat in (
            ("memory.max", "memory.current", "memory.stat"),
            ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes",
             "memory/memory.stat")):
        limit, used = (first_line(folder / name, r"^(\d+)$")
                       for name in (limit, used))
        if limit and used:
            droppable = sum(
                int(first_line(folder / stat, rf"^{kind}_file (\d+)$") or 0)
                for kind in ("inactive", "active"))
            return [int(limit) - int(used) + droppable]
    return []


def parse_probe(text):
    """roundhouse-gpu-probe's report (base/wire/gpu_report.h)."""
    lines = text.splitlines()
    if not lines or lines[0] != "roundhouse-gpus 1":
        raise ValueError(f"not a report of roundhouse-gpu-probe: {lines[:1]}")
    found = {"driver": None, "gpus": []}
    for line in lines[1:]:
        name, _, value = line.partition("=")
        if name == "end":
            if int(value) != len(found["gpus"]):
                raise ValueError(f"the report ends with {line}")
            return found
        if name == "gpu":
            found["gpus"].append({"index": int(value)})
        elif found["gpus"]:
            found["gpus"][-1][name] = int(value) if value.isdigit() else value
        else:
            found[name] = value
    raise ValueError("the report of roundhouse-gpu-probe has no end")


def chosen(gpus, devices):
    """The GPUs that --devices names ("cuda", "cuda:0,2-5")."""
    if devices == "cuda":
        return gpus
    by_index = {gpu["index"]: gpu for gpu in gpus}
    found = []
    for part in devices.partition(":")[2].split(","):
        first, _, last = part.partition("-")
        for index in range(int(first), int(last or first) + 1):
            if index not in by_index:
                raise ValueError(f"--devices={devices}: no GPU {index} that "
                                 "can be used")
            found.append(by_index[index])
    return found


def separate(gpus):
    """Each once: two devices on one GPU cannot form a group."""
    return list({gpu["uuid"]: gpu for gpu in gpus}.values())


def suite_counts(path):
    """The counts in GoogleTest's JSON; nothing passed where the file is
    missing."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    if not path.exists():
        return counts
    for suite in json.loads(path.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            if case.get("failures"):
                counts["failed"] += 1
            elif case["result"] == "COMPLETED":
                counts["passed"] += 1
            else:
                counts["skipped"] += 1
    return counts


# --- LibTorch ---


def installed_torch():
    """The folder of the torch that the python3 on PATH imports."""
    done = subprocess.run(
        ["python3", "-c", "import importlib.util\n"
         "found = importlib.util.find_spec('torch')\n"
         "print(list(found.submodule_search_locations)[0] if found else '')"],
        capture_output=True, text=True, check=False,
        env=given_environment())
    folder = done.stdout.strip()
    if not folder:
        raise ValueError("the python3 on PATH has no torch; install "
                         f"torch=={TORCH_VERSION}, or say --torch-dir")
    return pathlib.Path(folder)


def torch_version(folder):
    """("2.11.0+cu130", "13.0")"""
    path = folder / "version.py"
    try:
        text = path.read_text()
    except OSError as error:
        raise ValueError(f"--torch-dir: {error}") from error
    def value(name):
        found = re.search(rf"^{name}\b.*=\s*['\"](.+?)['\"]", text, re.M)
        return found[1] if found else None
    return value("__version__"), value("cuda")


def library_path(folder):
    """The library folders of the wheels beside torch's, as its own run path
    has them."""
    beside = sorted(str(path) for path in
                    (folder.parent / "nvidia").glob("*/lib"))
    return ":".join([str(folder / "lib"), *beside])


def check_torch(folder, worker):
    """ValueError unless `folder` is the torch that `worker` was linked with
    and all that `worker` loads is found with it."""
    version, cuda = torch_version(folder)
    if (version or "").partition("+")[0] != TORCH_VERSION or (
            cuda != CUDA_VERSION):
        raise ValueError(
            f"--torch-dir: {folder} is torch {version} with CUDA {cuda}; this "
            f"build needs torch=={TORCH_VERSION} with CUDA {CUDA_VERSION}")
    library = folder / "lib/libtorch_cpu.so"
    if not library.exists():
        raise ValueError(f"--torch-dir: {library} is missing")
    done = subprocess.run(
        ["ldd", worker], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": library_path(folder)})
    if done.returncode != 0:
        raise ValueError(f"{worker}: {done.stderr.strip()}")
    missing = re.findall(r"(\S+) => not found", done.stdout)
    if missing:
        raise ValueError(f"--torch-dir: beside {folder} there is no "
                         f"{', '.join(sorted(set(missing)))}")
    loaded = re.search(r"libtorch_cpu\.so => (\S+)", done.stdout)
    if loaded is None or not os.path.samefile(loaded[1], library):
        raise ValueError(f"{worker} would load "
                         f"{loaded[1] if loaded else 'no LibTorch'}, not that "
                         f"of {folder}")
