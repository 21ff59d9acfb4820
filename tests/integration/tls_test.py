"""Calls over the network: TLS, tokens and login, with the real daemon and client
on loopback, and with tools that are not ours: openssl s_client, and Google's
gRPC for Python through reflection."""

import json
import os
import pathlib
import pty
import re
import secrets
import select
import shutil
import subprocess
import sys
import unittest
import urllib.request

import grpc
from google.protobuf import message_factory

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness
import reflection

SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "max_length": 16, "batch_size": 4, "micro_batch_size": 2,
        "max_steps": 3, "save_steps": 0}
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def openssl(*words, given=b""):
    return subprocess.run(["openssl", *map(str, words)], input=given,
                          capture_output=True, check=False,
                          timeout=harness.DEADLINE_SECONDS)


def make_pair(folder, name, *more):
    """A certificate for this host's loopback and its key, by openssl."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    done = openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
                   "ec_paramgen_curve:P-256", "-nodes", "-days", "90",
                   "-subj", f"/CN={name}", "-keyout", key, "-out", certificate,
                   *more)
    assert done.returncode == 0, done.stderr
    key.chmod(0o600)
    return certificate, key


def fingerprint_of(certificate):
    der = openssl("x509", "-in", certificate, "-outform", "DER").stdout
    hashed = openssl("dgst", "-sha256", "-binary", given=der).stdout
    text = openssl("base64", given=hashed).stdout.decode().strip()
    return f"SHA256:{text.rstrip('=')}"


class TlsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=20)
        self.daemon = self.scratch.daemon(devices="cpu:1",
                                          listen_tls="127.0.0.1:0")
        self.homes = {}
        self.variables = {}

    # The daemon.

    def start(self, **flags):
        begin = (self.daemon.log_path.stat().st_size
                 if self.daemon.log_path.exists() else 0)
        self.daemon.start(**flags)
        text = self.daemon.log_path.read_text()[begin:]
        self.server = re.search(r"serving TLS on (\S+?),", text)[1]
        self.port = int(self.server.rsplit(":", 1)[1])
        self.fingerprint = FINGERPRINT.search(text)[0]

    def add_user(self, name, *words):
        self.daemon.client("user", "add", name, *words)

    def make_token(self, user, name, *words):
        """Whatever goes to standard output is the token."""
        done = self.daemon.client("token", "add", name, f"--user={user}",
                                  *words)
        self.assertRegex(done.stdout, r"\Arh_[A-Za-z0-9_-]{48}\n\Z")
        return done.stdout.strip()

    # The client, on another machine: it knows no more than its own home.

    def environment(self, home="laptop"):
        folder = self.scratch.folder / home
        folder.mkdir(exist_ok=True)
        return {"HOME": str(folder), "PATH": "/usr/bin:/bin",
                **self.variables}

    def remote(self, *words, given="", home="laptop", status=0):
        done = subprocess.run(
            [harness.ROOT / "client/roundhouse", *map(str, words)],
            input=given, capture_output=True, text=True, check=False,
            timeout=harness.DEADLINE_SECONDS, env=self.environment(home))
        self.assertEqual(done.returncode, status,
                         (words, done.stdout, done.stderr,
                          self.daemon.tail()))
        return done

    def login(self, token, home="laptop", server=None, **more):
        return self.remote("login", server or self.server,
                           f"--fingerprint={self.fingerprint}",
                           given=token + "\n", home=home, **more)

    def begin(self, *words, home="laptop"):
        """A command that goes on, once its first line has come."""
        process = subprocess.Popen(
            [harness.ROOT / "client/roundhouse", *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.environment(home))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        ready, _, _ = select.select([process.stdout], [], [],
                                    harness.DEADLINE_SECONDS)
        self.assertTrue(ready, words)
        return process

    # Login and what comes after it.

    def test_login_word_for_word(self):
        self.start()
        # Before there is a user nobody is let in.
        self.variables = {"ROUNDHOUSE_SERVER": f"tls:{self.server}",
                          "ROUNDHOUSE_FINGERPRINT": self.fingerprint}
        done = self.remote("list", status=4)
        self.assertIn("has no users yet", done.stderr)
        done = self.daemon.client("token", "add", "x", check=False)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("roundhouse user add NAME", done.stderr)
        self.variables = {}

        self.add_user("mary")
        token = self.make_token("mary", "laptop")
        self.refuse_what_is_wrong(token)

        done = self.login(token)
        self.assertEqual(
            done.stdout,
            f"Logged in to {self.server}: mary (user:mary)\ndefault: member\n"
            "By token laptop of scope submit.\n")
        kept = self.scratch.folder / "laptop/.config/roundhouse/logins"
        self.assertEqual(kept.stat().st_mode & 0o7777, 0o600)
        self.assertEqual(kept.parent.stat().st_mode & 0o7777, 0o700)
        self.assertIn(f"{self.server} {self.fingerprint} {token}\n",
                      kept.read_text())
        self.use_all_commands()

        self.assertEqual(self.remote("logout").stdout,
                         f"Logged out of {self.server}.\n")
        self.assertNotIn(token, kept.read_text())
        self.assertIn(self.fingerprint, kept.read_text())
        # Again without a question, since the certificate is remembered; and by
        # a name of it, whatever the name in the certificate.
        self.remote("login", self.server, given=token)
        self.remote("login", f"localhost:{self.port}", "--yes", given=token)
        self.remote("whoami")
        self.daemon.stop()

    def refuse_what_is_wrong(self, token):
        # Nobody is there to say whether the certificate is right.
        done = self.remote("login", self.server, given=token, status=4)
        self.assertIn(f"Its fingerprint: {self.fingerprint}\n", done.stderr)
        self.assertIn("--fingerprint=SHA256:", done.stderr)
        other = "SHA256:" + 43 * "A"
        done = self.remote("login", self.server, f"--fingerprint={other}",
                           given=token, status=4)
        self.assertIn("another certificate", done.stderr)
        done = self.login(token[:-1], status=4)
        self.assertIn("not all of it", done.stderr)
        wrong = self.make_token("mary", "gone")
        self.daemon.client("token", "remove", "gone", "--user=mary")
        done = self.login(wrong, status=4)
        self.assertIn("not one that works", done.stderr)
        self.assertFalse((self.scratch.folder / "laptop/.config").exists())

    def use_all_commands(self):
        """Every command goes there after a login."""
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps({**SPEC, "output_name": "over-tls"}))
        job = self.remote("submit", "-f", path, "--wait", "-o",
                          "name").stdout.strip().splitlines()[0]
        self.assertIn(job.rsplit("/", 1)[1], self.remote("list").stdout)
        self.assertIn("step 3/3", self.remote("logs", job).stdout)
        seen = json.loads(self.remote("get", job, "-o", "json").stdout)
        self.assertEqual(seen["owner"], "mary")

    def type_login(self, *answers):
        """Somebody at a terminal: (what is asked, what he types)...; his exit
        status and all that he saw."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(harness.ROOT / "client/roundhouse",
                      ["roundhouse", "login", self.server],
                      {**self.environment("typing"), "TERM": "xterm"})
        self.addCleanup(os.close, terminal)
        seen = ""
        for question, typed in answers:
            while not seen.endswith(question):
                ready, _, _ = select.select([terminal], [], [],
                                            harness.DEADLINE_SECONDS)
                self.assertTrue(ready, seen)
                seen += os.read(terminal, 4096).decode()
            os.write(terminal, typed.encode())
        while True:
            try:
                seen += os.read(terminal, 4096).decode()
            except OSError:  # he has left
                break
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen

    def test_a_login_at_a_terminal(self):
        self.start()
        self.add_user("mary")
        token = self.make_token("mary", "laptop")
        trust = "say the same (yes/no)? "
        kept = self.scratch.folder / "typing/.config/roundhouse/logins"
        status, seen = self.type_login((trust, "no\n"))
        self.assertEqual(status, 9, seen)
        self.assertIn(f"Its fingerprint: {self.fingerprint}", seen)
        # Ctrl-C in place of the token leaves nothing behind.
        status, seen = self.type_login((trust, "yes\n"), ("Token: ", "\3"))
        self.assertEqual(status, 4, seen)
        self.assertFalse(kept.exists())
        status, seen = self.type_login(
            (trust, "yes\n"), ("Token: ", f"x\x7f{token}\n"))
        self.assertEqual(status, 0, seen)
        self.assertIn("Logged in to", seen)
        self.assertNotIn(token[3:12], seen)
        self.assertIn(token, kept.read_text())
        self.daemon.stop()

    def test_tokens_of_a_pipeline_and_their_scopes(self):
        self.start()
        self.add_user("mary")
        self.add_user("adam", "--role=admin")
        self.variables = {"ROUNDHOUSE_SERVER": f"tls:{self.server}",
                          "ROUNDHOUSE_FINGERPRINT": self.fingerprint,
                          "ROUNDHOUSE_TOKEN": self.make_token(
                              "mary", "reads", "--scope=read")}
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps(SPEC))
        self.remote("list")
        done = self.remote("submit", "-f", path, status=4)
        self.assertIn("the scope of your token is read", done.stderr)
        self.assertIn("--scope=submit", done.stderr)
        done = self.remote("token", "add", "more", status=4)
        self.assertIn("scope admin", done.stderr)
        self.remote("token", "list")

        # A token that manages others makes none that outlives it.
        self.variables["ROUNDHOUSE_TOKEN"] = self.make_token(
            "mary", "manages", "--scope=admin", "--expires=2h")
        made = json.loads(self.remote("token", "add", "made", "--expires=90d",
                                      "-o", "json").stdout)["token"]
        own = json.loads(self.remote("token", "show", "manages", "-o",
                                     "json").stdout)
        self.assertEqual(made["expire_time"], own["expire_time"])
        self.remote("token", "add", "others", "--user=adam", status=4)
        self.remote("user", "list", status=4)
        self.remote("token", "remove", "made")
        # Whoever is removed has no token that works, and has none when he
        # comes back.
        self.daemon.client("user", "remove", "mary")
        self.remote("list", status=4)
        self.daemon.client("user", "add", "mary", "--restore")
        self.remote("list", status=4)

        # An admin's own.
        self.variables["ROUNDHOUSE_TOKEN"] = self.make_token(
            "adam", "submits")
        self.remote("user", "list", status=4)
        self.variables["ROUNDHOUSE_TOKEN"] = self.make_token(
            "adam", "all", "--scope=admin")
        self.remote("user", "list")
        listed = self.remote("token", "list", "--all-users", "--dead").stdout
        self.assertIn("removed", listed)
        self.variables["ROUNDHOUSE_TOKEN"] = "rh_" + 48 * "A"
        done = self.remote("list", status=2)
        self.assertIn("ROUNDHOUSE_TOKEN is no token", done.stderr)
        self.daemon.stop()

    def test_a_revoked_token_ends_streams(self):
        self.start()
        self.add_user("mary")
        self.add_user("otto")
        job = self.daemon.submit({**SPEC, "max_steps": 1_000_000})
        for user in ("mary", "otto"):
            self.login(self.make_token(user, "laptop"), home=user)
        watches = {user: self.begin("watch", job, "-o", "json", home=user)
                   for user in ("mary", "otto")}
        self.daemon.client("token", "remove", "laptop", "--user=mary")
        watches["mary"].wait(harness.DEADLINE_SECONDS)
        self.assertEqual(watches["mary"].returncode, 4,
                         watches["mary"].stderr.read())
        self.assertIsNone(watches["otto"].poll())
        self.daemon.finish(job)
        self.daemon.stop()

    # Certificates.

    def test_a_changed_certificate_is_refused_and_a_renewed_one_taken_up(self):
        folder = self.scratch.folder
        first, first_key = make_pair(folder, "first")
        second, second_key = make_pair(folder, "second")
        used, used_key = folder / "used.pem", folder / "used.key"
        shutil.copy(first, used)
        shutil.copy(first_key, used_key)
        self.start(tls_certificate=used, tls_key=used_key)
        self.assertEqual(self.fingerprint, fingerprint_of(first))
        self.add_user("mary")
        token = self.make_token("mary", "laptop")
        self.login(token)
        self.remote("whoami")

        # Files that do not fit together are told and not used.
        begin = len(self.daemon.log_path.read_text())

        def told(what):
            return harness.wait_until(
                lambda: what in self.daemon.log_path.read_text()[begin:],
                what)

        shutil.copy(second, folder / "new")
        os.replace(folder / "new", used)
        told("is not the key of")
        self.remote("whoami")
        shutil.copy(second_key, folder / "new")
        os.replace(folder / "new", used_key)
        told(f"its fingerprint is {fingerprint_of(second)}")

        # What the client remembers is another one.
        for words in (["whoami"], ["watch", "job-1"],
                      ["submit", "-f", self.write_job()]):
            done = self.remote(*words, status=4)
            self.assertIn("HAS CHANGED", done.stderr)
            self.assertIn(f"remembered: {fingerprint_of(first)}", done.stderr)
            self.assertIn(f"shown:      {fingerprint_of(second)}", done.stderr)
            self.assertNotIn("trying again", done.stderr)
        done = self.remote("login", self.server, "--yes", given=token, status=4)
        self.assertIn("HAS CHANGED", done.stderr)
        self.fingerprint = fingerprint_of(second)
        self.login(token)
        self.remote("whoami")
        self.daemon.stop()

    def write_job(self):
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps(SPEC))
        return path

    def test_certificates_of_an_authority_for_both_sides(self):
        folder = self.scratch.folder
        ca, ca_key = make_pair(folder, "authority")

        def signed(name, *extensions):
            key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
            request, more = folder / f"{name}.csr", folder / f"{name}.cnf"
            openssl("req", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-subj",
                    f"/CN={name}", "-keyout", key, "-out", request)
            more.write_text("\n".join(extensions))
            done = openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey",
                           ca_key, "-days", "90", "-extfile", more, "-out",
                           certificate)
            self.assertEqual(done.returncode, 0, done.stderr)
            key.chmod(0o600)
            return certificate, key

        server, server_key = signed("server", "subjectAltName=DNS:localhost",
                                    "extendedKeyUsage=serverAuth")
        client, client_key = signed("client", "extendedKeyUsage=clientAuth")
        self.start(tls_certificate=server, tls_key=server_key,
                   tls_client_ca=ca)
        self.add_user("mary")
        token = self.make_token("mary", "laptop")
        name = f"localhost:{self.port}"
        self.variables = {"SSL_CERT_FILE": str(ca)}
        # Without a certificate of its own a client is cut off.
        self.remote("login", name, given=token, status=8)
        config = self.scratch.folder / "laptop/.config/roundhouse"
        config.mkdir(parents=True)
        (config / "config").write_text(f"client-certificate: {client}\n"
                                       f"client-key: {client_key}\n")
        self.remote("login", name, given=token)
        self.assertIn(f"{name} ca rh_", (config / "logins").read_text())
        self.remote("whoami")
        # The name counts: the certificate is not for the address.
        done = self.remote("login", self.server, given=token, status=4)
        self.assertIn("IP address mismatch", done.stderr)
        # Remembered ones show it too.
        self.remote("login", self.server, "--yes", given=token)
        self.remote("whoami")
        # Who does not trust the authority any more is told what to do.
        self.variables = {"SSL_CERT_FILE": str(make_pair(folder, "other")[0]),
                          "ROUNDHOUSE_SERVER": f"tls:{name}"}
        done = self.remote("whoami", status=8)
        self.assertIn(f"roundhouse login {name}", done.stderr)
        self.daemon.stop()

    # Tools that we did not write.

    def test_what_openssl_is_answered(self):
        self.start()

        def shakes(*words):
            done = openssl("s_client", "-connect", self.server, "-alpn", "h2",
                           "-cipher", "ALL:@SECLEVEL=0", *words)
            text = done.stdout.decode(errors="replace")
            found = re.search(r"^\s*(?:New, \S+, )?Cipher is (\S+)|"
                              r"New, [^,]+, Cipher is (\S+)", text, re.M)
            cipher = next(filter(None, found.groups()), "(NONE)")
            return None if cipher == "(NONE)" else cipher

        self.assertIsNone(shakes("-tls1"))
        self.assertIsNone(shakes("-tls1_1"))
        self.assertIn("GCM", shakes("-tls1_2"))
        self.assertIn("TLS_", shakes("-tls1_3"))
        listed = openssl("ciphers", "-tls1_2", "ALL:COMPLEMENTOFALL:"
                         "@SECLEVEL=0").stdout.decode().strip().split(":")
        spoken = {cipher for cipher in listed if not
                  cipher.startswith("TLS_") and
                  shakes("-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")}
        self.assertEqual(spoken, {"ECDHE-ECDSA-AES128-GCM-SHA256",
                                  "ECDHE-ECDSA-AES256-GCM-SHA384",
                                  "ECDHE-ECDSA-CHACHA20-POLY1305"})
        self.daemon.stop()

    def test_python_calls_through_reflection(self):
        self.start()
        self.add_user("mary")
        token = self.make_token("mary", "python")
        roots = (self.daemon.state / "tls/certificate.pem").read_bytes()
        with grpc.secure_channel(
                f"localhost:{self.port}",
                grpc.ssl_channel_credentials(roots)) as channel:
            service = reflection.services(
                channel, ["roundhouse.v1.SystemService"])[0]
            method = service.FindMethodByName("GetServer")
            request = message_factory.GetMessageClass(method.input_type)
            response = message_factory.GetMessageClass(method.output_type)
            call = channel.unary_unary(
                "/roundhouse.v1.SystemService/GetServer",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString)
            answer = call(request(), timeout=30, metadata=[
                ("authorization", f"Bearer {token}")])
            self.assertTrue(answer.version, answer)
            for shown in ([], [("authorization", token)],
                          [("authorization", "Bearer rh_" + 48 * "x")]):
                with self.assertRaises(grpc.RpcError) as refused:
                    call(request(), timeout=30, metadata=shown)
                self.assertEqual(refused.exception.code(),
                                 grpc.StatusCode.UNAUTHENTICATED)
            # Health is for whoever is connected.
            health = channel.unary_unary("/grpc.health.v1.Health/Check")
            self.assertEqual(health(b"", timeout=30), b"\x08\x01")
        self.daemon.stop()

    # Secrets.

    def start_with_secrets(self):
        """A daemon with all secrets that it may have, for clients with keys:
        their key, and the files with its tokens."""
        certificate, client_key = make_pair(self.scratch.folder, "member")
        files = {}
        for flag in ("metrics_token_file", "hub_token_file"):
            files[flag] = self.scratch.folder / flag
            files[flag].touch(mode=0o600)
            files[flag].write_text(secrets.token_hex(24) + "\n")
        self.daemon.flags.update(
            metrics_listen="127.0.0.1:0", tls_client_ca=certificate,
            hub="http://127.0.0.1:9", **files)
        for home in ("laptop", "other"):
            config = self.scratch.folder / home / ".config/roundhouse"
            config.mkdir(parents=True)
            (config / "config").write_text(
                f"client-certificate: {certificate}\n"
                f"client-key: {client_key}\n")
        self.start()
        return client_key, files

    def use_tokens(self):
        """Tokens of each scope, from a login and from the variable, and revoked
        ones."""
        self.add_user("mary")
        tokens = [self.make_token("mary", name) for name in
                  ("laptop", "revoked", "short")]
        tokens += [self.make_token("mary", scope, f"--scope={scope}")
                   for scope in ("read", "admin")]
        self.login(tokens[0])
        self.remote("list")
        self.daemon.client("token", "remove", "revoked", "--user=mary")
        self.login(tokens[1], home="other", status=4)
        for token in tokens[2:]:
            self.variables = {"ROUNDHOUSE_SERVER": f"tls:{self.server}",
                              "ROUNDHOUSE_FINGERPRINT": self.fingerprint,
                              "ROUNDHOUSE_TOKEN": token}
            self.remote("list", home="other")
        made = self.remote("token", "add", "made", home="other").stdout.strip()
        self.variables = {}
        return [*tokens, made]

    def test_no_secret_is_anywhere_but_with_its_owner(self):
        client_key, files = self.start_with_secrets()
        tokens = self.use_tokens()
        self.remote("submit", "-f", self.write_job(), "--wait")
        metrics = re.search(r"the metrics are (http://\S+)",
                            self.daemon.log_path.read_text())[1]
        shown = files["metrics_token_file"].read_text().strip()
        with urllib.request.urlopen(urllib.request.Request(
                metrics, headers={"Authorization": f"Bearer {shown}"}),
                timeout=30) as page:
            texts = {"metrics": page.read()}
        pid = self.daemon.process.pid
        for process in [pid, *self.daemon.workers().values()]:
            for name in ("cmdline", "environ"):
                path = pathlib.Path(f"/proc/{process}/{name}")
                texts[str(path)] = path.read_bytes()
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        self.assertRegex(limits, r"Max core file size\s+0\s+0")
        # What is not dumpable is root's.
        self.assertEqual(pathlib.Path(f"/proc/{pid}/maps").stat().st_uid, 0)
        self.daemon.stop()
        for path in self.daemon.folder.rglob("*"):
            if path.is_file() and "laptop" not in path.parts:
                texts[str(path)] = path.read_bytes()
        self.assertTrue(any(name.endswith("jobs.db") for name in texts))
        parts = [token[3:27].encode() for token in tokens]
        parts += [path.read_bytes().strip() for path in files.values()]
        for key in (self.daemon.state / "tls/key.pem", client_key):
            parts.append(key.read_bytes().splitlines()[1][:40])
        for name, text in texts.items():
            for part in parts:
                if name.endswith("tls/key.pem"):
                    continue
                self.assertNotIn(part, text, name)


if __name__ == "__main__":
    unittest.main()
