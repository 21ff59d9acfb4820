"""Encodes batches of rows in several processes; they come back in order.

Each process is a fork of this one, made when the tokenizer and the template
have been used, so that their pages are shared. What comes out does not depend
on how many there are. Where one ends before its time (a row takes more than it
may, or the kernel wants memory) all are ended, and what is left is encoded
here: a row that is at fault is then named as it is with one process.

Memory is bounded: little is read ahead, a large batch is encoded here when it
is its turn, and a process may take PROCESS_BYTES beside what it shares.
"""

import array
import collections
import itertools
import multiprocessing
import os
from multiprocessing import connection

from common.limits import (BATCH_SECONDS, allow_cpu, allow_memory_beside,
                           die_with)
from common.reporting import SILENT_SECONDS, DataError, speaker

MAX_PROCESSES = 64
NICENESS = 5  # of a process beside this one: it takes what others leave
ALONE_BATCHES = 2  # are encoded here before a process is worth its start
AHEAD_BATCHES = 2  # a process, that are read before it is their turn
AHEAD_BYTES = 8 << 20  # of all that is read before, beside the first
LARGE_BATCH_BYTES = 3 << 19  # one of a long row; most end at 1 MiB
# A token of one character takes about 480 bytes while a batch is tokenized.
PROCESS_BYTES = 768 << 20

# bytes: of its rows. done: bytes of the files, behind them.
Batch = collections.namedtuple("Batch", "rows bytes done")
HERE = None  # the answer of a batch that is to be encoded here

FORK = multiprocessing.get_context("fork")


def encode_batches(encode, encoder, batches, processes):
    """(its Encoded, its `done`) of each Batch. `encode`, the encoder's with
    errors that say the file, encodes here. What it and `batches` raise comes
    behind the same batch as with one process; a DataError of another process
    has the line alone."""
    batches = iter(batches)
    alone = ALONE_BATCHES if processes > 1 else None
    for batch in itertools.islice(batches, alone):
        yield encode(batch.rows), batch.done
    workers = Workers(encode, encoder, batches, processes)
    try:
        yield from workers.encoded()
    finally:
        workers.end()


class Workers:
    """Processes with one batch each at a time. `pending` has what is read and
    not handed on: numbers of batches, which follow each other, to Batch."""

    def __init__(self, encode, encoder, batches, processes):
        self.encode, self.encoder, self.batches = encode, encoder, batches
        self.processes = processes
        self.started, self.idle, self.busy = [], [], {}
        self.pending = collections.OrderedDict()
        self.bytes = 0  # of pending
        self.unsent = collections.deque()
        self.answers = {}  # by the batch's number
        self.read = 0
        self.failure = None  # of `batches`, which comes behind `pending`
        self.ended = False  # nothing more is to be read

    def encoded(self):
        while True:
            while self.may_read():
                self.read_batch()
            if not self.pending:
                break
            number = next(iter(self.pending))
            found = self.answer(number)
            batch = self.pending.pop(number)
            self.bytes -= batch.bytes
            if found is HERE:
                found = self.encode(batch.rows)
            yield found, batch.done
        if self.failure is not None:
            raise self.failure

    def may_read(self):
        if self.ended or not self.pending:
            return not self.ended
        return self.processes > 1 and self.bytes < AHEAD_BYTES and \
            len(self.pending) < AHEAD_BATCHES * self.processes

    def read_batch(self):
        try:
            batch = next(self.batches, None)
        except DataError as error:
            batch, self.failure = None, error
        if batch is None:
            self.ended = True
            return
        self.pending[self.read] = batch
        self.bytes += batch.bytes
        if batch.bytes > LARGE_BATCH_BYTES:
            self.answers[self.read] = HERE
        else:
            self.unsent.append(self.read)
        self.read += 1

    def answer(self, number):
        """The Encoded of this batch, the first that is pending; or HERE. Raises
        what it raised there."""
        allow_cpu(BATCH_SECONDS)
        try:
            while self.processes > 1 and number not in self.answers:
                self.send()
                if number in self.answers:
                    break
                for end in connection.wait(list(self.busy), SILENT_SECONDS):
                    self.receive(end)
                speaker.still("tokenizing")
            self.send()
        except (EOFError, OSError, MemoryError):
            speaker.say(still="a process of the tokenizer's ended; the rest "
                              "is tokenized by one")
            self.end()
        found = self.answers.pop(number, HERE)
        if found is HERE:
            return HERE
        encoded, notes, failure = found
        if failure is not None:
            raise failure
        self.encoder.add_noted(notes)
        return encoded

    def send(self):
        while self.processes > 1 and self.unsent and (
                self.idle or len(self.started) < self.processes):
            end = self.idle.pop() if self.idle else self.start()
            number = self.unsent.popleft()
            self.busy[end] = number
            try:
                end.send(self.pending[number].rows)
            except RecursionError:  # before anything of it was sent
                del self.busy[end]
                self.idle.append(end)
                self.answers[number] = HERE

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
    allow_memory_beside(PROCESS_BYTES)
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
