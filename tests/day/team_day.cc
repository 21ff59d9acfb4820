#include "tests/day/team_day.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

namespace roundhouse::day {
namespace {

constexpr double kShape = 1.25;
constexpr absl::Duration kShortest = absl::Seconds(30);
constexpr double kUserExponent = 0.7;

// server_day.cc: of a micro-batch two layers go forward, two layers forward and
// backward at once, and two backward after they were computed again.
constexpr int kLayerPasses = 2 * 1 + 2 * 3 + 2 * 3;
constexpr int kMicroBatches = 8;
constexpr int kLongestSlotPasses = 2 * 3;

// By length (short, between, long) and model, in percent.
constexpr int kModelShares[3][kDayModelCount] = {
    {70, 25, 5}, {35, 40, 25}, {10, 40, 50}};

class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}

  // At least 0 and below 1.
  double Share() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  double Between(double least, double most) {
    return least + Share() * (most - least);
  }
  // An index, in proportion to the weights.
  template <typename Weights>
  int Among(const Weights& weights) {
    double all = 0;
    for (const auto weight : weights) all += weight;
    double left = Share() * all;
    int index = 0;
    for (const auto weight : weights) {
      left -= weight;
      if (left < 0) return index;
      ++index;
    }
    return index - 1;
  }

 private:
  std::mt19937_64 random_;
};

// The length below which a share `p` of the jobs is.
absl::Duration LengthAt(double p, const TeamDayOptions& options) {
  const double odds = p / (1 - p);
  const absl::Duration length = std::pow(odds, 1 / kShape) * options.median;
  return std::clamp(length, std::min(kShortest, options.median),
                    options.longest);
}

std::vector<absl::Duration> DrawLengths(const TeamDayOptions& options,
                                        Draws& draws) {
  std::vector<absl::Duration> lengths;
  for (int i = 0; i < options.jobs; ++i) {
    lengths.push_back(LengthAt((i + draws.Share()) / options.jobs, options));
  }
  for (size_t left = lengths.size(); left > 1; --left) {
    const double among = static_cast<double>(left);
    std::swap(lengths[left - 1],
              lengths[static_cast<size_t>(draws.Share() * among)]);
  }
  return lengths;
}

// How often jobs come at this hour; at most 1.2.
double RateAt(double hour) {
  const auto peak = [hour](double at, double width) {
    const double away = (hour - at) / width;
    return std::exp(-away * away / 2);
  };
  return 0.1 + peak(10, 1.5) + peak(15, 2);
}

double DrawHour(Draws& draws) {
  while (true) {
    const double hour = draws.Between(0, 24);
    if (draws.Share() * 1.2 < RateAt(hour)) return hour;
  }
}

int DrawUser(Draws& draws) {
  std::array<double, kUsers> weights;
  for (int i = 0; i < kUsers; ++i) weights[i] = std::pow(i + 1, -kUserExponent);
  return draws.Among(weights);
}

DayModel DrawModel(absl::Duration length, Draws& draws) {
  const int row = length < kShortJob ? 0 : length < kLongJob ? 1 : 2;
  return static_cast<DayModel>(draws.Among(kModelShares[row]));
}

int64_t StepsFor(absl::Duration length, DayModel model) {
  const absl::Duration step =
      kLayerPasses * kMicroBatches * LayerTime(model) / kDevices;
  const double steps = std::round(absl::FDivDuration(length, step));
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

}  // namespace

absl::Duration LayerTime(DayModel model) {
  constexpr absl::Duration kTimes[] = {absl::Milliseconds(400),
                                       absl::Milliseconds(800),
                                       absl::Milliseconds(1600)};
  return kTimes[static_cast<int>(model)];
}

absl::Duration LongestSlot(DayModel model) {
  return kLongestSlotPasses * LayerTime(model);
}

absl::Duration DeviceTimeOf(const DayJob& job) {
  return job.steps * kMicroBatches * kLayerPasses * LayerTime(job.model);
}

absl::Duration AloneTimeOf(const DayJob& job) {
  return DeviceTimeOf(job) / kDevices;
}

int DevicesAskedOf(const DayJob& job) {
  int devices = 1 << static_cast<int>(job.model);
  while (devices < kDevices && DeviceTimeOf(job) / devices > absl::Hours(1)) {
    devices *= 2;
  }
  return devices;
}

TeamDay MakeTeamDay(const TeamDayOptions& options) {
  Draws draws(options.seed);
  const absl::Duration hour = options.day / 24;
  TeamDay day;
  for (const absl::Duration length : DrawLengths(options, draws)) {
    DayJob job;
    job.submitted = DrawHour(draws) * hour;
    job.user = DrawUser(draws);
    job.model = DrawModel(length, draws);
    job.steps = StepsFor(length, job.model);
    if (draws.Share() < 1.0 / 8) {
      job.cancelled = job.submitted + draws.Between(1.0 / 12, 1) * hour;
    }
    day.jobs.push_back(job);
  }
  for (int i = 0; i < options.urgent_jobs; ++i) {
    DayJob job;
    job.submitted = draws.Between(12, 13) * hour;
    job.user = DrawUser(draws);
    job.model = draws.Share() < 0.5 ? DayModel::kSmall : DayModel::kMiddle;
    job.steps = StepsFor(draws.Between(0.5, 1.5) * options.median, job.model);
    job.urgent = true;
    day.jobs.push_back(job);
  }
  std::stable_sort(day.jobs.begin(), day.jobs.end(),
                   [](const DayJob& a, const DayJob& b) {
                     return a.submitted < b.submitted;
                   });
  day.loan = {.device = 3, .from = 14 * hour, .until = 17 * hour};
  return day;
}

}  // namespace roundhouse::day
