#include "scheduler/forecast/fill_in.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

const JobOwner kAnn = {"vision", "ann"};
const JobOwner kBob = {"vision", "bob"};

ForecastJob JobOf(const JobOwner& owner, std::optional<double> seconds,
                  double most_devices, uint64_t bytes) {
  return {.owner = owner,
          .device_seconds = seconds,
          .most_devices = most_devices,
          .host_bytes = bytes};
}

// On two devices ann's job keeps one busy and holds what the first one needs.
ForecastPool Pool() {
  return {.devices = 2,
          .free_places = 8,
          .free_bytes = 4,
          .running = {JobOf(kAnn, 10, 1, 6)},
          .queue = {JobOf(kBob, 10, 2, 8), JobOf(kBob, 5, 1, 4)}};
}

std::optional<size_t> Choose(const ForecastPool& pool, double promised = 10) {
  return ChooseFillIn(pool, {0, {1}, promised}).job;
}

TEST(FillInTest, OneThatIsGoneBeforeTheFirstStartsGoesAhead) {
  EXPECT_EQ(Choose(Pool()), 1u);
}

TEST(FillInTest, OneThatHoldsItsMemoryTooLongDoesNot) {
  ForecastPool pool = Pool();
  pool.queue[1].device_seconds = 11;
  EXPECT_EQ(Choose(pool), std::nullopt);
  // Nor does one whose length nobody knows.
  pool.queue[1].device_seconds.reset();
  EXPECT_EQ(Choose(pool), std::nullopt);
  // Where its memory is not needed it may stay.
  pool.queue[1].host_bytes = 2;
  EXPECT_EQ(Choose(pool), 1u);
}

TEST(FillInTest, OneThatTakesDevicesFromWhatTheFirstWaitsForDoesNot) {
  ForecastPool pool = Pool();
  pool.running[0].most_devices = 2;
  EXPECT_EQ(Choose(pool, 5), std::nullopt);
  // From others it may: half of the devices stay with ann.
  pool.running[0].most_devices = 1;
  pool.running.push_back(JobOf(kBob, 100, 2, 0));
  EXPECT_EQ(Choose(pool), 1u);
}

TEST(FillInTest, WithoutAnExpectedStartNobodyGoesAhead) {
  ForecastPool pool = Pool();
  pool.queue[1].host_bytes = 2;
  pool.running[0].device_seconds.reset();
  EXPECT_EQ(Choose(pool), std::nullopt);
}

TEST(FillInTest, APromiseThatCannotBeKeptLetsNobodyAhead) {
  EXPECT_EQ(Choose(Pool(), 9.9), std::nullopt);
  EXPECT_EQ(Choose(Pool(), 0), std::nullopt);
  EXPECT_EQ(Choose(Pool(), 20), 1u);
  const FillIn promised_now = ChooseFillIn(Pool(), {.candidates = {1}});
  EXPECT_EQ(promised_now.job, 1u);
  EXPECT_EQ(promised_now.first_start, 10);
}

TEST(FillInTest, TheFirstOfThoseThatMay) {
  ForecastPool pool = Pool();
  pool.queue[1].device_seconds = 11;
  pool.queue.push_back(JobOf(kBob, 4, 1, 4));
  pool.queue.push_back(JobOf(kBob, 3, 1, 4));
  EXPECT_EQ(ChooseFillIn(pool, {0, {1, 2, 3}, 10}).job, 2u);
  std::vector<size_t> many(kMostFillInTries, 1);
  many.push_back(2);
  EXPECT_EQ(ChooseFillIn(pool, {0, many, 10}).job, std::nullopt);
}

// Jobs of any kind go ahead for as long as there are any: by the model the
// first one starts no later for all of them.
TEST(FillInTest, AnyNumberOfThemMovesTheFirstNoLater) {
  int ahead = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    ForecastPool pool = {.devices = static_cast<double>(1 + random() % 4),
                         .free_places = 8,
                         .free_bytes = 4 + random() % 8};
    const auto draw = [&](uint64_t bytes) {
      const JobOwner& owner = random() % 2 == 0 ? kAnn : kBob;
      return JobOf(owner, 1 + static_cast<double>(random() % 20),
                   0.5 * static_cast<double>(1 + random() % 4), bytes);
    };
    for (int i = 0; i < 3; ++i) pool.running.push_back(draw(5));
    pool.queue.push_back(draw(pool.free_bytes + 1 + random() % 10));
    for (int i = 0; i < 10; ++i) pool.queue.push_back(draw(1 + random() % 4));
    const auto start = [&] { return *ForecastOf(pool, 0).queue[0].start; };
    const double promised = start();
    while (true) {
      FillInQuestion question{0, {}, promised};
      for (size_t i = 1; i < pool.queue.size(); ++i) {
        if (*pool.queue[i].host_bytes <= pool.free_bytes &&
            pool.free_places > 0) {
          question.candidates.push_back(i);
        }
      }
      const auto chosen = ChooseFillIn(pool, question).job;
      if (!chosen.has_value()) break;
      ++ahead;
      pool.running.push_back(pool.queue[*chosen]);
      pool.free_bytes -= *pool.queue[*chosen].host_bytes;
      --pool.free_places;
      pool.queue.erase(pool.queue.begin() +
                       static_cast<std::ptrdiff_t>(*chosen));
      EXPECT_LE(start(), promised + 1e-6) << seed;
    }
  }
  EXPECT_GT(ahead, 100);
}

}  // namespace
}  // namespace roundhouse
