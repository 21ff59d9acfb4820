"""Tests of the quickstart's parts: data, model, result."""

import datetime
import importlib.util
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_data, make_model, result = map(
    load, ("make_data", "make_model", "result"))


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def start(self, name, *args):
        return subprocess.run(
            [sys.executable, HERE / f"{name}.py", *map(str, args)],
            capture_output=True, text=True, check=False)

    def run_part(self, name, *args):
        done = self.start(name, *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def make_data(self, name, seed):
        out = self.folder / name
        self.run_part("make_data", "--out", out, "--seed", seed, "--train",
                      1000, "--validation", 100)
        return [(out / f"{part}.jsonl").read_text()
                for part in ("train", "validation")]


class DataTest(Scratch):
    def test_answers_are_right(self):
        for day, same, after in (
                ("2024-02-28", "28 February 2024", "29 February 2024"),
                ("2023-02-28", "28 February 2023", "1 March 2023"),
                ("2007-07-09", "9 July 2007", "10 July 2007"),
                ("2039-12-31", "31 December 2039", "1 January 2040")):
            date = datetime.date.fromisoformat(day)
            self.assertEqual(make_data.same_day(date),
                             (f"Write {day} in words.", same))
            self.assertEqual(make_data.next_day(date),
                             (f"Write the day after {day} in words.", after))

    def test_no_question_is_in_both_parts(self):
        parts = [{json.loads(line)["prompt"] for line in text.splitlines()}
                 for text in self.make_data("data", 1)]
        self.assertEqual([len(part) for part in parts], [1000, 100])
        self.assertFalse(parts[0] & parts[1])
        chats = [(self.folder / "data" / f"chat-{part}.jsonl").read_text()
                 for part in ("train", "validation")]
        chats = [[message["content"] for line in text.splitlines()
                  for message in json.loads(line)["messages"][::2]]
                 for text in chats]
        self.assertEqual(list(map(len, chats)), [1000, 100])
        self.assertFalse(set(chats[0]) & set(chats[1]))

    def test_what_is_asked_was_never_trained(self):
        self.make_data("data", 1)
        for prefix in ("", "chat-"):
            with self.subTest(prefix):
                trained = (self.folder / "data" /
                           f"{prefix}train.jsonl").read_text()
                asked = [json.loads(line) for line in (
                    self.folder / "data" /
                    f"{prefix}questions.jsonl").read_text().splitlines()]
                self.assertEqual(len(asked), 100)
                for fact in asked:
                    self.assertNotIn(json.dumps(fact["prompt"]), trained)
                    self.assertTrue(fact["answer"])

    def test_the_seed_decides(self):
        first = self.make_data("a", 1)
        self.assertEqual(first, self.make_data("b", 1))
        self.assertNotEqual(first, self.make_data("c", 2))

    def test_more_dates_than_there_are_is_an_error(self):
        done = self.start("make_data", "--out", self.folder, "--train", 99999)
        self.assertIn("there are only", done.stderr)
        self.assertNotEqual(done.returncode, 0)


class ModelTest(Scratch):
    def setUp(self):
        super().setUp()
        self.make_data("data", 1)
        self.model = self.make_model("model", 1)

    def make_model(self, name, seed):
        self.run_part("make_model", "--text",
                      self.folder / "data" / "train.jsonl", "--out",
                      self.folder / name, "--seed", seed)
        return self.folder / name

    def test_weights_are_as_the_config_says(self):
        config = json.loads((self.model / "config.json").read_text())
        data = (self.model / "model.safetensors").read_bytes()
        size, = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + size])
        self.assertEqual(header.pop("__metadata__"), {"format": "pt"})
        self.assertEqual(size % 8, 0)
        end = 0
        for name, tensor in header.items():
            begin, end_here = tensor["data_offsets"]
            self.assertEqual(begin, end, name)
            self.assertEqual(end_here - begin,
                             4 * math.prod(tensor["shape"]), name)
            end = end_here
        self.assertEqual(8 + size + end, len(data))
        self.assertEqual(len(header), 11 * config["num_hidden_layers"] + 2)
        self.assertLessEqual(config["vocab_size"], 1024)
        self.assertEqual(header["model.embed_tokens.weight"]["shape"],
                         [config["vocab_size"], config["hidden_size"]])
        self.assertTrue(0.9e6 < end / 4 < 1.2e6)

    def test_weights_are_random_with_the_stated_deviation(self):
        data = (self.model / "model.safetensors").read_bytes()
        size, = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + size])
        begin, end = header["model.layers.0.mlp.up_proj.weight"]["data_offsets"]
        values = struct.unpack(f"<{(end - begin) // 4}f",
                               data[8 + size + begin:8 + size + end])
        mean = sum(values) / len(values)
        deviation = math.sqrt(sum(v * v for v in values) / len(values))
        self.assertAlmostEqual(mean, 0, delta=0.001)
        self.assertAlmostEqual(deviation, 0.02, delta=0.001)

    def test_the_seed_decides(self):
        def weights(path):
            return (path / "model.safetensors").read_bytes()
        self.assertEqual(weights(self.model),
                         weights(self.make_model("again", 1)))
        self.assertNotEqual(weights(self.model),
                            weights(self.make_model("other", 2)))


WRONG = "\N{SNOWMAN}\x1b" + "2" * 60


class ResultTest(Scratch):
    def write_job(self, prefix, after, state, steps, right):
        output = self.folder / f"{prefix}out"
        output.mkdir(exist_ok=True)
        (output / "config.json").write_text("{}")
        job = {"name": f"{prefix}job", "state": state, "step": "150",
               "output_path": str(output),
               "eval_history": [
                   # As protobuf's JSON: int64 is text, zero is left out.
                   {**({"step": str(s)} if s else {}),
                    "loss": 6.0 if s == 0 else after} for s in steps],
               "dataset": {"bigram_validation_loss": 1.5}}
        (self.folder / f"{prefix}job.json").write_text(json.dumps(job))
        (self.folder / "data").mkdir(exist_ok=True)
        (self.folder / "data" / f"{prefix}questions.jsonl").write_text(
            '{"prompt": "1 and 1?\\n", "answer": "2"}\n'
            '{"prompt": "1 and 2?\\n", "answer": "3"}\n')
        for when, count in (("before", 0), ("after", right)):
            (self.folder / f"{prefix}{when}.json").write_text(json.dumps(
                {"samples": [{"completion": text if at < count else WRONG}
                             for at, text in enumerate(("2", " 3\n"))]}))

    def show(self, after=0.5, state="SUCCEEDED", steps=(0, 150),
             compute=9.0, chat_after=0.25, questions=None, right=(2, 2)):
        self.write_job("", after, state, steps, right=right[0])
        self.write_job("chat-", chat_after, "SUCCEEDED", (0, 150),
                       right=right[1])
        if questions is not None:
            (self.folder / "data" / "questions.jsonl").write_text(questions)
        name = "roundhouse_device_time_seconds_total"
        (self.folder / "metrics").write_text(
            f"# TYPE {name} counter\n"
            f'{name}{{device="0",state="compute"}} {compute}\n'
            f'{name}{{device="0",state="bubble"}} 1\n'
            f'{name}{{device="0",state="idle"}} 5e+01\n')
        return self.start("result", "--home", self.folder, "--metrics",
                          self.folder / "metrics", "--seconds", "42,77")

    def test_shows_losses_answers_and_bubbles(self):
        done = self.show()
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in ("6.0000    0.5000", "6.0000    0.2500", "loss       ",
                     "1.5000", "of 2 questions                0         2\n",
                     "\n  for instance  1 and 1?\n    before  "
                     f"\\u2603\\x1b{'2' * 27}...\n    after   2\n",
                     "device 0    10.0%", str(self.folder / "out"),
                     str(self.folder / "chat-out"), "42 s", "77 s"):
            self.assertIn(text, done.stdout)

    def test_breaks_no_promise_silently(self):
        for change, message in (
                ({"after": 1.31}, "0.2 nats"),
                ({"after": math.nan}, "0.2 nats"),
                ({"state": "FAILED"}, "ended FAILED"),
                ({"steps": (0, 100)}, "evaluations at steps"),
                ({"steps": (150,)}, "evaluations at steps"),
                ({"compute": 0.0}, "computed nothing"),
                ({"chat_after": 6.5}, "did not fall"),
                ({"chat_after": math.nan}, "did not fall"),
                ({"questions": ""}, "2 samples"),
                ({"right": (1, 2)}, " job answers 50% "),
                ({"right": (2, 1)}, "chat-job answers 50% ")):
            with self.subTest(change):
                done = self.show(**change)
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
