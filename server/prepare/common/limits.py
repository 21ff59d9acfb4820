"""What one run of the dataset helper may take.

The daemon names the limits in the environment variable ROUNDHOUSE_HELPER, a
JSON object (server/dataset/helper_limits.h):

    parent         process id of the daemon; the helper dies with it
    memory_bytes   address space while files of a user are read; processes that
                   tokenise for it may each take PROCESS_BYTES beside what they
                   share (prepare_processes.py)
    counting_bytes the same while pairs of tokens are counted
    cpu_seconds    CPU time of the whole run
    file_bytes     size of any file that is written

confine() puts them on before anything of a user is read. A helper that people
start by hand has no such variable and is not confined. The limits on CPU time
of one template or one batch hold for everybody.
"""

import contextlib
import ctypes
import functools
import json
import os
import resource
import signal
import sys
import time

VARIABLE = "ROUNDHOUSE_HELPER"
PR_SET_PDEATHSIG = 1
NICENESS = 5
OOM_SCORE_ADJ = 500  # the kernel takes the helper before a job's process
OPEN_FILES = 512

# CPU seconds. What takes longer is the file's or the row's fault.
TEMPLATE_SECONDS = 10  # to compile a template, or to write one conversation
TOKENIZER_SECONDS = 60  # to read the tokenizer's files
BATCH_SECONDS = 300  # to tokenize a batch of rows
HASHING_SECONDS = 600  # to hash all files of a dataset, before and after


class TookTooLong(BaseException):
    """The CPU time of `cpu_time` is used up. No Exception, so that a template
    cannot catch it."""


class Confinement:
    """What was put on; nothing before confine()."""

    def __init__(self):
        self.memory_bytes = None
        self.counting_bytes = None
        self.cpu_seconds = None


confinement = Confinement()


def confine():
    """Puts on what the daemon says. Ends the process when the daemon is gone
    already."""
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return
    limits = json.loads(text)
    die_with(limits["parent"])
    os.nice(NICENESS)
    raise_oom_score()
    confinement.memory_bytes = limits["memory_bytes"]
    confinement.counting_bytes = limits["counting_bytes"]
    confinement.cpu_seconds = limits["cpu_seconds"]
    put(resource.RLIMIT_CORE, 0, 0)
    put(resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES)
    put(resource.RLIMIT_FSIZE, limits["file_bytes"], limits["file_bytes"])
    put(resource.RLIMIT_AS, limits["memory_bytes"], limits["counting_bytes"])
    put(resource.RLIMIT_CPU, limits["cpu_seconds"], limits["cpu_seconds"])


def die_with(parent):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"PR_SET_PDEATHSIG: {os.strerror(error)}")
    if os.getppid() != parent:  # it died before that
        os._exit(1)


def raise_oom_score():
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:
            if int(file.read()) < OOM_SCORE_ADJ:
                file.seek(0)
                file.write(str(OOM_SCORE_ADJ))
    except OSError as error:
        print(f"oom_score_adj: {error.strerror}", file=sys.stderr)


def put(kind, soft, hard):
    """The limits, or what is left below an administrator's lower ones."""
    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def allow_cpu(seconds):
    """From here on at most so much CPU time; more is SIGXCPU, which also ends
    what no exception of Python's can."""
    if confinement.cpu_seconds is None:
        return
    soft = int(time.process_time()) + 1 + seconds
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def allow_counting():
    """From here on nothing of a user is read, and tables may be larger."""
    if confinement.counting_bytes is not None:
        put(resource.RLIMIT_AS, confinement.counting_bytes,
            confinement.counting_bytes)


def allow_memory_beside(size):
    """From here on at most so much address space beside what there is."""
    if confinement.memory_bytes is None:
        return
    with open("/proc/self/statm") as file:
        here = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    put(resource.RLIMIT_AS, min(here + size, confinement.memory_bytes), hard)


def memory_text():
    """How much memory there is, for messages."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return "this process has"
    return f"the {limit >> 20} MiB that reading may take"


def _on_alarm(signal_number, frame):
    raise TookTooLong


@functools.cache
def _listen_for_alarms():
    """Once: it takes longer than most conversations."""
    signal.signal(signal.SIGPROF, _on_alarm)


@contextlib.contextmanager
def cpu_time(seconds):
    """Raises TookTooLong in its body after this much CPU time, and again every
    second, should something swallow the first."""
    _listen_for_alarms()
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
