"""Makes the bundle of deploy/gpu-bundle from built programs.

    pack.py --programs BAZEL_BIN --commit TEXT --out FILE.tar.gz

Run by the Python that has the dataset helper's modules: they are packed. The
same inputs give the same bytes.
"""

import argparse
import gzip
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import run_path

ROOT = pathlib.Path(__file__).absolute().parents[2]
NAME = "roundhouse-gpu"
LIMIT_BYTES = 60_000_000
TORCH = "torch==2.11.0"
PROGRAMS = (
    "server/roundhoused", "client/roundhouse", "worker/roundhouse-worker",
    "worker/probe/roundhouse-gpu-probe",
    "worker/device/cuda/cuda_device_test",
    "worker/model/cuda/cuda_parity_test",
    "worker/model/cuda/cuda_fused_test",
    "worker/model/cuda/roundhouse-gpu-calibrate",
    "tests/parity/cuda_goldens_test",
    # A rehearsal runs the next two.
    "worker/device/cpu/cpu_device_test", "tests/parity/device_goldens_test",
)
FILES = (
    "LICENSE", "deploy/common.sh", "deploy/gpu-check",
    "deploy/gpu-check.d/*.py", "server/prepare/prepare*.py",
    "server/prepare/*/*.py",
    "scheduler/testdata/models/*/config.json", "tests/integration/harness.py",
    "tests/parity/export_check.py", "tests/parity/generate.py",
    "tests/parity/generate_adapters.py", "tests/parity/interchange_test.py",
    "tests/parity/job_check.py", "tests/parity/goldens/**/*.*",
)
LEFT_OUT = re.compile(r"server/prepare/.*_test(ing)?\.py|.*/parts_test\.py")
MODULES = ("tokenizers", "jinja2", "markupsafe")
# What every machine has that has g++'s runtime.
SYSTEM = {"linux-vdso.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1",
          "libstdc++.so.6", "libdl.so.2", "libpthread.so.0",
          "libresolv.so.2", "librt.so.1", "libutil.so.1"}
# Where torch and its wheels have theirs.
LIBTORCH = re.compile(r"/(torch/lib|torch\.libs|nvidia/[^/]+/lib)/")


def libraries(program):
    """{name: path} of what the program loads."""
    done = subprocess.run(["ldd", program], check=True, capture_output=True,
                          text=True, env={"PATH": "/usr/bin:/bin"})
    found = dict(re.findall(r"(\S+) => (\S+)", done.stdout))
    missing = [name for name, path in found.items() if path == "not"]
    if missing:
        sys.exit(f"{program} does not find {missing}")
    return found


def carried(program):
    """{name: path} of those that go along."""
    return {name: path for name, path in libraries(program).items()
            if name not in SYSTEM and not LIBTORCH.search(path)}


def strip(path):
    subprocess.run(["strip", "--strip-all", path], check=True)


def add_program(programs, name, folder):
    """Stripped, and movable: it finds lib/ from where it lies."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(programs / name, target)
    strip(target)
    target.chmod(0o755)
    own = carried(programs / name)
    for library, path in own.items():
        to = folder / "lib" / library
        to.parent.mkdir(exist_ok=True)
        if not to.exists():
            shutil.copyfile(path, to)
            strip_library(to)
    run_path.set_run_path(target, "$ORIGIN/lib" if own else "")
    if own:
        link = target.parent / "lib"
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(folder / "lib", target.parent))
    return sorted(own)


def strip_library(path):
    subprocess.run(["strip", "--strip-unneeded", path], check=True)
    path.chmod(0o644)


def named_files(pattern):
    """What one of FILES means, from the root of the tree."""
    found = [path.relative_to(ROOT) for path in sorted(ROOT.glob(pattern))]
    return [path for path in found if not LEFT_OUT.fullmatch(path.as_posix())]


def add_files(folder):
    for pattern in FILES:
        found = named_files(pattern)
        if not found:
            sys.exit(f"{ROOT} has no {pattern}")
        for path in found:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, target)
            target.chmod(0o755 if os.access(ROOT / path, os.X_OK) else 0o644)


def add_modules(folder):
    """As they are installed, with their licences."""
    versions = {}
    for module in MODULES:
        distribution = importlib.metadata.distribution(module)
        versions[module] = distribution.version
        for file in distribution.files or []:
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            target = folder / "lib/python" / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(distribution.locate_file(file), target)
            if ".so" in file.suffixes:
                strip_library(target)
    return versions


def symbol_versions(folder):
    """The newest of each kind that any program or library asks for."""
    newest = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        data = path.read_bytes()
        if data[:4] != b"\x7fELF":
            continue
        for kind, version in re.findall(
                rb"\b(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)+)\0", data):
            number = tuple(map(int, version.decode().split(".")))
            kind = kind.decode()
            newest[kind] = max(newest.get(kind, ()), number)
    return {kind: ".".join(map(str, number))
            for kind, number in sorted(newest.items())}


def write_archive(folder, out):
    def plain(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        return entry
    with open(out, "wb") as raw, \
            gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, f"{NAME}/{path.relative_to(folder)}",
                        recursive=False, filter=plain)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / NAME
        folder.mkdir()
        own = {name: add_program(args.programs, name, folder)
               for name in PROGRAMS}
        add_files(folder)
        about = {"commit": args.commit, "torch": TORCH,
                 "modules": add_modules(folder), "libraries": own,
                 "needs": symbol_versions(folder)}
        (folder / "bundle.json").write_text(json.dumps(about, indent=1) + "\n")
        write_archive(folder, args.out)
    size = args.out.stat().st_size
    needs = ", ".join(f"{k} {v}" for k, v in about["needs"].items())
    print(f"{args.out}: {size / 1e6:.1f} MB; needs {needs}, python3, "
          f"{TORCH} with CUDA 13.0, a driver")
    if size > LIMIT_BYTES:
        args.out.unlink()
        sys.exit(f"more than {LIMIT_BYTES / 1e6:.0f} MB: removed")


if __name__ == "__main__":
    main()
