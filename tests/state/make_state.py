"""Makes a small state directory with jobs in several states, as test data.

    bazel build //tests/integration:lifecycle_test
    python3 tests/state/make_state.py \
        $(bazel info bazel-bin)/tests/integration/lifecycle_test.runfiles/roundhouse \
        tests/state/COMMIT

runs the daemon, the workers and the client of that build (in a checkout of
COMMIT) with CPU workers and writes two folders: `data`, the data root, and
`state`, the state directory as a SIGKILL left it. The Python is the one that
deploy/install-deps made. Paths under the folder in which they were made say
/state-test in its place; old_state_test.py puts its own folder there.

    job-1  SUCCEEDED  adapters, exported as outputs/first
    job-2  FAILED     its data is no JSON
    job-3  CANCELLED
    job-4  PAUSED     after a few of 1,000 steps, with its checkpoint
    job-5  RUNNING    when the daemon was killed, without a checkpoint
    job-6  QUEUED     behind it

requests.json has the request id and the text of every submit.
"""

import json
import os
import pathlib
import shutil
import sqlite3
import sys

PLACE = "/state-test"
SHORT = {"model_name_or_path": "model", "dataset": "train.jsonl",
         "max_length": 32, "batch_size": 4, "micro_batch_size": 2,
         "max_steps": 2, "learning_rate": 0.01, "seed": 1}
PATHS = {"jobs": ("text", "resolved", "output_path", "last_checkpoint",
                  "message"),
         "events": ("message",), "checkpoints": ("path",)}


def run_jobs(harness, scratch):
    """Answers the daemon, killed, and what was submitted."""
    scratch.make_model("model", tied=True, dtype="bf16")
    scratch.make_data("train.jsonl", count=12)
    (scratch.data / "broken.jsonl").write_text("no JSON\n")
    daemon = scratch.daemon(max_running_jobs=1)
    daemon.start()
    requests = {}

    def submit(**fields):
        text = json.dumps({**SHORT, **fields})
        path = daemon.folder / "job.yaml"
        path.write_text(text)
        request = f"request-{len(requests) + 1}"
        made = json.loads(daemon.client(
            "submit", "-f", path, "--request-id", request, "-o",
            "json").stdout)
        job = made["name"].rsplit("/", 1)[1]
        requests[job] = {"request_id": request, "text": text,
                         "uid": made["uid"]}
        return job

    def wait_for(job, **wanted):
        harness.wait_until(
            lambda: all(daemon.job(job)[key] == value
                        for key, value in wanted.items()), f"{job} {wanted}")

    daemon.wait(submit(output_name="first", save_steps=0, method="lora",
                       lora_r=2))
    daemon.wait(submit(dataset="broken.jsonl"), "FAILED")
    cancelled = submit(max_steps=1_000_000, save_steps=0)
    wait_for(cancelled, state="RUNNING")
    daemon.client("cancel", cancelled)
    wait_for(cancelled, state="CANCELLED")
    paused = submit(max_steps=1000, save_steps=0)
    wait_for(paused, state="RUNNING")
    daemon.client("pause", paused)
    wait_for(paused, state="PAUSED")
    wait_for(submit(max_steps=1_000_000, save_steps=0), state="RUNNING")
    wait_for(submit(seed=2), state="QUEUED")
    daemon.kill()
    return daemon, requests


def rename_in_store(path, folder):
    """Folds the WAL into the file, too."""
    store = sqlite3.connect(path, isolation_level=None)
    for table, columns in PATHS.items():
        for column in columns:
            store.execute(f"UPDATE {table} SET {column} = "
                          f"replace({column}, ?, ?)", (folder, PLACE))
    store.execute("VACUUM")
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()


def rename_in_files(root, folder):
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if folder.encode() in content:
                path.write_bytes(content.replace(folder.encode(),
                                                 PLACE.encode()))


def main():
    programs, out = map(pathlib.Path, sys.argv[1:])
    sys.path.insert(0, str(programs.absolute() / "tests/integration"))
    import harness  # of that build

    with harness.Scratch() as scratch:
        daemon, requests = run_jobs(harness, scratch)
        out.mkdir(parents=True)
        shutil.copytree(scratch.data, out / "data")
        shutil.copytree(daemon.state, out / "state")
        folder = str(scratch.folder)
    rename_in_store(out / "state/jobs.db", folder)
    rename_in_files(out, folder)
    for name in ("lock", "jobs.db-shm", "jobs.db-wal"):
        (out / "state" / name).unlink(missing_ok=True)
    (out / "requests.json").write_text(
        json.dumps(requests, indent=1).replace(folder, PLACE) + "\n")
    for path in out.rglob("*"):
        if path.is_file():
            os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
