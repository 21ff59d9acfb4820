"""Runs a script of the dataset helper so that the interposer knows its sites:

    marked_helper.py SCRIPT [ARGUMENT...]

Every call of the helper's door (server/prepare/common/disk.py) is marked with
the site that it is given, as base/files marks the daemon's. The helper itself
knows nothing of that: tests/fakes/file_interposer.cc must be preloaded.
"""

import ctypes
import functools
import importlib
import os
import runpy
import sys

set_site = ctypes.CDLL(None).roundhouse_set_file_site
set_site.argtypes = [ctypes.c_char_p]
# Not c_char_p, which would be another text by the time it is given back.
set_site.restype = ctypes.c_void_p
KEPT = {}  # site -> its bytes, which must live while they are set


def marked(method):
    @functools.wraps(method)
    def call(disk, site, *arguments):
        text = KEPT.setdefault(site, site.encode())
        before = set_site(text)
        try:
            return method(disk, site, *arguments)
        finally:
            set_site(ctypes.cast(before, ctypes.c_char_p))
    return call


def main():
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    door = importlib.import_module("common.disk").Disk
    for name, method in list(vars(door).items()):
        if not name.startswith("_"):
            setattr(door, name, marked(method))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
