"""`roundhouse sample` through the real daemon, workers and helper."""

import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

EXIT_ERROR, EXIT_NOT_FOUND, EXIT_PRECONDITION, EXIT_QUOTA = 1, 5, 6, 7
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
       "learning_rate": 0.01, "seed": 1}
LORA = {**JOB, "method": "lora", "lora_r": 4, "target_modules": "all-linear",
        "lora_dropout": 0.1}
PROMPTS = ("one two three", "six plus")


def shards(folder):
    """{file: SHA-256} of a folder's weights."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.glob("*.safetensors")}


class SampleTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=40)
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def command(self, model, *words, check=True):
        prompts = [word for prompt in PROMPTS for word in ("-p", prompt)]
        return self.daemon.client("sample", model, *prompts, *words,
                                  check=check)

    def sample(self, model, *words):
        """The answer, with as many samples as prompts."""
        answer = json.loads(self.command(model, "-o", "json", *words).stdout)
        self.assertEqual([sample["prompt"] for sample in answer["samples"]],
                         list(PROMPTS))
        for sample in answer["samples"]:
            self.assertIn(sample["end"], ("end_token", "max_new_tokens",
                                          "context_full"))
            self.assertTrue(sample["tokens"])
        return answer

    def finished(self, **fields):
        job = self.daemon.submit({**JOB, "max_steps": 20, **fields})
        return job, self.daemon.wait(job)

    def long_sample(self):
        """A client that asks for so much that it takes long."""
        client = subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", "sample", "model",
             "--max-new-tokens=1024", "--temperature=100",
             *["-pone"] * 256],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env={"HOME": str(self.scratch.folder)})
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        return client

    def wait_step(self, job, step):
        harness.wait_until(lambda: self.daemon.job(job)["step"] >= step,
                           f"step {step}")

    def check_text(self, sample):
        tokenizer = harness.make_tokenizer()
        self.assertEqual(sample["completion"],
                         tokenizer.decode(sample["tokens"]))


class FinishedTest(SampleTest):
    def test_a_full_job(self):
        job, found = self.finished()
        first = self.sample(job, "--max-new-tokens", 24)
        self.assertEqual(first["source"], found["output_path"])
        for sample in first["samples"]:
            self.check_text(sample)
            self.assertLessEqual(len(sample["tokens"]), 24)
            if sample["end"] == "max_new_tokens":
                self.assertEqual(len(sample["tokens"]), 24)
        # Greedy twice is the same, whatever its name.
        again = self.sample(f"job:{job}", "--max-new-tokens", 24)
        self.assertEqual(again, first)
        path = self.sample(found["output_path"], "--max-new-tokens", 24)
        self.assertEqual(path["samples"], first["samples"])
        shorter = self.sample(job, "--max-new-tokens", 5)
        for long, short in zip(first["samples"], shorter["samples"]):
            self.assertEqual(short["tokens"], long["tokens"][:5])
        shown = self.command(job).stdout
        self.assertEqual(shown.count("--- "), len(PROMPTS))
        self.assertIn(f"{PROMPTS[0]}[[", shown)

    def test_a_checkpoint_and_an_output_name(self):
        job, found = self.finished(save_steps=10, output_name="mine")
        ended = self.sample(job)
        for name in ("mine", "job:mine", f"{job}/checkpoint-20",
                     "mine/checkpoint-20"):
            self.assertEqual(self.sample(name)["samples"], ended["samples"])
        earlier = self.sample(f"{job}/checkpoint-10")
        self.assertEqual(earlier["source"],
                         str(self.daemon.checkpoint(job, 10)))
        self.assertNotEqual(earlier["samples"], ended["samples"])
        done = self.command(f"{job}/checkpoint-15", check=False)
        self.assertEqual(done.returncode, EXIT_NOT_FOUND, done.stderr)
        self.assertIn("checkpoint-15: job-1 has no checkpoint-15; it has "
                      "checkpoint-10, checkpoint-20", done.stderr)
        self.assertEqual(found["output_path"], ended["source"])

    def test_draws_follow_from_the_seed(self):
        job, _ = self.finished()
        draws = [self.sample(job, "--temperature", 2, "--seed", seed)
                 for seed in (1, 1, 2)]
        self.assertEqual(draws[0], draws[1])
        self.assertNotEqual(draws[0], draws[2])

    def test_an_adapter_and_its_base(self):
        base = self.sample("model")
        job, found = self.finished(**LORA)
        adapted = self.sample(job)
        self.assertEqual(adapted["source"], found["output_path"])
        self.assertNotEqual(adapted["samples"], base["samples"])
        self.assertEqual(self.sample(found["output_path"])["samples"],
                         adapted["samples"])
        # An adapter that does nothing is its base.
        untrained, _ = self.finished(**{**LORA, "learning_rate": 0,
                                        "max_steps": 1})
        self.assertEqual(self.sample(untrained)["samples"], base["samples"])
        self.assertEqual(self.sample("model"), base)

    def test_a_chat_template_is_used_unless_raw(self):
        (self.scratch.data / "model/tokenizer_config.json").write_text(
            json.dumps({"eos_token": harness.EOS, "chat_template":
                        "{{ messages[0].content }} is{% if "
                        "add_generation_prompt %} ten{% endif %}"}))
        chat = self.sample("model")
        raw = self.sample("model", "--raw")
        self.assertNotEqual(chat["samples"], raw["samples"])
        done = self.daemon.client(
            "sample", "model", "--raw", "-o", "json", *(
                word for prompt in PROMPTS
                for word in ("-p", prompt + " is ten")))
        written = json.loads(done.stdout)["samples"]
        self.assertEqual([sample["tokens"] for sample in written],
                         [sample["tokens"] for sample in chat["samples"]])


class UnfinishedTest(SampleTest):
    def test_a_running_jobs_checkpoint_changes_nothing(self):
        """And a job that is sampled all along has the bits of one that is
        not."""
        for fields in (JOB, LORA):
            # So many are kept that none goes while it is read.
            spec = {**fields, "lr_scheduler_type": "constant",
                    "save_steps": 5, "save_total_limit": 100}
            job = self.daemon.submit({**spec, "max_steps": 1_000_000})
            # In its directory it is a moment before the job has it.
            harness.wait_until(
                lambda j=job: self.daemon.job(j).get("last_checkpoint_path"),
                "a checkpoint")
            for _ in range(5):
                self.assertIn("checkpoint-", self.sample(
                    job, "--max-new-tokens", 8)["source"])
            end = self.daemon.finish(job)["step"]
            alone = self.daemon.submit({**spec, "max_steps": end})
            self.daemon.wait(alone)
            self.assertEqual(shards(self.daemon.checkpoint(job, end)),
                             shards(self.daemon.checkpoint(alone, end)))

    def test_a_job_without_weights(self):
        job = self.daemon.submit({**JOB, "max_steps": 1_000_000,
                                  "save_steps": 900_000})
        self.wait_step(job, 1)
        done = self.command(job, check=False)
        self.assertEqual(done.returncode, EXIT_PRECONDITION, done.stderr)
        self.assertIn(f"job {job} has no weights yet: its first checkpoint "
                      "comes at step 900000", done.stderr)
        # A paused one has them.
        self.daemon.client("pause", "--give-back", job)
        harness.wait_until(
            lambda: self.daemon.job(job)["state"] == "PAUSED", "PAUSED")
        self.assertIn("checkpoint-", self.sample(job)["source"])

    def test_what_there_is_not(self):
        for name, status, text in (
                ("job-77", EXIT_NOT_FOUND, "there is no job"),
                ("job:nobody", EXIT_NOT_FOUND, "there is no job"),
                ("../elsewhere", EXIT_ERROR, '"../elsewhere" '),
                ("/etc", EXIT_ERROR, '"/etc" '),
                ("nowhere", EXIT_ERROR, '"nowhere"')):
            done = self.command(name, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(f"roundhouse: sample {name}: ", done.stderr)
            self.assertIn(text, done.stderr)
            self.assertEqual(done.stdout, "")
        (self.scratch.data / "model/model.safetensors").unlink()
        done = self.command("model", check=False)
        self.assertEqual(done.returncode, EXIT_ERROR, done.stderr)
        self.assertIn("safetensors", done.stderr)

    def test_a_prompt_without_tokens_is_named(self):
        done = self.daemon.client("sample", "model", "-p", "one", "-p", "",
                                  check=False)
        self.assertEqual(done.returncode, EXIT_ERROR, done.stderr)
        self.assertIn("prompts[1]: has no tokens", done.stderr)


class MemoryTest(SampleTest):
    def needed_bytes(self, spec):
        """Host memory that the job says it needs."""
        poor = self.scratch.daemon(host_memory="1MiB")
        poor.start()
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps(spec))
        done = poor.client("submit", "-f", path, check=False)
        self.assertEqual(done.returncode, EXIT_QUOTA, done.stderr)
        poor.stop()
        return int(re.search(r"needs (\d+) bytes", done.stderr)[1])

    def drawing(self):
        """Whether a sample has uploaded weights."""
        devices = json.loads(self.daemon.client("device", "-o", "json").stdout)
        return any(device["h2d_bytes"] > 0 for device in devices["devices"])

    def test_a_training_job_goes_first(self):
        spec = {**JOB, "max_steps": 5}
        # Room for the job and some pages.
        limit = self.needed_bytes(spec) + (128 << 10)
        self.daemon = self.scratch.daemon(host_memory=limit)
        self.daemon.start()
        clients = [self.long_sample() for _ in range(6)]
        harness.wait_until(self.drawing, "a sample that draws")
        job = self.daemon.submit(spec)
        self.daemon.wait(job)
        refused = 0
        for client in clients:
            _, errors = client.communicate(timeout=harness.DEADLINE_SECONDS)
            if client.returncode == EXIT_QUOTA:
                self.assertIn("RESOURCE_EXHAUSTED: ", errors)
                refused += 1
            else:
                self.assertEqual(client.returncode, 0, errors)
        self.assertGreater(refused, 0)
        # And when it is done they have the room again.
        self.sample(job)


class KilledTest(SampleTest):
    def test_workers_that_die_cost_nothing(self):
        words = ("--max-new-tokens", 100, "--temperature", 1)
        wanted = self.sample("model", *words)
        answers = []

        def ask():
            for _ in range(6):
                answers.append(self.sample("model", *words))
        asking = threading.Thread(target=ask)
        asking.start()
        killed = 0
        for _ in range(2):
            for name in ("0", "1", "files"):
                pid = self.daemon.workers().get(name)
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            # Three deaths over one sample would be its end.
            count = len(answers)
            harness.wait_until(
                lambda count=count: len(answers) > count or
                not asking.is_alive(), "the next answer")
        asking.join(harness.DEADLINE_SECONDS)
        self.assertFalse(asking.is_alive())
        self.assertGreater(killed, 0)
        self.assertEqual(len(answers), 6)
        for answer in answers:
            self.assertEqual(answer, wanted)

    def test_a_client_that_leaves_frees_the_sampler(self):
        client = self.long_sample()
        self.assertIn("sampling from", client.stderr.readline())
        client.kill()
        self.sample("model", "--max-new-tokens", 2)
        harness.wait_until(lambda: not [
            words for words in
            harness.children(self.daemon.process.pid).values()
            if "prepare_sample.py" in " ".join(words)], "the helpers' end")


if __name__ == "__main__":
    unittest.main()
