"""A delay that is put into one place shows as that place's bubbles: at least
95 % of the new bubble time has its cause. On a device that waits in place of
computing (tests/fakes/fake_worker.cc)."""

import pathlib
import re
import sys
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "max_length": 16, "batch_size": 8, "micro_batch_size": 2,
        "max_steps": 6, "save_steps": 0, "max_grad_norm": 0,
        "plan": {"forward": [[0, 1], [2, 2]],
                 "backward": [[3, 4], [1, 2], [0, 0]]}}
COSTS = "layer,forward_ms,recompute_ms,backward_ms\n" + "".join(
    f"{layer},1,{0 if layer == 4 else 1},2\n" for layer in range(5))


class BubbleCausesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=1)
        rows = self.scratch.data / "train.jsonl"
        rows.write_text(rows.read_text() * 16)

    def bubbles(self, *flags):
        """{cause: seconds} of a whole job whose workers have `flags`."""
        daemon = self.scratch.daemon(devices="cpu:1", link_gbps=2,
                                     metrics_listen="127.0.0.1:0")
        daemon.start(worker_program=self.scratch.fake_worker(COSTS, *flags))
        daemon.wait(daemon.submit(SPEC))
        page = re.search(r"metrics on (127\.0\.0\.1:\d+)",
                         daemon.log_path.read_text())[1]

        def seconds():
            """{state: seconds}, {cause: seconds} of one scrape."""
            with urllib.request.urlopen(f"http://{page}/metrics") as answer:
                text = answer.read().decode()
            text = text.replace(',device="0"', "").replace('device="0",', "")
            return [{label: float(value) for label, value in re.findall(
                rf'^roundhouse_device_{name}_seconds_total{{.*"(\w+)"}} (\S+)$',
                text, re.M)} for name in ("time", "bubble")]
        # Published once a second.
        idle = seconds()[0]["idle"]
        harness.wait_until(lambda: seconds()[0]["idle"] > idle, "idle time")
        states, causes = seconds()
        self.assertAlmostEqual(sum(causes.values()), states["bubble"])
        daemon.stop()
        return causes

    def check(self, cause, *flags):
        """A busy machine adds waits of its own: best of three."""
        for _ in range(3):
            before, after = self.bubbles(), self.bubbles(*flags)
            new = {name: after[name] - before[name] for name in after}
            if new[cause] > 0.95 * sum(seconds for seconds in new.values()
                                       if seconds > 0):
                return
        self.fail(f"{cause} is not 95 % of {new}")

    def test_a_slow_upload(self):
        self.check("h2d_wait", "--upload-gbps=0.01")

    def test_a_slow_optimizer(self):
        self.check("optimizer", "--update-ms=250")

    def test_slow_data(self):
        self.check("data", "--gather-ms=200")

    def test_slow_dispatch(self):
        self.check("dispatch", "--command-ms=200")


if __name__ == "__main__":
    unittest.main()
