"""The bigram baseline: how well the last token alone predicts the next."""

import collections
import itertools
import math
import mmap
import os

from common.reporting import DataError, speaker
from prepare_output import read_manifest

BIGRAM_TOKENS = 20_000_000
BIGRAM_HELD_OUT = 10  # every tenth sequence chooses the smoothing


class Bigram:
    """A count model of the next token from the last one alone.

    P(c | p) = (n(p,c) + b U(c)) / (n(p) + b), U(c) = (n(c) + a) / (N + a V):
    counts smoothed by b pseudo-counts of the unigram, which is smoothed by a
    of each of the V ids (MacKay and Peto's hierarchical Dirichlet model).
    Only targets count, as only they are scored.
    """

    def __init__(self, vocab_size, pairs):
        """pairs: a Counter of (token before, target)."""
        self.vocab_size = vocab_size
        self.pairs = pairs
        self.befores = collections.Counter()
        self.tokens = collections.Counter()
        for (before, token), count in pairs.items():
            self.befores[before] += count
            self.tokens[token] += count
        self.total = sum(self.tokens.values())

    def nll(self, scored, smoothing):
        """Sum of -log P in nats over a Counter of (token before, target);
        smoothing is (a, b)."""
        speaker.still("comparing with bigrams")
        a, b = smoothing
        floor = self.total + a * self.vocab_size
        loss = 0.0
        for (before, token), count in scored.items():
            unigram = (self.tokens[token] + a) / floor
            chance = ((self.pairs[before, token] + b * unigram) /
                      (self.befores[before] + b))
            loss -= count * math.log(chance)
        return loss


# The first is taken where there are too few sequences to hold any out.
SMOOTHINGS = tuple(itertools.product(
    (0.1, 0.01, 1.0, 10.0), (3.0, 0.1, 0.3, 1.0, 10.0, 30.0, 100.0)))


def fit_bigram(folder, manifest):
    """The bigram model of a prepared train split, and the smoothing of
    SMOOTHINGS with which every tenth sequence is predicted best from the
    others."""
    kept, held_out = collections.Counter(), collections.Counter()
    seen = 0
    for index, pairs in enumerate(target_pairs(folder, manifest)):
        seen += len(pairs)
        if index and seen > BIGRAM_TOKENS:
            break
        last = index % BIGRAM_HELD_OUT == BIGRAM_HELD_OUT - 1
        (held_out if last else kept).update(pairs)
    model = Bigram(manifest["vocab_size"], kept)
    smoothing = min(SMOOTHINGS, key=lambda s: model.nll(held_out, s))
    kept.update(held_out)  # in place: these tables are the largest
    return Bigram(manifest["vocab_size"], kept), smoothing


def bigram_record(train_folder, folder, manifest):
    train = read_manifest(train_folder)
    for name in ("tokenizer_sha256", "vocab_size"):
        if train[name] != manifest[name]:
            raise DataError(f"--bigram-from was made with another {name}",
                            train_folder)
    model, smoothing = fit_bigram(train_folder, train)
    scored = collections.Counter()
    for pairs in target_pairs(folder, manifest):
        scored.update(pairs)
    return {"bigram_loss": model.nll(scored, smoothing) / scored.total(),
            "bigram": {"unigram_pseudo_count": smoothing[0],
                       "bigram_pseudo_count": smoothing[1],
                       "train_tokens": model.total}}


def mapped(folder, name, code, manifest):
    path = os.path.join(folder, name)
    wanted = manifest["files"][name]["bytes"]
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size != wanted:
            raise DataError(f"is not {wanted} bytes long", path)
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return memoryview(data).cast(code)


def target_pairs(folder, manifest):
    """Per sequence the list of its (token before, target)."""
    tokens = mapped(folder, "tokens.u32", "I", manifest)
    labels = mapped(folder, "labels.u8", "B", manifest)
    offsets = mapped(folder, "offsets.u64", "Q", manifest)
    for start, end in itertools.pairwise(offsets):
        speaker.still("comparing with bigrams")
        ids = tokens[start:end].tolist()
        yield list(itertools.compress(itertools.pairwise(ids),
                                      labels[start + 1:end]))
