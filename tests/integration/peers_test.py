"""Sums of wide slots that the devices add up between them (--peers): every bit
is that of the sequential reference, as where each part sends its own to the
host, whatever dies in the middle of an exchange.
"""

import pathlib
import re
import sys
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import bitwise_test  # pylint: disable=wrong-import-position
import harness  # pylint: disable=wrong-import-position

KILLS = ("1=slot.sums.held:3;2=slot.slice.made:2;4=slot.slice.made:1;"
         "5=slot.done.before:2;6=slot.sums.held:11;host=host.chunk.ready:9")


def exchanges(daemon):
    """Sums of units that were exchanged, and that were to be."""
    page = daemon.log_path.read_text()
    page = re.findall(r"metrics on (127\.0\.0\.1:\d+)", page)[-1]
    with urllib.request.urlopen(f"http://{page}/metrics") as answer:
        text = answer.read().decode()
    return [int(float(re.search(
        rf'roundhouse_sum_exchanges_total{{result="{result}"}} (\S+)',
        text)[1])) for result in ("ok", "failed")]


class PeersTest(bitwise_test.BitwiseCase):
    flags = {"peers": "on", "metrics_listen": "127.0.0.1:0"}

    def group_is_there(self, daemon, first=True):
        """Not the first one: any that was formed again."""
        number = "1" if first else r"([2-9]|\d\d)"
        harness.wait_until(lambda: re.search(
            rf"devices add up sums of wide slots.*group {number}\)",
            daemon.log_path.read_text()), "a group of devices")

    def check_all(self, cases, **changes):
        daemon = self.start_only(8)
        self.group_is_there(daemon)
        for name, case in cases.items():
            with self.subTest(name):
                before = exchanges(daemon)
                self.check_wide(8, {**case, **changes})
                done, failed = (after - earlier for after, earlier in
                                zip(exchanges(daemon), before))
                # Adapters are few, two bf16 sums no more bytes than one fp32.
                if case.get("lora_dropout") or name == "async":
                    self.assertEqual((done, failed), (0, 0))
                else:
                    self.assertGreater(done, 10)
                    self.assertEqual(failed, 0)

    def test_wide_slots(self):
        self.check_all(bitwise_test.WIDE)

    def test_sums_that_are_rounded(self):
        """On the devices, as those that the host adds up are."""
        self.check_all(bitwise_test.FAST, determinism="fast")

    def test_workers_die_while_they_exchange(self):
        killed = []
        for name, changes in (
                ("bitwise", bitwise_test.WIDE["powers_of_two"]),
                ("one_pass", {**bitwise_test.WIDE_BATCH,
                              **bitwise_test.WIDE["uneven_tied"],
                              "batch_size": 8}),
                ("fast", {**bitwise_test.FAST["bf16_powers_of_two"],
                          "determinism": "fast"})):
            with self.subTest(name):
                daemon = self.start_only(8, worker_kill_at=KILLS)
                self.group_is_there(daemon)
                self.check_wide(8, changes)
                log = daemon.log_path.read_text()
                # A job is short: not each worker comes to its point in each.
                killed += re.findall("killed at (.*)", log)
                self.assertGreater(len(re.findall("killed by signal 9", log)),
                                   2)
                self.assertIn("is gone", log)
                # It was formed again, and used.
                self.group_is_there(daemon, first=False)
                self.assertGreater(exchanges(daemon)[0], 0)
        self.assertEqual(set(killed), set(re.findall("=(.*?):", KILLS)))

    def test_a_device_that_is_lost(self):
        """Then slots are wider than there are devices: parts on one device go
        down apart, and the others form a group without it."""
        daemon = self.start_only(3, worker_kill_at=";".join(
            ["1=slot.started:1"] * 5))
        self.check_wide(3, {**bitwise_test.WIDE["one_stage"],
                            "plan": {**bitwise_test.PLANS["uneven"],
                                     "width": 3}})
        log = daemon.log_path.read_text()
        self.assertIn("device 1 is lost", log)
        self.assertRegex(log, "2 devices add up sums of wide slots")


if __name__ == "__main__":
    unittest.main()
