"""A small model hub on loopback, with Hugging Face's API as far as the daemon
asks for it, and with faults that a test chooses.

    with model_hub.Hub() as hub:
        hub.add("Org/Tiny", folder)           # its files
        hub.large("Org/Tiny", "x.model")      # kept in LFS: listed by SHA-256
        hub.fault("x.model", fault)           # of the next request for it
        scratch.daemon(hub=hub.url)
        hub.begins("x.model")                 # [0, 8388608]

A fault is called with the request's handler and the bytes that it would be
answered with; it answers instead.
"""

import hashlib
import http.server
import json
import shutil
import socket
import ssl
import sys
import threading
import urllib.parse

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def do_GET(self):  # pylint: disable=invalid-name
        hub = self.server.hub
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        hub.requests.append((path, begin))
        hub.tokens.add(self.headers.get("Authorization"))
        data = hub.answer(path)
        fault = hub.take_fault(path)
        if fault is not None:
            fault(self, (data or b"")[begin:])
        elif data is None:
            self.reply(404)
        elif begin:
            self.reply(206, data[begin:],
                       f"bytes {begin}-{len(data) - 1}/{len(data)}")
        else:
            self.reply(200, data)

    def reply(self, status, data=b"", content_range=None, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if content_range:
            self.send_header("Content-Range", content_range)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Whoever asked may go away, or be killed."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class ProxyHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def do_CONNECT(self):  # pylint: disable=invalid-name
        self.server.proxy.asked.append(self.path)
        port = int(self.path.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=self.pour,
                                    args=(there, self.connection))
            back.start()
            self.pour(self.connection, there)
            back.join()
        self.close_connection = True

    @staticmethod
    def pour(source, target):
        with source.makefile("rb", buffering=0) as stream, \
                target.makefile("wb", buffering=0) as out:
            shutil.copyfileobj(stream, out)
        target.shutdown(socket.SHUT_WR)


class Proxy:
    """Takes every name for this machine; `asked` has what it led to."""

    def __enter__(self):
        self.asked = []  # "name:port"
        self.server = Server(("127.0.0.1", 0), ProxyHandler)
        self.server.proxy = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever,
                         daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Hub:
    """`pair`: certificate and key, both PEM, of a hub that speaks TLS."""

    def __init__(self, pair=None):
        self.pair = pair

    def __enter__(self):
        self.models = {}  # {id: {name: bytes}}
        self.in_lfs = set()  # (id, name)
        self.listings = {}  # {id: bytes} instead of the files'
        self.faults = []  # (end of a path, fault)
        self.requests = []  # (path, where the answer begins)
        self.tokens = set()  # what was shown
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.hub = self
        scheme = "http"
        if self.pair is not None:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.pair)
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever,
                         daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def add(self, model, folder):
        self.models[model] = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}
        for name in self.models[model]:
            if name.endswith((".safetensors", ".bin")):
                self.large(model, name)

    def large(self, model, name):
        self.in_lfs.add((model, name))

    def fault(self, end, fault):
        self.faults.append((end, fault))

    def take_fault(self, path):
        for index, (end, fault) in enumerate(self.faults):
            if path.endswith(end):
                del self.faults[index]
                return fault
        return None

    def begins(self, end):
        """Where answers to requests for such a path began."""
        return [begin for path, begin in self.requests if path.endswith(end)]

    def listing(self, model):
        siblings = []
        for name, data in self.models[model].items():
            entry = {"rfilename": name, "size": len(data),
                     "blobId": git_hash(data)}
            if (model, name) in self.in_lfs:
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(),
                                "size": len(data), "pointerSize": 130}
            siblings.append(entry)
        return {"id": model, "sha": COMMIT, "siblings": siblings}

    def answer(self, path):
        """None: there is no such thing."""
        words = path.strip("/").split("/")
        if words[:2] == ["api", "models"]:
            model, revision = "/".join(words[2:4]), words[5]
            if model in self.listings:
                return self.listings[model]
            if model not in self.models or revision not in ("main", COMMIT):
                return None
            return json.dumps(self.listing(model)).encode()
        model, rest = "/".join(words[:2]), words[2:]
        if rest[:2] != ["resolve", COMMIT]:
            return None
        return self.models.get(model, {}).get("/".join(rest[2:]))
