#include "tests/bench/handover.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wire/arena.h"

namespace roundhouse::bench {
namespace {

constexpr uint64_t kWordsOffset = 1 << 16;
constexpr uint64_t kTimesOffset = 1 << 17;
constexpr absl::Duration kLookAgain = absl::Milliseconds(250);
// From the moment a process says that it may sleep until it surely does.
constexpr absl::Duration kFallAsleep = absl::Microseconds(100);

struct Handover {
  int64_t raised_ns;
  int64_t seen_ns;
};

// The two sides take turns: round i is raised by side i % 2.
class Side {
 public:
  Side(wire::Arena& arena, int self, int count)
      : arena_(arena),
        self_(self),
        count_(count),
        times_(arena.At<Handover>(kTimesOffset, static_cast<uint64_t>(count))) {
  }

  void Run() {
    for (int i = 0; i < count_; ++i) {
      if (i % 2 == self_) {
        RaiseFor(i);
      } else {
        Await(i);
      }
    }
  }

 private:
  wire::Word& WordOf(int side) const {
    return arena_.WordAt(kWordsOffset +
                         sizeof(wire::Word) * static_cast<uint64_t>(side));
  }

  void RaiseFor(int i) {
    wire::Doorbell& other = arena_.doorbells().bell[1 - self_];
    while (other.sleeping.load() == 0) sched_yield();
    absl::SleepFor(kFallAsleep);
    times_[i].raised_ns = MonotonicNs();
    wire::Raise(WordOf(self_), static_cast<uint64_t>(i) + 1,
                arena_.doorbells());
  }

  void Await(int i) {
    wire::Doorbell& own = arena_.doorbells().bell[self_];
    const wire::Word& word = WordOf(1 - self_);
    const uint64_t value = static_cast<uint64_t>(i) + 1;
    while (!wire::Reached(word, value)) {
      wire::WaitForRing(own, kLookAgain,
                        [&] { return wire::Reached(word, value); });
    }
    times_[i].seen_ns = MonotonicNs();
  }

  wire::Arena& arena_;
  const int self_;
  const int count_;
  Handover* const times_;
};

absl::Status AwaitChild(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) == child && status == 0) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("the second process ended with status ", status));
}

}  // namespace

absl::StatusOr<std::vector<double>> MeasureHandovers(int count) {
  ROUNDHOUSE_CHECK(count >= 2 && count <= kMaxHandovers) << count;
  const uint64_t bytes =
      kTimesOffset + sizeof(Handover) * static_cast<uint64_t>(count);
  ASSIGN_OR_RETURN(const std::unique_ptr<wire::Arena> arena,
                   wire::Arena::Create(bytes, 2));
  const pid_t child = fork();
  if (child < 0) {
    return absl::InternalError(absl::StrCat("fork: ", std::strerror(errno)));
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Side(*arena, 1, count).Run();
    _exit(0);
  }
  Side(*arena, 0, count).Run();
  RETURN_IF_ERROR(AwaitChild(child));
  const auto* times =
      arena->At<Handover>(kTimesOffset, static_cast<uint64_t>(count));
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    seconds.push_back(
        static_cast<double>(times[i].seen_ns - times[i].raised_ns) * 1e-9);
  }
  return seconds;
}

}  // namespace roundhouse::bench
