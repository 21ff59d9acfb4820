// A clock for tests: it stands still until somebody sleeps, who then wakes up
// `late_ns` later than asked for.
#ifndef ROUNDHOUSE_TESTS_FAKES_TEST_CLOCK_H_
#define ROUNDHOUSE_TESTS_FAKES_TEST_CLOCK_H_

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "tests/fakes/pace.h"

namespace roundhouse::fakes {

class TestClock : public Clock {
 public:
  explicit TestClock(int64_t late_ns = 0) : late_ns_(late_ns) {}

  int64_t Now() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return now_ns_;
  }
  void SleepUntil(int64_t time_ns) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (time_ns > now_ns_) now_ns_ = time_ns + late_ns_;
  }
  void Advance(int64_t ns) {
    std::lock_guard<std::mutex> lock(mutex_);
    now_ns_ += ns;
  }

 private:
  const int64_t late_ns_;
  std::mutex mutex_;
  int64_t now_ns_ = 0;  // guarded by mutex_
};

}  // namespace roundhouse::fakes

#endif  // ROUNDHOUSE_TESTS_FAKES_TEST_CLOCK_H_
