"""roundhouse model pull from a hub of ours on loopback: a model that arrives
although the daemon is killed and connections are cut, and trains; what is
refused, with the words that say why."""

import json
import pathlib
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness
import model_hub

MODEL, NAME = "Org/Tiny-0.1M", "Org--Tiny-0.1M"
LARGE = "tokenizer.model"  # which no job reads, since there is tokenizer.json
LARGE_BYTES = 12 << 20
SENT_BYTES = 9 << 20
# What an upload of a daemon that was killed may have to fetch again.
AHEAD_BYTES = 4 << 20
TOKEN = "hf_a-secret-of-the-hub"
JOB = {"model_name_or_path": f"model:{NAME}", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 4, "micro_batch_size": 2,
       "max_steps": 2}
NOT_FOUND, PRECONDITION, QUOTA = 5, 6, 7


class PullTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.hub = self.enterContext(model_hub.Hub())
        folder = self.scratch.folder / "on-the-hub"
        harness.make_model(folder)
        (folder / LARGE).write_bytes(bytes(range(256)) * (LARGE_BYTES // 256))
        (folder / "pytorch_model.bin").write_bytes(b"pickled")
        (folder / ".gitattributes").write_text("*.bin filter=lfs\n")
        self.hub.add(MODEL, folder)
        self.hub.large(MODEL, LARGE)
        token = self.scratch.folder / "hub-token"
        token.write_text(TOKEN + "\n")
        token.chmod(0o600)
        self.daemon = self.scratch.daemon(hub=self.hub.url,
                                          hub_token_file=token)

    def refused(self, status, *words, parts, model=MODEL):
        done = self.daemon.client("model", "pull", model, *words, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        for part in parts:
            self.assertIn(part, done.stderr)

    def received(self):
        """Bytes of unfinished uploads on the disk."""
        return sum(path.stat().st_size for path in
                   self.daemon.state.glob("uploads/parts/*/*"))

    def test_cut_and_killed_it_arrives_and_trains(self):
        self.scratch.make_data("train.jsonl", count=12)
        killed = threading.Event()
        self.addCleanup(killed.set)

        def hang(handler, data):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[:SENT_BYTES])
            killed.wait(harness.DEADLINE_SECONDS)
            handler.close_connection = True

        def cut(handler, data):
            """A connection that ends in the middle of the file."""
            begin = LARGE_BYTES - len(data)
            handler.send_response(206)
            handler.send_header("Content-Length", str(len(data)))
            handler.send_header(
                "Content-Range",
                f"bytes {begin}-{LARGE_BYTES - 1}/{LARGE_BYTES}")
            handler.end_headers()
            handler.wfile.write(data[:1 << 20])
            handler.close_connection = True

        self.hub.fault(LARGE, hang)
        self.hub.fault(LARGE, cut)
        self.daemon.start()
        done = {}
        pull = threading.Thread(target=lambda: done.update(
            client=self.daemon.client("model", "pull", MODEL, check=False)))
        pull.start()
        harness.wait_until(lambda: self.received() >= SENT_BYTES,
                           "most of the model")
        self.daemon.kill()
        killed.set()
        # The client finds the next daemon, and goes on there.
        self.daemon.start()
        pull.join()
        client = done["client"]
        self.assertEqual(client.returncode, 0, client.stderr)
        self.assertEqual(client.stdout, f"model:{NAME}\n")
        self.assertIn(f"model_name_or_path: model:{NAME}\n", client.stderr)
        self.assertIn("pytorch_model.bin", client.stderr)
        begins = self.hub.begins(LARGE)
        self.assertEqual(begins[0], 0)
        self.assertGreaterEqual(begins[1], SENT_BYTES - AHEAD_BYTES)
        self.assertEqual(begins[2], begins[1] + (1 << 20))
        self.assertEqual(len(begins), 3)
        self.assertEqual(self.hub.begins("model.safetensors"), [0])
        self.check_what_is_there()
        self.daemon.wait(self.daemon.submit(JOB))
        self.check_token()
        self.daemon.stop()

    def check_what_is_there(self):
        listed = json.loads(self.daemon.client(
            "model", "list", "-o", "json").stdout)["uploads"]
        [upload] = [each for each in listed if each["name"] == NAME]
        there = self.daemon.state / "uploads/versions" / upload["id"]
        wanted = set(self.hub.models[MODEL]) - {"pytorch_model.bin",
                                                ".gitattributes"}
        self.assertEqual({path.name for path in there.iterdir()}, wanted)
        for name in wanted:
            self.assertEqual((there / name).read_bytes(),
                             self.hub.models[MODEL][name], name)
        # The same again is the same version, and fetches no weights.
        again = json.loads(self.daemon.client(
            "model", "pull", f"{MODEL}@{model_hub.COMMIT}", "-o",
            "json").stdout)
        self.assertEqual(again["upload"]["id"], upload["id"])
        self.assertEqual(again["commit"], model_hub.COMMIT)
        self.assertEqual(self.hub.begins("model.safetensors"), [0])

    def check_token(self):
        self.assertEqual(self.hub.tokens, {f"Bearer {TOKEN}"})
        self.assertNotIn(TOKEN, self.daemon.log_path.read_text())
        for path in self.daemon.state.rglob("*"):
            if path.is_file():
                self.assertNotIn(TOKEN.encode(), path.read_bytes(), path)

    def test_what_the_hub_does_wrong_is_said(self):
        self.daemon.start()
        self.refused(NOT_FOUND, model="Org/None", parts=[
            "answered 404: it has no such model or revision"])
        self.hub.fault("/revision/main", lambda handler, _: handler.reply(403))
        self.refused(PRECONDITION, parts=["answered 403", "--hub-token-file"])
        self.hub.fault("/revision/main", lambda handler, _: handler.reply(
            302, Location="http://127.0.0.1:1/elsewhere"))
        self.refused(PRECONDITION, parts=[
            "the hub leads to http://127.0.0.1:1, which is neither its own "
            "address nor https"])
        self.hub.fault("config.json", lambda handler, data: handler.reply(
            200, data.replace(b"32", b"64")))
        self.refused(PRECONDITION, parts=[
            "'config.json': what the hub sent has the git hash"])
        self.hub.fault("config.json",
                       lambda handler, data: handler.reply(200, data + b" "))
        self.refused(PRECONDITION, parts=["'config.json': the hub sends"])
        for _ in range(3):
            self.hub.fault(LARGE, lambda handler, data: handler.reply(
                200, bytes(len(data))))
        self.refused(PRECONDITION, parts=[
            f"is not what it lists, 3 times in a row: {LARGE}"])
        self.hub.listings["Org/Long"] = b" " * (20 << 20)
        self.refused(PRECONDITION, model="Org/Long",
                     parts=["more than 16777216 bytes"])
        self.hub.listings["Org/Code"] = json.dumps(
            {"sha": model_hub.COMMIT,
             "siblings": [{"rfilename": "../config.json"}]}).encode()
        self.refused(PRECONDITION, model="Org/Code",
                     parts=["the hub has no model here that could be used"])
        self.daemon.stop()

    def test_what_is_too_much_is_refused_before_it_comes(self):
        listing = self.hub.listing(MODEL)
        for entry in listing["siblings"]:
            if entry["rfilename"] == LARGE:
                entry["lfs"]["size"] = 3 << 40
        self.hub.listings[MODEL] = json.dumps(listing).encode()
        self.daemon.start()
        self.refused(QUOTA, parts=["disk_bytes of ", "2199023255552 at most"])
        self.assertEqual(self.hub.begins("model.safetensors"), [])
        self.assertEqual(self.received(), 0)
        self.daemon.stop()

    def test_without_a_hub_it_says_what_an_admin_does(self):
        self.daemon = self.scratch.daemon()
        self.daemon.start()
        self.refused(PRECONDITION, parts=[
            "--hub=https://HOST", "/etc/roundhouse/daemon.conf"])
        self.assertEqual(self.hub.requests, [])
        self.daemon.stop()

    def test_a_token_that_others_may_read_is_no_secret(self):
        (self.scratch.folder / "hub-token").chmod(0o644)
        self.daemon.launch()
        self.assertEqual(
            self.daemon.process.wait(harness.DEADLINE_SECONDS), 2)
        self.assertIn("--hub-token-file: ", self.daemon.tail())
        self.assertNotIn(TOKEN, self.daemon.tail())


# The daemon sees this file in place of the system's CAs.
TRUSTING = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
            'mount --bind "$0" /etc/ssl/certs/ca-certificates.crt && '
            'exec "$@"']
CAS = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")


def may_mount():
    return CAS.exists() and subprocess.run(
        [*TRUSTING, CAS, "true"], capture_output=True,
        check=False).returncode == 0


class HttpsTest(unittest.TestCase):
    """A hub with a certificate, and its storage at another address."""

    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        folder = self.scratch.folder
        key, self.certificate = folder / "hub.key", folder / "hub.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
             "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1,"
             "DNS:hub.test,DNS:storage.test", "-keyout",
             key, "-out", self.certificate], check=True, capture_output=True)
        pair = (self.certificate, key)
        self.hub = self.enterContext(model_hub.Hub(pair))
        self.storage = self.enterContext(model_hub.Hub(pair))
        harness.make_model(folder / "on-the-hub")
        for hub in (self.hub, self.storage):
            hub.add(MODEL, folder / "on-the-hub")
        self.token = folder / "hub-token"
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        self.daemon = self.scratch.daemon(hub=self.hub.url,
                                          hub_token_file=self.token)

    def test_a_certificate_that_nobody_vouches_for_is_refused(self):
        self.daemon.start()
        done = self.daemon.client("model", "pull", MODEL, check=False)
        self.assertEqual(done.returncode, PRECONDITION, done.stderr)
        self.assertIn("this server trusts no certificate of it", done.stderr)
        self.assertEqual(self.hub.requests, [])
        self.daemon.stop()

    @unittest.skipUnless(may_mount(),
                         "this system lets nobody mount in a namespace")
    def test_storage_elsewhere_is_shown_no_token(self):
        self.daemon.prefix = [*TRUSTING, str(self.certificate)]
        self.daemon.start()
        weights = f"/{MODEL}/resolve/{model_hub.COMMIT}/model.safetensors"
        self.hub.fault(weights, lambda handler, _: handler.reply(
            302, Location=self.storage.url + weights))
        done = self.daemon.client("model", "pull", MODEL)
        self.assertEqual(done.stdout, f"model:{NAME}\n")
        self.assertEqual(self.storage.requests, [(weights, 0)])
        self.assertEqual(self.storage.tokens, {None})
        self.assertEqual(self.hub.tokens, {f"Bearer {TOKEN}"})
        self.daemon.stop()

    @unittest.skipUnless(may_mount(),
                         "this system lets nobody mount in a namespace")
    def test_behind_a_proxy_nothing_goes_around_it(self):
        proxy = self.enterContext(model_hub.Proxy())
        there = [hub.url.replace("127.0.0.1", name) for hub, name in
                 ((self.hub, "hub.test"), (self.storage, "storage.test"))]
        self.daemon = self.scratch.daemon(hub=there[0],
                                          hub_token_file=self.token)
        self.daemon.environment = {"https_proxy": proxy.url,
                                   "no_proxy": "storage.test"}
        self.daemon.prefix = [*TRUSTING, str(self.certificate)]
        self.daemon.start()
        weights = f"/{MODEL}/resolve/{model_hub.COMMIT}/model.safetensors"
        # Only the proxy knows these names.
        self.hub.fault(weights, lambda handler, _: handler.reply(
            302, Location=there[1] + weights))
        done = self.daemon.client("model", "pull", MODEL)
        self.assertEqual(done.stdout, f"model:{NAME}\n")
        self.assertEqual(self.storage.requests, [(weights, 0)])
        self.assertEqual(self.storage.tokens, {None})
        self.assertEqual(set(proxy.asked),
                         {url.removeprefix("https://") for url in there})
        self.hub.fault("/revision/main", lambda handler, _: handler.reply(
            302, Location="https://10.0.0.1/elsewhere"))
        done = self.daemon.client("model", "pull", MODEL, check=False)
        self.assertEqual(done.returncode, PRECONDITION, done.stderr)
        self.assertIn("the hub leads to https://10.0.0.1:443, which is in a "
                      "private network", done.stderr)
        self.daemon.stop()


if __name__ == "__main__":
    unittest.main()
