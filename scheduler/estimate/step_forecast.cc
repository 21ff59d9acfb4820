#include "scheduler/estimate/step_forecast.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "scheduler/dispatch/sent_work.h"
#include "scheduler/estimate/update_delay.h"
#include "scheduler/plan/auto_sizes.h"
#include "scheduler/plan/contribution_blocks.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/step_plan.h"
#include "scheduler/search/step_search.h"
#include "scheduler/simulate/device_memory.h"
#include "scheduler/simulate/part_feed.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse {
namespace {

constexpr double kLeastHostRate = 1;
constexpr double kMostHostRate = 100'000;

const DevicePreset& Smallest(const std::vector<DevicePreset>& devices) {
  return *std::min_element(devices.begin(), devices.end(),
                           [](const DevicePreset& a, const DevicePreset& b) {
                             return a.memory_bytes < b.memory_bytes;
                           });
}

// Speeds are those of the first device, for which the costs are.
Machine MachineOf(const ForecastQuestion& question, int64_t reserve_bytes) {
  Machine machine;
  const DevicePreset& first = question.devices.front();
  machine.host_rate = question.host_rate;
  machine.link_rate = first.link_rate;
  for (const DevicePreset& device : question.devices) {
    SimulatedDevice simulated;
    simulated.memory_bytes =
        std::max<int64_t>(0, device.memory_bytes - reserve_bytes);
    simulated.speed = TflopsOf(device, question.accumulation) /
                      TflopsOf(first, question.accumulation);
    machine.devices.push_back(simulated);
    // The simulator has one rate for all links.
    machine.link_rate = std::min(machine.link_rate, device.link_rate);
  }
  return machine;
}

absl::Status Check(const ForecastQuestion& question) {
  if (question.devices.empty() ||
      question.devices.size() > kMaxPlannedDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat(question.devices.size(), " devices: from 1 to ",
                     kMaxPlannedDevices, " can be planned for"));
  }
  if (question.batch_sequences < 1 || question.host_memory_bytes < 0 ||
      question.setup.micro_batch_sequences < 0 ||
      question.setup.micro_batch_sequences > question.batch_sequences) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro-batches of ", question.setup.micro_batch_sequences,
                     " sequences of a batch of ", question.batch_sequences));
  }
  if (!(question.host_rate >= kLeastHostRate &&
        question.host_rate <= kMostHostRate)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host memory at ", question.host_rate, " GB/s: from ", kLeastHostRate,
        " to ", kMostHostRate, " can be planned for"));
  }
  return absl::OkStatus();
}

// The job file's `auto`, halved until it fits the smallest device.
int64_t AutoMicroBatch(const ForecastQuestion& question) {
  const DevicePreset& device = Smallest(question.devices);
  TrainingSetup setup = question.setup;
  int64_t sequences = AutoMicroBatchSize(
      question.batch_sequences, static_cast<int64_t>(question.devices.size()));
  for (; sequences > 1; sequences /= 2) {
    setup.micro_batch_sequences = sequences;
    if (CheckSetup(setup).ok() &&
        DeviceNeedBytes(setup, device) <= device.memory_bytes) {
      break;
    }
  }
  return sequences;
}

// The most that each device holds at a time.
std::vector<DevicePeak> Peaks(const StepPlan& plan, const ModelCosts& costs,
                              const Machine& machine, int micro_batches) {
  const std::vector<Part> parts = PartsOf(plan, micro_batches);
  return DevicePeaks(parts, AssignDevices(parts, costs, machine), costs,
                     machine.device_count(), plan.look_ahead);
}

// What a plan may need of host memory where none fits it, over the least.
constexpr double kAboutTheLeast = 1.01;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class Forecaster {
 public:
  explicit Forecaster(ForecastQuestion question)
      : question_(std::move(question)), setup_(question_.setup) {}

  absl::StatusOr<StepForecast> Run() {
    RETURN_IF_ERROR(Check(question_));
    if (setup_.micro_batch_sequences == 0) {
      setup_.micro_batch_sequences = AutoMicroBatch(question_);
    }
    RETURN_IF_ERROR(CheckSetup(setup_));
    RETURN_IF_ERROR(CountMicroBatches());
    NeedMemory();
    RETURN_IF_ERROR(FindPlan());
    const int64_t limit = question_.host_memory_bytes;
    if (limit > 0) {
      forecast_.host_missing_bytes =
          std::max<int64_t>(0, forecast_.host.total() - limit);
    }
    return std::move(forecast_);
  }

 private:
  absl::Status CountMicroBatches() {
    const int64_t sequences = setup_.micro_batch_sequences;
    const int64_t count =
        (question_.batch_sequences + sequences - 1) / sequences;
    if (count > kMaxPlannedMicroBatches) {
      return absl::InvalidArgumentError(absl::StrCat(
          count, " micro-batches of a step: at most ", kMaxPlannedMicroBatches,
          " can be planned for; a larger micro-batch makes fewer"));
    }
    forecast_.micro_batch_sequences = sequences;
    forecast_.micro_batches = count;
    forecast_.round_micro_batches = std::min(count, kAutoRoundMicroBatches);
    return absl::OkStatus();
  }

  // What can be said without a plan.
  void NeedMemory() {
    const DevicePreset& smallest = Smallest(question_.devices);
    forecast_.device_needed_bytes = DeviceNeedBytes(setup_, smallest);
    const auto devices = static_cast<int>(question_.devices.size());
    forecast_.host = HostBytesOf(setup_, BlockByBlockTensors(setup_),
                                 forecast_.round_micro_batches,
                                 LeastBlocks(setup_, devices), Rounds());
    forecast_.longest = FindLongestSequence(setup_, smallest, devices,
                                            question_.batch_sequences,
                                            question_.host_memory_bytes);
  }

  absl::Status FindPlan() {
    costs_ = CostsOf(setup_, question_.devices.front(), question_.accumulation);
    machine_ = MachineOf(question_, DeviceReserveBytes(setup_));
    if (OneRound()) AddEmbedding();
    const auto found = Search();
    if (absl::IsResourceExhausted(found.status())) {
      CountMissing();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(found.status());
    found_step_ns_ = found->step_ns;
    return Measure(found->plan);
  }

  // Fast plans may have many short stages, with as many boundaries in host
  // memory. The search takes plans that the memory has room for, and keeps
  // fewer inputs where there are none; without any, it takes plans that need
  // about the least.
  absl::StatusOr<SearchResult> Search() const {
    const int64_t limit = HostLimit();
    const int asked = setup_.saved_every;
    std::pair<int64_t, int> least = {kNever, 0};  // bytes, Saving::every
    // Where no plan fits nothing is simulated: such a search is short.
    for (const int every : SavedEveryTried(asked)) {
      int64_t bytes = kNever;
      auto found = SearchWith({every}, limit, bytes);
      if (found.ok() && asked == 0 && every > 1) {
        return WithFewestGroups(*std::move(found));
      }
      if (!absl::IsResourceExhausted(found.status()) || bytes == kNever) {
        return found;
      }
      least = std::min(least, std::pair(bytes, every));
    }
    const auto about =
        std::llround(kAboutTheLeast * static_cast<double>(least.first));
    int64_t bytes = kNever;
    return SearchWith({least.second}, about, bytes);
  }

  // With only as many groups that run again as there must be.
  SearchResult WithFewestGroups(SearchResult found) const {
    PlanShape shape = found.shape;
    shape.saving.groups = FewestGroups([&](int groups) {
      shape.saving.groups = groups;
      return HostMemoryOf(
                 ShapePlan(shape, costs_, machine_, RoundMicroBatches()))
                 .total() <= HostLimit();
    });
    int64_t bytes = kNever;
    auto fewer = SearchWith(shape.saving, HostLimit(), bytes);
    return fewer.ok() && fewer->step_ns < found.step_ns ? *std::move(fewer)
                                                        : std::move(found);
  }

  // A step of one round is searched as consecutive steps, or the wait for
  // updates would not be seen.  Lowers `least` to what one of the plans that
  // fit the devices needs.
  absl::StatusOr<SearchResult> SearchWith(const Saving& saving, int64_t limit,
                                          int64_t& least) const {
    SearchOptions options;
    options.saving = saving;
    options.contributions = ContributionsOf(setup_);
    options.fused = FusedSlots::kByLayer;
    if (OneRound()) options.updates = StepUpdates();
    options.boundary_tensors = std::max(
        TensorRoom(limit, LeastBlocks(setup_, machine_.device_count())),
        int64_t{1});
    options.accepts = [&](const StepPlan& plan) {
      const int64_t total = HostMemoryOf(plan).total();
      least = std::min(least, total);
      return total <= limit;
    };
    return SearchStepPlan(costs_, machine_, RoundMicroBatches(), options);
  }

  int64_t HostLimit() const {
    const int64_t limit = question_.host_memory_bytes;
    return limit == 0 ? kNever : limit;
  }

  // For how many tensors between stages there is room beside all else.
  int64_t TensorRoom(int64_t limit, const ContributionBlocks& blocks) const {
    const int64_t rest =
        HostBytesOf(setup_, 0, RoundMicroBatches(), blocks, Rounds()).total();
    return (limit - rest) / (RoundMicroBatches() * BoundaryBytes(setup_));
  }

  ContributionBlocks BlocksOfPlan(const Plan& plan) const {
    return BlocksOf(plan,
                    setup_.clips ? Rounds() : std::max<int64_t>(2, Rounds()),
                    MostSlotsAhead(machine_.device_count()));
  }

  int64_t TensorsOf(const Plan& plan) const {
    return FittingTensors(TensorRoom(HostLimit(), BlocksOfPlan(plan)), plan,
                          RowGradientOf(setup_),
                          MostSlotsAhead(machine_.device_count()));
  }

  HostMemory HostMemoryOf(const StepPlan& step_plan) const {
    const Plan plan = PlanOfFullRound(step_plan, RoundMicroBatches());
    return HostBytesOf(setup_, TensorsOf(plan), RoundMicroBatches(),
                       BlocksOfPlan(plan), Rounds());
  }

  // What the plan lacks that needs least: block by block at the greatest width.
  void CountMissing() {
    PlanShape shape;
    shape.saving.every = SavedEveryTried(setup_.saved_every).front();
    const int width = std::min(machine_.device_count(), RoundMicroBatches());
    shape.widths = {width, width, width};
    // Unequal shares need groups to cut at.
    shape.groups = EqualSpeeds() ? width : RoundMicroBatches();
    const StepPlan plan =
        ShapePlan(shape, costs_, machine_, RoundMicroBatches());
    const std::vector<DevicePeak> peaks =
        Peaks(plan, costs_, machine_, RoundMicroBatches());
    const int64_t reserve_bytes = DeviceReserveBytes(setup_);
    for (size_t d = 0; d < peaks.size(); ++d) {
      const int64_t need_bytes = peaks[d].bytes + reserve_bytes;
      const int64_t missing = need_bytes - question_.devices[d].memory_bytes;
      if (missing <= forecast_.device_missing_bytes) continue;
      forecast_.device_missing_bytes = missing;
      forecast_.device_needed_bytes = need_bytes;
    }
  }

  bool EqualSpeeds() const {
    return std::all_of(machine_.devices.begin(), machine_.devices.end(),
                       [this](const SimulatedDevice& device) {
                         return device.speed == machine_.devices[0].speed;
                       });
  }

  absl::Status Measure(const StepPlan& plan) {
    StepOptions options;
    options.contributions = ContributionsOf(setup_);
    options.fused = FusedSlots::kByLayer;
    options.intervals = Intervals::kWhole;
    const Plan full_round = PlanOfFullRound(plan, RoundMicroBatches());
    options.boundary_tensors = TensorsOf(full_round);
    forecast_.inputs = CountInputs(full_round);
    const int64_t wanted =
        BoundaryTensors(full_round, RowGradientOf(setup_),
                        MostSlotsAhead(machine_.device_count()));
    forecast_.wanted_boundary_bytes =
        HostBytesOf(setup_, wanted, RoundMicroBatches(),
                    BlocksOfPlan(full_round), Rounds())
            .boundaries;
    const StepsOptions updated{options, 1, 1, StepUpdates()};
    ASSIGN_OR_RETURN(forecast_.round,
                     OneRound() ? SimulateSteps(costs_, machine_, plan,
                                                RoundMicroBatches(), updated)
                                : SimulateStep(costs_, machine_, plan,
                                               RoundMicroBatches(), options));
    forecast_.plan = ToString(plan);
    forecast_.host = HostMemoryOf(plan);
    MeasureTimes(plan.stages);
    const std::vector<DevicePeak> peaks =
        Peaks(plan, costs_, machine_, RoundMicroBatches());
    for (size_t d = 0; d < peaks.size(); ++d) {
      forecast_.devices[d].used_bytes =
          peaks[d].bytes + DeviceReserveBytes(setup_);
    }
    return absl::OkStatus();
  }

  // How much longer, or shorter, than its simulated round a step is: shorter
  // at most by what every device waits at the round's end.
  int64_t DelayNs(const Plan& stages,
                  const std::vector<DeviceStepTime>& times) const {
    if (!OneRound()) {
      return UpdateDelayNs(forecast_.round, stages, setup_,
                           question_.host_rate);
    }
    int64_t waits_ns = std::numeric_limits<int64_t>::max();
    for (const DeviceStepTime& time : times) {
      waits_ns = std::min(waits_ns, time.bubble.end_of_step_ns);
    }
    return std::max(-waits_ns, found_step_ns_ - forecast_.round.MakespanNs());
  }

  void MeasureTimes(const Plan& stages) {
    const double rounds = static_cast<double>(forecast_.micro_batches) /
                          static_cast<double>(forecast_.round_micro_batches);
    const auto scaled = [rounds](int64_t ns) {
      return std::llround(rounds * static_cast<double>(ns));
    };
    const std::vector<DeviceStepTime> times = ExplainBubbles(forecast_.round);
    const int64_t delay_ns = DelayNs(stages, times);
    for (DeviceStepTime time : times) {
      time.compute_ns = scaled(time.compute_ns);
      BubbleCauses& bubble = time.bubble;
      bubble.fill_and_drain_ns = scaled(bubble.fill_and_drain_ns);
      bubble.weights_ns = scaled(bubble.weights_ns);
      bubble.gradients_ns = scaled(bubble.gradients_ns);
      bubble.end_of_step_ns = scaled(bubble.end_of_step_ns) + delay_ns;
      forecast_.bubble.Add(bubble);
      const size_t device = forecast_.devices.size();
      forecast_.devices.push_back({question_.devices[device], 0, time});
    }
    forecast_.step_ns = scaled(forecast_.round.MakespanNs()) + delay_ns;
    forecast_.tokens_per_step =
        question_.batch_sequences * setup_.sequence_tokens;
  }

  bool OneRound() const { return Rounds() == 1; }
  // The updates of a step of one round, as the daemon's UpdatesInOnePass:
  // weights are bf16.
  Updates StepUpdates() const {
    return setup_.clips ? Updates::kClipped : Updates::kOnePass;
  }

  // Its sum is kept, reduced and updated by itself.
  void AddEmbedding() {
    if (setup_.method != TrainingMethod::kFull) return;
    costs_.embedding_gradient_bytes = 2 * setup_.shape.embedding_parameters();
    costs_.tied_head = setup_.shape.tie_word_embeddings;
  }

  int RoundMicroBatches() const {
    return static_cast<int>(forecast_.round_micro_batches);
  }
  int64_t Rounds() const {
    return (forecast_.micro_batches + forecast_.round_micro_batches - 1) /
           forecast_.round_micro_batches;
  }

  const ForecastQuestion question_;
  TrainingSetup setup_;
  StepForecast forecast_;
  ModelCosts costs_;
  Machine machine_;
  int64_t found_step_ns_ = 0;  // by the search
};

}  // namespace

double StepForecast::tokens_per_second() const {
  if (step_ns == 0) return 0;
  return 1e9 * static_cast<double>(tokens_per_step) /
         static_cast<double>(step_ns);
}

double StepForecast::bubble_percent() const {
  if (step_ns == 0) return 0;
  const double whole =
      static_cast<double>(step_ns) * static_cast<double>(devices.size());
  return 100 * static_cast<double>(bubble.total_ns()) / whole;
}

absl::StatusOr<StepForecast> ForecastStep(const ForecastQuestion& question) {
  return Forecaster(question).Run();
}

}  // namespace roundhouse
