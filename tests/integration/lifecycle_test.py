"""Jobs through their lives, with the real programs and a tiny model."""

import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

SHORT = {"model_name_or_path": "model", "dataset": "train.jsonl",
         "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
         "max_steps": 5, "learning_rate": 0.01, "seed": 1}
ENDLESS = {**SHORT, "max_steps": 1_000_000, "save_steps": 0}
# It is told to finish once it was disturbed; a rate that does not depend on
# the number of steps makes it the same as one of so few.
DISTURBED = {**ENDLESS, "validation_dataset": "valid.jsonl",
             "lr_scheduler_type": "constant"}


def shards(folder):
    """{file: SHA-256} of a folder's weights."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.glob("*.safetensors")}


def alive(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "zombie" not in status


class LifecycleTest(unittest.TestCase):
    known = {}  # job file -> result of its undisturbed run

    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=60)
        self.scratch.make_data("valid.jsonl", count=12, seed=2)
        self.daemon = self.scratch.daemon(max_running_jobs=1)
        self.daemon.start()

    def state(self, job):
        return self.daemon.job(job)["state"]

    def test_the_loop_guard_looks_on(self):
        maps = pathlib.Path(f"/proc/{self.daemon.process.pid}/maps")
        self.assertIn(harness.LOOP_GUARD.name, maps.read_text())

    def all_workers(self):
        """Two devices', host's and files', and what they are forked from."""
        return harness.wait_until(
            lambda: len(found := self.daemon.workers()) == 5 and found,
            "the workers")

    def wait_state(self, job, state):
        harness.wait_until(lambda: self.state(job) == state,
                           f"{job} {state}", pause=0.03)

    def wait_step(self, job, step):
        harness.wait_until(
            lambda: self.daemon.job(job)["step"] >= step,
            f"step {step} of {job}", pause=0.02)

    def change(self, what, job, *flags, status=0):
        done = self.daemon.client(what, job, *flags, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def result(self, job, step):
        """What must not depend on how the job got there."""
        metrics = [{key: value for key, value in entry.items()
                    if key != "step_seconds"}
                   for entry in self.daemon.metrics(job)]
        return shards(self.daemon.checkpoint(job, step)), metrics

    def finish(self, job):
        """Its last step."""
        return self.daemon.finish(job)["step"]

    def undisturbed(self, spec=DISTURBED, **fields):
        """Models and data are the same in every test: so is a job's result."""
        text = json.dumps({**spec, **fields}, sort_keys=True)
        found = self.known.get(text)
        if found is None:
            job = self.daemon.submit(text)
            self.daemon.wait(job)
            found = self.result(job, {**spec, **fields}["max_steps"])
            if "model_init" not in fields:
                self.known[text] = found
        return found

    def assert_same(self, found, wanted):
        self.assertEqual(set(found[0]),
                         {"model.safetensors", "optimizer.safetensors"})
        self.assertEqual(found[0], wanted[0])
        self.assertEqual(found[1], wanted[1])



class QueueTest(LifecycleTest):
    def test_one_runs_the_other_waits(self):
        first = self.daemon.submit(ENDLESS)
        self.wait_step(first, 1)
        second = self.daemon.submit(SHORT)
        self.wait_state(second, "QUEUED")
        self.wait_step(first, self.daemon.job(first)["step"] + 5)
        self.assertEqual(self.state(second), "QUEUED")
        self.change("cancel", first)
        self.daemon.wait(first, "CANCELLED")
        job = self.daemon.wait(second)
        self.assertEqual(job["step"], 5)
        self.assertFalse(list(self.daemon.directory(first).glob("check*")))

    def test_pause_lets_the_next_run_and_resume_keeps_the_bits(self):
        job = self.daemon.submit(DISTURBED)
        self.wait_step(job, 30)
        other = self.daemon.submit(SHORT)
        self.change("pause", job, "--give-back")
        self.wait_state(job, "PAUSED")
        step = self.daemon.job(job)["step"]
        self.assertTrue(self.daemon.checkpoint(job, step).is_dir())
        self.daemon.wait(other)
        self.assertEqual(self.state(job), "PAUSED")
        self.change("resume", job)
        self.wait_step(job, step + 1)
        end = self.finish(job)
        self.assertIn(f"going on from {self.daemon.checkpoint(job, step)}\n",
                      self.daemon.log(job))
        self.assert_same(self.result(job, end),
                         self.undisturbed(max_steps=end))

    def check_it_gives_way(self, job_class, other):
        job = self.daemon.submit({**DISTURBED, "priority": job_class})
        for step in (3, 20, 45):
            self.wait_step(job, step)
            self.daemon.wait(self.daemon.submit({**SHORT, "priority": other}))
            self.wait_state(job, "RUNNING")
        self.assertIn(f"a job of class {other} needs its place",
                      self.daemon.log(job))
        self.assertEqual(self.daemon.job(job)["attempts"], 4)
        end = self.finish(job)
        self.assert_same(self.result(job, end),
                         self.undisturbed(max_steps=end))

    def test_an_urgent_job_takes_the_place_and_the_bits_stay(self):
        self.check_it_gives_way("normal", "urgent")

    def test_a_backfill_job_gives_way_to_a_normal_one(self):
        self.check_it_gives_way("backfill", "normal")

    def test_a_paused_job_keeps_its_memory_and_its_step(self):
        job = self.daemon.submit({**DISTURBED, "save_steps": 0})
        for step in range(1, 40, 3):
            self.wait_step(job, step)
            self.change("pause", job)
            found = self.daemon.job(job)
            self.assertEqual((found["state"], found["memory"]),
                             ("PAUSED", "KEPT"))
            self.assertIn("it keeps its memory", found["message"])
            if step % 2:  # Another one runs meanwhile.
                self.daemon.wait(self.daemon.submit({**SHORT, "max_steps": 1}))
            self.assertEqual(self.daemon.job(job)["memory"], "KEPT")
            self.change("resume", job)
            self.assertEqual(self.daemon.job(job)["attempts"], 1)
        self.assertFalse(self.daemon.job(job).get("last_checkpoint_path"))
        end = self.finish(job)
        self.assert_same(self.result(job, end),
                         self.undisturbed(max_steps=end, save_steps=0))

    def test_a_kill_leaves_it_paused_after_its_last_checkpoint(self):
        fields = {"save_steps": 10, "save_total_limit": 2}
        job = self.daemon.submit({**DISTURBED, **fields})
        self.wait_step(job, 23)
        self.change("pause", job)
        self.daemon.kill()
        self.daemon.start()
        harness.wait_until(
            lambda: self.daemon.job(job).get("memory") == "GIVEN_BACK",
            "memory given back")
        self.assertRegex(self.daemon.job(job)["message"], "after step [23]0")
        self.change("resume", job)
        end = self.finish(job)
        self.assert_same(self.result(job, end),
                         self.undisturbed(max_steps=end, **fields))

    def check_pauses(self, **fields):
        """Soon after some steps, and while it loads. Answers the last step
        and the result."""
        job = self.daemon.submit({**DISTURBED, **fields})
        for step in (0, 1, 2, 15, 16, 30):
            self.wait_step(job, step)
            harness.wait_until(lambda: self.state(job) != "VALIDATING",
                               "validated")
            self.change("pause", job, *["--give-back"] * (step % 2))
            self.wait_state(job, "PAUSED")
            self.change("resume", job)
        end = self.finish(job)
        wanted = self.undisturbed(max_steps=end, **fields)
        self.assert_same(self.result(job, end), wanted)
        return end, wanted

    def test_pause_keeps_both_versions_of_an_asynchronous_optimizer(self):
        end, result = self.check_pauses(optimizer_mode="async")
        self.assertNotEqual(result[0], self.undisturbed(max_steps=end)[0])

    def test_pause_at_any_moment(self):
        self.check_pauses(max_grad_norm=0)

    def test_pause_keeps_the_loss_scale(self):
        """Where some steps overflow: the gradients of few tokens are large."""
        fields = {"fp16": True, "batch_size": 1, "micro_batch_size": 1,
                  "learning_rate": 0.03}
        end, _ = self.check_pauses(**fields)
        job = self.daemon.submit({**DISTURBED, **fields, "max_steps": end})
        self.daemon.wait(job)
        self.assertRegex(self.daemon.log(job), r"step \d+/.*: skipped")

    def test_cancel_in_every_state(self):
        running = self.daemon.submit(ENDLESS)
        queued = self.daemon.submit(SHORT)
        self.wait_state(queued, "QUEUED")
        self.change("cancel", queued)
        self.daemon.wait(queued, "CANCELLED")
        self.assertEqual(self.daemon.job(queued)["step"], 0)
        self.wait_step(running, 3)
        self.change("pause", running)
        self.wait_state(running, "PAUSED")
        self.change("cancel", running)
        self.daemon.wait(running, "CANCELLED")
        for _ in range(5):  # while validating, loading, or in its first steps
            job = self.daemon.submit(ENDLESS)
            self.change("cancel", job)
            self.daemon.wait(job, "CANCELLED")
        twice = self.daemon.submit(ENDLESS)
        self.change("cancel", twice)
        self.change("cancel", twice)  # again is no error
        last = self.daemon.submit(SHORT)
        self.daemon.wait(last)

    def test_queued_job_can_be_paused(self):
        running = self.daemon.submit(ENDLESS)
        queued = self.daemon.submit(SHORT)
        self.wait_state(queued, "QUEUED")
        self.change("pause", queued)
        self.assertEqual(self.state(queued), "PAUSED")
        self.change("cancel", running)
        self.daemon.wait(running, "CANCELLED")
        self.assertEqual(self.state(queued), "PAUSED")
        self.change("resume", queued)
        self.daemon.wait(queued)


class DaemonTest(LifecycleTest):
    def test_sigterm_checkpoints_and_the_next_daemon_goes_on(self):
        job = self.daemon.submit(DISTURBED)
        waiting = self.daemon.submit(SHORT)
        self.wait_step(job, 40)
        self.daemon.stop()  # raises unless it exits 0
        saved = self.daemon.directory(job).glob("checkpoint-*")
        step = max(int(path.name.split("-")[1]) for path in saved)
        self.assertGreaterEqual(step, 40)
        self.daemon.start()
        self.wait_step(job, step + 1)
        end = self.finish(job)
        self.assertIn(f"going on from {self.daemon.checkpoint(job, step)}\n",
                      self.daemon.log(job))
        self.assert_same(self.result(job, end),
                         self.undisturbed(max_steps=end))
        self.daemon.wait(waiting)

    def test_tokens_of_steps_done_twice_count_once(self):
        spec = {**DISTURBED, "max_steps": 120}
        wanted = self.daemon.wait(self.daemon.submit(spec))["tokens"]
        job = self.daemon.submit({**spec, "save_steps": 20})
        harness.wait_until(
            lambda: self.daemon.checkpoint(job, 20).exists(), "a checkpoint")
        self.wait_step(job, 25)
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.daemon.wait(job)["tokens"], wanted)

    def test_sigterm_while_idle_validating_and_loading(self):
        self.daemon.stop()
        for _ in range(3):
            self.daemon.start()
            job = self.daemon.submit(SHORT)
            self.daemon.stop()
        self.daemon.start()
        self.daemon.wait(job)

    def test_second_daemon_on_one_state_directory_is_refused(self):
        before = self.all_workers()
        words = [f"--{key.replace('_', '-')}={value}" for key, value in
                 {**self.daemon.flags, **self.daemon.fixed,
                  "listen": f"unix:{self.scratch.folder}/other"}.items()]
        done = subprocess.run([harness.ROOT / "server/roundhoused", *words],
                              capture_output=True, text=True, check=False,
                              timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"--state-dir: another roundhoused uses "
                      f"{self.daemon.state}", done.stderr)
        self.assertEqual(self.daemon.workers(), before)
        self.daemon.wait(self.daemon.submit(SHORT))

    def test_pause_and_queue_are_kept_over_restarts(self):
        paused = self.daemon.submit(ENDLESS)
        self.wait_step(paused, 2)
        running = self.daemon.submit(ENDLESS)
        queued = self.daemon.submit(SHORT)
        self.change("pause", paused)
        self.daemon.stop()  # while it is pausing, or just after
        self.daemon.start()
        self.wait_step(running, 1)
        self.assertEqual(self.state(paused), "PAUSED")
        # Its data is looked at beside the running job.
        harness.wait_until(lambda: self.state(queued) == "QUEUED", "QUEUED")
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.state(paused), "PAUSED")
        self.change("cancel", running)
        self.daemon.wait(queued)
        self.change("resume", paused)
        self.wait_step(paused, 4)

    def test_daemon_killed_while_it_exports(self):
        fields = {**SHORT, "validation_dataset": "valid.jsonl"}
        wanted = self.undisturbed(fields)
        self.daemon.stop()
        # The first save is the checkpoint, the second the exported model.
        self.daemon.start(kill_at="daemon.save.before_rename:2")
        job = self.daemon.submit({**fields, "output_name": "late"})
        harness.wait_until(self.daemon.ended, "the daemon's end")
        output = self.daemon.state / "outputs/late"
        self.assertFalse(output.exists())
        self.daemon.start()
        found = self.daemon.wait(job)
        self.assertEqual(found["output_path"], str(output))
        self.assert_same(self.result(job, 5), wanted)
        self.assertEqual([path.name for path in output.parent.iterdir()
                          if "tmp-" in path.name], [])

    def test_workers_die_with_their_daemon(self):
        job = self.daemon.submit(ENDLESS)
        self.wait_step(job, 1)
        pids = self.all_workers().values()
        self.daemon.kill()
        harness.wait_until(lambda: not any(map(alive, pids)),
                           "the workers' end")

    def test_host_memory_is_returned(self):
        self.daemon.stop()
        self.daemon.start(metrics_listen="127.0.0.1:0")
        page = re.findall(r"metrics on (127\.0\.0\.1:\d+)",
                          self.daemon.log_path.read_text())[-1]

        def used():
            with urllib.request.urlopen(f"http://{page}/metrics") as answer:
                text = answer.read().decode()
            return sum(float(value) for value in re.findall(
                r"^roundhouse_host_arena_bytes{.*} (.*)$", text, re.M))
        empty = used()
        for end in ("SUCCEEDED", "CANCELLED", "PAUSED"):
            job = self.daemon.submit(SHORT if end == "SUCCEEDED" else ENDLESS)
            if end != "SUCCEEDED":
                self.wait_step(job, 2)
                harness.wait_until(lambda: used() > empty, "memory in use")
                self.change(*(["cancel", job] if end == "CANCELLED" else
                              ["pause", job, "--give-back"]))
            self.wait_state(job, end)
            harness.wait_until(lambda: used() == empty,
                               f"host memory after {end}")


class SubmitTest(LifecycleTest):
    def test_resume_from_another_jobs_checkpoint(self):
        half = self.daemon.submit({**DISTURBED, "output_name": "half"})
        self.wait_step(half, 30)
        self.change("pause", half, "--give-back")
        self.wait_state(half, "PAUSED")
        folder = self.daemon.job(half)["last_checkpoint_path"]
        step = int(folder.rsplit("-", 1)[1])
        end = step + 30
        job = self.daemon.submit(
            {**DISTURBED, "max_steps": end,
             "resume_from_checkpoint": "job:half"})
        self.daemon.wait(job)
        self.assertIn(f"going on from {folder}\n", self.daemon.log(job))
        wanted = self.undisturbed(max_steps=end)
        weights, metrics = self.result(job, end)
        self.assertEqual(weights, wanted[0])
        self.assertEqual(
            metrics, [entry for entry in wanted[1] if entry["step"] > step])

    def test_resolved_spec_gives_the_same_bits(self):
        first = self.daemon.submit(
            "base_model: model\ntraining_file: train.jsonl\n"
            "max_steps: 12\nlearning_rate: 0.01\nwarmup_ratio: 0.3\n"
            "lr_scheduler_type: cosine\nweight_decay: 0.1\nmax_length: 40\n")
        spec = self.daemon.wait(first)["resolved_spec"]
        second = self.daemon.submit(json.dumps(spec))
        again = self.daemon.wait(second)["resolved_spec"]
        self.assertEqual(again, spec)
        self.assert_same(self.result(second, 12), self.result(first, 12))

    def test_output_names_belong_to_one_job(self):
        first = self.daemon.submit({**SHORT, "output_name": "mine"})
        spec = self.daemon.wait(first)["resolved_spec"]
        path = self.scratch.folder / "job.yaml"
        for name, message in (
                ("mine", '"mine" is taken by another job; give another '
                 "output_name"),
                ("job-77", '"job-77" is kept for the job of that id'),
                ("job-007", '"job-007" is kept')):
            for words in ([], ["--dry-run"]):
                path.write_text(json.dumps({**spec, "output_name": name}))
                done = self.daemon.client("submit", "-f", path, *words,
                                          check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"output_name: {message}", done.stderr)
        job = self.daemon.submit({**spec, "output_name": "job-like"})
        self.assertEqual(job, "job-2")  # none was made in between
        self.daemon.wait(job)

    def test_other_devices_same_bits(self):
        first = self.daemon.submit(SHORT)
        spec = self.daemon.wait(first)["resolved_spec"]
        wanted = self.result(first, 5)
        self.daemon.stop()
        self.daemon.start(devices="cpu:3")
        second = self.daemon.submit(json.dumps(spec))
        self.daemon.wait(second)
        self.assert_same(self.result(second, 5), wanted)

    def test_request_id_makes_one_job(self):
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps({**SHORT, "output_name": "once"}))
        words = ("submit", "-f", path, "--request-id", "abc", "-o", "name")
        names = {self.daemon.client(*words).stdout for _ in range(3)}
        self.daemon.kill()
        # The client tries again until the daemon is there.
        client = subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(client.kill)
        line = client.stderr.readline()
        self.assertIn("trying again", line)
        # It gives up after a few seconds: they do not pass before the start.
        client.send_signal(signal.SIGSTOP)
        self.daemon.start()
        client.send_signal(signal.SIGCONT)
        out, errors = client.communicate(timeout=60)
        self.assertEqual(client.returncode, 0, errors)
        self.assertEqual(names, {out})
        jobs = json.loads(self.daemon.client("list", "-o", "json").stdout)
        self.assertEqual(len(jobs["jobs"]), 1)
        path.write_text(json.dumps(SHORT))
        done = self.daemon.client(*words, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"submit {path}: flag --request-id \"abc\" ", done.stderr)

    def test_random_weights_follow_the_seed(self):
        os.unlink(self.scratch.data / "model/model.safetensors")
        fields = {"model_init": "random", "max_steps": 40}
        one, same, other = (self.undisturbed(SHORT, seed=seed, **fields)
                            for seed in (7, 7, 8))
        self.assert_same(same, one)
        self.assertNotEqual(other[0], one[0])
        losses = [entry["loss"] for entry in one[1]]
        self.assertLess(sum(losses[-5:]), sum(losses[:5]) - 5)

    def test_output_is_the_model_of_the_next_job(self):
        first = self.daemon.submit({**SHORT, "output_name": "one"})
        output = self.daemon.wait(first)["output_path"]
        second = self.daemon.submit({**SHORT, "model_name_or_path": "job:one"})
        job = self.daemon.wait(second)
        self.assertEqual(job["resolved_spec"]["model_name_or_path"], output)
        losses = [[entry["loss"] for entry in self.daemon.metrics(name)]
                  for name in (first, second)]
        self.assertLess(losses[1][0], losses[0][0] - 0.3)

    def test_outputs(self):
        job = self.daemon.submit({**SHORT, "validation_dataset": "valid.jsonl",
                                  "logging_steps": 2, "output_name": "mine"})
        found = self.daemon.wait(job)
        folder = pathlib.Path(found["output_path"])
        self.assertEqual(folder.name, "mine")
        self.assertEqual(
            {path.name for path in folder.iterdir()},
            {"config.json", "model.safetensors", "tokenizer.json",
             "tokenizer_config.json", "trainer_state.json",
             "metrics.jsonl", "roundhouse.json"})
        owner = json.loads((folder / "roundhouse.json").read_text())
        self.assertEqual(owner, {"job": job, "job_uid": found["uid"]})
        model = self.scratch.data / "model"
        for name in ("tokenizer.json", "tokenizer_config.json"):
            self.assertEqual((folder / name).read_bytes(),
                             (model / name).read_bytes())
        config = json.loads((model / "config.json").read_text())
        self.assertEqual(json.loads((folder / "config.json").read_text()),
                         config)
        tensors = harness.read_safetensors(folder / "model.safetensors")
        before = harness.read_safetensors(model / "model.safetensors")
        self.assertEqual({name: value[:2] for name, value in tensors.items()},
                         {name: value[:2] for name, value in before.items()})
        self.assertEqual(tensors, harness.read_safetensors(
            self.daemon.checkpoint(job, 5) / "model.safetensors"))
        self.check_trainer_state(job, folder, found)

    def check_trainer_state(self, job, folder, found):
        state = json.loads((folder / "trainer_state.json").read_text())
        self.assertEqual((state["global_step"], state["max_steps"]), (5, 5))
        self.assertAlmostEqual(state["epoch"], 5 / 8)
        steps = {entry["step"]: entry for entry in self.daemon.metrics(job)
                 if "loss" in entry}
        history = state["log_history"]
        losses = [entry for entry in history if "loss" in entry]
        self.assertEqual([entry["step"] for entry in losses], [2, 4, 5])
        for entry, first in zip(losses, (1, 3, 5)):
            mean = [steps[step]["loss"]
                    for step in range(first, entry["step"] + 1)]
            self.assertAlmostEqual(entry["loss"], sum(mean) / len(mean))
            for key in ("grad_norm", "learning_rate", "epoch"):
                self.assertEqual(entry[key], steps[entry["step"]][key])
        evaluations = [(entry["step"], entry["eval_loss"])
                       for entry in history if "eval_loss" in entry]
        self.assertEqual([step for step, _ in evaluations], [0, 5])
        self.assertLess(evaluations[1][1], evaluations[0][1])
        self.assertEqual(evaluations,
                         [(point["step"], point["loss"])
                          for point in found["eval_history"]])


if __name__ == "__main__":
    unittest.main()
