"""A headless Chromium, driven over its DevTools protocol, for tests.

    with browser.Browser(folder) as chromium:
        page = chromium.open("http://127.0.0.1:9464/")
        page.value("document.title")
        page.wait("document.images.length === 0", "no pictures")
        page.screenshot(path)
        page.problems     # what the console or the policy complained of
        page.requests     # addresses asked for, in order

Needs Debian's chromium (deploy/install-deps --test). It speaks over a pipe, so
no port is open; without a sandbox, since CI runs as root and only our own page
is loaded. All waits have a deadline.
"""

import base64
import collections
import fcntl
import itertools
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import time

DEADLINE_SECONDS = 120.0
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--disable-dev-shm-usage", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--mute-audio",
         "--remote-debugging-pipe"]


class BrowserFailure(Exception):
    """Chromium is missing, died, or did not answer in time."""


class Browser:
    def __init__(self, folder):
        """`folder` is where it may write."""
        program = shutil.which("chromium", path="/usr/bin:/usr/local/bin")
        if program is None:
            raise BrowserFailure(
                "chromium is missing; run deploy/install-deps --test")
        folder = pathlib.Path(folder)
        folder.mkdir(exist_ok=True)
        self.log = folder / "chromium.log"
        commands, self.write_fd = pipe()
        self.read_fd, answers = pipe()
        with open(self.log, "wb") as log:
            # The protocol's numbers for its two ends are 3 and 4.
            self.process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "-",
                 program, *FLAGS, f"--user-data-dir={folder}/profile",
                 "about:blank"],
                pass_fds=(commands, answers), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
                env={"HOME": str(folder), "PATH": "/usr/bin:/bin",
                     "LANG": "C.UTF-8", "TZ": "UTC"})
        os.close(commands)
        os.close(answers)
        self.numbers = itertools.count(1)
        self.unread = b""
        self.answers = {}
        self.events = collections.deque()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)  # its own session's
        self.process.wait()
        os.close(self.read_fd)
        os.close(self.write_fd)

    def read(self, deadline):
        """Takes in what has come, at least one message."""
        while b"\0" not in self.unread:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self.read_fd], [], [], left)[0]
            chunk = os.read(self.read_fd, 1 << 20) if ready else b""
            if not chunk:
                what = "ended" if ready else "did not answer in time"
                raise BrowserFailure(f"chromium {what}:\n"
                                     f"{self.log.read_text()[-4000:]}")
            self.unread += chunk
        *whole, self.unread = self.unread.split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)

    def call(self, method, session=None, **parameters):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_fd, data):]
        deadline = time.monotonic() + DEADLINE_SECONDS
        while number not in self.answers:
            self.read(deadline)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise BrowserFailure(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, url, **look):
        """`look`: of Page.look."""
        return Page(self, url, **look)


class Page:
    def __init__(self, browser, url, **look):
        self.browser = browser
        self.problems, self.requests = [], []
        target = browser.call("Target.createTarget",
                              url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target,
                                    flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.look(**look)
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'", url)

    def call(self, method, **parameters):
        answer = self.browser.call(method, session=self.session, **parameters)
        self.take_events()
        return answer

    def take_events(self):
        """This page's; there is one page at a time."""
        while self.browser.events:
            event = self.browser.events.popleft()
            if event.get("sessionId") != self.session:
                continue
            what = event["params"]
            match event["method"]:
                case "Network.requestWillBeSent":
                    self.requests.append(what["request"]["url"])
                case "Runtime.exceptionThrown":
                    self.problems.append(json.dumps(what["exceptionDetails"]))
                case "Log.entryAdded":
                    self.problems.append(what["entry"]["text"])
                case "Runtime.consoleAPICalled":
                    self.problems.append(json.dumps(what["args"]))

    def look(self, width=1280, height=900, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setScrollbarsHidden", hidden=True)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme",
             "value": "dark" if dark else "light"}])

    def value(self, expression):
        """What a JavaScript expression comes to, as JSON knows it."""
        answer = self.call("Runtime.evaluate", expression=expression,
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserFailure(f"{expression}: {answer}")
        return answer["result"].get("value")

    def wait(self, expression, what, seconds=DEADLINE_SECONDS):
        """Answers its first true value."""
        deadline = time.monotonic() + seconds
        while not (value := self.value(expression)):
            if time.monotonic() > deadline:
                raise BrowserFailure(f"{what}: not in time; the page says\n" +
                                     self.value("document.body.innerText"))
            time.sleep(0.05)
        return value

    def screenshot(self, path):
        """PNG of the whole page, also of what is below the window."""
        answer = self.call("Page.captureScreenshot", format="png",
                           captureBeyondViewport=True)
        pathlib.Path(path).write_bytes(base64.b64decode(answer["data"]))


def pipe():
    """(read, write), numbered so that bash's own do not meet them."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high
