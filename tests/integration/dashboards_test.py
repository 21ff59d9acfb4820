"""A real Prometheus scrapes a real daemon that trains two jobs, with the token
that its metrics ask for: no query of a dashboard or an alert comes back empty.
"""

import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import unittest
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

DEPLOY = harness.ROOT / "deploy"
FULL = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "validation_dataset": "train.jsonl", "max_length": 32,
        "batch_size": 8, "micro_batch_size": 2, "max_steps": 1_000_000,
        "save_steps": 40, "save_total_limit": 1, "eval_steps": 40,
        "plan": {"forward": [[0, 1], [2, 2]],
                 "backward": [[3, 4], [1, 2], [0, 0]]}}
LORA = {**FULL, "method": "lora", "lora_r": 4, "plan": "auto"}
# What cannot exist on CPU workers, and why.
ALLOWED_EMPTY = {
    "alert GpuFault": "faults are NVML's",
    "alert PcieLinkDegraded": "the link's generation and width are NVML's"}


def fetch(address, path, token="", **arguments):
    query = urllib.parse.urlencode(arguments)
    request = urllib.request.Request(
        f"http://{address}{path}?{query}",
        headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


def panel_queries():
    """{"dashboard / panel / A": expression}, Grafana's variables filled in."""
    found = {}
    for path in sorted((DEPLOY / "grafana/dashboards").glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                name = f"{path.stem} / {panel['title']} / {target['refId']}"
                found[name] = (target["expr"].replace("$instance", ".*")
                               .replace("$__rate_interval", "1m"))
    return found


def alert_queries(rules):
    """Each alert's expression with its comparisons answering 0 or 1, so that
    one that does not fire is not empty either; of now, where it asks for half
    an hour ago."""
    return {f"alert {rule['name']}":
            re.sub(r" (==|!=|<|>|<=|>=) ", r" \1 bool ",
                   rule["query"].replace(" offset 30m", ""))
            for rule in rules}


class Prometheus:
    """Over the committed configuration, but for addresses, intervals and the
    token."""

    def __init__(self, folder, target, token_file):
        folder.mkdir()
        config = (DEPLOY / "prometheus/prometheus.yml").read_text()
        for old, new in (('["127.0.0.1:9464"]', f'["{target}"]'),
                         ("honor_labels: true",
                          "honor_labels: true\n    authorization:\n"
                          f"      credentials_file: {token_file}"),
                         ("scrape_interval: 15s", "scrape_interval: 1s"),
                         ("evaluation_interval: 15s",
                          "evaluation_interval: 1s")):
            assert config.count(old) == 1, old
            config = config.replace(old, new)
        (folder / "prometheus.yml").write_text(config)
        (folder / "roundhouse.rules.yml").write_text(
            (DEPLOY / "prometheus/roundhouse.rules.yml").read_text())
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/prometheus.yml",
                 f"--storage.tsdb.path={folder}/data",
                 "--web.listen-address=127.0.0.1:0"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.address = harness.wait_until(self.find_address, "Prometheus")

    def find_address(self):
        """None before it answers queries."""
        text = self.log.read_text()
        assert self.process.poll() is None, text
        if "Server is ready to receive web requests" not in text:
            return None
        return re.search(r'msg="Listening on" address=(\S+)', text)[1]

    def stop(self):
        self.process.kill()
        self.process.wait()

    def get(self, path, **arguments):
        return json.loads(fetch(self.address, path, **arguments))["data"]

    def rules(self):
        groups = self.get("/api/v1/rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def answers(self, expression):
        """Whether the query finds a number."""
        result = self.get("/api/v1/query", query=expression)["result"]
        return any(series["value"][1] != "NaN" for series in result)


class DashboardsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=40)
        self.token = secrets.token_hex(32)
        token_file = self.scratch.folder / "metrics.token"
        token_file.touch(mode=0o600)
        token_file.write_text(self.token + "\n")
        self.daemon = self.scratch.daemon(
            metrics_listen="127.0.0.1:0", metrics_token_file=token_file,
            link_gbps=5)
        self.daemon.start()
        self.metrics = re.search(r"metrics on (127\.0\.0\.1:\d+)",
                                 self.daemon.log_path.read_text())[1]
        self.prometheus = Prometheus(self.scratch.folder / "prometheus",
                                     self.metrics, token_file)
        self.addCleanup(self.prometheus.stop)
        # A rate needs what was before the first job.
        harness.wait_until(
            lambda: self.prometheus.answers('up{job="roundhouse"} == 1'),
            "a scrape", pause=0.1)

    def start_jobs(self):
        jobs = [self.daemon.submit(FULL),
                self.daemon.submit({**LORA, "priority": "urgent"})]
        for job in jobs:
            harness.wait_until(lambda j=job: self.daemon.job(j)["step"] > 40,
                               f"a checkpoint of {job}", pause=0.1)
        os.kill(self.daemon.worker("1"), signal.SIGKILL)
        return jobs

    def page(self):
        return fetch(self.metrics, "/metrics", self.token)

    def values(self, name):
        """{labels: value} of one scrape."""
        page = self.page()
        return {labels: float(value) for labels, value in re.findall(
            rf"^{name}({{.*}})? (\S+)$", page, re.M)}

    def test_no_query_is_empty(self):
        jobs = self.start_jobs()
        rules = harness.wait_until(self.prometheus.rules, "rules")
        queries = {**panel_queries(), **alert_queries(rules)}
        for query in queries.values():
            self.assertNotIn("$", query)

        empty = set(queries) - set(ALLOWED_EMPTY)

        def all_answered():
            self.daemon.client("list")
            for name in sorted(empty):
                if self.prometheus.answers(queries[name]):
                    empty.remove(name)
            return not empty
        try:
            harness.wait_until(all_answered, "answers", pause=1)
        except harness.Failure:
            self.fail(f"empty: {sorted(empty)}\n"
                      f"{self.prometheus.log.read_text()}")
        harness.wait_until(
            lambda: all(rule["health"] == "ok" for rule in
                        self.prometheus.rules()), "rules that evaluate")
        self.check_promtool()
        for job in jobs:
            self.daemon.client("cancel", job)
            self.daemon.wait(job, "CANCELLED")
        self.check_ledger()

    def check_promtool(self):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            fetch(self.metrics, "/metrics")
        self.assertEqual(refused.exception.code, 401)
        page = self.page()
        done = subprocess.run(["promtool", "check", "metrics"], input=page,
                              text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "", ""))
        self.assertLess(len([line for line in page.splitlines()
                             if not line.startswith("#")]), 3000)

    def check_ledger(self):
        """Once nothing runs, every bubble has its cause."""
        def sums(name, **labels):
            total = {}
            for found, value in self.values(name).items():
                if all(f'{k}="{v}"' in found for k, v in labels.items()):
                    device = re.search(r'device="(\d+)"', found)[1]
                    total[device] = total.get(device, 0) + value
            return total
        idle = sums("roundhouse_device_time_seconds_total", state="idle")
        try:
            harness.wait_until(
                lambda: all(value > idle[device] for device, value in sums(
                    "roundhouse_device_time_seconds_total",
                    state="idle").items()), "idle time")
        except harness.Failure:
            devices = self.daemon.client("device", check=False).stdout
            self.fail(f"idle before: {idle}\n{devices}\n"
                      f"{self.page()}\n"
                      f"{self.daemon.tail()}")
        bubbles = sums("roundhouse_device_time_seconds_total", state="bubble")
        causes = sums("roundhouse_device_bubble_seconds_total")
        self.assertEqual(set(bubbles), {"0", "1"})
        for device, bubble in bubbles.items():
            self.assertGreater(bubble, 0)
            self.assertAlmostEqual(causes[device], bubble, places=6)


if __name__ == "__main__":
    unittest.main()
