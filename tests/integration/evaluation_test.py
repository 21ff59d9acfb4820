"""Evaluations between steps, the best model, early stopping and finish, with
the real programs and a tiny model."""

import json
import math
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

STEPS = 12
JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "validation_dataset": "valid.jsonl", "max_length": 32, "batch_size": 8,
       "micro_batch_size": 2, "max_steps": STEPS, "learning_rate": 0.01,
       "lr_scheduler_type": "constant", "seed": 1, "save_steps": 4}
LORA = {"method": "lora", "lora_dropout": 0.1, "target_modules": "all-linear"}
# A rate at which the validation loss soon rises: the training data are few.
OVERFIT = {**JOB, "dataset": "few.jsonl", "max_steps": 60, "save_steps": 0,
           "eval_steps": 2}
LONG = {**JOB, "max_steps": 100_000, "save_steps": 0}


class EvaluationTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=60)
        self.scratch.make_data("few.jsonl", count=8)
        self.scratch.make_data("valid.jsonl", count=12, seed=2)
        self.daemon = self.scratch.daemon(max_running_jobs=1)
        self.daemon.start()

    def run_job(self, spec):
        job = self.daemon.submit(spec)
        return job, self.daemon.wait(job)

    def evaluations(self, job):
        """[(step, loss)] of metrics.jsonl."""
        return [(entry["step"], entry["eval_loss"])
                for entry in self.daemon.metrics(job) if "eval_loss" in entry]

    def training(self, job):
        return [{key: value for key, value in entry.items()
                 if key != "step_seconds"}
                for entry in self.daemon.metrics(job) if "loss" in entry]

    def output(self, found):
        """Tensors and trainer_state.json of a job's result."""
        folder = pathlib.Path(found["output_path"])
        weights = [harness.read_safetensors(path)
                   for path in sorted(folder.glob("*.safetensors"))]
        return weights, json.loads((folder / "trainer_state.json").read_text())

    def weights(self, job, step):
        return harness.read_safetensors(
            self.daemon.checkpoint(job, step) / "model.safetensors")

    def wait_step(self, job, step):
        harness.wait_until(lambda: self.daemon.job(job)["step"] >= step,
                           f"step {step} of {job}", pause=0.02)


class BetweenStepsTest(EvaluationTest):
    def test_training_bits_stay_the_same(self):
        for fields in ({}, {"max_grad_norm": 0}, LORA):
            wanted, _ = self.run_job({**JOB, **fields})
            self.assertEqual([step for step, _ in self.evaluations(wanted)],
                             [0, STEPS])
            for every in (1, 5):
                job, _ = self.run_job({**JOB, **fields, "eval_steps": every})
                self.assertEqual(
                    [step for step, _ in self.evaluations(job)],
                    sorted({*range(0, STEPS + 1, every), STEPS}))
                self.assertEqual(self.training(job), self.training(wanted))
                for step in (4, 8, 12):
                    self.assertEqual(self.daemon.tensors(job, step),
                                     self.daemon.tensors(wanted, step))

    def test_each_is_that_of_a_job_that_ends_there(self):
        job, found = self.run_job({**JOB, "eval_steps": 4})
        losses = dict(self.evaluations(job))
        for step in (4, 8):
            short, _ = self.run_job({**JOB, "max_steps": step})
            self.assertEqual(dict(self.evaluations(short))[step], losses[step])
        self.assertEqual(len(set(losses.values())), 4)
        whole = self.output(found)[1]["log_history"]
        lines = (pathlib.Path(found["output_path"]) / "metrics.jsonl"
                 ).read_text().splitlines()
        self.assertEqual([json.loads(line) for line in lines], whole)
        self.assertEqual([entry["step"] for entry in whole
                          if "loss" in entry], list(range(1, STEPS + 1)))
        history = [entry for entry in whole if "eval_loss" in entry]
        metrics = [entry for entry in self.daemon.metrics(job)
                   if "eval_loss" in entry]
        for logged, written in zip(history, metrics, strict=True):
            for name in ("step", "eval_loss", "eval_perplexity"):
                self.assertEqual(logged[name], written[name])
            self.assertAlmostEqual(written["eval_perplexity"],
                                   math.exp(written["eval_loss"]))
            self.assertIn(f"validation after step {written['step']}: loss ",
                          self.daemon.log(job))

    def test_a_pause_and_a_crash_repeat_none_and_skip_none(self):
        spec = {**JOB, "save_steps": 20, "save_total_limit": 2,
                "eval_steps": 3}
        for way in ("pause", "kill"):
            job = self.daemon.submit({**spec, "max_steps": 1_000_000})
            self.wait_step(job, 22)
            if way == "pause":
                self.daemon.client("pause", job, "--give-back")
                harness.wait_until(
                    lambda job=job: self.daemon.job(job)["state"] == "PAUSED",
                    "PAUSED")
                self.daemon.client("resume", job)
            else:
                self.daemon.kill()
                self.daemon.start()
            end = self.daemon.finish(job)["step"]
            wanted, _ = self.run_job({**spec, "max_steps": end})
            self.assertEqual(self.evaluations(job), self.evaluations(wanted))
            self.assertEqual(self.daemon.tensors(job, end),
                             self.daemon.tensors(wanted, end))


class BestTest(EvaluationTest):
    def test_the_best_is_the_result(self):
        job, found = self.run_job({**OVERFIT, "load_best_model_at_end": True,
                                   "save_total_limit": 1})
        losses = {step: loss for step, loss in self.evaluations(job) if step}
        best = min(losses, key=losses.get)
        self.assertLess(best, OVERFIT["max_steps"])
        weights, state = self.output(found)
        self.assertEqual(weights, [self.weights(job, best)])
        self.assertNotEqual(weights, [self.weights(job, 60)])
        self.assertEqual(self.daemon.checkpoints(job), [best, 60])
        self.assertEqual((state["best_global_step"], state["best_metric"]),
                         (best, losses[best]))
        self.assertEqual(state["best_model_checkpoint"],
                         str(self.daemon.checkpoint(job, best)))
        self.assertIn(f"the output is the model of step {best}, eval_loss",
                      found["message"])

    def test_early_stopping(self):
        whole, _ = self.run_job(OVERFIT)
        job, found = self.run_job({**OVERFIT, "load_best_model_at_end": True,
                                   "early_stopping_patience": 3})
        losses = {step: loss for step, loss in self.evaluations(job) if step}
        end, best = max(losses), min(losses, key=losses.get)
        self.assertLess(end, OVERFIT["max_steps"])
        self.assertEqual(end, best + 3 * OVERFIT["eval_steps"])
        self.assertEqual(self.evaluations(job),
                         self.evaluations(whole)[:len(losses) + 1])
        self.assertEqual(found["step"], end)
        self.assertTrue(self.daemon.checkpoint(job, end).is_dir())
        self.assertTrue(found["message"].startswith(
            f"stopped after step {end} of 60: no better eval_loss in 3 "
            "evaluations; the output is the model of step "
            f"{best}, eval_loss"), found["message"])
        self.assertEqual(self.output(found)[0], [self.weights(job, best)])

    def test_the_best_adapter_is_the_result(self):
        # Two words: adapters learn them and forget the others.
        (self.scratch.data / "narrow.jsonl").write_text(
            '{"text": "one two one two"}\n' * 8)
        job, found = self.run_job({**OVERFIT, **LORA, "max_steps": 12,
                                   "dataset": "narrow.jsonl",
                                   "learning_rate": 0.02,
                                   "load_best_model_at_end": True})
        losses = {step: loss for step, loss in self.evaluations(job) if step}
        best = min(losses, key=losses.get)
        self.assertLess(best, 12)
        self.assertEqual(self.output(found)[0], [harness.read_safetensors(
            self.daemon.checkpoint(job, best) / "adapter_model.safetensors")])


    def test_a_daemon_killed_around_the_best_ends_the_same(self):
        spec = {**OVERFIT, "load_best_model_at_end": True,
                "save_total_limit": 1, "early_stopping_patience": 3}
        job, found = self.run_job(spec)
        wanted = self.outcome(job, found)
        # While a best one is saved, after it, and while the best is exported.
        saves = self.daemon.log(job).count("checkpoint of step")
        self.assertGreaterEqual(saves, 2)
        for point in ("before_rename:1", "after_rename:2",
                      f"before_rename:{saves + 1}"):
            with self.subTest(point=point):
                self.daemon.stop()
                self.daemon.start(kill_at=f"daemon.save.{point}")
                job = self.daemon.submit(spec)
                harness.wait_until(self.daemon.ended, "the daemon's end")
                self.daemon.start()
                self.assertEqual(self.outcome(job, self.daemon.wait(job)),
                                 wanted)

    def outcome(self, job, found):
        weights, state = self.output(found)
        return (self.evaluations(job), weights, found["message"],
                self.daemon.checkpoints(job), state["log_history"],
                state["best_global_step"], state["best_metric"])


class EmptySetTest(EvaluationTest):
    def submit(self, spec):
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps(spec))
        return self.daemon.client("submit", "-f", path, check=False)

    def test_it_is_refused_or_fails_by_its_name(self):
        empty = self.scratch.data / "empty.jsonl"
        empty.write_text("")
        best = {**JOB, "eval_steps": 2, "load_best_model_at_end": True,
                "validation_dataset": "empty.jsonl"}
        done = self.submit(best)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"validation_dataset: {empty}: the file is empty",
                      done.stderr)
        empty.write_text("\n \n")  # only reading it tells
        job = self.submit(best).stdout.strip()
        found = self.daemon.wait(job, "FAILED")
        self.assertEqual(found["reason"], "INVALID_DATASET")
        self.assertIn(f"{empty}: the dataset is empty", found["message"])

    def test_none_is_refused(self):
        for fields in ({"eval_steps": 2}, {"load_best_model_at_end": True},
                       {"early_stopping_patience": 1}):
            spec = {**JOB, **fields}
            del spec["validation_dataset"]
            done = self.submit(spec)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{list(fields)[0]}: needs a validation_dataset",
                          done.stderr)


# What writes that a job is to finish, and how many of its calls go well: the
# look for one at the start, then one mark made, written, synced, renamed, and
# its folder synced.
MARK, MARK_CALLS = "job.finish_mark", 6


class FinishTest(EvaluationTest):
    def test_what_is_there_is_evaluated_saved_and_exported(self):
        job = self.daemon.submit(LONG)
        self.wait_step(job, 3)
        self.daemon.client("finish", job)
        self.daemon.client("finish", job, check=False)  # may have ended
        found = self.daemon.wait(job)
        end = found["step"]
        self.assertEqual(found["message"],
                         f"stopped after step {end} of 100000 on request")
        self.assertEqual([step for step, _ in self.evaluations(job)], [0, end])
        self.assertEqual(self.output(found)[0], [self.weights(job, end)])
        same, _ = self.run_job({**JOB, "max_steps": end, "save_steps": 0})
        self.assertEqual(self.daemon.tensors(job, end),
                         self.daemon.tensors(same, end))

    def test_it_is_kept_over_a_crash(self):
        self.daemon.stop()
        # It dies saving the checkpoint after the last step.
        self.daemon.start(kill_at="daemon.save.before_rename:1")
        job = self.daemon.submit(LONG)
        self.wait_step(job, 3)
        self.daemon.client("finish", job, check=False)  # it may die first
        harness.wait_until(self.daemon.ended, "the daemon's end")
        self.daemon.start()
        found = self.daemon.wait(job)
        self.assertIn(f"its last step is {found['step']}\n",
                      self.daemon.log(job))

    def test_a_second_one_that_fails_undoes_nothing(self):
        self.daemon.stop()
        self.daemon.start(file_fault_at=f"{MARK}:ENOSPC:ever:{MARK_CALLS}")
        job = self.daemon.submit(LONG)
        self.wait_step(job, 3)
        worker = self.daemon.worker("0")
        os.kill(worker, signal.SIGSTOP)  # the step does not end meanwhile
        self.daemon.client("finish", job)
        done = self.daemon.client("finish", job, check=False)
        self.assertIn("No space left", done.stderr)
        os.kill(worker, signal.SIGCONT)
        found = self.daemon.wait(job)
        self.assertEqual(found["message"],
                         f"stopped after step {found['step']} of 100000 on "
                         "request")

    def test_only_a_running_job(self):
        running = self.daemon.submit(LONG)
        self.wait_step(running, 1)
        queued = self.daemon.submit(LONG)
        harness.wait_until(
            lambda: self.daemon.job(queued)["state"] == "QUEUED", "QUEUED")
        done = self.daemon.client("finish", queued, check=False)
        self.assertEqual(done.returncode, 6)
        self.assertIn("a job in state QUEUED can't be finished early: it is "
                      "not RUNNING", done.stderr)
        self.daemon.client("pause", queued)
        done = self.daemon.client("finish", queued, check=False)
        self.assertIn("a job in state PAUSED can't", done.stderr)
        for job in (queued, running):
            self.daemon.client("cancel", job)
        self.daemon.wait(running, "CANCELLED")
        done = self.daemon.client("finish", running, check=False)
        self.assertIn(f"{running} has ended (CANCELLED); there is nothing "
                      "to finish", done.stderr)


if __name__ == "__main__":
    unittest.main()
