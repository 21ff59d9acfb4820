"""What README and docs/ tell people to type, run as it stands there.

Each document's shell blocks are run in their order, a line at a time, on the
quickstart's model and data under the names that the document has; its job
files are submitted. A person waits for a job to be paused before they resume
it, so does this. Other than there, jobs that are waited for have few steps, and
a checkpoint's number is that of the job's last one. What can't be run here
says so above its block (documents.py), and is printed."""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import documents
import harness

QUICKSTART = harness.ROOT / "deploy/quickstart.d"
RUN = ("README.md", "docs/guide.md", "docs/datasets.md", "docs/job-spec.md",
       "docs/planning.md")
OTHERS = ("docs/admin.md", "docs/benchmarks.md", "docs/metrics.md", "docs/models.md",
          "docs/operations.md", "docs/reliability.md", "ARCHITECTURE.md",
          "CONTRIBUTING.md", "SECURITY.md")
# Models of the quickstart's, by the names that documents give them.
MODELS = ("models/my-qwen3", "models/Qwen3-0.6B", "models/tiny")
# Only planned for: their config.json is enough.
PLANNED = {"models/Qwen3-235B-A22B": "qwen3-235b",
           ".cache/huggingface/hub/models--Qwen--Qwen3-32B/snapshots/1":
               "qwen3-32b"}
CHECKOUT = ("server", "deploy")
DAEMON = "bin/roundhoused --data-root=$HOME --devices=cpu:4 --host-memory=8GiB"
WAITED_FOR_STEPS = 8
FINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}
# What a person waits for after a command.
STATES_AFTER = {"submit": {"RUNNING"} | FINAL, "pause": {"PAUSED"},
                "resume": {"RUNNING"} | FINAL, "finish": FINAL,
                "cancel": FINAL}


def write_program(path, program, *flags):
    words = " ".join(f"'{word}'" for word in (program, *flags))
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(0o700)


class Place:
    """A reader's home: programs, models, data, and maybe a daemon. The
    checkout is elsewhere; what begins with a folder of it is typed there."""

    def __init__(self, folder, inputs):
        self.home = folder / "home"
        shutil.copytree(inputs, self.home, copy_function=os.link)
        self.checkout = folder / "checkout"
        self.checkout.mkdir()
        for name in CHECKOUT:
            (self.checkout / name).symlink_to(harness.ROOT / name)
        bin_folder = self.home / "bin"
        bin_folder.mkdir()
        write_program(bin_folder / "roundhouse",
                      harness.ROOT / "client/roundhouse")
        write_program(
            bin_folder / "roundhoused", harness.ROOT / "server/roundhoused",
            "--metrics-listen=127.0.0.1:0", f"--python={sys.executable}",
            f"--worker-program={harness.ROOT / 'worker/roundhouse-worker'}",
            f"--prepare-script={harness.ROOT / 'server/prepare/prepare.py'}")
        runtime = folder / "run"
        runtime.mkdir()
        self.environment = {
            "HOME": str(self.home), "XDG_RUNTIME_DIR": str(runtime),
            "PATH": f"{bin_folder}:/usr/bin:/bin",
            "ROUNDHOUSE_PYTHON": sys.executable}
        self.log = folder / "daemon.log"
        self.daemon = None

    def shell(self, command):
        there = command.startswith(tuple(f"{name}/" for name in CHECKOUT))
        return subprocess.run(
            ["bash", "-c", command], cwd=self.checkout if there else self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=harness.DEADLINE_SECONDS)

    def start(self, command):
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.home,
                env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log)
        harness.wait_until(
            lambda: self.daemon.poll() is not None or
            self.shell("roundhouse list").returncode == 0, "daemon start")
        if self.daemon.poll() is not None:
            raise harness.Failure(f"{command}:\n{self.log.read_text()}")

    def stop(self):
        if self.daemon is not None:
            self.daemon.terminate()
            try:
                self.daemon.wait(harness.DEADLINE_SECONDS)
            finally:
                self.daemon.kill()

    def newest_job(self):
        return self.shell("roundhouse list -o name --limit=1").stdout.strip()

    def state(self, job):
        return json.loads(self.shell(f"roundhouse get {job} -o json").stdout)

    def wait_for(self, job, states):
        return harness.wait_until(
            lambda: self.state(job)["state"] in states, f"{job}: {states}")

    # As people type it.

    def prepare(self, command):
        """The command with what differs here (see above)."""
        if "--wait" in command:
            text = (self.home / "job.yaml").read_text()
            (self.home / "short.yaml").write_text(re.sub(
                r"(?m)^max_steps: \d+", f"max_steps: {WAITED_FOR_STEPS}",
                text))
            command = command.replace("job.yaml", "short.yaml")

        def last_checkpoint(match):
            path = self.state(match[1])["last_checkpoint_path"]
            return f"{match[1]}/{pathlib.Path(path).name}"
        return re.sub(r"(job-\d+)/checkpoint-\d+", last_checkpoint, command)

    def run(self, command):
        """Raises unless it exits 0; then waits as a person would."""
        if re.match(r"(bin/)?roundhoused ", command):
            self.start(re.sub(r"\s*&?\s*(#.*)?$", "", command))
            return
        command = self.prepare(command)
        done = self.shell(command)
        if done.returncode != 0:
            raise harness.Failure(f"{command}: exit status {done.returncode}\n"
                                  f"{done.stdout}\n{done.stderr}")
        word = re.match(r"(?:bin/)?roundhouse (\w+)(?: (job-\d+))?", command)
        if (word and word[1] in STATES_AFTER and "--dry-run" not in command and
                "--wait" not in command):
            self.wait_for(word[2] or self.newest_job(), STATES_AFTER[word[1]])


def merged(job, fragment):
    """The job file with the fragment's fields in place of its own; without
    the name that a result may have already."""
    fields = ["output_name", *re.findall(r"(?m)^(\w+):", fragment)]
    for field in fields:
        job = re.sub(rf"(?m)^{field}:.*\n", "", job)
    return job + fragment


class DocumentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(harness.Scratch()).folder
        cls.inputs = cls.folder / "inputs"
        data = cls.inputs / "data"
        subprocess.run([sys.executable, QUICKSTART / "make_data.py", "--out",
                        data, "--train", "200", "--validation", "24"],
                       check=True)
        first = cls.inputs / MODELS[0]
        subprocess.run([sys.executable, QUICKSTART / "make_model.py", "--text",
                        data / "train.jsonl", "--out", first], check=True)
        for name in MODELS[1:]:
            shutil.copytree(first, cls.inputs / name, copy_function=os.link)
        for name, source in PLANNED.items():
            (cls.inputs / name).mkdir(parents=True)
            shutil.copy(harness.ROOT / "scheduler/testdata/models" / source /
                        "config.json", cls.inputs / name)
            if name.endswith("/snapshots/1"):
                refs = (cls.inputs / name).parents[1] / "refs"
                refs.mkdir()
                (refs / "main").write_text("1")
        for name, source in (("valid", "validation"),
                             ("conversations", "chat-train"),
                             ("held-out", "chat-validation")):
            os.link(data / f"{source}.jsonl", data / f"{name}.jsonl")

        cls.write_tables(data)

    @staticmethod
    def write_tables(data):
        """The same questions under other names, in two kinds of files."""
        rows = [json.loads(line) for line in
                (data / "train.jsonl").read_text().splitlines()]
        with open(data / "train-1.jsonl", "w") as file:
            for row in rows[::2]:
                file.write(json.dumps({"question": row["prompt"],
                                       "answer": row["completion"]}) + "\n")
        with open(data / "more.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["question", "answer"])
            writer.writerows([row["prompt"], row["completion"]]
                             for row in rows[1::2])

    def run_document(self, name):
        folder = self.folder / re.sub(r"\W", "-", name)
        folder.mkdir()
        place = Place(folder, self.inputs)
        self.addCleanup(place.stop)
        found = documents.blocks(harness.ROOT, name)
        if not any(re.match(r"(bin/)?roundhoused ", line)
                   for block in found if block.language == "sh"
                   for line in block.commands()):
            place.start(DAEMON)
        # A job that runs until it is told.
        (place.home / "long.yaml").write_text(
            "model_name_or_path: models/my-qwen3\ndataset: data/train.jsonl\n"
            "max_steps: 100000\n")
        job = ""
        for block in found:
            with self.subTest(block.place):
                if block.reason:
                    continue
                for command in block.before:
                    place.run(command)
                if block.language == "sh":
                    for command in block.commands():
                        place.run(command)
                elif block.language == "yaml":
                    whole = block.text.startswith("model_name_or_path")
                    job = block.text if whole else job
                    (place.home / "job.yaml").write_text(
                        job if whole else merged(job, block.text))
                    place.run("roundhouse submit -f job.yaml --dry-run")
                    (place.home / "job.yaml").write_text(job)

    def test_readme(self):
        self.run_document("README.md")

    def test_guide(self):
        self.run_document("docs/guide.md")

    def test_datasets(self):
        self.run_document("docs/datasets.md")

    def test_job_spec(self):
        self.run_document("docs/job-spec.md")

    def test_planning(self):
        self.run_document("docs/planning.md")


class BlocksTest(unittest.TestCase):
    def test_what_is_not_run_says_why(self):
        for name in RUN + OTHERS:
            if reason := documents.reason_of_all(harness.ROOT, name):
                print(f"{name}: not run: {reason}")
                self.assertNotIn(name, RUN)
                self.assertGreater(len(reason.split()), 3)
                continue
            for block in documents.blocks(harness.ROOT, name):
                if block.language not in ("sh", "yaml"):
                    continue
                with self.subTest(block.place):
                    if block.reason:
                        print(f"{block.place}: not run: {block.reason}")
                        self.assertGreater(len(block.reason.split()), 3)
                    else:
                        self.assertIn(name, RUN, "no test runs it")
            self.assertEqual(documents.commands_outside(harness.ROOT, name),
                             [])

    def test_every_document_is_looked_at(self):
        there = {f"docs/{path.name}"
                 for path in (harness.ROOT / "docs").glob("*.md")}
        self.assertEqual(there, {name for name in RUN + OTHERS
                                 if name.startswith("docs/")})
        for name in RUN:
            self.assertTrue(any(block.language in ("sh", "yaml") and
                                not block.reason
                                for block in documents.blocks(harness.ROOT,
                                                              name)), name)

    def test_the_reader(self):
        with harness.Scratch() as scratch:
            path = scratch.folder / "x.md"
            path.write_text("<!-- not run: it is an example -->\n"
                            "<!-- before: true -->\n```sh\na \\\n  b\n\nc\n"
                            "```\n```\nroundhouse list\n```\n"
                            "    apt-get install x\n    other\n")
            first, second = documents.blocks(scratch.folder, "x.md")
            self.assertEqual(first.commands(), ["a    b", "c"])
            self.assertEqual((first.place, first.reason, first.before),
                             ("x.md:4", "it is an example", ["true"]))
            self.assertEqual((second.language, second.reason), ("", ""))
            self.assertEqual(
                documents.commands_outside(scratch.folder, "x.md"),
                ["x.md:12: apt-get install x", "x.md:10: roundhouse list"])
            path.write_text("<!-- not run: why -->\n\n```sh\na\n```\n")
            with self.assertRaisesRegex(ValueError, "x.md:2: a direction"):
                documents.blocks(scratch.folder, "x.md")
            path.write_text("```sh\na\n")
            with self.assertRaisesRegex(ValueError, "without its end"):
                documents.blocks(scratch.folder, "x.md")


if __name__ == "__main__":
    unittest.main()
