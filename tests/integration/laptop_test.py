"""The guide's chapter "From your laptop", typed word for word on a machine that
is not the server: another network namespace, another user, another home, and
the client of deploy/client-bundle alone.

    laptop namespace            server namespace
    user 70010, tty  --- veth pair, TLS ---  roundhoused

It takes root and the right to make network namespaces, and is skipped, saying
so, without.
"""

import contextlib
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import documents
import harness

CHAPTER = "## From your laptop"
MARY = 70010
SERVER_ADDRESS, LAPTOP_ADDRESS = "10.213.77.1", "10.213.77.2"
HOST = "lab"
# What deploy/client-bundle makes.
CLIENT = harness.ROOT / "client/roundhouse-portable"
PORT = 9443  # in a namespace of its own


def chapter_blocks():
    lines = (harness.ROOT / "docs/guide.md").read_text().splitlines()
    first = lines.index(CHAPTER) + 1
    last = next((number for number, line in enumerate(lines[first:], first)
                 if line.startswith("## ")), len(lines))
    return [block for block in documents.blocks(harness.ROOT, "docs/guide.md")
            if first < int(block.place.rsplit(":", 1)[1]) <= last]


class Namespace:
    """A process that keeps a network and a mount namespace, in which HOST is
    the server's address."""

    def __init__(self, folder, name):
        hosts = folder / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{SERVER_ADDRESS} {HOST}\n")
        hosts.chmod(0o644)
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation=private", "sh", "-c",
             f"mount --bind '{hosts}' /etc/hosts && echo && exec sleep 1d"],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        if self.holder.stdout.read(1) != b"\n":
            raise unittest.SkipTest("no network namespaces can be made here")
        self.enter = ["nsenter", f"--target={self.holder.pid}", "--net",
                      "--mount"]
        self.name = name

    def run(self, *words):
        subprocess.run([*self.enter, *words], check=True)

    def close(self):
        self.holder.kill()
        self.holder.wait()


def connect(server, laptop):
    """A cable between the two, whose ends exist in them alone."""
    pair = f"rh{os.getpid() % 100000}"
    made = subprocess.run(
        ["ip", "link", "add", f"{pair}a", "netns", str(server.holder.pid),
         "type", "veth", "peer", "name", f"{pair}b", "netns",
         str(laptop.holder.pid)], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        raise unittest.SkipTest(f"no network can be made here: {made.stderr}")
    for end, address, space in (("a", SERVER_ADDRESS, server),
                                ("b", LAPTOP_ADDRESS, laptop)):
        space.run("ip", "address", "add", f"{address}/30", "dev", pair + end)
        space.run("ip", "link", "set", pair + end, "up")
        space.run("ip", "link", "set", "lo", "up")


class Laptop:
    """What mary types there, at a terminal."""

    def __init__(self, space, home):
        self.space = space
        self.home = home

    def type(self, command, answers=()):
        """What it prints; `answers` are (prompt, text) in their order."""
        words = [*self.space.enter, "setpriv", f"--reuid={MARY}",
                 f"--regid={MARY}", "--clear-groups", "--no-new-privs", "env",
                 "-i", f"HOME={self.home}", f"PATH={self.home}/bin:/usr/bin:/bin",
                 "TERM=dumb", "bash", "-c", f"cd ~ && {command}"]
        process, terminal = pty.fork()
        if process == 0:
            os.execvp(words[0], words)
        said = b""
        waiting = list(answers)
        deadline = time.monotonic() + harness.DEADLINE_SECONDS
        while True:
            if waiting and re.search(waiting[0][0], said.decode(errors="replace")):
                os.write(terminal, waiting.pop(0)[1].encode() + b"\n")
            ready, _, _ = select.select([terminal], [], [], 1)
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
            if not ready:
                continue
            try:
                got = os.read(terminal, 65536)
            except OSError:  # its end
                break
            if not got:
                break
            said += got
        _, status = os.waitpid(process, 0)
        os.close(terminal)
        text = said.decode(errors="replace")
        if status != 0:
            raise harness.Failure(f"{command}: status {status}\n{text}")
        return text


@unittest.skipUnless(os.geteuid() == 0, "it takes root: users and networks")
class LaptopTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        top = self.scratch.folder
        self.server = self.enterContext(
            contextlib.closing(Namespace(top, "server")))
        self.space = self.enterContext(
            contextlib.closing(Namespace(top, "laptop")))
        connect(self.server, self.space)
        (self.scratch.data / "models").mkdir()
        self.scratch.make_model("models/tiny")
        self.home = top / "laptop"
        self.make_home()
        self.laptop = Laptop(self.space, self.home)
        self.daemon = self.scratch.daemon(
            listen_tls=f"{SERVER_ADDRESS}:{PORT}")
        self.daemon.prefix = self.server.enter
        self.daemon.start()
        self.addCleanup(self.daemon.stop)

    def make_home(self):
        """A laptop with one file of ours on it, where nothing of the server's
        can be read."""
        (self.home / "bin").mkdir(parents=True)
        shutil.copy(CLIENT, self.home / "bin/roundhouse")
        harness.make_data(self.home / "dates.jsonl", count=20)
        for path in (self.home, *self.home.rglob("*")):
            os.chown(path, MARY, MARY)
        harness.open_the_way(self.home)

    def test_the_chapter_word_for_word(self):
        token = ""
        typed = []
        for block in chapter_blocks():
            if block.language == "yaml":
                path = self.home / "job.yaml"
                path.write_text(block.text)
                os.chown(path, MARY, MARY)
                continue
            for command in block.commands():
                words = re.sub(r"\s+#.*", "", command).split()
                self.assertEqual(words[0], "roundhouse", command)
                typed.append(" ".join(words[1:3]))
                if words[1] in ("user", "token"):  # the admin, on the server
                    said = self.daemon.client(*words[1:])
                    if words[1] == "token":
                        token = said.stdout.strip()
                        self.assertRegex(token, r"^rh_[\w-]+$")
                    continue
                answers = ([("(?i)yes", "yes"), ("(?i)token", token)]
                           if words[1] == "login" else [])
                said = self.laptop.type(command, answers)
                self.assertNotIn(token, said)
                if words[1] == "login":
                    self.assertIn(self.fingerprint(), said)
                if words[1] == "whoami":
                    self.assertIn("mary", said)
                if words[1] == "upload":
                    self.assertIn("dataset:dates", said)
        self.assertEqual(typed, [
            "user add", "token add", "login lab:9443", "whoami",
            "upload dates.jsonl", "submit -f", "logs job-1", "download job-1"])
        # What came is what the server has, and nothing else was written.
        result = pathlib.Path(self.daemon.job("job-1")["output_path"])
        came = next(path for path in self.home.iterdir()
                    if (path / "adapter_model.safetensors").exists())
        for path in came.iterdir():
            self.assertEqual(path.read_bytes(),
                             (result / path.name).read_bytes(), path.name)
        self.assertEqual(
            {path.name for path in result.iterdir()} -
            {path.name for path in came.iterdir()}, set())
        self.end_of_the_token()

    def end_of_the_token(self):
        self.daemon.client("token", "remove", "laptop", "--user=mary")
        with self.assertRaisesRegex(harness.Failure, "(?i)token"):
            self.laptop.type("roundhouse list")

    def fingerprint(self):
        return re.search(r"SHA256:\S{43}",
                         self.daemon.log_path.read_text())[0]


if __name__ == "__main__":
    unittest.main()
