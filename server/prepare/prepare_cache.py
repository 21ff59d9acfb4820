"""Prepared splits by their content: nothing is tokenised twice."""

import contextlib
import errno
import fcntl
import hashlib
import importlib.metadata
import json
import os
import sys
import time

from common.disk import CACHE, LINK, LOCK, REMOVE, disk
from common.files import MAX_TOKENIZER_BYTES, files_in, user_file_sha256
from common.reporting import DataError, file_sha256, speaker
from prepare_output import ARRAYS, FORMAT_VERSION, ROWS, read_manifest
from tokens.template import ADDITIONAL

PART = "part."  # begins the name of an entry that is being made
KEPT_ENTRIES = 32  # of a cache folder; the least recently used go first
LOCK_SECONDS = 0.05  # between two tries
PACKAGES = ("tokenizers", "jinja2", "pyarrow")
ROOMS = ("common", "rows", "tokens")  # folders of modules beside this one
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json",
                   "special_tokens_map.json", "added_tokens.json",
                   "chat_template.jinja", "chat_template.json",
                   "generation_config.json", "config.json")


def content_key(data_sha256, folder, settings):
    """Names what preparing this data with this tokenizer directory and these
    settings (anything JSON) gives, by this code and these packages."""
    more = [os.path.join(ADDITIONAL, name) for name in
            sorted(files_in(os.path.join(folder, ADDITIONAL)))]
    parts = [FORMAT_VERSION, sys.version, packages(), code_sha256(),
             data_sha256, settings,
             [user_file_sha256(os.path.join(folder, n), MAX_TOKENIZER_BYTES)
              for n in (*TOKENIZER_FILES, *more)], more]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def packages():
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def code_sha256():
    """Hashes of the helper's own files: all the modules of this program."""
    here = os.path.dirname(os.path.abspath(__file__))
    names = [name for name in os.listdir(here) if name.startswith("prepare")]
    for room in ROOMS:
        names += [os.path.join(room, name)
                  for name in os.listdir(os.path.join(here, room))]
    return [file_sha256(os.path.join(here, name)) for name in sorted(names)
            if name.endswith(".py") and "test" not in name]


def prepared_files(folder, key):
    """The files of a whole split with this key; None when it is none."""
    try:
        manifest = read_manifest(folder)
    except (DataError, OSError):
        return None
    files = manifest.get("files")
    if manifest.get("key") != key or not isinstance(files, dict):
        return None
    if not ARRAYS.keys() <= files.keys() <= {*ARRAYS, ROWS}:
        return None
    for name, record in files.items():
        if file_sha256(os.path.join(folder, name)) != record["sha256"]:
            return None
    return [*files, "manifest.json"]


class Cache:
    """A folder of prepared splits, KEPT_ENTRIES at most, each in a folder
    named by its key. Files are shared as hard links, so that one let go here
    stays whole where it is used; both must be on one file system."""

    def __init__(self, folder):
        self.folder = folder
        disk.make_folder(CACHE, folder)

    @contextlib.contextmanager
    def locked(self):
        with disk.create(LOCK, os.path.join(self.folder, "lock")) as file:
            lock_patiently(file)
            yield

    def take(self, key, out):
        """Links the split into the folder `out`; whether there is one."""
        with self.locked():
            entry = os.path.join(self.folder, key)
            files = prepared_files(entry, key)
            if files is None:
                # Damaged, or there is none: it would only be looked at again.
                disk.remove_tree(REMOVE, entry)
                return False
            link_split(entry, files, out)
            os.utime(entry)
            return True

    def add(self, key, out):
        """Takes in the split that is in the folder `out`."""
        with self.locked():
            files = prepared_files(out, key)
            if files is None:
                raise OSError(errno.EIO, "what was written reads otherwise",
                              out)
            entry = os.path.join(self.folder, key)
            disk.remove_tree(REMOVE, entry)
            part = disk.make_part(CACHE, self.folder, PART)
            link_split(out, files, part)
            disk.rename(CACHE, part, entry)
            disk.sync_folder(CACHE, self.folder)
            self._forget_old()

    def _forget_old(self):
        entries = [entry for entry in os.scandir(self.folder)
                   if entry.is_dir(follow_symlinks=False)]
        entries.sort(key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
        # Who makes one holds the lock: what is there was left by a death.
        left = [entry for entry in entries if entry.name.startswith(PART)]
        entries = [entry for entry in entries if entry not in left]
        for entry in left + entries[KEPT_ENTRIES:]:
            disk.remove_tree(REMOVE, entry.path)


def lock_patiently(file):
    """Another helper may hash gigabytes under the lock."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            speaker.still("waiting for the cache")
            time.sleep(LOCK_SECONDS)


def link_split(source, files, folder):
    """The manifest comes last, as when the files are written."""
    disk.make_folder(LINK, folder)
    for name in [*ARRAYS, ROWS, "manifest.json"]:
        disk.remove(REMOVE, os.path.join(folder, name))
    for name in files:
        if name == "manifest.json":
            disk.sync_folder(LINK, folder)
        disk.link(LINK, os.path.join(source, name), os.path.join(folder, name))
    disk.sync_folder(LINK, folder)
