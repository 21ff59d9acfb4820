"""`roundhouse dataset` through the real daemon, helper and client."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

EXIT_ERROR, EXIT_QUOTA, EXIT_UNAVAILABLE, EXIT_INTERRUPTED = 1, 7, 8, 130
TEMPLATE = (
    "{% for message in messages %}{{ message.role }} "
    "{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content + eos_token }}{% endgeneration %}"
    "{% else %}{{ message.content }}{% endif %} {% endfor %}")
MAX_LENGTH = 48
# Takes the helper much longer than a client takes to be told no.
MANY_ROWS = 1_000_000
COLOR = re.compile("\x1b\\[(32|0)m")


def conversation(question, answer):
    return {"messages": [{"role": "user", "content": question},
                         {"role": "assistant", "content": answer}]}


class DatasetClientTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.give_template("model", TEMPLATE)
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def write(self, name, rows):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.scratch.data / name).write_text(text, encoding="utf-8")

    def dataset(self, what, name, *words, check=True):
        return self.daemon.client("dataset", what, name, "--model", "model",
                                  "--max-length", MAX_LENGTH, *words,
                                  check=check)

    def as_json(self, what, name, *words):
        return json.loads(
            self.dataset(what, name, *words, "-o", "json").stdout)

    def command(self, *words):
        return [harness.ROOT / "client/roundhouse",
                f"--server=unix:{self.daemon.socket}", "dataset", *words,
                "--model=model", f"--max-length={MAX_LENGTH}"]

    def helpers(self):
        """Process ids of helpers that read for a client."""
        return [pid for pid, words in
                harness.children(self.daemon.process.pid).items()
                if "--validate" in words or "--preview" in words]

    def on_terminal(self, *words, **environment):
        """What the client shows on a terminal."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
                self.command(*words), stdin=subprocess.DEVNULL, stdout=theirs,
                stderr=subprocess.PIPE,
                env={"HOME": str(self.scratch.folder), "TERM": "xterm",
                     **environment}) as client:
            os.close(theirs)
            shown = b""
            try:
                while part := os.read(ours, 65536):
                    shown += part
            except OSError:  # how a terminal ends
                pass
            errors = client.stderr.read()
            self.assertEqual(client.wait(), 0, errors)
        os.close(ours)
        return shown.decode().replace("\r\n", "\n")

    # Validation.

    def test_validate_counts_what_a_job_is_trained_on(self):
        words = harness.WORDS
        self.write("chat.jsonl", [{**conversation(words[i % 7], words[i % 11]),
                                   "id": i} for i in range(20)])
        for packing in (False, True):
            job = self.daemon.submit({
                "model_name_or_path": "model", "dataset": "chat.jsonl",
                "max_length": MAX_LENGTH, "packing": packing, "batch_size": 2,
                "max_steps": 1})
            self.daemon.wait(job)
            manifest = json.loads(
                (self.daemon.directory(job) / "data/train/manifest.json")
                .read_text())
            found = self.as_json("validate", "chat.jsonl",
                                 *["--packing"] * packing)
            for name in ("format", "rows", "sequences", "tokens",
                         "target_tokens", "max_sequence_tokens", "truncated"):
                self.assertEqual(found[name], manifest[name], name)
            self.assertEqual(found.get("packed_rows"),
                             manifest.get("packed_rows"))
            self.assertEqual(found["ignored_fields"],
                             [{"name": "id", "rows": 20}])
        jobs = json.loads(self.daemon.client("list", "-o", "json").stdout)
        self.assertEqual(len(jobs.get("jobs", jobs)), 2)

    def test_truncated_and_dropped_rows_are_named(self):
        self.write("text.jsonl", [{"text": "one two"}, {"text": "six " * 90},
                                  {"text": ""}, {"text": "two one"}])
        cut = self.as_json("validate", "text.jsonl")
        self.assertEqual((cut["truncated"], cut["truncated_lines"]), (1, [2]))
        left = self.as_json("validate", "text.jsonl", "--truncation", "drop")
        self.assertEqual(left["sequences"], 2)
        self.assertIn({"reason": "too_long", "rows": 1, "lines": [2]},
                      left["dropped"])
        self.assertIn({"reason": "all_labels_masked", "rows": 1, "lines": [3]},
                      left["dropped"])
        shown = self.dataset("validate", "text.jsonl", "--truncation", "drop")
        self.assertIn("1 too_long (line 2)\n", shown.stdout)

    def test_a_bad_dataset_is_refused_with_its_line(self):
        self.write("bad.jsonl", [{"text": "one"}, {"text": 2}])
        for what in ("validate", "preview"):
            done = self.dataset(what, "bad.jsonl", check=False)
            self.assertEqual(done.returncode, EXIT_ERROR, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertRegex(done.stderr,
                             r"\Aroundhouse: /\S+/bad\.jsonl:2: .*'text'")

    def test_rows_longer_than_the_model_allows_are_refused(self):
        self.write("text.jsonl", [{"text": "one two"}] * 100)
        for what, *packing in (("validate",), ("preview",),
                               ("validate", "--packing")):
            done = self.daemon.client(
                "dataset", what, "text.jsonl", "--model", "model",
                "--max-length", 129, *packing, check=False)
            self.assertEqual(done.returncode, EXIT_ERROR, done.stdout)
            self.assertIn("text.jsonl: flag --max-length: 129 tokens; the "
                          "model allows 128", done.stderr)
        found = json.loads(self.daemon.client(
            "dataset", "validate", "text.jsonl", "--model", "model",
            "--max-length", 128, "--packing", "-o", "json").stdout)
        self.assertLessEqual(found["max_row_tokens"], 128)
        self.assertLess(100, found["max_row_tokens"])

    def test_paths_stay_under_the_data_roots(self):
        self.write("text.jsonl", [{"text": "one two"}])
        for name, model, told in (
                ("../daemon.log", "model", '"../daemon.log" '),
                ("/etc/passwd", "model", '"/etc/passwd" '),
                ("missing.jsonl", "model", '"missing.jsonl" '),
                ("text.jsonl", "nowhere", 'flag --model: "nowhere" '),
                ("text.jsonl", "job:job-9", "flag --model: ")):
            done = self.daemon.client("dataset", "validate", name, "--model",
                                      model, check=False)
            self.assertEqual(done.returncode, EXIT_ERROR, done.stderr)
            self.assertIn(f"roundhouse: dataset validate {name}: {told}",
                          done.stderr)

    # Preview.

    def test_preview_marks_what_is_trained(self):
        self.write("chat.jsonl", [conversation("one plus two", "three"),
                                  conversation("two plus two", "four"),
                                  conversation("one", "one")])
        found = self.as_json("preview", "chat.jsonl", "-n", "2")
        self.assertEqual([sample["line"] for sample in found["samples"]],
                         [1, 2])
        for sample, answer in zip(found["samples"], ("three", "four")):
            trained = [span["text"] for span in sample["spans"]
                       if span["trained"]]
            # The token that begins the answer has the space before it.
            self.assertEqual(trained, [" " + answer + harness.EOS])
        shown = self.dataset("preview", "chat.jsonl").stdout
        self.assertEqual(shown.count("--- line"), 3)
        self.assertIn("user one plus two assistant"
                      f"[[ three{harness.EOS}]]", shown)

    def test_control_characters_never_reach_the_terminal(self):
        self.write("chat.jsonl", [conversation(
            "\x1b]0;owned\a\x1b[2J\r\x7f", "\u009b31m\u202eyes\nno")])
        shown = self.on_terminal("preview", "chat.jsonl")
        self.assertIn("\x1b[32m", shown)
        self.assertIn("yes\nno", shown)
        rest = COLOR.sub("", shown)
        plain = self.on_terminal("preview", "chat.jsonl", NO_COLOR="1")
        self.assertIn("[[", plain)
        text = self.on_terminal("preview", "chat.jsonl", "-o", "json")
        for output in (rest, plain, text,
                       self.dataset("preview", "chat.jsonl").stdout):
            self.assertNotRegex(
                output, "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
        self.assertIn("\\x1b]0;owned\\x07", rest)

    # Dry runs.

    def dry_run(self, check=True, **fields):
        path = self.scratch.folder / "job.yaml"
        if "num_train_epochs" not in fields:
            fields = {"max_steps": 5, **fields}
        path.write_text(json.dumps({
            "model_name_or_path": "model", "dataset": "chat.jsonl",
            "max_length": MAX_LENGTH, "batch_size": 2, **fields}))
        return self.daemon.client("submit", "-f", path, "--dry-run", "-o",
                                  "json", "--request-id", "mine", check=check)

    def needs(self, **fields):
        return json.loads(self.dry_run(**fields).stdout)["needs"]

    def test_a_dry_run_says_what_the_job_needs(self):
        self.write("chat.jsonl", [conversation("one", "two")] * 4)
        dry = json.loads(self.dry_run().stdout)
        self.assertEqual([span["text"] for span in dry["sample"]["spans"]
                          if span["trained"]], [" two" + harness.EOS])
        needs = dry["needs"]
        self.assertNotIn("step_seconds", needs)
        self.assertEqual(needs["steps"], 5)
        # The same request_id makes a job now: none was stored.
        path = self.scratch.folder / "job.yaml"
        job = self.daemon.client("submit", "-f", path, "--request-id", "mine",
                                 "--wait").stdout.strip()
        self.assertEqual(job, "job-1")
        parameters = sum(
            len(data) // 4 for _, _, data in harness.read_safetensors(
                self.daemon.checkpoint(job, 5) / "model.safetensors").values())
        self.assertEqual(needs["parameters"], parameters)
        self.assertEqual(needs["trainable_parameters"], parameters)
        self.assertEqual(needs["export_bytes"], 4 * parameters)
        self.assertEqual(needs["checkpoint_bytes"], 16 * parameters)
        self.assertEqual(needs["checkpoint_count"], 1)
        self.assertEqual(needs["disk_bytes"], 20 * parameters)
        self.assertGreater(needs["host_state_bytes"], 20 * parameters)
        self.assertEqual(needs["host_limit_bytes"], 256 << 20)
        self.assertGreater(needs["disk_free_bytes"], needs["disk_bytes"])
        self.assertEqual(needs["disk_path"], str(self.daemon.state))

    def test_a_dry_run_knows_the_time_of_a_job_like_it(self):
        self.write("chat.jsonl", [conversation("one", "two")] * 4)
        self.dry_run()
        path = self.scratch.folder / "job.yaml"
        job = self.daemon.client("submit", "-f", path, "--wait").stdout.strip()
        seconds = [entry["step_seconds"] for entry in self.daemon.metrics(job)]
        needs = self.needs(learning_rate=0.5, max_steps=70)
        self.assertAlmostEqual(needs["step_seconds"],
                               sum(seconds) / len(seconds))
        self.assertTrue(needs["measured_in"].endswith("/" + job))
        self.assertEqual(needs["steps"], 70)
        # Four rows, two a step.
        self.assertEqual(self.needs(num_train_epochs=3)["steps"], 6)
        self.assertNotIn("step_seconds", self.needs(batch_size=1))

    def test_a_dry_run_of_an_adapter_trains_less(self):
        self.write("chat.jsonl", [conversation("one", "two")] * 4)
        full = self.needs()
        lora = self.needs(method="lora", lora_r=2, save_steps=1,
                          save_total_limit=3)
        self.assertLess(lora["trainable_parameters"],
                        full["trainable_parameters"])
        self.assertEqual(lora["parameters"], full["parameters"] +
                         lora["trainable_parameters"])
        self.assertGreater(lora["host_base_bytes"], 0)
        self.assertEqual(full["host_base_bytes"], 0)
        self.assertEqual(lora["checkpoint_bytes"],
                         16 * lora["trainable_parameters"])
        self.assertEqual(lora["checkpoint_count"], 4)

    def test_a_dry_run_of_bad_data_fails(self):
        self.write("chat.jsonl", [{"text": 3}])
        done = self.dry_run(check=False)
        self.assertEqual(done.returncode, EXIT_ERROR)
        self.assertIn("chat.jsonl:1", done.stderr)

    def test_a_job_that_does_not_fit_on_the_disk_is_refused(self):
        self.write("chat.jsonl", [conversation("one", "two")] * 4)
        for words in ([], ["--dry-run"]):
            path = self.scratch.folder / "job.yaml"
            path.write_text(json.dumps({
                "model_name_or_path": "model", "dataset": "chat.jsonl",
                "max_length": MAX_LENGTH, "max_steps": 1_000_000_000,
                "save_steps": 1}))
            done = self.daemon.client("submit", "-f", path, *words,
                                      check=False)
            self.assertEqual(done.returncode, EXIT_QUOTA)
            for part in ("the job needs", "of disk",
                         "1000000000 checkpoints at once", "save_total_limit",
                         f"are free in {self.daemon.state}"):
                self.assertIn(part, done.stderr)
        self.assertEqual(
            json.loads(self.daemon.client("list", "-o", "json").stdout)["jobs"],
            [])

    # Processes.

    def test_large_ones_hold_up_no_small_one_and_none_is_left_behind(self):
        row = json.dumps({"text": " ".join(harness.WORDS)}) + "\n"
        (self.scratch.data / "large.jsonl").write_text(row * MANY_ROWS)
        self.write("text.jsonl", [{"text": "one two"}])
        clients = [subprocess.Popen(
            self.command("validate", "large.jsonl"), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={"HOME": str(self.scratch.folder)}) for _ in range(3)]
        for client in clients:
            self.addCleanup(client.communicate)
            self.addCleanup(client.kill)
        harness.wait_until(lambda: len(self.helpers()) == 2, "two helpers")
        self.assertEqual(self.as_json("validate", "text.jsonl")["rows"], 1)
        self.assertEqual(len(self.helpers()), 2)  # the third large one waits
        # One is told to leave, the others just die.
        clients[0].send_signal(signal.SIGINT)
        for client in clients[1:]:
            client.kill()
        self.assertEqual(clients[0].wait(harness.DEADLINE_SECONDS),
                         EXIT_INTERRUPTED)
        harness.wait_until(lambda: not self.helpers(), "helpers' end")
        self.assertEqual(self.as_json("validate", "text.jsonl")["rows"], 1)

    def test_a_stopping_daemon_ends_the_reading(self):
        row = json.dumps({"text": " ".join(harness.WORDS)}) + "\n"
        (self.scratch.data / "large.jsonl").write_text(row * MANY_ROWS)
        with subprocess.Popen(
                self.command("validate", "large.jsonl"),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
                env={"HOME": str(self.scratch.folder)}) as client:
            helper = harness.wait_until(self.helpers, "helper")[0]
            self.daemon.stop()
            _, errors = client.communicate(timeout=harness.DEADLINE_SECONDS)
            self.assertEqual(client.returncode, EXIT_UNAVAILABLE, errors)
        self.assertFalse(pathlib.Path(f"/proc/{helper}").exists())


if __name__ == "__main__":
    unittest.main()
