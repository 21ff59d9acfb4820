"""Accounts over the daemon's socket: who is let in, what strangers see, and what
only a job's owner may do, with users of the system as root's machine has them.

Each user is another uid, so this needs root and is skipped without.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # pylint: disable=wrong-import-position

MARY, OTTO, ELLA, NOBODY = 70003, 70004, 70006, 65534
SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "max_length": 16, "batch_size": 4, "micro_batch_size": 2,
        "max_steps": 3, "save_steps": 0, "output_name": "secret-output"}


@unittest.skipUnless(os.geteuid() == 0, "only root can be several users")
class AccountsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=20)
        self.vision = self.scratch.folder / "vision"
        self.vision.mkdir()
        harness.make_data(self.vision / "own.jsonl", count=20)
        self.daemon = self.scratch.daemon(
            project_root=f"vision={self.vision}")
        self.daemon.start()
        # Where everybody may run it.
        self.program = self.scratch.folder / "roundhouse"
        shutil.copy(harness.ROOT / "client/roundhouse", self.program)
        self.daemon.let_everybody_in()

    def client(self, uid, *words):
        return subprocess.run(
            [self.program, f"--server=unix:{self.daemon.socket}",
             *map(str, words)],
            preexec_fn=harness.become(uid), capture_output=True, text=True,
            check=False, timeout=harness.DEADLINE_SECONDS,
            stdin=subprocess.DEVNULL,
            env={"HOME": "/nowhere", "PATH": "/usr/bin:/bin"})

    def submit(self, uid, *words, **more):
        path = self.scratch.folder / f"{uid}.json"
        path.write_text(json.dumps({**SPEC, "output_name": f"out-{uid}",
                                    **more}))
        path.chmod(0o644)
        return self.client(uid, "submit", "-f", path, "-o", "name", *words)

    def submit_as_root(self):
        return self.submit(0, "--project=vision")

    def ok(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def denied(self, done, text):
        self.assertEqual(done.returncode, 4, (done.stdout, done.stderr))
        self.assertIn(text, done.stderr)

    def no_name_leads_to(self, job):
        """What OTTO tries to read of MARY's job, and of her project's root."""
        made = self.daemon.directory(job)
        output = self.daemon.state / "outputs" / f"out-{MARY}"
        link = self.scratch.data / "link.jsonl"
        link.symlink_to(self.vision / "own.jsonl")
        mine = self.daemon.state / "outputs" / f"out-{OTTO}"
        paths = [made / "metrics.jsonl", f"{made.name}/metrics.jsonl",
                 f"{mine}/../../jobs/{made.name}/metrics.jsonl",
                 self.vision / "own.jsonl", "own.jsonl", link,
                 self.daemon.state / "jobs.db"]
        for path in paths:
            done = self.client(OTTO, "dataset", "preview", path,
                               "--model=model")
            self.assertNotEqual(done.returncode, 0, (path, done.stdout))
            self.assertEqual(done.stdout, "", path)
        for name in (f"job:out-{MARY}", job, output, output.name):
            for words in (["model", "show", name],
                          ["sample", name, "-p", "x"],
                          ["export", name, "--output", "stolen"]):
                done = self.client(OTTO, *words)
                self.assertNotEqual(done.returncode, 0, (words, done.stdout))
        for field, value in (("model_name_or_path", f"job:out-{MARY}"),
                             ("model_name_or_path", str(output)),
                             ("resume_from_checkpoint", f"job:out-{MARY}"),
                             ("dataset", str(made / "metrics.jsonl")),
                             ("validation_dataset", str(link))):
            path = self.scratch.folder / "theft.json"
            path.write_text(json.dumps({**SPEC, "output_name": "stolen",
                                        field: value}))
            path.chmod(0o644)
            for more in ([], ["--dry-run"]):
                done = self.client(OTTO, "submit", "-f", path, *more)
                self.assertNotEqual(done.returncode, 0, (field, value))
        # All of it is hers.
        self.ok(self.client(MARY, "dataset", "preview",
                            self.vision / "own.jsonl", "--model=model"))
        self.ok(self.client(MARY, "model", "show", f"job:out-{MARY}"))
        self.ok(self.client(ELLA, "model", "show", output))

    def test_without_accounts_everybody_may_do_everything(self):
        self.assertIn("has no accounts", self.ok(self.client(NOBODY, "whoami")))
        job = self.ok(self.submit(NOBODY)).strip()
        self.ok(self.client(OTTO, "cancel", job))

    def test_whoever_would_shut_himself_out_is_told(self):
        done = self.client(MARY, "user", "add", "otto", f"--uid={OTTO}")
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("add yourself first", done.stderr)
        self.ok(self.client(MARY, "user", "add", "mary", f"--uid={MARY}",
                            "--role=admin"))
        self.ok(self.client(MARY, "user", "add", "otto", f"--uid={OTTO}"))

    def test_urgent_is_a_right(self):
        self.daemon.client("project", "add", "vision")
        for name, uid in (("mary", MARY), ("otto", OTTO)):
            self.daemon.client("user", "add", name, f"--uid={uid}",
                               "--project=vision")
        job = self.ok(self.submit(MARY, max_steps=1_000_000)).strip()
        change = ("priority", job, "urgent")
        self.denied(self.client(OTTO, *change), "mary's: its owner")
        for done in (self.client(MARY, *change),
                     self.submit(MARY, "--priority=urgent",
                                 output_name="more")):
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertIn("limit set user:mary urgent_jobs", done.stderr)
        self.daemon.client("limit", "set", "user:mary", "urgent_jobs", "1")
        self.assertIn("(urgent)", self.ok(self.client(MARY, *change)))
        done = self.submit(MARY, "--priority=urgent", output_name="more")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.ok(self.client(MARY, "priority", job, "normal"))
        self.daemon.client("limit", "remove", "user:mary", "urgent_jobs")
        self.assertNotIn("urgent", self.ok(self.client(MARY, "list")))
        self.daemon.client(*change)  # an admin's
        self.assertIn("urgent", self.ok(self.client(OTTO, "list")))
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.daemon.job(job.rsplit("/", 1)[1])["priority"],
                         "URGENT")
        self.daemon.client("cancel", job)

    def audit(self, *words):
        done = self.daemon.client("audit", "-o", "json", *words)
        return json.loads(done.stdout)["records"]

    def test_the_audit_says_who_did_what(self):
        self.daemon.client("project", "add", "vision")
        self.daemon.client("user", "add", "mary", f"--uid={MARY}",
                           "--project=vision")
        job = self.ok(self.submit(MARY)).strip()
        self.ok(self.client(MARY, "cancel", job))
        self.denied(self.client(MARY, "audit"), "only an admin")
        for _ in range(3):
            self.denied(self.client(NOBODY, "list"), "you have no account")

        made, = self.audit("--rpc=CreateFineTuningJob")
        self.assertEqual(made["resource"], job)
        self.assertEqual((made["user"], made["principal"], made["code"]),
                         ("mary", f"uid:{MARY}", "OK"))
        self.assertNotIn("train.jsonl", json.dumps(self.audit()))
        self.assertEqual(
            {row["rpc"].split("/")[1] for row in self.audit(f"--job={job}")},
            {"CreateFineTuningJob", "CancelFineTuningJob"})
        self.assertEqual(self.audit("--since=2020-01-01", "--until=2020-01-02"),
                         [])

        # What was refused again and again is counted, over a stop too.
        self.daemon.stop()
        self.daemon.start()
        refused = self.audit(f"--user=uid:{NOBODY}")
        self.assertEqual(sorted(row["count"] for row in refused), [1, 2])
        self.assertEqual({row["code"] for row in refused},
                         {"PERMISSION_DENIED"})
        self.assertEqual(len(self.audit("--user=mary", "--result=failed")), 1)
        self.daemon.stop()

    def test_limits_hold_for_members_and_say_what_an_admin_types(self):
        self.daemon.client("project", "add", "vision")
        for name, uid in (("mary", MARY), ("otto", OTTO)):
            self.daemon.client("user", "add", name, f"--uid={uid}",
                               "--project=vision")
        self.daemon.client("limit", "set", "user:mary", "queued_jobs", "0")
        refused = self.submit(MARY)
        self.assertEqual(refused.returncode, 7, refused.stderr)
        self.assertIn("queued_jobs of user:mary is 0, and there are 0 jobs "
                      "that have not ended", refused.stderr)
        self.assertIn("roundhouse limit set user:mary queued_jobs VALUE",
                      refused.stderr)
        self.denied(self.client(MARY, "limit", "set", "user:mary",
                                "queued_jobs", "5"), "only an admin")
        listed = json.loads(self.ok(self.client(MARY, "limit", "list", "-o",
                                                "json")))["limits"]
        own, = (row for row in listed if row["limit"] == "queued_jobs")
        self.assertEqual((own["subject"], own["value"], own["used"]),
                         ("user:mary", 0, 0))
        self.ok(self.submit(OTTO))
        job = self.ok(self.submit_as_root()).strip()  # an admin's
        self.daemon.client("limit", "remove", "user:mary", "queued_jobs")
        self.daemon.client("limit", "set", "everybody", "open_streams", "0")
        refused = self.client(MARY, "export", job, "--output", "x")
        self.assertEqual(refused.returncode, 7, refused.stderr)
        self.assertIn("open_streams of everybody is 0", refused.stderr)
        self.daemon.client("logs", job)
        self.daemon.client("limit", "set", "everybody", "calls_per_second", "1")
        codes = {self.client(MARY, "list").returncode for _ in range(4)}
        self.assertIn(7, codes)
        row, = self.audit("--result=resource_exhausted",
                          "--rpc=CreateFineTuningJob")
        self.assertEqual((row["user"], row["reason"]), ("mary", "QUOTA"))
        self.daemon.stop()

    def test_each_deletes_his_own(self):
        self.daemon.client("project", "add", "vision")
        for name, uid, *more in (("mary", MARY), ("otto", OTTO),
                                 ("ella", ELLA, "--role=viewer")):
            self.daemon.client("user", "add", name, f"--uid={uid}",
                               "--project=vision", *more)
        self.daemon.client("user", "add", "nora", f"--uid={NOBODY}")
        path = self.scratch.folder / "saves.json"
        path.write_text(json.dumps({**SPEC, "output_name": "hers",
                                    "save_steps": 1}))
        path.chmod(0o644)
        job = self.ok(self.client(MARY, "submit", "-f", path, "-o",
                                  "name")).strip()
        self.daemon.wait(job.rsplit("/", 1)[1])

        # Strangers to the project, its viewers and its other members.
        delete = ("delete", job, "--yes")
        self.denied(self.client(NOBODY, *delete), "you have no role")
        self.denied(self.client(ELLA, *delete), "you are a viewer")
        self.denied(self.client(OTTO, *delete), "is mary's: its owner and")
        self.denied(self.client(ELLA, "prune"), "this takes a member")
        for uid in (NOBODY, OTTO):
            self.assertIn("nothing to delete", self.client(
                uid, "prune", "--keep=0").stderr)
            self.denied(self.client(uid, "prune", "--all"), "only an admin")
        self.assertEqual(self.daemon.checkpoints(job.rsplit("/", 1)[1]),
                         [1, 2, 3])

        # Who sees its bytes.
        for uid, seen in ((NOBODY, False), (ELLA, True), (MARY, True)):
            parts = json.loads(self.ok(self.client(
                uid, "du", "-o", "json")))["parts"]
            self.assertEqual(job in {part.get("name") for part in parts}, seen)
            self.assertEqual("vision" in json.dumps(parts), seen)

        self.assertIn("Deleted 2 checkpoints",
                      self.ok(self.client(MARY, "prune", "--yes")))
        self.ok(self.client(MARY, *delete))
        rows = self.audit("--user=mary")
        self.assertEqual(
            [(row["rpc"].split("/")[1], row["resource"], row["code"])
             for row in rows[:2]],
            [("DeleteFineTuningJob", job, "OK"),
             ("DeleteCheckpoints", job, "OK")])

        # The result is the project's as before.
        self.ok(self.client(ELLA, "model", "show",
                            self.daemon.state / "outputs/hers"))
        for name in ("hers", self.daemon.state / "outputs/hers"):
            done = self.client(NOBODY, "model", "show", name)
            self.assertNotEqual(done.returncode, 0, done.stdout)
        self.daemon.client("user", "remove", "mary")
        refused = self.daemon.client("project", "remove", "vision",
                                     check=False)
        self.assertNotIn("has jobs", refused.stderr)
        self.daemon.stop()

    def test_projects_keep_apart(self):
        old = self.ok(self.submit(OTTO)).strip()
        self.daemon.client("project", "add", "vision")
        self.daemon.client("user", "add", "mary", f"--uid={MARY}",
                           "--project=vision")
        self.daemon.client("user", "add", "otto", f"--uid={OTTO}")
        self.daemon.client("user", "add", "ella", f"--uid={ELLA}",
                           "--project=vision", "--role=viewer")
        self.denied(self.client(NOBODY, "list"),
                    f"roundhouse user add NAME --uid={NOBODY}")
        self.denied(self.client(MARY, "user", "list"), "only an admin")

        job = self.ok(self.submit(MARY)).strip()
        self.assertTrue(job.startswith("projects/vision/"), job)
        self.denied(self.submit(ELLA), "you are a viewer")
        self.daemon.wait(job.rsplit("/", 1)[1])

        # Members of its project see all of it; its owner alone changes it.
        seen = json.loads(self.ok(self.client(ELLA, "get", job, "-o", "json")))
        self.assertIn("train.jsonl", json.dumps(seen))
        self.assertEqual(seen["owner"], "mary")
        self.assertIn("step 3/3", self.ok(self.client(ELLA, "logs", job)))
        self.assertIn(" is SUCCEEDED since ",
                      self.ok(self.client(ELLA, "why", job)))
        self.denied(self.client(ELLA, "cancel", job), "you are a viewer")

        # Others see that it is there.
        seen = json.loads(self.ok(self.client(OTTO, "get", job, "-o", "json")))
        text = json.dumps(seen)
        self.assertEqual(seen["state"], "SUCCEEDED")
        self.assertTrue(seen["outline"])
        for secret in ("train.jsonl", "model", f"out-{MARY}",
                       str(self.scratch.folder)):
            self.assertNotIn(secret, text)
        for words in (["list", "-o", "json"], ["list"],
                      ["watch", job, "-o", "json"]):
            done = self.client(OTTO, *words)
            self.assertNotIn(f"out-{MARY}", done.stdout)
        for words in (["logs", job], ["cancel", job], ["why", job],
                      ["trace", job, "--steps", "1"],
                      ["export", job, "--output", "x"],
                      ["sample", job, "-p", "x"]):
            self.denied(self.client(OTTO, *words), "you have no role")

        self.no_name_leads_to(job.rsplit("/", 1)[1])

        # A job of before accounts is still its uid's, and nobody else's.
        self.daemon.wait(old.rsplit("/", 1)[1])
        done = self.client(OTTO, "cancel", old)
        self.assertEqual(done.returncode, 6, done.stderr)  # it has ended
        self.denied(self.client(MARY, "cancel", old), "you have no role")

        # What a restart finds is the same.
        self.daemon.stop()
        self.daemon.start()
        self.daemon.socket.chmod(0o666)
        self.assertIn("vision: member", self.ok(self.client(MARY, "whoami")))
        self.daemon.client("user", "remove", "mary")
        self.denied(self.client(MARY, "list"), "you have no account")
        self.daemon.stop()


if __name__ == "__main__":
    unittest.main()
