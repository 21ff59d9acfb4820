"""The helper's one door to files that matter, as base/files is the daemon's:
what is published is on disk, and its names are.

Each call says at which of SITES it is, and nothing else in the helper makes,
renames or removes a file: tests/integration/file_sites_test.py looks. A test
starts the helper with

    ROUNDHOUSE_FILE_FAULT_AT=SITE:KIND[:HOWLONG[:AFTER]];...

in its environment (base/files/file_fault.h says what that means), and the disk
fails there. Sites of other programs are passed over.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time

ARRAY, MANIFEST = "prepared.array", "prepared.manifest"
LINK, CACHE = "prepared.link", "prepared.cache"
LOCK, REMOVE = "prepared.lock", "prepared.remove"
SITES = (ARRAY, MANIFEST, LINK, CACHE, LOCK, REMOVE)
FILE_MODE, FOLDER_MODE = 0o640, 0o750

SEAL_BEFORE, SEAL_AFTER = b'{"manifest_sha256": "', b'",'
SEAL_DIGITS = 64

# Which calls a kind is about; an errno's name is about all.
KINDS = {"short": {"write"}, "torn": {"write"}, "flip": {"write"},
         "lost": {"sync", "rename"}}


# --- Sealed JSON (base/files/sealed_json.h) ----------------------------------


def seal(text):
    """A JSON object's text with the SHA-256 of all of it but that field."""
    rest = text[1:]
    return (SEAL_BEFORE + hashlib.sha256(rest).hexdigest().encode() +
            SEAL_AFTER + rest)


def is_sealed(text):
    """Whether the text is as it was sealed."""
    end = len(SEAL_BEFORE) + SEAL_DIGITS
    rest = text[end + len(SEAL_AFTER):]
    digits = hashlib.sha256(rest).hexdigest().encode()
    return text[:len(text) - len(rest)] == SEAL_BEFORE + digits + SEAL_AFTER


# --- Faults ------------------------------------------------------------------


class Fault:
    def __init__(self, text):
        self.site, kind, *rest = text.split(":")
        self.kind = kind
        self.errno = getattr(errno, kind) if kind.startswith("E") else 0
        howlong = rest[0] if rest else "1"
        self.seconds = float(howlong[:-1]) if howlong[-1] == "s" else None
        self.left = (None if howlong == "ever" or self.seconds else
                     int(howlong))
        self.before = int(rest[1]) if len(rest) > 1 else 0
        self.until = None

    def strikes(self, call):
        """Whether this pass is one that fails."""
        if not self.errno and call not in KINDS[self.kind]:
            return False
        if self.before:
            self.before -= 1
            return False
        if self.seconds:
            self.until = self.until or time.monotonic() + self.seconds
            return time.monotonic() < self.until
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0


class Disk:
    """The calls. What is not synced yet is remembered, for "lost"."""

    def __init__(self, text):
        faults = [Fault(one) for one in text.split(";") if one]
        self.faults = [fault for fault in faults if fault.site in SITES]
        self.unsynced = []  # callables that take a name or contents back

    def _fault(self, site, call, path):
        """The kind of this pass's fault; an error is raised at once."""
        for fault in self.faults:
            if fault.site == site and fault.strikes(call):
                print(f"fault at {site}", file=sys.stderr, flush=True)
                if fault.errno:
                    raise OSError(fault.errno, os.strerror(fault.errno), path)
                if fault.kind == "lost":
                    for take_back in reversed(self.unsynced):
                        take_back()
                    _die()
                return fault.kind
        return None

    def _remember(self, take_back):
        if self.faults:
            self.unsynced.append(take_back)

    def create(self, site, path):
        self._fault(site, "open", path)
        file = open(path, "wb", opener=lambda name, flags:
                    os.open(name, flags, FILE_MODE))
        self._remember(lambda: os.truncate(path, 0) if os.path.exists(path)
                       else None)
        return file

    def write(self, site, file, data):
        kind = self._fault(site, "write", file.name)
        if kind == "torn":
            file.write(data[:max(len(data) // 2, 1)])
            file.flush()
            _die()
        if kind == "flip" and data:
            data = bytes([data[0] ^ 1]) + data[1:]
        file.write(data)

    def close(self, site, file):
        """Its contents are on disk then."""
        file.flush()
        self._fault(site, "sync", file.name)
        os.fsync(file.fileno())
        file.close()

    def rename(self, site, source, target):
        self._fault(site, "rename", target)
        os.rename(source, target)
        self._remember(lambda: os.rename(target, source))

    def link(self, site, source, target):
        self._fault(site, "rename", target)
        os.link(source, target)
        self._remember(lambda: os.unlink(target))

    def sync_folder(self, site, path):
        """The names in it are on disk then."""
        self._fault(site, "sync", path)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self.unsynced = []

    def make_folder(self, site, path):
        """And what lacks above it; their names are on disk then."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_folder(site, parent)
        self._fault(site, "open", path)
        try:
            os.mkdir(path, FOLDER_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        self.sync_folder(site, parent)

    def make_part(self, site, folder, prefix):
        """A new folder in `folder` of a name of its own; its path. Who renames
        it syncs the name."""
        self._fault(site, "open", folder)
        path = tempfile.mkdtemp(prefix=prefix, dir=folder)
        os.chmod(path, FOLDER_MODE)
        return path

    def remove(self, site, path):
        """The file, where there is one."""
        self._fault(site, "remove", path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, site, path):
        """What is under the name, a folder with all in it; links are not
        followed."""
        if not os.path.lexists(path):
            return
        self._fault(site, "remove", path)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


disk = Disk(os.environ.get("ROUNDHOUSE_FILE_FAULT_AT", ""))
