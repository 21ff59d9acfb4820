"""Every RPC, with everything that somebody owns put into every field that takes
a text, called by a member of another project.

The calls are generated from what the server says of itself (reflection), so an
RPC or a field that is new is tried as well. A name of hers is answered like one
that is nowhere, nothing of hers is in any answer, and all of it stays as it is.
In the end she makes each call with her own names herself: what is refused to
her too would show nothing.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import unittest

import grpc
from google.protobuf import json_format, message_factory

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness
import reflection

# In all that is hers, and in what is nowhere.
HERS, NOWHERE = "zzyyx", "qqwwv"
SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "max_length": 16, "batch_size": 4, "micro_batch_size": 2,
        "max_steps": 3}
JOB_FIELDS = ("dataset", "validation_dataset", "model_name_or_path",
              "adapter_name_or_path", "resume_from_checkpoint", "output_name",
              "tokenizer_name_or_path", "eval_prompts")
CALL_SECONDS = 20
# What belongs to admins is refused to both, and looked at here alone.
ADMINS = {"ListUsers", "SetUser", "RemoveUser", "AddProject", "RemoveProject",
          "SetLimit", "RemoveLimit", "ListAudit", "FenceDevice",
          "UnfenceDevice"}
# Whether such a name is free is everybody's to know, since all outputs lie in
# one folder.
SHARED = {("ExportCheckpoint", "output"),
          ("CreateFineTuningJob", "output_name")}
# What is no name of anything: one text of hers is enough.
WORDS = {("CreateFineTuningJob", "eval_prompts"),
         ("CreateFineTuningJob", "file_name"),
         ("CreateFineTuningJob", "request_id"), ("Sample", "prompts")}
REFUSED = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND,
           grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED,
           grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL,
           grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}


class Member:
    """Somebody with a token, over TLS."""

    def __init__(self, test, name, token):
        self.token = test.daemon.client(
            "token", "add", token, f"--user={name}",
            "--scope=admin").stdout.strip()
        self.server = test.server
        self.fingerprint = test.fingerprint
        roots = (test.daemon.state / "tls/certificate.pem").read_bytes()
        self.channel = grpc.secure_channel(
            f"localhost:{test.server.rsplit(':', 1)[1]}",
            grpc.ssl_channel_credentials(roots))
        test.addCleanup(self.channel.close)

    def client(self, *words):
        done = subprocess.run(
            [harness.ROOT / "client/roundhouse", *map(str, words)],
            capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=harness.DEADLINE_SECONDS,
            env={"HOME": "/nowhere", "PATH": "/usr/bin:/bin",
                 "ROUNDHOUSE_SERVER": f"tls:{self.server}",
                 "ROUNDHOUSE_FINGERPRINT": self.fingerprint,
                 "ROUNDHOUSE_TOKEN": self.token})
        if done.returncode != 0:
            raise harness.Failure(f"{words}: {done.stdout} {done.stderr}")
        return done.stdout

    def call(self, method, fields):
        """(status code, details, [answers as JSON texts])."""
        request = json_format.ParseDict(
            fields, message_factory.GetMessageClass(method.input_type)())
        call = self.channel.unary_stream(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(
                method.output_type).FromString)
        answers = []
        try:
            for answer in call(request, timeout=CALL_SECONDS, metadata=[
                    ("authorization", f"Bearer {self.token}")]):
                answers.append(json_format.MessageToJson(answer))
        except grpc.RpcError as error:
            return error.code(), error.details(), answers
        return grpc.StatusCode.OK, "", answers


def is_text(field):
    return field.type == field.TYPE_STRING


def is_map(field):
    return (field.message_type is not None and
            field.message_type.GetOptions().map_entry)


def places(message, base):
    """(where, a request with a text there) for each text of a message, beside
    what `base` has."""
    for field in message.fields:
        name = field.name
        if is_map(field):
            yield name, lambda text, n=name: {**base, n: {text: text}}
        elif is_text(field) and name == "text":  # a job file
            for key in JOB_FIELDS:
                yield key, lambda text, n=name, k=key: {
                    **base, n: json.dumps({
                        **SPEC, k: [text] if k == "eval_prompts" else text})}
        elif is_text(field):
            one = field.label != field.LABEL_REPEATED
            yield name, lambda text, n=name, one=one: {
                **base, n: text if one else [text]}
        elif field.message_type is not None and (
                field.message_type.file.package == message.file.package):
            one = field.label != field.LABEL_REPEATED
            inner = base.get(name, {} if one else [{}])
            inner = inner if one else inner[0]
            for where, fill in places(field.message_type, inner):
                yield f"{name}.{where}", (
                    lambda text, n=name, fill=fill, one=one: {
                        **base, n: fill(text) if one else [fill(text)]})


def plain(answer):
    """Without what differs between any two answers: numbers, ids, tokens."""
    code, details, answers = answer
    return code, *(re.sub(r"rh_[\w-]+|[0-9a-f]{8,}|\d+", "#", text)
                   for text in (details, *answers))


class StrangersTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=20)
        self.root = self.scratch.folder / "vision"
        self.root.mkdir()
        self.daemon = self.scratch.daemon(
            devices="cpu:1", listen_tls="127.0.0.1:0",
            project_root=f"vision={self.root}")
        self.daemon.start()
        log = self.daemon.log_path.read_text()
        self.server = re.search(r"serving TLS on (\S+?),", log)[1]
        self.fingerprint = re.search(r"SHA256:[A-Za-z0-9+/]{43}", log)[0]
        for project in ("vision", "speech"):
            self.daemon.client("project", "add", project)
        self.daemon.client("user", "add", "mary", "--project=vision")
        self.daemon.client("user", "add", "otto", "--project=speech")
        self.daemon.client("limit", "set", "everybody", "calls_per_second",
                           "1000")
        self.mary = Member(self, "mary", f"{HERS}-token")
        self.otto = Member(self, "otto", "his")
        self.make_what_is_hers()
        self.methods = [
            method for service in reflection.services(self.otto.channel, [
                name for name in reflection.service_names(self.otto.channel)
                if name.startswith("roundhouse.")])
            for method in service.methods]

    def make_what_is_hers(self):
        data = self.root / f"{HERS}-data.jsonl"
        harness.make_data(data, count=20, seed=5)
        with data.open("a") as file:
            file.write(json.dumps({"text": HERS}) + "\n")
        local = self.scratch.folder / f"{HERS}-set.jsonl"
        local.write_bytes(data.read_bytes())
        self.mary.client("upload", local)
        self.mary.client("upload", self.scratch.data / "model", "--model",
                         f"--name={HERS}-model")
        path = self.scratch.folder / "job.json"
        path.write_text(json.dumps({
            **SPEC, "dataset": data.name, "output_name": f"{HERS}-out",
            "eval_prompts": [HERS], "save_steps": 1, "seed": 1}))
        self.job = self.mary.client("submit", "-f", path, "--wait", "-o",
                                    "name").split()[0]
        self.mary.client("export", f"{HERS}-out", f"--output={HERS}-export")

    def names(self):
        """What is hers, by everything that it is called."""
        job = json.loads(self.mary.client("get", self.job, "-o", "json"))
        outputs = self.daemon.state / "outputs"
        folder = self.daemon.state / "jobs" / job["uid"]
        data = self.root / f"{HERS}-data.jsonl"
        ids = [self.job, job["uid"], f"{self.job}/checkpoints/3",
               self.job.rsplit("/", 1)[1], str(folder / "metrics.jsonl"),
               str(folder / "checkpoint-3"), "mary", "vision", "user:mary",
               "project:vision"]
        for kind in ("dataset", "model"):
            for upload in json.loads(self.mary.client(
                    kind, "list", "-o", "json"))["uploads"]:
                ids.append(upload["id"])
                ids.append(str(self.daemon.state / "uploads/versions" /
                               upload["id"]))
        ids += [token["id"] for token in json.loads(self.mary.client(
            "token", "list", "-o", "json"))["tokens"]]
        named = [f"{HERS}-out", f"job:{HERS}-out", f"{HERS}-out/checkpoint-3",
                 f"{HERS}-export", f"dataset:{HERS}-set", f"{HERS}-set",
                 f"model:{HERS}-model", f"{HERS}-model", f"{HERS}-token",
                 data.name, str(data), f"{data.parent}/../vision/{data.name}",
                 f"../vision/{data.name}", str(outputs / f"{HERS}-out"),
                 str(outputs / f"{HERS}-out/model.safetensors"),
                 str(outputs / f"{HERS}-export"),
                 f"projects/vision/datasets/{HERS}-set",
                 f"dataset:vision/{HERS}-set"]
        return ids, named

    def bases(self):
        """Fields with which a call gets as far as to look at the others; here
        of what everybody has."""
        file = {"source": "model", "name": "config.json"}
        data = {"dataset": "train.jsonl", "modelNameOrPath": "model",
                "maxLength": 16}
        return {
            "CreateToken": {"name": "more", "scope": "VIEWER"},
            "CreateUpload": {"kind": "UPLOAD_KIND_DATASET", "name": "his",
                             "files": [{"name": "a.jsonl", "sizeBytes": 4}]},
            "UploadChunk": {"data": "YQ=="},
            "ExportCheckpoint": {"source": "model", "output": "his"},
            "ReadOutputFile": file, "HashOutputFile": file,
            "ListOutputFiles": {"source": "model"},
            "DeleteCheckpoints": {"steps": [3]},
            "PreviewDataset": {"options": data, "samples": 1},
            "ValidateDataset": {"options": data},
            "CreateFineTuningJob": {"text": json.dumps(SPEC),
                                    "validateOnly": True},
            "WatchFineTuningJobs": {"untilFinal": True},
            "UpdateFineTuningJob": {"priority": "NORMAL"},
            "LendDevice": {"name": "0"}, "ReturnDevice": {"name": "0"},
            "TraceFineTuningJob": {"steps": 1},
            "Sample": {"model": "model", "prompts": ["one"],
                       "maxNewTokens": 1},
            "PlanTraining": {"model": "model", "devices": "1xrtx4090",
                             "hostMemoryBytes": 1 << 36, "method": "full",
                             "maxLength": 16, "batchSize": 4},
        }

    def state(self):
        """Digests of all files that are hers, and what she has of the rest."""
        files = {}
        for folder in (self.root, self.daemon.state / "outputs",
                       self.daemon.state / "jobs",
                       self.daemon.state / "uploads/versions"):
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    files[str(path)] = hashlib.sha256(
                        path.read_bytes()).hexdigest()
        listed = [self.mary.client(*words, "-o", "json") for words in (
            ["get", self.job], ["dataset", "list"], ["model", "list"])]
        tokens = [token["id"] for token in json.loads(self.mary.client(
            "token", "list", "-o", "json"))["tokens"]]
        return files, listed, tokens

    def test_nothing_of_hers_is_reached(self):
        ids, named = self.names()
        before = self.state()
        bases = self.bases()
        calls = 0
        for method in self.methods:
            for where, fill in places(method.input_type,
                                      bases.get(method.name, {})):
                place = (method.name, where.split(".")[-1])
                words = place in WORDS
                texts = named[:1] if words else named
                if place == ("ExportCheckpoint", "output"):
                    # Others are free, and would be his from then on.
                    texts = [text for text in named
                             if text.endswith(("-out", "-export"))]
                for text in ids[:1] if words else ids:
                    answer = self.as_stranger(method, fill(text))
                    self.assertNotEqual(
                        answer[0], grpc.StatusCode.DEADLINE_EXCEEDED,
                        (method.name, where, text))
                    self.assertNotIn(HERS, json.dumps(answer[1:]),
                                     (method.name, where, text))
                for text in texts:
                    answer = self.as_stranger(method, fill(text))
                    if place in SHARED | WORDS:  # no more than he sent
                        sent = next(part for part in re.split("[/:]", text)
                                    if HERS in part)
                        self.assertNotIn(
                            HERS, json.dumps(answer[1:]).replace(sent, ""),
                            (method.name, where, text))
                    else:
                        self.check_alike(method, where, fill, text, answer)
                    calls += 2
                calls += len(ids)
        print(f"{len(self.methods)} RPCs, some {calls} calls as a stranger")
        after = self.state()
        for path, digest in before[0].items():
            self.assertEqual(after[0].get(path), digest, path)
        self.assertEqual(before[1:], after[1:])
        self.she_is_not_refused()
        self.daemon.stop()

    def as_stranger(self, method, fields):
        answer = self.otto.call(method, fields)
        if method.name == "CreateUpload" and answer[2]:  # he may have a few
            delete, = (m for m in self.methods if m.name == "DeleteUpload")
            self.otto.call(delete, {"id": json.loads(answer[2][0])["id"]})
        return answer

    def check_alike(self, method, where, fill, text, answer):
        """What is hers is answered like what is nowhere."""
        other = self.as_stranger(method,
                                 fill(text.replace(HERS, NOWHERE)))
        code, details, answers = answer
        renamed = (code, details.replace(HERS, NOWHERE),
                   [part.replace(HERS, NOWHERE) for part in answers])
        self.assertEqual(plain(renamed), plain(other),
                         (method.name, where, text))

    def she_is_not_refused(self):
        """Each call has names with which she is let in."""
        ids, named = self.names()
        refused = set()
        # What takes something away comes in the end, and her job last of all.
        last = re.compile("Cancel|Delete|Revoke|Finish")
        for method in sorted(self.methods, key=lambda m: (
                bool(last.match(m.name)), m.name == "DeleteFineTuningJob")):
            base = self.bases().get(method.name, {})
            tried = [base] + [fill(text)
                              for _, fill in places(method.input_type, base)
                              for text in ids + named]
            answers = []
            for fields in tried:
                answers.append(self.mary.call(method, fields)[:2])
                if answers[-1][0] not in REFUSED:
                    break
            else:
                refused.add(method.name)
                if method.name in ADMINS:
                    continue
                print(method.name, "is refused to her too:",
                      *{f"{code.name}: {text}" for code, text in answers},
                      sep="\n    ")
        self.assertEqual(refused, ADMINS)


if __name__ == "__main__":
    unittest.main()
