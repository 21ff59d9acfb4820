"""What one user of a machine may try against the daemon's sockets, with counts
that the caller chooses; it ends by itself.

    attacks.py NAME SOCKET-OR-PORT COUNT USER

becomes that user (a number), prints a line of JSON when the attack is at its height (what was done, and what
the server did), then holds what it holds until its standard input ends. Only
Unix sockets and the loopback are ever connected to.
"""

import collections
import gzip
import json
import os
import pathlib
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import http2  # pylint: disable=wrong-import-position

JOBS = "/roundhouse.v1.FineTuningJobService/"
LIST = JOBS + "ListFineTuningJobs"
WATCH = JOBS + "WatchFineTuningJobs"
CREATE = JOBS + "CreateFineTuningJob"
STREAMS = 100  # calls at a time that a connection may have
CONNECTIONS_AT_ONCE = 20
FLOOD_SECONDS = 30.0
BOMB_BYTES = 512 << 20
JOB_FILE_BYTES = 1 << 20
PARTIAL_BYTES = 3 << 20


def idle(path, count):
    """Connections that say hello and no more."""
    held = [http2.Connection(path) for _ in range(count)]
    for connection in held:
        connection.socket.settimeout(0.2 if connection is held[0] else 0.01)
        try:
            connection.wait(lambda: False)
        except TimeoutError:
            pass
    return {"opened": count, "refused": sum(c.closed for c in held)}, held


def watches(path, count):
    """Watches whose reader waits."""
    held, streams = [], []
    for at in range(count):
        if at % STREAMS == 0:
            held.append(http2.Connection(path))
        streams.append((held[-1], held[-1].call(WATCH, b"")))
    for connection, stream in streams:
        connection.wait(lambda c=connection, s=stream:
                        s in c.answered or s in c.ended)
    refused = sum(s in c.ended for c, s in streams)
    return {"opened": count - refused, "refused": refused}, held


def slow_http(port, count):
    """HTTP requests at a byte a second, kept up: who is cut off comes again."""
    request = b"GET /metrics HTTP/1.1\r\nX-Slow: " + b"x" * 1000
    held, cut = {}, 0
    stop = threading.Event()

    def run():
        nonlocal cut
        while not stop.is_set():
            for at in range(count):
                if at not in held:
                    held[at] = (socket.create_connection(("127.0.0.1",
                                                          int(port))), 0)
                connection, sent = held[at]
                try:
                    connection.sendall(request[sent:sent + 1])
                    held[at] = (connection, sent + 1)
                except OSError:
                    cut += 1
                    connection.close()
                    del held[at]
            stop.wait(1.0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while len(held) < count:
        time.sleep(0.01)
    return {"opened": count}, [thread]


def in_threads(work, count):
    """Answers work(index) of each; CONNECTIONS_AT_ONCE at a time."""
    results, indices = [], collections.deque(range(count))

    def run():
        while indices:
            try:
                at = indices.popleft()
            except IndexError:
                return
            results.append(work(at))

    threads = [threading.Thread(target=run)
               for _ in range(min(count, CONNECTIONS_AT_ONCE))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def gzip_bombs(path, count):
    """Messages of half a megabyte that unpack to half a gigabyte."""
    packed = gzip.compress(bytes(BOMB_BYTES), 9)

    def work(_):
        with http2.Connection(path) as connection:
            stream = connection.call(CREATE, packed, compressed=True,
                                     grpc_encoding="gzip")
            connection.wait(lambda: stream in connection.ended)
            return stream in connection.ended

    ended = in_threads(work, count)
    return {"sent": count, "message_bytes": len(packed),
            "ended": sum(ended)}, []


def job_files(path, count):
    """Job files that are one opening bracket after the other."""
    request = http2.text_field(1, b"[" * JOB_FILE_BYTES)

    def work(_):
        with http2.Connection(path) as connection:
            stream = connection.call(CREATE, request)
            connection.wait(lambda: stream in connection.ended)
            return stream in connection.ended

    return {"sent": count, "ended": sum(in_threads(work, count))}, []


def rapid_reset(path, count, connections=CONNECTIONS_AT_ONCE):
    """Calls that are cancelled as they begin: `count` on each connection, as
    far as they get in FLOOD_SECONDS."""
    block = http2.header_block(LIST)
    deadline = time.monotonic() + FLOOD_SECONDS

    def work(_):
        with http2.Connection(path) as connection:
            threading.Thread(target=drain, args=(connection.socket,),
                             daemon=True).start()
            for begun in range(0, count, STREAMS):
                calls = b""
                for stream in range(2 * begun + 1, 2 * (begun + STREAMS), 2):
                    calls += http2.frame(http2.HEADERS, http2.END_HEADERS,
                                         stream, block)
                    calls += http2.frame(http2.RST_STREAM, 0, stream,
                                         http2.CANCEL)
                connection.socket.settimeout(
                    max(0.01, deadline - time.monotonic()))
                try:
                    if not connection.send(calls):
                        return begun, True
                except TimeoutError:
                    return begun, False
            return count, False

    done = in_threads(work, connections)
    return {"calls": sum(begun for begun, _ in done),
            "connections": len(done),
            "cut": sum(cut for _, cut in done)}, []


def one_rapid_reset(path, count):
    return rapid_reset(path, count, connections=1)


def drain(connection):
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass  # closed, or silent for long


def half_messages(path, count):
    """Calls whose message never ends, STREAMS a connection."""
    part = http2.message(bytes(PARTIAL_BYTES))[:-1]

    def work(_):
        connection = http2.Connection(path, seconds=5.0)
        sent = 0
        try:
            for _ in range(STREAMS):
                sent += connection.write(connection.begin(CREATE), part)
        except TimeoutError:
            pass  # the server takes no more
        return sent, connection

    done = in_threads(work, count)
    return ({"connections": count, "bytes": sum(sent for sent, _ in done)},
            [connection for _, connection in done])


ATTACKS = {"idle": idle, "watches": watches, "slow_http": slow_http,
           "gzip_bombs": gzip_bombs, "job_files": job_files,
           "rapid_reset": rapid_reset, "one_rapid_reset": one_rapid_reset,
           "half_messages": half_messages}


def main(name, where, count, user):
    os.setgroups([])
    os.setresgid(int(user), int(user), int(user))
    os.setresuid(int(user), int(user), int(user))
    # What is held stays open until the end.
    result, held = ATTACKS[name](where, int(count))
    print(json.dumps(result), flush=True)
    sys.stdin.read()
    del held


if __name__ == "__main__":
    main(*sys.argv[1:])
