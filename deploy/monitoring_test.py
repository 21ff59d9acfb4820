"""What deploy/ has for Prometheus, Alertmanager and Grafana, by their own
tools and models. That the queries find something is
tests/integration/dashboards_test.py's."""

import json
import pathlib
import re
import subprocess
import unittest

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.cog.runtime import Runtime
from grafana_foundation_sdk.models.dashboard import Dashboard

DEPLOY = pathlib.Path(__file__).parent
PROMETHEUS = DEPLOY / "prometheus"
DASHBOARDS = sorted((DEPLOY / "grafana/dashboards").glob("*.json"))
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def expressions(board):
    return [target["expr"] for panel in board["panels"]
            for target in panel["targets"]]


class PrometheusTest(unittest.TestCase):
    def promtool(self, *words):
        done = subprocess.run(["promtool", *map(str, words)], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_configuration_is_valid(self):
        self.promtool("check", "config", PROMETHEUS / "prometheus.yml")

    def test_the_rules_are_valid(self):
        self.promtool("check", "rules", PROMETHEUS / "roundhouse.rules.yml")

    def test_the_rules_fire_as_they_should(self):
        self.promtool("test", "rules",
                      PROMETHEUS / "roundhouse.rules.test.yml")

    def test_each_rule_has_a_case_that_fires_and_one_that_does_not(self):
        rules = re.findall(r"- alert: (\w+)",
                           (PROMETHEUS / "roundhouse.rules.yml").read_text())
        cases = (PROMETHEUS / "roundhouse.rules.test.yml").read_text()
        fires = re.findall(r"alertname: (\w+)\n +exp_alerts:\n +- ", cases)
        silent = re.findall(r"alertname: (\w+)\}", cases)
        self.assertEqual(sorted(fires), sorted(rules))
        self.assertLessEqual(set(rules), set(silent))


class DashboardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        register_default_plugins()
        cls.boards = {path.stem: json.loads(path.read_text())
                      for path in DASHBOARDS}

    def test_grafanas_own_models_give_them_back(self):
        for name, board in self.boards.items():
            typed = Dashboard.from_json(board)
            self.assertEqual(json.loads(json.dumps(typed, cls=JSONEncoder)),
                             board, name)
            for panel in board["panels"]:
                # An unknown type would go through unread.
                self.assertIsNotNone(Runtime().panelcfg_config(panel["type"]),
                                     panel["type"])

    def test_their_uids_stay(self):
        self.assertEqual(
            {name: board["uid"] for name, board in self.boards.items()},
            {"server": "roundhouse-server", "jobs": "roundhouse-jobs",
             "control-plane": "roundhouse-control-plane",
             "fairness": "roundhouse-fairness"})

    def test_every_query_goes_to_the_chosen_data_source(self):
        provisioned = (DEPLOY / "grafana/provisioning/datasources/"
                       "roundhouse.yml").read_text()
        for name, board in self.boards.items():
            chosen, server = board["templating"]["list"]
            self.assertEqual(chosen["name"], "datasource", name)
            self.assertIn(f"uid: {chosen['current']['value']}\n", provisioned)
            self.assertEqual(server["datasource"], DATASOURCE, name)
            for panel in board["panels"]:
                self.assertEqual(panel["datasource"], DATASOURCE, name)
                for target in panel["targets"]:
                    self.assertEqual(target["datasource"], DATASOURCE, name)

    def test_panels_do_not_overlap(self):
        for name, board in self.boards.items():
            taken = set()
            for panel in board["panels"]:
                at = panel["gridPos"]
                cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                         for y in range(at["y"], at["y"] + at["h"])}
                self.assertFalse(taken & cells, (name, panel["title"]))
                self.assertLessEqual(at["x"] + at["w"], 24, name)
                taken |= cells

    def test_every_metric_that_is_asked_for_is_documented(self):
        documented = set(re.findall(
            r"^\| `(\w+)`",
            (DEPLOY.parent / "docs/metrics.md").read_text(), re.M))
        asked = "\n".join(expression for board in self.boards.values()
                          for expression in expressions(board))
        asked += (PROMETHEUS / "roundhouse.rules.yml").read_text()
        names = set(re.findall(r"\b(?:roundhouse|grpc_server)_\w+", asked))
        self.assertTrue(names)
        for name in names:
            plain = re.sub(r"_(bucket|sum|count)$", "", name)
            self.assertTrue({name, plain} & documented, name)


class ComposeTest(unittest.TestCase):
    """No container runs in our CI: what can be read is checked."""

    def test_images_have_versions_and_mounts_are_there(self):
        text = (DEPLOY / "compose.yaml").read_text()
        images = re.findall(r"image: (\S+)", text)
        self.assertEqual(len(images), 3)
        for image in images:
            self.assertRegex(image, r":v?\d+\.\d+\.\d+$")
        mounts = re.findall(r"- \./(\S+?):", text)
        self.assertEqual(len(mounts), 4)
        for mount in mounts:
            self.assertTrue((DEPLOY / mount).is_dir(), mount)

    def test_nothing_listens_beyond_the_loopback(self):
        text = (DEPLOY / "compose.yaml").read_text()
        for flag in ("--web.listen-address=127.0.0.1:9090",
                     "--web.listen-address=127.0.0.1:9093",
                     "--cluster.listen-address=\n",
                     "GF_SERVER_HTTP_ADDR: 127.0.0.1"):
            self.assertIn(flag, text)
        self.assertNotIn("0.0.0.0", text)

    def test_dashboards_are_where_grafana_looks(self):
        provider = (DEPLOY / "grafana/provisioning/dashboards/"
                    "roundhouse.yml").read_text()
        path = re.search(r"path: (\S+)", provider)[1]
        self.assertIn(f"./grafana/dashboards:{path}:ro",
                      (DEPLOY / "compose.yaml").read_text())


if __name__ == "__main__":
    unittest.main()
