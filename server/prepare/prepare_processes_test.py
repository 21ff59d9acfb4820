"""Tests of tokenising in several processes: the bytes, the errors and the
warnings are those of one."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import prepare_processes  # noqa: E402  found by the line before
from prepare_testing import (CHATML, PREPARE, WORDS, PrepareTest,  # noqa: E402
                             make_chatml)
from rows import dataset  # noqa: E402
from tokens.encoder import Encoder  # noqa: E402

BATCH_ROWS = 8
MOST_SECONDS = 120
FAR = 20 * BATCH_ROWS  # a row that another process encodes


def texts(rows):
    return [{"text": " ".join(WORDS[:1 + row % len(WORDS)])}
            for row in range(rows)]


def chats(rows):
    """Some with what is warned of: fields that nothing reads, calls with
    arguments in a string, control tokens."""
    found = []
    for row in range(rows):
        answer = {"role": "assistant", "content": WORDS[row % len(WORDS)]}
        if row % 7 == 3:
            answer[f"field{row}"] = "x"
        if row % 11 == 4:
            answer["content"] += "<|im_start|>"
        if row % 13 == 5:
            answer["tool_calls"] = [{"type": "function", "function": {
                "name": "f", "arguments": '{"a": 1}'}}]
        found.append({"messages": [{"role": "user", "content": f"say {row}"},
                                   answer]})
    return found


class ProcessesTest(PrepareTest):
    def make_model(self):
        return make_chatml(self.model, CHATML)

    def setUp(self):
        super().setUp()
        small = mock.patch.object(dataset, "BATCH_ROWS", BATCH_ROWS)
        small.start()
        self.addCleanup(small.stop)

    def assert_same(self, rows, *more):
        """What one process makes of them, several make: returns it."""
        path = self.write(*rows)
        outs = []
        for processes in (1, 2, 5):
            out = f"out{processes}"
            done = self.prepare(path, *more, "--processes", processes, out=out)
            self.assertEqual(done.returncode, 0, done.stderr)
            said = [line for line in done.stdout.splitlines()
                    if '"progress"' not in line]
            files = {file.name: file.read_bytes()
                     for file in (self.folder / out).iterdir()}
            outs.append((said, files))
        self.assertEqual(outs[0], outs[1])
        self.assertEqual(outs[0], outs[2])
        self.assertIn("manifest.json", outs[0][1])
        return json.loads(outs[0][1]["manifest.json"])

    def test_texts(self):
        self.assertEqual(self.assert_same(texts(500))["rows"], 500)

    def test_packed_and_split(self):
        self.assert_same(texts(500), "--packing")
        self.assert_same(texts(300), "--truncation", "split",
                         "--max-length", 8)

    def test_chats_and_what_is_noted_of_them(self):
        (self.model / "tokenizer_config.json").write_text(json.dumps(
            {"eos_token": "<|endoftext|>", "chat_template": CHATML}))
        manifest = self.assert_same(chats(400))
        kinds = {warning["kind"]: warning["rows"]
                 for warning in manifest["warnings"]}
        self.assertEqual(kinds["unread_fields"], 57)
        self.assertEqual(kinds["tool_arguments"], 31)
        self.assertEqual(kinds["control_tokens"], 36)
        self.assertEqual(kinds["turn_ends"], 1)
        self.assertEqual(len(manifest["turn_end_ids"]), 1)

    def test_what_only_late_rows_use_is_recorded(self):
        (self.model / "tokenizer_config.json").write_text(json.dumps({
            "eos_token": "<|im_end|>", "chat_template": [
                {"name": "default", "template": CHATML},
                {"name": "tool_use",
                 "template": CHATML + "{{ strftime_now('%Y') }}"}]}))
        rows = chats(FAR + 9)
        rows[FAR]["tools"] = [{"type": "function", "function": {"name": "f"}}]
        manifest = self.assert_same(rows, "--template-date", "2026-01-02")
        self.assertEqual(list(manifest["template"]["masks"]),
                         ["default", "tool_use"])
        self.assertEqual(manifest["template"]["date"], "2026-01-02")

    def both(self, rows):
        """The error of several files, each a list of rows, which is the same
        for one process and for several."""
        paths = [self.write(*part, name=f"part{number}.jsonl")
                 for number, part in enumerate(rows)]
        more = [word for path in paths[1:] for word in ("--data", path)]
        errors = []
        for processes in (1, 3):
            done = self.prepare(paths[0], *more, "--processes", processes)
            self.assertEqual(done.returncode, 3, done.stderr)
            errors.append(json.loads(done.stderr))
        self.assertEqual(errors[0], errors[1])
        return errors[0]

    def test_an_error_is_the_first_of_the_rows(self):
        bad = (b'{"messages": [{"role": "user", "content": "a"}, {"role": '
               b'"assistant", "content": "\\ud800"}]}\n')
        template = CHATML.replace("{% for", "{% if 'boom' in "
                                  "messages[0].content %}{{ raise_exception("
                                  "'boom') }}{% endif %}{% for", 1)
        (self.model / "tokenizer_config.json").write_text(json.dumps(
            {"eos_token": "<|im_end|>", "chat_template": template}))
        rows = chats(FAR + 40)
        boom = {"messages": [{"role": "user", "content": "boom"}]}
        # Read before it, tokenised behind it.
        found = self.both([rows[:FAR] + [boom] + rows[:9] + [b"no json\n"]])
        self.assertIn("boom", found["error"])
        self.assertEqual(found["line"], FAR + 1)
        found = self.both([rows[:FAR] + [b"no json\n", boom]])
        self.assertIn("not JSON", found["error"])
        self.assertEqual(found["line"], FAR + 1)
        # It is in the second of several files.
        found = self.both([rows[:50], rows[:FAR] + [boom], rows])
        self.assertEqual((pathlib.Path(found["file"]).name, found["line"]),
                         ("part1.jsonl", FAR + 1))
        self.assertIn("half of a surrogate", self.both(
            [rows[:FAR] + [bad]])["error"])

    def test_a_process_that_dies_costs_nothing(self):
        """Where the kernel ends one, the rest is done by one."""
        here, encode = os.getpid(), Encoder.encode
        for ending in (signal.SIGKILL, signal.SIGXCPU, signal.SIGABRT, None):
            def fragile(encoder, rows, ending=ending):
                if os.getpid() != here and rows[-1].line > FAR:
                    if ending is None:
                        raise MemoryError
                    os.kill(os.getpid(), ending)
                return encode(encoder, rows)
            with mock.patch.object(Encoder, "encode", fragile):
                done = self.prepare(self.write(*chats(400)), "--processes", 3,
                                    out=f"died{ending}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, "")
            self.assertIn("tokenized by one", done.stdout)
        self.prepare(self.write(*chats(400)))
        alone = (self.folder / "out" / "manifest.json").read_bytes()
        for folder in self.folder.glob("died*"):
            self.assertEqual((folder / "manifest.json").read_bytes(), alone)

    def test_a_row_that_cannot_be_sent_is_encoded_here(self):
        rows = [json.dumps(row).encode() + b"\n" for row in chats(400)]
        deep = '{"a": ' * 700 + "1" + "}" * 700
        rows[FAR] = ('{"messages": [{"role": "assistant", "content": "a", '
                     '"tool_calls": [{"name": "f", "arguments": ' + deep +
                     "}]}]}\n").encode()
        manifests = []
        for processes in (1, 3):
            done = self.prepare(self.write(*rows), "--processes", processes)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertNotIn("tokenized by one", done.stdout)
            path = self.folder / "out" / "manifest.json"
            manifests.append(path.read_bytes())
            path.unlink()
        self.assertEqual(*manifests)

    def test_long_rows_take_no_more_memory_than_with_one(self):
        """Each is 48 MB in Python, most of which the template does not read."""
        row = {"messages": [{"role": "assistant", "content": "yes", "note":
                             "\N{GRINNING FACE}" + "x" * 12_000_000}]}
        path = self.write(*[row] * 24)
        limits = {"parent": os.getpid(), "memory_bytes": 900 << 20,
                  "counting_bytes": 900 << 20, "cpu_seconds": 600,
                  "file_bytes": 1 << 40}
        for processes in (1, 8):
            out = self.folder / f"out{processes}"
            done = subprocess.run(
                [sys.executable, "-B", PREPARE, "--tokenizer", self.model,
                 "--data", path, "--out", out, "--max-length", "64", "--split",
                 "train", "--processes", str(processes)],
                capture_output=True, text=True, check=False,
                env={**os.environ, "ROUNDHOUSE_HELPER": json.dumps(limits)})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertNotIn("tokenized by one", done.stdout)
        self.assertEqual((self.folder / "out1/manifest.json").read_bytes(),
                         (self.folder / "out8/manifest.json").read_bytes())

    def test_an_error_of_the_output_ends_all(self):
        with mock.patch("prepare_output.Arrays.put",
                        side_effect=OSError(28, "No space left on device")):
            done = self.prepare(self.write(*texts(400)), "--processes", 3)
        self.assertEqual(done.returncode, 4)
        self.assertEqual(children(os.getpid()), [])

    def test_they_die_with_the_helper(self):
        path = self.write(*texts(200_000))
        helper = subprocess.Popen(
            [sys.executable, "-B", PREPARE, "--tokenizer", self.model,
             "--data", path, "--out", self.folder / "out", "--max-length",
             "64", "--split", "train", "--processes", "2"],
            stdout=subprocess.DEVNULL)
        self.addCleanup(helper.wait)
        self.addCleanup(helper.kill)
        self.wait_until(lambda: helper.poll() is not None or
                        len(children(helper.pid)) >= 2)
        started = children(helper.pid)
        self.assertIsNone(helper.poll())
        helper.kill()
        helper.wait()
        self.wait_until(lambda: not any(map(is_running, started)))

    def wait_until(self, done):
        end = time.monotonic() + MOST_SECONDS
        while not done():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_the_number_is_checked(self):
        for processes in (0, -1, prepare_processes.MAX_PROCESSES + 1):
            done = self.prepare(self.write(*texts(3)), "--processes",
                                processes)
            self.assertEqual(done.returncode, 2)
            self.assertIn("processes must be from 1", done.stderr)


def children(pid):
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        if parent_and_state(folder.name)[0] == str(pid):
            found.append(folder.name)
    return found


def is_running(pid):
    return parent_and_state(pid)[1] not in (None, "Z", "X")


def parent_and_state(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None, None
    state, parent = text.rpartition(")")[2].split()[:2]
    return parent, state


if __name__ == "__main__":
    unittest.main()
