"""Tests of what one run of the dataset helper may take and may open."""

import gzip
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import pyarrow  # noqa: E402  found by the line before
import pyarrow.parquet  # noqa: E402
from common import files, reporting  # noqa: E402
from common.limits import VARIABLE, cpu_time  # noqa: E402
from prepare_testing import (HERE, PREPARE, PrepareTest,  # noqa: E402
                             make_chatml)
from tokens import encoder, template  # noqa: E402

SAMPLE = HERE / "prepare_sample.py"
MIB = 1 << 20
LIMITS = {"memory_bytes": 512 * MIB, "counting_bytes": 1024 * MIB,
          "cpu_seconds": 600, "file_bytes": 64 * MIB}
CHAT = {"messages": [{"role": "user", "content": "one"},
                     {"role": "assistant", "content": "two"}]}
ENDLESS = ("{% generation %}{% for a in range(99999) %}"
           "{% for b in range(99999) %}{% endfor %}{% endfor %}"
           "{% endgeneration %}")


def variables(**more):
    """The environment as the daemon makes it."""
    limits = {"parent": os.getpid(), **LIMITS, **more}
    return {**os.environ, VARIABLE: json.dumps(limits),
            "TOKENIZERS_PARALLELISM": "false"}


class ConfinedTest(PrepareTest):
    """Whole runs with the daemon's limits on."""

    def make_model(self):
        return make_chatml(self.model)

    def run_confined(self, *rows, max_length=64, **more):
        return subprocess.run(
            [sys.executable, PREPARE, "--tokenizer", self.model, "--data",
             self.write(*rows), "--max-length", str(max_length), "--validate"],
            capture_output=True, text=True, env=variables(**more))

    def refused(self, *rows, **more):
        done = self.run_confined(*rows, **more)
        self.assertEqual(done.returncode, 3, done.stderr)
        return json.loads(done.stderr.splitlines()[-1])

    def set_template(self, text):
        (self.model / "chat_template.jinja").write_text(text)

    def test_an_ordinary_dataset_fits(self):
        done = self.run_confined(*[CHAT] * 2000)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")

    def test_every_kind_of_file_fits_what_the_daemon_allows(self):
        """Its own limit: pyarrow's libraries take room."""
        rows = [CHAT] * 2000
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
        packed = pyarrow.BufferOutputStream()
        with pyarrow.CompressedOutputStream(packed, "zstd") as stream:
            stream.write(lines)
        for data in (json.dumps(rows).encode(), sink.getvalue().to_pybytes(),
                     packed.getvalue().to_pybytes(), gzip.compress(lines)):
            done = self.run_confined(data, memory_bytes=2048 * MIB,
                                     counting_bytes=6144 * MIB)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            report = json.loads(done.stdout.splitlines()[-1])["report"]
            self.assertEqual(report["sequences"], 2000)

    def test_the_limits_are_on(self):
        code = ("import os, resource as r, common.limits as p; p.confine();"
                "print([r.getrlimit(k) for k in (r.RLIMIT_AS, r.RLIMIT_CORE,"
                "r.RLIMIT_CPU, r.RLIMIT_FSIZE)], os.nice(0),"
                "open('/proc/self/oom_score_adj').read().strip(),"
                "p.VARIABLE in os.environ)")
        done = subprocess.run([sys.executable, "-c", code], text=True,
                              capture_output=True, cwd=HERE, env=variables())
        self.assertEqual(done.stdout.strip(), str([
            (512 * MIB, 1024 * MIB), (0, 0), (600, 600),
            (64 * MIB, 64 * MIB)]) + f" {min(19, os.nice(0) + 5)} 500 False",
            done.stderr)

    def test_a_template_that_doubles_is_refused_by_line(self):
        self.set_template("{% generation %}{% set n = namespace(t='x') %}"
                          "{% for i in range(64) %}{% set n.t = n.t ~ n.t %}"
                          "{% endfor %}{{ n.t }}{% endgeneration %}")
        found = self.refused(CHAT)
        self.assertEqual(found["line"], 1)
        self.assertIn("the chat template", found["error"])
        self.assertIn("needs more memory than the 512 MiB", found["error"])

    def test_a_row_that_is_too_much_names_itself(self):
        text = "".join(chr(33 + i % 90) for i in range(8 * MIB))
        done = self.run_confined({"text": "one"}, {"text": text})
        said = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertIn({"at": "tokenizing its text", "line": 2,
                       "file": str(self.folder / "data.jsonl")}, said)
        # The tokenizer cannot give up in any other way.
        self.assertEqual(done.returncode, -signal.SIGABRT)
        self.assertIn("memory allocation of", done.stderr)

    def test_what_no_exception_ends_the_kernel_does(self):
        code = ("import common.limits as p, itertools, collections;"
                "p.confine(); p.allow_cpu(0);"
                "collections.deque(itertools.count(), 0)")
        done = subprocess.run([sys.executable, "-c", code], cwd=HERE,
                              env=variables())
        self.assertEqual(done.returncode, -signal.SIGXCPU)

    def test_without_its_daemon_it_reads_nothing(self):
        done = self.run_confined(b"no JSON", parent=1 << 30)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (1, "", ""))

    def test_it_dies_with_its_daemon(self):
        ours, childs = socket.socketpair()
        prompts = self.folder / "prompts"
        prompts.write_text('["one"]')
        # A daemon that starts a helper on descriptors 3 and 4 and waits.
        code = f"""
import json, os, subprocess, sys
limits = {{"parent": os.getpid(), **{LIMITS!r}}}
os.dup2(os.open({str(prompts)!r}, os.O_RDONLY), 3)
os.dup2({childs.fileno()}, 4)
child = subprocess.Popen(
    [sys.executable, {str(SAMPLE)!r}, "--tokenizer", {str(self.model)!r},
     "--model", {str(self.model)!r}], pass_fds=(3, 4), stdout=subprocess.PIPE,
    env={{**os.environ, {VARIABLE!r}: json.dumps(limits)}})
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
        daemon = subprocess.Popen([sys.executable, "-c", code],
                                  pass_fds=(childs.fileno(),), text=True,
                                  stdout=subprocess.PIPE)
        helper = os.pidfd_open(int(daemon.stdout.readline()))
        childs.close()
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()
        # Its end of the socket; ours is open, so nothing else ends it.
        self.assertEqual(ours.recv(1), b"")
        ours.close()
        os.close(helper)


class TemplateTimeTest(PrepareTest):
    def make_model(self):
        return make_chatml(self.model)

    def refused(self, text, *rows):
        (self.model / "chat_template.jinja").write_text(text)
        return self.error(*(rows or [CHAT]))

    def test_an_endless_template_is_refused_by_line(self):
        with mock.patch.object(template, "TEMPLATE_SECONDS", 0.1):
            found = self.refused(ENDLESS)
        self.assertEqual(found["line"], 1)
        self.assertIn("the chat template takes more than 0.1 s of CPU time",
                      found["error"])
        self.assertEqual(signal.getitimer(signal.ITIMER_PROF), (0.0, 0.0))

    def test_a_constant_is_computed_within_the_same_time(self):
        with mock.patch.object(template, "TEMPLATE_SECONDS", 0.1):
            found = self.refused("{{ 7 ** 9999999 }}")
        self.assertIn("compiling the chat template takes more than 0.1 s",
                      found["error"])

    def test_text_is_bounded_while_it_is_written(self):
        with mock.patch.object(template, "MAX_RENDERED_BYTES", 1000):
            found = self.refused(
                "{% for i in range(99999) %}x{% endfor %}"
                "{% generation %}{% endgeneration %}")
        self.assertEqual(found["line"], 1)
        self.assertIn("writes more than 1000 bytes", found["error"])

    def test_nesting_and_numbers_are_refusals(self):
        for text, words in (
                ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "nested too deeply"),
                ("{{ 9.0 ** 99999 }}{% generation %}{% endgeneration %}",
                 "OverflowError"),
                ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"
                 "{% generation %}{% endgeneration %}", "nested too deeply")):
            with self.subTest(text[:20]):
                self.assertIn(words, self.refused(text)["error"])

    def test_a_panic_of_the_tokenizer_is_a_refusal_by_line(self):
        class PanicException(BaseException):
            """As pyo3's: no Exception."""

        def panic(self, texts):
            if any("nine" in text for text in texts):
                raise PanicException("index out of bounds")
            return [[1, 2]] * len(texts)

        with mock.patch.object(encoder.Encoder, "ids",
                               lambda self, rows, texts: self.tokenized(
                                   rows, texts, lambda s: panic(self, s))):
            found = self.error({"text": "one"}, {"text": "nine"})
        self.assertEqual(found["line"], 2)
        self.assertIn("PanicException: index out of bounds", found["error"])


class FilesTest(PrepareTest):
    """What is no regular file, or too large, is refused before it is read."""

    def make_model(self):
        return make_chatml(self.model)

    def refused_file(self, path, words, data=None):
        done = self.prepare(data or self.write(CHAT))
        self.assertEqual(done.returncode, 3, done.stderr)
        found = json.loads(done.stderr)
        self.assertEqual(found["file"], str(path))
        self.assertIn(words, found["error"])

    def test_every_file_of_a_model(self):
        for name in ("tokenizer.json", "tokenizer_config.json",
                     "chat_template.jinja", "special_tokens_map.json",
                     "generation_config.json"):
            path = self.model / name
            kept = path.read_bytes() if path.exists() else None
            for make, words in ((os.mkfifo, "a FIFO"), (os.mkdir, "a folder"),
                                (sparse, "the limit is")):
                with self.subTest(name, words=words):
                    path.unlink(missing_ok=True)
                    make(path)
                    if name == "generation_config.json":
                        (self.model / "tokenizer_config.json").write_text("{}")
                    self.refused_file(path, words)
                    (path.rmdir if words == "a folder" else path.unlink)()
            if kept is not None:
                path.write_bytes(kept)

    def test_the_data(self):
        for make, words in ((os.mkfifo, "a FIFO"), (os.mkdir, "a folder"),
                            (sparse, "the limit is")):
            path = self.folder / f"data {make.__name__}"
            make(path)
            self.refused_file(path, words, path)
        self.refused_file("/dev/zero", "a device", "/dev/zero")

    def test_zeroes_are_not_hashed_to_their_end(self):
        path = self.folder / "holes"
        with open(path, "wb") as file:
            file.truncate(files.MAX_DATA_BYTES)
        self.refused_file(path, "the line is longer than", path)


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(8 << 40)


class RepeatedFieldTest(unittest.TestCase):
    def test_the_one_among_many_is_found_at_once(self):
        pairs = [(str(i), i) for i in range(300000)] + [("299999", 0)]
        with cpu_time(30):
            with self.assertRaisesRegex(ValueError, "'299999' is there twice"):
                reporting.unique_object(pairs)


if __name__ == "__main__":
    unittest.main()
