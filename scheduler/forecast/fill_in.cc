#include "scheduler/forecast/fill_in.h"

#include <algorithm>
#include <cstdint>

namespace roundhouse {
namespace {

// As if the job had just started.  Its place in the queue stays, so that the
// others' do, but it never starts again.
ForecastPool WithStarted(const ForecastPool& pool, size_t started) {
  ForecastPool with = pool;
  ForecastJob& job = with.queue[started];
  with.running.push_back(job);
  job.start = ForecastJob::Start::kMayNot;
  const uint64_t bytes = job.host_bytes.value_or(0);
  with.free_bytes -= std::min(bytes, with.free_bytes);
  --with.free_places;
  with.running_use.Add(job.owner, 1);
  with.host_use.Add(job.owner, static_cast<int64_t>(bytes));
  return with;
}

std::optional<double> StartOf(const ForecastPool& pool, size_t job) {
  return ForecastOf(pool, job).queue[job].start;
}

}  // namespace

std::optional<size_t> ChooseFillIn(const ForecastPool& pool,
                                   const FillInQuestion& question) {
  const std::optional<double> without = StartOf(pool, question.first);
  if (!without.has_value()) return std::nullopt;
  // Beyond what rounding makes of equal sums.
  const double latest =
      std::min(*without * (1 + 1e-9), question.promised_seconds);
  const size_t tries = std::min(question.candidates.size(), kMostFillInTries);
  for (size_t i = 0; i < tries; ++i) {
    const size_t job = question.candidates[i];
    const std::optional<double> with =
        StartOf(WithStarted(pool, job), question.first);
    if (with.has_value() && *with <= latest) return job;
  }
  return std::nullopt;
}

}  // namespace roundhouse
