#include "scheduler/forecast/fill_in.h"

#include <algorithm>
#include <cstdint>

namespace roundhouse {
namespace {

constexpr double kRounding = 1e-9;

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

FillIn ChooseFillIn(const ForecastPool& pool, const FillInQuestion& question) {
  FillIn found{.first_start = StartOf(pool, question.first)};
  if (!found.first_start.has_value()) return found;
  // Beyond what rounding makes of equal sums.
  const double start = *found.first_start * (1 + kRounding) + kRounding;
  const double latest =
      std::min(start, question.promised_seconds.value_or(*found.first_start) +
                          kRounding);
  const size_t tries = std::min(question.candidates.size(), kMostFillInTries);
  for (size_t i = 0; i < tries; ++i) {
    const size_t job = question.candidates[i];
    const std::optional<double> with =
        StartOf(WithStarted(pool, job), question.first);
    if (!with.has_value() || *with > latest) continue;
    found.job = job;
    break;
  }
  return found;
}

}  // namespace roundhouse
