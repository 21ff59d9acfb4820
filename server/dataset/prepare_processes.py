"""Encodes batches of rows in several processes; they come back in order.

Each process is a fork of this one, made when the tokenizer and the template
have been used, so that their pages are shared. What comes out does not depend
on how many there are. Where one ends before its time (a row takes more than it
may, or the kernel wants memory) all are ended, and what is left is encoded
here: a row that is at fault is then named as it is with one process.
"""

import array
import collections
import itertools
import multiprocessing
import os
from multiprocessing import connection

from prepare_common import SILENT_SECONDS, DataError, speaker
from prepare_limits import BATCH_SECONDS, allow_cpu, die_with

MAX_PROCESSES = 64
NICENESS = 5  # of a process beside this one: it takes what others leave
ALONE_BATCHES = 2  # are encoded here before a process is worth its start
AHEAD_BATCHES = 2  # a process, that are read before it is their turn

FORK = multiprocessing.get_context("fork")


def encode_batches(encode, encoder, batches, processes):
    """A list of Encoded for each batch. `encode`, the encoder's with errors
    that say the file, encodes here. What it and `batches` raise comes behind
    the same batch as with one process; a DataError of another process has the
    line alone."""
    batches = iter(batches)
    alone = ALONE_BATCHES if processes > 1 else None
    for rows in itertools.islice(batches, alone):
        yield encode(rows)
    workers = Workers(encode, encoder, batches, processes)
    try:
        yield from workers.encoded()
    finally:
        workers.end()


class Workers:
    """Processes with one batch each at a time. `pending` has what is read and
    not handed on: numbers of batches, which follow each other, to rows."""

    def __init__(self, encode, encoder, batches, processes):
        self.encode, self.encoder, self.batches = encode, encoder, batches
        self.processes = processes
        self.started, self.idle, self.busy = [], [], {}
        self.pending = collections.OrderedDict()
        self.unsent = collections.deque()
        self.answers = {}  # by the batch's number
        self.read = 0
        self.failure = None  # of `batches`, which comes behind `pending`
        self.ended = False  # nothing more is to be read

    def encoded(self):
        while True:
            while not self.ended and \
                    len(self.pending) < AHEAD_BATCHES * self.processes:
                self.read_batch()
            if not self.pending:
                break
            number = next(iter(self.pending))
            found = self.answer(number)
            rows = self.pending.pop(number)
            if found is None:
                found = self.encode(rows)
            yield found
        if self.failure is not None:
            raise self.failure

    def read_batch(self):
        try:
            rows = next(self.batches, None)
        except DataError as error:
            rows, self.failure = None, error
        if rows is None:
            self.ended = True
            return
        self.pending[self.read] = rows
        self.unsent.append(self.read)
        self.read += 1

    def answer(self, number):
        """What this batch, the first that is pending, became; None where the
        processes have ended. Raises what it raised there."""
        allow_cpu(BATCH_SECONDS)
        try:
            while self.processes > 1 and number not in self.answers:
                self.send()
                for end in connection.wait(list(self.busy), SILENT_SECONDS):
                    self.receive(end)
                speaker.still("tokenizing")
            self.send()
        # A row that nests deeper than can be sent to them is no error here.
        except (EOFError, OSError, RecursionError):
            speaker.say(still="a process of the tokenizer's ended; the rest "
                              "is tokenized by one")
            self.end()
        if number not in self.answers:
            return None
        found, notes, failure = self.answers.pop(number)
        if failure is not None:
            raise failure
        self.encoder.add_noted(notes)
        return found

    def send(self):
        while self.processes > 1 and self.unsent and (
                self.idle or len(self.started) < self.processes):
            end = self.idle.pop() if self.idle else self.start()
            number = self.unsent.popleft()
            self.busy[end] = number
            end.send(self.pending[number])

    def start(self):
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=work, daemon=True,
                               args=(theirs, self.encoder, os.getpid()))
        process.start()
        theirs.close()
        self.started.append((process, ours))
        return ours

    def receive(self, end):
        self.answers[self.busy[end]] = end.recv()
        del self.busy[end]
        self.idle.append(end)

    def end(self):
        self.processes = 1
        for process, end in self.started:
            process.kill()
            process.join()
            end.close()
        self.started, self.idle, self.busy = [], [], {}


def work(end, encoder, parent):
    """A process: batches in, (Encoded, what was noted, DataError) out."""
    die_with(parent)
    os.nice(NICENESS)
    # What ends it says so again where the rest is encoded.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    encoder.take_noted()  # of the rows before
    while True:
        rows = end.recv()
        found, failure = None, None
        try:
            # A list of numbers takes ten times as long on its way.
            found = [one._replace(ids=array.array("I", one.ids))
                     for one in encoder.encode(rows)]
        except DataError as error:
            failure = error
        end.send((found, encoder.take_noted(), failure))
