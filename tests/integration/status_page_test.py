"""The status page in a headless Chromium, of a daemon that trains two jobs."""

import gzip
import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness
from status_page import FAINT, PICTURES, PROBE, PageTest, fetch

# None of it may be seen, and "telltale" is in all of it.
FULL = {"model_name_or_path": "telltale-model", "dataset": "telltale.jsonl",
        "validation_dataset": "telltale.jsonl", "max_length": 32,
        "batch_size": 16, "micro_batch_size": 2, "max_steps": 1_000_000,
        "save_steps": 0, "eval_steps": 50, "learning_rate": 0.003, "seed": 1,
        "eval_prompts": ["telltale one"], "output_name": "telltale-full",
        "metadata": {"telltale-key": "telltale-value"}}
LORA = {**FULL, "method": "lora", "lora_r": 4, "output_name": "telltale-lora"}
WAITING = {**FULL, "output_name": "telltale-waiting"}


class StatusPageTest(PageTest):
    def start_jobs(self):
        """Two that train and one that waits."""
        jobs = [self.daemon.submit(FULL), self.daemon.submit(LORA)]
        for job in jobs:
            harness.wait_until(lambda j=job: self.daemon.job(j)["step"] > 60,
                               f"steps of {job}", pause=0.2)
        jobs.append(self.daemon.submit(WAITING))
        harness.wait_until(
            lambda: self.daemon.job(jobs[2])["state"] == "QUEUED", "QUEUED")
        return jobs

    def status(self):
        status, _, body = fetch(self.address, "/status.json")
        self.assertEqual(status, 200)
        return json.loads(body)

    def test_page_shows_devices_and_jobs(self):
        jobs = self.start_jobs()
        page = self.chromium().open(f"http://{self.address}/")
        page.wait("document.querySelectorAll('#timeline path').length >= 4 &&"
                  " document.querySelectorAll('#queue tr').length === 1",
                  "a picture of four devices")
        page.wait(f"({PROBE}).curves.every(points => points > 10)", "losses")
        # Until the window of ten seconds is full of training; seen at once
        # with the page, which is not live while nothing new comes.
        found = page.wait(
            "data.devices.every(d => d.compute_seconds > 0 &&"
            " d.idle_seconds === 0) &&"
            f" document.getElementById('alarm').hidden && {PROBE}",
            "ten seconds of training")
        self.check_content(found, jobs)
        self.check_facts(page)
        self.check_looks(page, "live")
        self.check_clean(page)

    def test_the_log_says_where_the_page_is(self):
        urls = re.findall(r"the status page is (\S+), the metrics are (\S+)\n",
                          self.daemon.log_path.read_text())
        self.assertEqual(urls, [(f"http://{self.address}/",
                                 f"http://{self.address}/metrics")])

    def check_content(self, found, jobs):
        self.assertEqual((found["live"], found["alarm"]), ("\u25cf live", ""))
        self.assertRegex(found["server"], r"\d+\.\d+.* up .* host memory \d")
        self.assertEqual(len(found["rows"]), 4)
        for row in found["rows"]:
            self.assertGreater(sum(row), 0)
        self.assertEqual(len(found["devices"]), 4)
        for i, text in enumerate(found["devices"]):
            self.assertIn(f"Device {i} \u00b7 cpu", text)
            self.assertIn("\u25cf up", text)
            self.assertRegex(text, r"Computes\s+\d+\s%")
            self.assertRegex(text, r"Waits \(bubble\)\s+<?\d+\s%")
            self.assertRegex(text, r"Memory, at most\s+\d+(\s[KM]iB)? of 256\sMiB")
        self.assertEqual(len(found["jobs"]), 2)
        for job, text in zip(jobs, found["jobs"]):
            self.assertTrue(text.startswith(job), text)
            self.assertIn("RUNNING", text)
            self.assertRegex(text, r"step \d+ of 1,000,000 \u00b7 .* left")
            self.assertRegex(text, r"Training loss\s+\d\.\d{3}")
            self.assertRegex(text,
                             r"Validation loss \u25cf\s+\d\.\d{3} after step")
            self.assertRegex(text, r"Tokens per second\s+[\d,]+")
        self.assertEqual([row.split("\t")[:2] for row in found["queue"]],
                         [["1", jobs[2]]])
        self.assertIn("2 of 2 run; the first starts when one ends",
                      found["turn"])
        for job in jobs[:2]:
            self.assertIn(job, found["legend"])
        self.assertGreaterEqual(found["table"], 4)

    def check_facts(self, page):
        """A tap, or the arrow keys, on a device's row tell of a block."""
        newest = """(() => {
          const box = document.querySelector("#timeline svg")
              .getBoundingClientRect();
          const [start, length] = data.devices[0].slots.at(-1);
          return [box.x + (start + length / 2) / data.window_ms * box.width,
                  box.y + box.height / 2];
        })()"""

        def tap():
            """Again when the page has moved on meanwhile."""
            x, y = page.value(newest)
            for kind in ("mousePressed", "mouseReleased"):
                page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y,
                          button="left", clickCount=1)
            return page.value(facts).startswith("device 0")
        facts = "document.getElementById('facts').innerText"
        harness.wait_until(tap, "facts")
        wanted = (r"^device 0 \u00b7 (job-\d+ \u00b7 steps? \d+.* \u00b7 "
                  r"(forward|fused|backward|evaluation).* \u00b7 layers? \d|"
                  r"(a|\d+) samples?).* \u00b7 \d+ ms, computing \d+ ms")
        self.assertRegex(page.value(facts), wanted)
        page.value("document.querySelectorAll('#timeline svg')[1].focus()")
        for _ in range(3):
            for kind in ("keyDown", "keyUp"):
                page.call("Input.dispatchKeyEvent", type=kind, key="ArrowLeft",
                          code="ArrowLeft", windowsVirtualKeyCode=37)
        self.assertRegex(page.value(facts),
                         wanted.replace("device 0", "device 1"))

    def test_a_daemon_that_is_gone_and_comes_back(self):
        page = self.chromium().open(f"http://{self.address}/")
        page.wait("document.getElementById('live').innerText === '\u25cf live'",
                  "the first answer")
        self.assertIn("No job runs.", page.value("document.body.innerText"))
        self.daemon.kill()
        page.wait("document.getElementById('alarm').innerText"
                  ".startsWith('The daemon does not answer')", "the alarm")
        self.assertRegex(
            page.value(PROBE)["alarm"],
            r"The daemon does not answer\. What stands here is \d+\ss old\.")
        self.assertEqual(page.value("document.title"), "Roundhouse (not live)")
        page.screenshot(PICTURES / "gone.png")
        self.assertEqual(page.value(FAINT), [])
        self.daemon.start(metrics_listen=self.address)
        page.wait("document.getElementById('alarm').hidden &&"
                  " document.title === 'Roundhouse'", "the daemon again")

    def test_ended_jobs_and_no_names(self):
        jobs = self.start_jobs()
        done = self.daemon.submit({**FULL, "max_steps": 5,
                                   "output_name": "telltale-short"})
        uids = [self.daemon.job(job)["uid"] for job in [*jobs, done]]
        self.daemon.client("cancel", jobs[2])
        self.daemon.client("cancel", jobs[0])
        self.daemon.wait(done)
        harness.wait_until(lambda: done in [job["id"] for job in
                                            self.status()["ended"]],
                           "the end on the page", pause=0.2)
        status = self.status()
        ended = {job["id"]: job for job in status["ended"]}
        self.assertEqual({id: job["state"] for id, job in ended.items()},
                         {jobs[0]: "CANCELLED", jobs[2]: "CANCELLED",
                          done: "SUCCEEDED"})
        self.assertEqual(ended[jobs[2]]["color"], -1)  # it never ran
        self.assertEqual([job["id"] for job in status["jobs"]], [jobs[1]])
        self.assertNotEqual(status["jobs"][0]["color"], ended[done]["color"])
        for path in ("/", "/status.json", "/metrics"):
            _, _, body = fetch(self.address, path)
            for secret in ("telltale", str(self.scratch.folder), *uids):
                self.assertNotIn(secret.encode(), body, (path, secret))

    def test_losses_outlive_the_daemon(self):
        job = self.daemon.submit({**FULL, "save_steps": 20,
                                  "save_total_limit": 2})
        harness.wait_until(lambda: max(self.daemon.checkpoints(job),
                                       default=0) >= 40,
                           "a checkpoint", pause=0.1)
        self.daemon.stop()
        self.daemon.start(metrics_listen=self.address)
        shown = harness.wait_until(
            lambda: [j for j in self.status()["jobs"]
                     if j["state"] == "RUNNING" and j["losses"]["steps"]],
            "the job again", pause=0.1)[0]
        written = [m["loss"] for m in self.daemon.metrics(job) if "loss" in m]
        if len(written) <= 200:
            self.assertEqual(shown["losses"]["steps"][0], 1)
        self.assertAlmostEqual(
            shown["losses"]["values"][0],
            sum(written[:shown["losses"]["steps"][0]]) /
            shown["losses"]["steps"][0], places=3)

    def test_http(self):
        for path in ("/", "/status.json", "/metrics"):
            harness.wait_until(lambda p=path: fetch(self.address, p)[0] == 200,
                               path)
            status, headers, body = fetch(self.address, path)
            self.assertEqual(headers["Cache-Control"], "no-store")
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertIn("default-src 'none'",
                          headers["Content-Security-Policy"])
            self.assertEqual(fetch(self.address, path, "HEAD")[2], b"")
            self.assertEqual(fetch(self.address, path, "POST")[0], 405)
            self.assertEqual(
                fetch(self.address, path, Host="evil.example")[0], 403)
            _, headers, packed = fetch(self.address, path,
                                       **{"Accept-Encoding": "gzip"})
            if headers["Content-Encoding"] == "gzip":
                packed = gzip.decompress(packed)
            if path == "/":
                self.assertEqual(packed, body)
        for path in ("/x", "/status", "/index.html", "/metrics/"):
            self.assertEqual(fetch(self.address, path)[0], 404, path)


if __name__ == "__main__":
    unittest.main()
