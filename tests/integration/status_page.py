"""What tests of the status page share: how to look at it in a headless
Chromium, and what must hold of every picture."""

import os
import pathlib
import re
import sys
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import browser
import harness

PICTURES = pathlib.Path(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", "."))

# What the page shows, as people read it.
PROBE = """(() => {
  const texts = (selector, root = document) =>
      [...root.querySelectorAll(selector)].map(e => e.innerText);
  return {
    server: document.getElementById("server").innerText,
    live: document.getElementById("live").innerText,
    alarm: document.getElementById("alarm").hidden
        ? "" : document.getElementById("alarm").innerText,
    legend: texts("#legend li"),
    rows: [...document.querySelectorAll("#timeline .row")].map(row =>
        [...row.querySelectorAll("path")].map(path => path.getAttribute("d")
            .split("M").length - 1)),
    devices: texts("#devices article"),
    jobs: texts("#jobs article"),
    curves: [...document.querySelectorAll("#jobs .chart path:first-child")]
        .map(path => (path.getAttribute("d") || "").split("L").length),
    turn: document.getElementById("turn").innerText,
    queue: texts("#queue tr"),
    ended: texts("#ended tr"),
    table: texts("#timeline-table tr").length,
  };
})()"""

# Texts whose contrast with what is behind them is below 4.5 (WCAG AA).
FAINT = """(() => {
  const parse = color => {
    const c = color.match(/[\\d.]+/g).map(Number);
    return {rgb: c.slice(0, 3), alpha: c.length > 3 ? c[3] : 1};
  };
  const luminance = rgb => {
    const [r, g, b] = rgb.map(v => v / 255).map(
        v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.alpha > 0) return color.rgb;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some(
        c => c.nodeType === 3 && c.textContent.trim());
    if (!own || !node.checkVisibility() || node.tagName === "SCRIPT") continue;
    const a = luminance(parse(getComputedStyle(node).color).rgb);
    const b = luminance(behind(node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push([node.innerText, ratio]);
  }
  return faint;
})()"""

# Elements that stick out of the window, or of their card.
OVERFLOW = """(() => {
  const wide = document.documentElement.scrollWidth >
      document.documentElement.clientWidth ? ["the page"] : [];
  for (const node of document.querySelectorAll("body *")) {
    const box = node.getBoundingClientRect();
    const card = node.closest(".card");
    const right = card ? card.getBoundingClientRect().right : innerWidth;
    if (node.checkVisibility() && (box.right > right + 1 || box.left < -1)) {
      wide.push(`${node.tagName} ${box.right} ${node.innerText || ""}`);
    }
  }
  return wide;
})()"""


def fetch(address, path, method="GET", **headers):
    """(status, headers, body)."""
    request = urllib.request.Request(f"http://{address}{path}", method=method,
                                     headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


class PageTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("telltale-model")
        self.scratch.make_data("telltale.jsonl", count=40)
        with open(self.scratch.data / "telltale.jsonl", "a") as file:
            file.write('{"text": "telltale text"}\n')
        self.daemon = self.scratch.daemon(
            devices="cpu:4", metrics_listen="127.0.0.1:0", max_running_jobs=2)
        self.daemon.start()
        self.address = re.search(r"metrics on (127\.0\.0\.1:\d+)",
                                 self.daemon.log_path.read_text())[1]

    def chromium(self):
        return self.enterContext(
            browser.Browser(self.scratch.folder / "chromium"))

    def check_clean(self, page):
        """Only what we serve was asked for, and nobody complained."""
        self.assertEqual(page.problems, [])
        self.assertIn(f"http://{self.address}/status.json", page.requests)
        for url in page.requests:
            self.assertTrue(url.startswith((f"http://{self.address}/",
                                            "data:")), url)

    def check_looks(self, page, name):
        """Readable and within its width; pictures for people to look at."""
        for width, kind in ((1280, "wide"), (360, "phone")):
            for dark in (False, True):
                page.look(width=width, dark=dark)
                page.wait(f"innerWidth === {width}", "its size")
                look = "dark" if dark else "light"
                page.screenshot(PICTURES / f"{name}-{kind}-{look}.png")
                self.assertEqual(page.value(FAINT), [], (width, dark))
                self.assertEqual(page.value(OVERFLOW), [], width)
        page.value("document.querySelector('details').open = true")
        page.look(width=320)
        self.assertEqual(page.value(OVERFLOW), [])
        self.assertEqual(page.value(FAINT), [])
