"""Just enough of HTTP/2 (RFC 9113) and HPACK (RFC 7541) to call gRPC methods
as no gRPC library would: resets, floods, compressed messages.

    with http2.Connection(socket_path) as connection:
        stream = connection.call("/roundhouse.v1.SystemService/GetServer", b"")
        connection.wait(lambda: stream in connection.ended)
"""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = (
    0, 1, 3, 4, 6, 7, 8)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CANCEL = struct.pack(">I", 8)
INITIAL_WINDOW = 65535
MAX_FRAME = 16384


def frame(kind, flags, stream, payload=b""):
    return (struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) +
            struct.pack(">I", stream) + payload)


def header_block(path, **more):
    """Literal fields that no table is needed for."""
    fields = {":method": "POST", ":scheme": "http", ":path": path,
              ":authority": "localhost", "te": "trailers",
              "content-type": "application/grpc", **more}
    out = b""
    for name, value in fields.items():
        name, value = name.replace("_", "-").encode(), value.encode()
        assert len(name) < 127 and len(value) < 127
        out += (b"\0" + bytes((len(name),)) + name + bytes((len(value),)) +
                value)
    return out


def message(data, compressed=False):
    """As gRPC frames it."""
    return struct.pack(">BI", compressed, len(data)) + data


def text_field(number, data):
    """A length-delimited field of a protobuf message."""
    size, out = len(data), bytes((number << 3 | 2,))
    while size > 127:
        out += bytes((size & 127 | 128,))
        size >>= 7
    return out + bytes((size,)) + data


class Connection:
    """One connection; one thread. `ended`: streams that the server has ended,
    `answered`: those that it sent a message of, `closed`: it is gone."""

    def __init__(self, path, seconds=30.0):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.settimeout(seconds)
        self.received = b""
        self.next_stream = 1
        self.window = INITIAL_WINDOW
        self.stream_window = INITIAL_WINDOW  # of a new stream
        self.windows = {}
        self.ended, self.answered, self.closed = set(), set(), False
        self.send(PREFACE + frame(SETTINGS, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        """False: the server has closed."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.closed = True
        return not self.closed

    def begin(self, path, **headers):
        """HEADERS only. Answers the stream's number."""
        stream = self.next_stream
        self.next_stream += 2
        self.windows[stream] = self.stream_window
        self.send(frame(HEADERS, END_HEADERS, stream,
                        header_block(path, **headers)))
        return stream

    def call(self, path, data, compressed=False, **headers):
        """A call with one message and no more."""
        stream = self.begin(path, **headers)
        self.write(stream, message(data, compressed), end=True)
        return stream

    def write(self, stream, data, end=False):
        """Within the server's flow control; stops when the stream ends."""
        at = 0
        while at < len(data) and not self.closed and stream not in self.ended:
            size = min(len(data) - at, MAX_FRAME, self.window,
                       self.windows[stream])
            if size <= 0:
                self.read()
                continue
            last = end and at + size == len(data)
            self.window -= size
            self.windows[stream] -= size
            self.send(frame(DATA, END_STREAM if last else 0, stream,
                            data[at:at + size]))
            at += size
        return at

    def wait(self, condition):
        """Reads until it holds or the server has closed."""
        while not condition() and not self.closed:
            self.read()
        return condition()

    def read(self):
        """Takes in what comes next."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        self.closed |= not data
        self.received += data
        while len(self.received) >= 9:
            end = 9 + int.from_bytes(self.received[:3], "big")
            if len(self.received) < end:
                return
            kind, flags = self.received[3], self.received[4]
            stream = int.from_bytes(self.received[5:9], "big") & 0x7fffffff
            self.take(kind, flags, stream, self.received[9:end])
            self.received = self.received[end:]

    def take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == 4:  # SETTINGS_INITIAL_WINDOW_SIZE
                    grown = value - self.stream_window
                    self.stream_window = value
                    self.windows = {key: window + grown for key, window
                                    in self.windows.items()}
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            grown = int.from_bytes(payload, "big")
            if stream == 0:
                self.window += grown
            elif stream in self.windows:
                self.windows[stream] += grown
        elif kind == DATA and payload:
            self.answered.add(stream)
            self.send(frame(WINDOW_UPDATE, 0, 0,
                            struct.pack(">I", len(payload))))
        if (kind in (DATA, HEADERS) and flags & END_STREAM or
                kind == RST_STREAM):
            self.ended.add(stream)
            self.windows.pop(stream, None)
