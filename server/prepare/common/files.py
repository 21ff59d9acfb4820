"""The one place where the dataset helper opens files that people name: the
dataset and what lies in a model's directory."""

import hashlib
import json
import os
import stat

from common.reporting import DataError, refusal, size_text, speaker

HASHED_BYTES = 1 << 20  # at once

# What the daemon has opened for us, by name; None: nobody has, names are paths.
GIVEN = os.environ.get("ROUNDHOUSE_GIVEN_FILES")
GIVEN = GIVEN and dict(json.loads(GIVEN))

# Limits on whole files, in bytes.
MAX_DATA_BYTES = 128 << 30
MAX_TOKENIZER_BYTES = 256 << 20  # tokenizer.json; published ones have 35 MB
MAX_JSON_BYTES = 16 << 20  # any other JSON file of the directory
MAX_TEMPLATE_BYTES = 1 << 20

# What is there in place of a file that git-lfs has not downloaded.
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LFS_MESSAGE = ("is a Git LFS pointer, the file itself was not downloaded: run "
               "git lfs pull where it was cloned")

KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"),
         (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"),
         (stat.S_ISBLK, "a device"))


def open_regular(path, most_bytes, name=None, own=False):
    """Opens a regular file for reading, in bytes. Never waits for a FIFO and
    never opens a device: what it is, is looked at first, by a descriptor that
    cannot read. FileNotFoundError passes; DataError says what else is wrong,
    and calls the file `name`, where that is not its path. `own` files are the
    daemon's, which nobody has to give."""
    name = name or path
    try:
        found = place(path, own)
        try:
            check_regular(os.fstat(found), most_bytes, name)
            # The same file, whatever the path means by now.
            opened = os.open(f"/proc/self/fd/{found}",
                             os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(found)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot open: {text}", name) from error
    return os.fdopen(opened, "rb")


def place(path, own):
    """A descriptor of what the name means, to be looked at and closed."""
    if GIVEN is None or own:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    if path not in GIVEN:
        raise FileNotFoundError(f"{path}: not given")
    return os.dup(GIVEN[path])


def files_in(folder):
    """Names of what lies in the folder; none when there is no such folder."""
    if GIVEN is not None:
        return [os.path.basename(path) for path in GIVEN
                if os.path.dirname(path) == folder]
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DataError(f"cannot read: {error.strerror}", folder) from error


def check_regular(status, most_bytes, name):
    if not stat.S_ISREG(status.st_mode):
        kind = next((text for test, text in KINDS if test(status.st_mode)),
                    "something else")
        raise DataError(f"is {kind}, not a regular file", name)
    if status.st_size > most_bytes:
        raise DataError(f"has {status.st_size} bytes; the limit is "
                        f"{size_text(most_bytes)}", name)


def read_regular(path, most_bytes, own=False):
    """All of a small file; None when there is no such file."""
    try:
        with open_regular(path, most_bytes, own=own) as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"cannot read: {error.strerror}", path) from error
    if len(data) > most_bytes:  # it grew, or has no size (/proc)
        raise DataError(f"has more than {size_text(most_bytes)}", path)
    if data.startswith(LFS_POINTER):
        raise DataError(LFS_MESSAGE, path)
    return data


def read_text(path, most_bytes, own=False):
    """The same as text, with the line ends of text."""
    data = read_regular(path, most_bytes, own)
    try:
        text = None if data is None else data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"unreadable: {error}", path) from error
    return text and text.replace("\r\n", "\n").replace("\r", "\n")


def read_json_object(path, own=False):
    """The JSON object in a file; None when there is no such file."""
    text = read_text(path, MAX_JSON_BYTES, own)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise DataError(f"unreadable: {error}", path) from error
    except (MemoryError, RecursionError) as error:
        raise refusal(error, path) from error
    if not isinstance(value, dict):
        raise DataError("is not a JSON object", path)
    return value


def user_file_sha256(path, most_bytes):
    """None when there is no such file."""
    digest = hashlib.sha256()
    try:
        with open_regular(path, most_bytes) as file:
            while chunk := file.read(HASHED_BYTES):
                digest.update(chunk)
                speaker.still("hashing")
    except FileNotFoundError:
        return None
    return digest.hexdigest()
