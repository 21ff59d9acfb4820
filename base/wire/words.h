// Words and doorbells: how processes that share the arena wait for each other.
//
// A *word* is a 64-bit value in the arena that only ever rises.  Whoever has
// produced bytes raises their word (the bytes become visible with it); whoever
// needs them waits until the word is at least the value it was told.  Values
// are pass numbers (docs/design/wire.md), drawn per job and never reused.
//
// A *doorbell* is a 32-bit futex per worker.  A waiter announces that it may
// sleep, looks at its words once more, then sleeps on its doorbell; a raiser
// stores first and then rings every doorbell whose owner may be asleep.  All
// accesses are sequentially consistent, so either the raiser sees the sleeper
// or the sleeper sees the raised word.
//
// Thread-safe, and safe between processes.
#ifndef ROUNDHOUSE_BASE_WIRE_WORDS_H_
#define ROUNDHOUSE_BASE_WIRE_WORDS_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace roundhouse::wire {

// At most this many slots are with one device worker at a time (running,
// prefetched, and room for withdrawals on their way).
inline constexpr int kMaxDispatchedSlots = 9;
// Device workers, the host worker and the files worker.
inline constexpr int kMaxWorkers = 64;

// A line of its own per word: raisers on different devices share none.
struct alignas(64) Word {
  std::atomic<uint64_t> value;
};
static_assert(sizeof(Word) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings;     // the futex; rises at each ring
  std::atomic<uint32_t> sleeping;  // 1 while the owner may be asleep
  // Cancel words: cancel[attempt % kMaxDispatchedSlots] == attempt says that
  // the daemon wants that attempt back.
  std::atomic<uint64_t> cancel[kMaxDispatchedSlots];
};
static_assert(sizeof(Doorbell) == 128);

struct DoorbellTable {
  Doorbell bell[kMaxWorkers];
};

// Raises `word` to `value` and rings whoever may be asleep.
// REQUIRES: value is greater than the word's (checked).
void Raise(Word& word, uint64_t value, DoorbellTable& doorbells);

inline bool Reached(const Word& word, uint64_t value) {
  return word.value.load(std::memory_order_seq_cst) >= value;
}

// Wakes one worker: a new command, or a cancel word was written.
void Ring(Doorbell& doorbell);

inline bool Cancelled(const Doorbell& doorbell, uint64_t attempt) {
  return doorbell.cancel[attempt % kMaxDispatchedSlots].load(
             std::memory_order_seq_cst) == attempt;
}

// Sleeps until the doorbell is rung or `timeout` passes; returns at once when
// `ready()` holds.  One thread per doorbell.  Spurious returns are allowed: the
// caller looks again.
template <typename Ready>
void WaitForRing(Doorbell& doorbell, absl::Duration timeout, Ready ready);

namespace internal {
void FutexWait(std::atomic<uint32_t>& word, uint32_t seen,
               absl::Duration timeout);
}

template <typename Ready>
void WaitForRing(Doorbell& doorbell, absl::Duration timeout, Ready ready) {
  const uint32_t seen = doorbell.rings.load(std::memory_order_seq_cst);
  doorbell.sleeping.store(1, std::memory_order_seq_cst);
  if (!ready()) internal::FutexWait(doorbell.rings, seen, timeout);
  doorbell.sleeping.store(0, std::memory_order_seq_cst);
}

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_WORDS_H_
