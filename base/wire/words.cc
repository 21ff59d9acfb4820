#include "base/wire/words.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "base/log.h"

namespace roundhouse::wire {
namespace internal {

void FutexWait(std::atomic<uint32_t>& word, uint32_t seen,
               absl::Duration timeout) {
  const timespec limit = absl::ToTimespec(timeout);
  // Not FUTEX_PRIVATE: the word is shared between processes.  Every way of
  // returning (woken, value changed, interrupted, timed out) means "look
  // again".
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen,
          &limit, nullptr, 0);
}

}  // namespace internal

void Ring(Doorbell& doorbell) {
  doorbell.rings.fetch_add(1, std::memory_order_seq_cst);
  // An owner that is about to sleep but has not said so yet sees that `rings`
  // changed: the futex does not sleep then.
  if (doorbell.sleeping.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&doorbell.rings), FUTEX_WAKE,
          INT_MAX, nullptr, nullptr, 0);
}

void Raise(Word& word, uint64_t value, DoorbellTable& doorbells) {
  const uint64_t before = word.value.exchange(value, std::memory_order_seq_cst);
  ROUNDHOUSE_CHECK(before < value)
      << "a word may only rise: was " << before << ", raised to " << value;
  for (Doorbell& doorbell : doorbells.bell) {
    if (doorbell.sleeping.load(std::memory_order_seq_cst) != 0) Ring(doorbell);
  }
}

}  // namespace roundhouse::wire
