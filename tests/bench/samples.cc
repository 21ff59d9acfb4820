#include "tests/bench/samples.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace roundhouse::bench {
namespace {

constexpr int64_t kMaxDevices = 64;
constexpr int64_t kMaxLayers = 1024;

struct Sample {
  std::string kind;
  std::vector<int64_t> numbers;
};

size_t NumbersOf(const std::string& kind) {
  if (kind == "dispatch") return 1;
  if (kind == "slot") return 7;
  if (kind == "layer") return 3;
  if (kind == "host" || kind == "step") return 2;
  return 0;
}

absl::StatusOr<Sample> ParseSample(const std::string& line, int64_t number) {
  const std::vector<std::string> cells = absl::StrSplit(line, ',');
  Sample sample{cells[0], {}};
  const size_t wanted = NumbersOf(sample.kind);
  bool good = wanted > 0 && cells.size() == wanted + 1;
  for (size_t i = 1; good && i < cells.size(); ++i) {
    good = absl::SimpleAtoi(cells[i], &sample.numbers.emplace_back());
  }
  if (good && sample.kind == "slot") {
    good = sample.numbers[0] >= 0 && sample.numbers[0] < kMaxDevices;
  }
  if (good && sample.kind == "layer") {
    good = sample.numbers[0] >= 0 && sample.numbers[0] < kMaxLayers;
  }
  if (good) return sample;
  return absl::InvalidArgumentError(
      absl::StrCat("line ", number, " is no sample: \"", line, "\""));
}

absl::StatusOr<std::vector<Sample>> ParseSamples(const std::string& text) {
  std::vector<Sample> samples;
  int64_t number = 0;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (const std::string& line : lines) {
    ++number;
    if (line.empty()) continue;
    ASSIGN_OR_RETURN(Sample sample, ParseSample(line, number));
    samples.push_back(std::move(sample));
  }
  return samples;
}

absl::StatusOr<size_t> FindStep(const std::vector<Sample>& samples,
                                int64_t step) {
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].kind == "step" && samples[i].numbers[0] == step) return i;
  }
  return absl::NotFoundError(absl::StrCat("no sample of step ", step));
}

struct Window {
  int64_t begin = 0;
  int64_t end = 0;
  // How much of [from, to] lies in it.
  int64_t Overlap(int64_t from, int64_t to) const {
    return std::max<int64_t>(0, std::min(to, end) - std::max(from, begin));
  }
};

// Nanoseconds instead of shares.  A slot at an edge counts as far as it lies
// inside.
void AddSlot(const std::vector<int64_t>& slot, const Window& window,
             std::vector<DeviceShares>& devices) {
  const auto device = static_cast<size_t>(slot[0]);
  if (devices.size() <= device) devices.resize(device + 1);
  const int64_t started = slot[1], wait = slot[3], compute = slot[5];
  // ended also waits for the last copies, while the next slot computes.
  const int64_t length = wait + compute;
  const int64_t inside = window.Overlap(started, started + length);
  if (inside == 0) return;
  const double share =
      static_cast<double>(inside) / static_cast<double>(length);
  DeviceShares& sum = devices[device];
  sum.wait += share * static_cast<double>(wait);
  sum.compute += share * static_cast<double>(compute);
  sum.h2d += share * static_cast<double>(slot[4]);
  sum.d2h += share * static_cast<double>(slot[6]);
}

class LayerMeans {
 public:
  void Add(const std::vector<int64_t>& layer) {
    const auto index = static_cast<size_t>(layer[0]);
    if (sums_.size() <= index) sums_.resize(index + 1);
    for (const int pass : {0, 1}) {
      if (layer[1 + pass] <= 0) continue;
      sums_[index].ns[pass] += static_cast<double>(layer[1 + pass]);
      ++sums_[index].count[pass];
    }
  }
  std::vector<LayerTimes> Means() const {
    std::vector<LayerTimes> means;
    for (const Sums& sums : sums_) {
      const auto mean = [&sums](int pass) {
        return sums.ns[pass] / std::max(1, sums.count[pass]);
      };
      means.push_back({mean(0), mean(1)});
    }
    return means;
  }

 private:
  struct Sums {
    double ns[2] = {};
    int count[2] = {};
  };
  std::vector<Sums> sums_;
};

void Normalize(double window_ns, DeviceShares& shares) {
  for (double* part :
       {&shares.compute, &shares.wait, &shares.h2d, &shares.d2h}) {
    *part /= window_ns;
  }
  shares.idle = std::max(0.0, 1 - shares.compute - shares.wait);
}

}  // namespace

absl::StatusOr<StepSamples> ReadSamples(const std::string& text, int64_t first,
                                        int64_t last) {
  ASSIGN_OR_RETURN(const std::vector<Sample> samples, ParseSamples(text));
  ASSIGN_OR_RETURN(const size_t begin, FindStep(samples, first));
  ASSIGN_OR_RETURN(const size_t end, FindStep(samples, last));
  const Window window{samples[begin].numbers[1], samples[end].numbers[1]};
  StepSamples result;
  result.steps = last - first;
  result.begin_ns = window.begin;
  result.end_ns = window.end;
  double host_ns = 0;
  LayerMeans layers;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    if (sample.kind == "slot") {
      AddSlot(sample.numbers, window, result.devices);
    } else if (sample.kind == "host") {
      host_ns += static_cast<double>(
          window.Overlap(sample.numbers[0], sample.numbers[1]));
    } else if (sample.kind == "layer" && i > begin && i < end) {
      layers.Add(sample.numbers);
    } else if (sample.kind == "dispatch" && i > begin && i < end) {
      result.dispatch_seconds.push_back(static_cast<double>(sample.numbers[0]) *
                                        1e-9);
    }
  }
  const auto window_ns = static_cast<double>(window.end - window.begin);
  if (result.devices.empty() || result.steps < 1 || !(window_ns > 0)) {
    return absl::NotFoundError(
        absl::StrCat("no slot between steps ", first, " and ", last));
  }
  for (DeviceShares& device : result.devices) Normalize(window_ns, device);
  result.layers = layers.Means();
  result.host_busy = host_ns / window_ns;
  result.step_seconds = window_ns * 1e-9 / static_cast<double>(result.steps);
  return result;
}

}  // namespace roundhouse::bench
