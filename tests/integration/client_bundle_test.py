"""The portable client: one file, alone in a folder that is its whole world,
against a daemon whose socket lies there, too."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

PORTABLE = harness.ROOT / "client/roundhouse-portable"
LOOKUP = harness.ROOT / "tests/integration/name_lookup"
DYNAMIC, INTERPRETER = 2, 3  # program headers


def program_headers(path):
    data = path.read_bytes()
    start = int.from_bytes(data[32:40], "little")
    size, count = data[54], data[56]
    return {int.from_bytes(data[start + i * size:][:4], "little")
            for i in range(count)}


class OnlyFrames:
    """Answers each connection as an HTTP/2 server does first."""

    def __init__(self, address):
        self.listener = socket.create_server(address)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.sendall(b"\0\0\0\x04\0\0\0\0\0")  # SETTINGS
            threading.Thread(target=self.drain, args=(connection,),
                             daemon=True).start()

    @staticmethod
    def drain(connection):
        with connection:
            try:
                while connection.recv(4096):
                    pass
            except OSError:
                pass


class NameServer:
    """A DNS server that knows one name."""

    def __init__(self, address, name):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.name = b"".join(bytes([len(part)]) + part.encode()
                             for part in name.split("."))
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                question, sender = self.socket.recvfrom(512)
            except OSError:
                return
            known = question[12:].startswith(self.name + b"\0\0\x01")
            end = question.index(b"\0", 12) + 5
            head = (question[:2] + b"\x81\x80\0\x01"
                    + (b"\0\x01" if known else b"\0\0") + b"\0\0\0\0")
            answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x7f\0\0\x01"
            self.socket.sendto(
                head + question[12:end] + (answer if known else b""), sender)


class ClientBundleTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())

    def in_its_world(self, world, program, *words, stdin=None):
        """Runs the one file of `world`, with no environment at all."""
        change = (lambda: os.chroot(world)) if os.geteuid() == 0 else None
        path = program if change else str(world) + program
        return subprocess.run([path, *words], env={}, preexec_fn=change,
                              cwd="/", input=stdin, capture_output=True,
                              text=True, check=False, timeout=60)

    def test_nothing_else_is_needed(self):
        headers = program_headers(PORTABLE)
        self.assertNotIn(INTERPRETER, headers)
        self.assertNotIn(DYNAMIC, headers)
        notes = subprocess.run(["readelf", "-n", PORTABLE], check=True,
                               capture_output=True, text=True).stdout
        self.assertIn("OS: Linux, ABI: 3.2.0", notes)
        needed = re.findall(r"x86 ISA needed: (.*)", notes)
        self.assertIn(needed, ([], ["x86-64-baseline"]))

    def test_lists_and_submits(self):
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=8)
        daemon = self.scratch.daemon(devices="cpu:1")
        daemon.start()
        world = pathlib.Path(daemon.socket).parent
        shutil.copy(PORTABLE, world / "roundhouse")
        job = world / "job.yaml"
        job.write_text("model_name_or_path: model\ndataset: train.jsonl\n"
                       "max_steps: 1\n")
        if os.geteuid() == 0:
            place, file = f"unix:/{pathlib.Path(daemon.socket).name}", "/job.yaml"
        else:
            place, file = f"unix:{daemon.socket}", str(job)

        def client(*words):
            done = self.in_its_world(world, "/roundhouse", "--server", place,
                                     *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        self.assertIn("NAME", client("list"))
        client("submit", "-f", file, "--wait")
        self.assertIn("SUCCEEDED", client("list"))
        done = self.in_its_world(world, "/roundhouse", "--server", place,
                                 "doctor")
        self.assertIn("the daemon answers", done.stdout)

    def test_host_names_are_found(self):
        world = pathlib.Path(self.scratch.folder) / "world"
        (world / "etc").mkdir(parents=True)
        shutil.copy(LOOKUP, world / "lookup")
        if os.geteuid() != 0:
            self.skipTest("only root can change a program's /etc")
        (world / "etc/hosts").write_text("127.0.0.1 lab-server\n")
        server = OnlyFrames(("127.0.0.1", 0))
        done = self.in_its_world(world, "/lookup",
                                 f"lab-server:{server.port}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        try:
            NameServer(("127.0.0.53", 53), "server.lab.test")
        except OSError as error:
            self.skipTest(f"no DNS server of ours on port 53: {error}")
        (world / "etc/resolv.conf").write_text("nameserver 127.0.0.53\n")
        done = self.in_its_world(world, "/lookup",
                                 f"server.lab.test:{server.port}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
