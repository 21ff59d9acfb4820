"""The status page in a headless Chromium, over answers of ours."""

import http.server
import itertools
import json
import math
import pathlib
import re
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from status_page import PROBE, PageTest, fetch


class Stub(http.server.ThreadingHTTPServer):
    """The daemon's page over answers of ours."""

    def __init__(self, headers, page):
        self.page_headers, self.page, self.answer = headers, page, {}
        super().__init__(("127.0.0.1", 0), StubHandler)
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def stop(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class StubHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = self.path == "/"
        answer = self.server.answer
        body = (self.server.page if page else
                json.dumps(answer() if callable(answer) else answer).encode())
        self.send_response(200)
        for name in ("Content-Security-Policy", "Content-Type"):
            if page:
                self.send_header(name, self.server.page_headers[name])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def curve(job, points, level):
    values = [level + 2 * math.exp(-i / 40) + 0.05 * math.sin(i * job)
              for i in range(points)]
    return {"steps": [10 * i + 10 for i in range(points)],
            "values": [round(value, 4) for value in values]}


# As long as they get.
GPU = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"


def made_up(devices, jobs, queue, blocks, names="job-{}"):
    """An answer with `blocks` a device, evenly over the minute."""
    names = [names.format(100 + i) for i in range(max(1, jobs))]
    pitch = 60_000 / max(1, blocks)
    return {
        "time_ms": 1_800_000_000_000, "version": "0.1.0",
        "uptime_seconds": 1_000_000, "stopping": False,
        "max_running_jobs": jobs, "host_memory_used_bytes": 400 << 30,
        "host_memory_limit_bytes": 512 << 30, "window_ms": 60_000,
        "timeline_jobs": [{"id": name, "color": i % 6}
                          for i, name in enumerate(names)],
        "devices": [{
            "index": d, "kind": "cpu" if d % 2 else "cuda",
            "product_name": "" if d % 2 else GPU,
            "job": names[d % len(names)],
            "state": {4: "taken out", 5: "lost", 6: "starting"}.get(d, "up"),
            "out_as": "yielded" if d == 4 else "",
            "restarts": 3 if d == 6 else 0, "memory_used_bytes": 21 << 30,
            "memory_limit_bytes": 24 << 30, "bubble_ratio": 0.12,
            "compute_seconds": 0 if d == 5 else 7.6,
            "bubble_seconds": 0 if d == 5 else 1.4,
            "idle_seconds": 0 if d == 5 else 1.0,
            "fenced_seconds": 10 if d == 5 else 0,
            "bubble_causes": {} if d == 5 else {
                "h2d_wait": 0.7, "d2h_wait": 0, "dependency": 0.4,
                "optimizer": 0.25, "data": 0.02, "dispatch": 0.03,
                "memory": 0},
            "link_up_ratio": 0.62, "link_down_ratio": 0.34,
            "slots_since_ms": 20_000 if d == 6 else 0,
            "slots": [n for i in range(0 if d == 5 else blocks)
                      for n in (int(i * pitch), int(0.9 * pitch),
                                int(0.8 * pitch), (i // 7 + d) % len(names), 3,
                                1 << i % 3, i // 9, i // 9 + 1, 2 * d,
                                2 * d + 1)]} for d in range(devices)],
        "jobs": [{
            "id": names[j], "color": j % 6, "state": "RUNNING",
            "step": 2000 * (j + 1), "total_steps": 1_000_000, "epoch": 1.25,
            "tokens_per_second": 123456.7, "share": 1 / jobs,
            "seconds_left": 100_000 + j, "losses": curve(j, 200, 1.5),
            "validation_losses": {
                "steps": [200 * i for i in range(11)],
                "values": curve(j, 200, 1.6)["values"][::19]}}
            for j in range(jobs)],
        "queue": [{"id": f"job-{500 + q}", "waiting_seconds": 97 * q}
                  for q in range(min(queue, 100))],
        "queue_count": queue, "validating_count": 1,
        "ended": [{"id": "job-99", "color": 3, "state": "FAILED",
                   "reason": "NON_FINITE_LOSS", "seconds_ago": 4000}],
    }


# How colours look to people with protanopia, deuteranopia and tritanopia, of
# linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
VISIONS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868),
                   (0.114503, 0.786281, 0.099216),
                   (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968),
                     (0.280085, 0.672501, 0.047413),
                     (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779),
                   (-0.078411, 0.930809, 0.147602),
                   (0.004733, 0.691367, 0.303900)),
}


def linear(color):
    """"#e75423" as linear RGB."""
    parts = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4
            for p in parts]


def contrast(a, b):
    light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b
                   for r, g, b in (linear(a), linear(b)))
    return (light[1] + 0.05) / (light[0] + 0.05)


def times(matrix, vector):
    return [sum(m * v for m, v in zip(row, vector)) for row in matrix]


def oklab(rgb):
    cones = times(((0.4122214708, 0.5363325363, 0.0514459929),
                   (0.2119034982, 0.6806995451, 0.1073969566),
                   (0.0883024619, 0.2817188376, 0.6299787005)),
                  [min(1, max(0, part)) for part in rgb])
    return times(((0.2104542553, 0.7936177850, -0.0040720468),
                  (1.9779984951, -2.4285922050, 0.4505937099),
                  (0.0259040371, 0.7827717662, -0.8086757660)),
                 [cone ** (1 / 3) for cone in cones])


class ColorTest(PageTest):
    def test_jobs_can_be_told_apart(self):
        page = fetch(self.address, "/")[2].decode()
        light, dark = re.findall(r":root {(.*?)}", page, re.S)[:2]
        for theme in (light, dark):
            colors = dict(re.findall(r"--(\w+): (#\w{6});", theme))
            jobs = [colors[f"job{i}"] for i in range(6)]
            self.assertNotIn("job6", colors)
            for job in jobs:
                self.assertGreater(contrast(job, colors["track"]), 3, job)
            for name, matrix in VISIONS.items():
                seen = [oklab(times(matrix, linear(job))) for job in jobs]
                for a, b in itertools.combinations(range(6), 2):
                    self.assertGreater(math.dist(seen[a], seen[b]), 0.15,
                                       (name, jobs[a], jobs[b]))


class MadeUpTest(PageTest):
    """The same page over answers that no daemon gives in a test's time."""

    def open_stub(self, answer, **look):
        _, headers, page = fetch(self.address, "/")
        stub = Stub(headers, page)
        self.addCleanup(stub.stop)
        stub.answer = answer
        self.address = f"127.0.0.1:{stub.server_address[1]}"
        page = self.chromium().open(f"http://{self.address}/", **look)
        page.wait("!document.getElementById('main').hidden", "the answer")
        return stub, page

    def test_as_much_as_there_can_be(self):
        _, page = self.open_stub(made_up(8, 64, 250, 1200))
        cost = page.value("(() => { const start = performance.now(); show();"
                          " return performance.now() - start; })()")
        print(f"drawing 8 devices, 9,600 blocks, 64 jobs: {cost:.0f} ms")
        found = page.value(PROBE)
        self.assertEqual(len(found["devices"]), 8)
        self.assertEqual(len(found["jobs"]), 64)
        for device, row in enumerate(found["rows"]):
            self.assertEqual(len(row), 0 if device == 5 else 64)
            self.assertLess(sum(row), 2000)
        self.assertEqual(len(found["queue"]), 100)
        self.assertIn("The first 100 of 250:", found["turn"])
        self.check_clean(page)

    def test_eight_devices(self):
        _, page = self.open_stub(made_up(8, 3, 4, 150))
        found = page.value(PROBE)
        self.assertIn(f"Device 0 \u00b7 {GPU}", found["devices"][0])
        self.assertIn("Device 1 \u00b7 cpu", found["devices"][1])
        self.assertIn("\u2715 lost", found["devices"][5])
        self.assertRegex(found["devices"][5], r"Out of use\s+100\s%")
        self.assertIn("yielded", found["devices"][4])
        self.assertIn("\u25cc starting", found["devices"][6])
        self.assertRegex(found["devices"][6], r"Worker restarts\s+3")
        self.assertRegex(found["devices"][0],
                         r"for upload\s+7\s%\s+for another slot\s+4\s%\s+"
                         r"for optimizer\s+3\s%\s+Idle")
        self.assertIn("FAILED NON_FINITE_LOSS", found["ended"][0])
        self.check_looks(page, "eight")
        self.check_clean(page)

    def test_shares_sum_and_what_is_not_known_is_said(self):
        answer = made_up(3, 1, 0, 0)
        causes = dict.fromkeys(answer["devices"][0]["bubble_causes"], 0)
        answer["host_memory_used_bytes"] = 12 << 20
        answer["devices"][0].update(
            compute_seconds=3.75, bubble_seconds=6.25, idle_seconds=0,
            bubble_causes={**causes, "dispatch": 1.4},
            memory_used_bytes=0, memory_limit_bytes=4 << 30)
        answer["devices"][1].update(  # a wait that began before these seconds
            compute_seconds=5, bubble_seconds=5, idle_seconds=0,
            bubble_causes={**causes, "dependency": 9, "data": 1},
            memory_used_bytes=1536, memory_limit_bytes=4 << 30)
        answer["devices"][2].update(
            compute_seconds=0, bubble_seconds=0, idle_seconds=0,
            bubble_causes=causes)
        _, page = self.open_stub(answer)
        found = page.value(PROBE)
        self.assertIn("host memory 12\u00a0MiB of 512.0\u00a0GiB",
                      found["server"])
        self.assertRegex(
            found["devices"][0],
            r"Computes\s+38\s%\s+Waits \(bubble\)\s+62\s%\s+"
            r"for dispatch\s+14\s%\s+cause not known yet\s+48\s%\s+Link")
        self.assertRegex(found["devices"][0],
                         r"Memory, at most\s+not known yet of 4\.0\sGiB")
        self.assertRegex(
            found["devices"][1],
            r"Waits \(bubble\)\s+50\s%\s+for another slot\s+45\s%\s+"
            r"for data\s+5\s%\s+Link")
        self.assertRegex(found["devices"][1],
                         r"Memory, at most\s+2\sKiB of 4\.0\sGiB")
        self.assertRegex(found["devices"][2],
                         r"Computes\s+not known yet\s+Waits \(bubble\)\s+"
                         r"not known yet\s+Link")
        self.check_looks(page, "shares")
        self.check_clean(page)

    def test_blocks_are_where_they_were(self):
        answer = made_up(1, 2, 0, 0)
        answer["devices"][0]["slots"] = [
            # Long ones: what is before the window is cut off.
            -500, 1500, 1500, 0, 1, 1, 1, 1, 0, 1,
            30000, 6000, 3000, 1, 1, 1, 1, 1, 0, 1,
            # Short ones, that alternate within less than two pixels.
            *(n for i in range(100) for n in
              (50000 + 10 * i, 8, 8, i % 2, 1, 1, 1, 1, 0, 1))]
        _, page = self.open_stub(answer)
        paths = page.value("[...document.querySelectorAll('#timeline path')]"
                           ".map(p => p.getAttribute('d'))")
        boxes = [[list(map(float, re.findall(r"-?[\d.]+", box)))
                  for box in path.split("z")[:-1]] for path in paths]
        self.assertEqual(boxes[0][0], [0, 100, -100, 1000, 100])
        self.assertEqual(boxes[1][0], [30000, 100, -50, 6000, 50])
        for job in (0, 1):  # one on the other, 40 % of the time each
            full = boxes[job][2:-1]
            self.assertGreater(len(full), 5)
            for x, bottom, up, _, _ in full:
                self.assertTrue(49900 <= x <= 51000, x)
                self.assertAlmostEqual(-up, 40, delta=10)
                self.assertAlmostEqual(bottom, 100 - 40 * job, delta=10)

    def test_a_server_without_devices(self):
        _, page = self.open_stub(made_up(0, 1, 0, 0))
        text = page.value("document.body.innerText")
        self.assertIn("This server has no devices.", text)
        self.assertEqual(page.value(PROBE)["devices"], [])
        self.check_clean(page)

    def test_ids_are_text(self):
        nasty = ("<img src=x onerror=\"document.title='owned'\">"
                 "<script>document.title='owned'</script>{}")
        _, page = self.open_stub(made_up(2, 2, 1, 50, names=nasty))
        found = page.value(PROBE)
        self.assertTrue(found["jobs"][0].startswith("<img src=x onerror="))
        self.assertTrue(found["legend"][0].startswith("<img src=x onerror="))
        self.assertEqual(page.value("document.images.length"), 0)
        self.assertEqual(page.value("document.scripts.length"), 1)
        self.assertEqual(page.value("document.title"), "Roundhouse")
        self.check_clean(page)

    def test_what_script_is_not_ours_does_not_run(self):
        _, page = self.open_stub(made_up(1, 1, 0, 5))
        self.check_clean(page)
        self.assertFalse(page.value(
            "(() => { const s = document.createElement('script');"
            " try { s.text = 'window.owned = true'; } catch { return false; }"
            " document.body.append(s); return Boolean(window.owned); })()"))

    def test_numbers_that_do_not_change_are_old(self):
        stub, page = self.open_stub(made_up(1, 1, 0, 5))
        page.wait("!document.getElementById('alarm').hidden", "the alarm")
        self.assertRegex(
            page.value(PROBE)["alarm"],
            r"The daemon answers, but its numbers are \d+\ss old\.")
        # Newer ones all the time: a single one is soon old, too.
        times, old = itertools.count(1_800_000_001_000), stub.answer
        stub.answer = lambda: {**old, "time_ms": next(times),
                               "stopping": True}
        page.wait("document.getElementById('alarm').innerText"
                  ".startsWith('The daemon is stopping')", "a new answer")


if __name__ == "__main__":
    unittest.main()
