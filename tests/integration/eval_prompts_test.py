"""eval_prompts: what a job's weights make of a few prompts before, during and
after training, with the real programs and a tiny model."""

import json
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

STEPS = 12
PROMPTS = ["one two three", "six plus"]
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
       "max_steps": STEPS, "learning_rate": 0.01,
       "lr_scheduler_type": "constant", "seed": 1, "save_steps": 4}
ASKED = {**JOB, "eval_prompts": PROMPTS, "eval_steps": 4}
LORA = {"method": "lora", "lora_dropout": 0.1, "target_modules": "all-linear"}
TEMPLATE = ("{% for message in messages %}{% if message.role == 'assistant' %}"
            "A:{% generation %}{{ message.content }}<|end|>{% endgeneration %}"
            "{% else %}U:{{ message.content }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}A:{% endif %}")


class EvalPromptsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=60)
        self.scratch.make_data("valid.jsonl", count=12, seed=2)
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def run_job(self, spec):
        job = self.daemon.submit(spec)
        return job, self.daemon.wait(job)

    @staticmethod
    def lines(folder):
        text = (pathlib.Path(folder) / "samples.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def drawn(self, folder):
        """{(step, index): tokens}, each there once and in order."""
        lines = self.lines(folder)
        keys = [(line["step"], line["index"]) for line in lines]
        self.assertEqual(keys, sorted(set(keys)))
        return {key: line["tokens"] for key, line in zip(keys, lines)}

    def sample(self, model, *words):
        """What `roundhouse sample` says: [(completion, tokens)]."""
        done = self.daemon.client(
            "sample", model, "-o", "json", "--max-new-tokens", 64, *words,
            *(word for prompt in PROMPTS for word in ("-p", prompt)))
        return [(sample["completion"], sample["tokens"])
                for sample in json.loads(done.stdout)["samples"]]

    def wait_step(self, job, step):
        harness.wait_until(lambda: self.daemon.job(job)["step"] >= step,
                           f"step {step} of {job}", pause=0.02)


class CompletionTest(EvalPromptsTest):
    def check(self, found, folder, step, model, *words):
        """The step's lines say what that model says."""
        lines = [line for line in found if line["step"] == step]
        self.assertEqual([(line["index"], line["prompt"]) for line in lines],
                         list(enumerate(PROMPTS)), folder)
        self.assertEqual([(line["completion"], line["tokens"])
                          for line in lines], self.sample(model, *words))

    def test_each_is_what_the_weights_of_its_step_say(self):
        for fields in ({}, {"dtype": "bf16"}, {"dtype": "fp16"}, LORA):
            with self.subTest(fields=fields):
                job, found = self.run_job({**ASKED, **fields})
                output = found["output_path"]
                lines = self.lines(output)
                self.assertEqual([line["step"] for line in lines],
                                 [0, 0, 4, 4, 8, 8, 12, 12])
                if not fields:
                    self.check(lines, output, 0, "model")
                for step in (4, 8, 12):
                    folder = self.daemon.checkpoint(job, step)
                    self.check(lines, output, step, folder)
                    self.assertEqual(
                        self.lines(folder),
                        [line for line in lines if line["step"] <= step])
                self.assertGreater(
                    len({tuple(line["tokens"]) for line in lines}), 2)

    def test_where_they_are_shown(self):
        job, found = self.run_job({**ASKED, "validation_dataset":
                                   "valid.jsonl"})
        lines = self.lines(found["output_path"])
        self.assertEqual(found["eval_samples"], lines[-2:])
        self.assertEqual(self.lines(self.daemon.directory(job)), lines)
        log = self.daemon.log(job)
        for line in lines:
            self.assertIn(f"after step {line['step']} eval_prompts["
                          f"{line['index']}] is completed by ", log)
        self.assertEqual(found["resolved_spec"]["eval_prompts"], PROMPTS)
        listed = json.loads(self.daemon.client("list", "-o", "json").stdout)
        self.assertNotIn("eval_samples", listed["jobs"][0])

    def test_training_bits_stay_the_same(self):
        for fields in ({}, LORA, {"validation_dataset": "valid.jsonl"}):
            with self.subTest(fields=fields):
                wanted, _ = self.run_job({**JOB, **fields})
                for every in (0, 3):
                    job, _ = self.run_job({**JOB, **fields,
                                           "eval_steps": every,
                                           "eval_prompts": PROMPTS})
                    for step in (4, 8, 12):
                        self.assertEqual(self.daemon.tensors(job, step),
                                         self.daemon.tensors(wanted, step))

    def test_chat_data_are_asked_through_the_template(self):
        self.scratch.give_template("model", TEMPLATE)
        rows = [{"messages": [{"role": "user", "content": "one two"},
                              {"role": "assistant", "content": "three"}]}]
        (self.scratch.data / "chat.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows * 8))
        for data, words in (("chat.jsonl", ()), ("train.jsonl", ("--raw",))):
            _, found = self.run_job({**ASKED, "dataset": data,
                                     "max_length": 64, "max_steps": 4})
            lines = self.lines(found["output_path"])
            self.check(lines, data, 0, "model", *words)
            self.check(lines, data, 4, found["output_path"], *words)


class GoingOnTest(EvalPromptsTest):
    SPEC = {**ASKED, "save_steps": 5, "save_total_limit": 2, "eval_steps": 3}

    def test_deaths_and_pauses_repeat_none_and_skip_none(self):
        for way in ("device", "pause", "kill"):
            with self.subTest(way=way):
                job = self.daemon.submit({**self.SPEC, "max_steps": 1_000_000})
                self.wait_step(job, 6)
                getattr(self, way)(job)
                found = self.daemon.finish(job)
                end = found["step"]
                wanted, other = self.run_job({**self.SPEC, "max_steps": end})
                drawn = self.drawn(other["output_path"])
                self.assertEqual(sorted({step for step, _ in drawn}),
                                 sorted({*range(0, end + 1, 3), end}))
                self.assertEqual(self.drawn(found["output_path"]), drawn)
                self.assertEqual(self.drawn(self.daemon.directory(job)), drawn)
                self.assertEqual(self.daemon.tensors(job, end),
                                 self.daemon.tensors(wanted, end))
                self.assertNotIn("no samples after step", self.daemon.log(job))

    def device(self, _):
        """One after the other; what each of them has is done by another."""
        for index in ("0", "1"):
            os.kill(self.daemon.worker(index), signal.SIGKILL)
            harness.wait_until(lambda index=index:
                               index in self.daemon.workers(), "a new worker")

    def pause(self, job):
        self.daemon.client("pause", job, "--give-back")
        harness.wait_until(
            lambda: self.daemon.job(job)["state"] == "PAUSED", "PAUSED")
        self.daemon.client("resume", job)

    def kill(self, _):
        self.daemon.kill()
        self.daemon.start()

    def test_a_new_job_keeps_the_lines_of_the_one_it_goes_on_from(self):
        first, _ = self.run_job(ASKED)
        start = str(self.daemon.checkpoint(first, 8))
        wanted = self.drawn(self.daemon.checkpoint(first, 12))
        _, found = self.run_job({**ASKED, "resume_from_checkpoint": start})
        self.assertEqual(self.drawn(found["output_path"]), wanted)
        # With other prompts it has its own before its first step.
        _, found = self.run_job({**ASKED, "resume_from_checkpoint": start,
                                 "eval_prompts": ["two"]})
        self.assertEqual(
            [(line["step"], line["prompt"]) for line in
             self.lines(found["output_path"])][6:],
            [(8, "two"), (12, "two")])


class BadPromptsTest(EvalPromptsTest):
    def refused(self, prompts):
        path = self.scratch.folder / "job.json"
        path.write_text(json.dumps({**JOB, "eval_prompts": prompts}))
        done = self.daemon.client("submit", "-f", path, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_at_submit(self):
        self.assertIn("eval_prompts: expected a list of 1 to 16 texts, got 17",
                      self.refused(["one"] * 17))
        self.assertIn("eval_prompts: expected a list of 1 to 16 texts, got 0",
                      self.refused([]))
        self.assertIn("eval_prompts: [1]: expected a text of 1 to 8192 bytes",
                      self.refused(["one", ""]))
        self.assertIn("eval_prompts: [0]: expected a text of 1 to 8192 bytes",
                      self.refused([{"role": "user"}]))

    def fails(self, prompts):
        job = self.daemon.submit({**JOB, "eval_prompts": prompts})
        found = self.daemon.wait(job, "FAILED")
        self.assertEqual(found["reason"], "INVALID_DATASET")
        self.assertEqual(found["step"], 0)
        return found["message"]

    def test_before_training(self):
        self.assertRegex(
            self.fails(["one", "one " * 200]),
            r"eval_prompts\[1\]: has \d+ tokens; with its answer the model has "
            "room for 128: shorten it")

    def chat(self, template):
        self.scratch.give_template("model", template)
        row = {"messages": [{"role": "user", "content": "one"},
                            {"role": "assistant", "content": "two"}]}
        (self.scratch.data / "train.jsonl").write_text(
            (json.dumps(row) + "\n") * 8)

    def test_a_template_that_refuses(self):
        self.chat("{% if messages[0].content == 'six' %}"
                  "{{ raise_exception('no six') }}{% endif %}" + TEMPLATE)
        message = self.fails(["one", "six"])
        self.assertIn("eval_prompts[1]: the chat template refuses", message)
        self.assertIn("no six", message)

    def test_control_tokens_are_a_warning(self):
        self.chat(TEMPLATE)
        job, _ = self.run_job({**JOB, "max_length": 64, "max_steps": 2,
                               "eval_prompts": ["one", "one<|end|>two"]})
        log = self.daemon.log(job)
        self.assertEqual(log.count("WARNING: eval_prompts[1]: has special "
                                   "tokens of the tokenizer"), 1)
        self.assertNotIn("WARNING: eval_prompts[0]", log)


if __name__ == "__main__":
    unittest.main()
