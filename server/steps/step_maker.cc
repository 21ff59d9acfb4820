#include "server/steps/step_maker.h"

#include <numeric>

#include "base/reduction.h"

namespace roundhouse {

StepMaker::StepMaker(const ResolvedSpec& spec, const Dataset& train,
                     const Dataset* validation)
    : spec_(spec),
      train_(train),
      validation_(validation),
      order_(train.counts().rows, spec.spec().batch_size,
             static_cast<uint64_t>(spec.spec().seed)) {}

uint64_t StepMaker::FirstVersion() {
  version_ = previous_version_ = next_pass_++;
  return version_;
}

StepEntry StepMaker::Make(const Dataset& data, const std::vector<int64_t>& rows,
                          int micro_batches) {
  const std::vector<MicroBatch> batches =
      CutMicroBatches(data, rows, spec_.micro_batch_size());
  StepEntry entry;
  StepData& step = entry.data;
  step.dataset = &data;
  step.recompute =
      spec_.spec().gradient_checkpointing == GradientCheckpointing::kLayer
          ? wire::Recompute::kLayer
          : wire::Recompute::kStage;
  for (const IndexRange& range :
       RoundRanges(static_cast<int64_t>(batches.size()), micro_batches)) {
    RoundData& round = step.rounds.emplace_back();
    round.pass = next_pass_++;
    round.micro_batches.assign(batches.begin() + range.begin,
                               batches.begin() + range.end);
    const auto groups = GroupRanges(range.size(), spec_.gradient_groups());
    round.group_count = static_cast<uint32_t>(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      round.groups.insert(round.groups.end(), groups[g].size(),
                          static_cast<uint32_t>(g));
    }
    for (const MicroBatch& batch : round.micro_batches) {
      for (int64_t row : batch.rows) {
        step.target_tokens += data.TargetTokens(row);
      }
    }
  }
  step.version = version_;
  return entry;
}

StepEntry StepMaker::Evaluate(int64_t completed, int micro_batches) {
  std::vector<int64_t> all(validation_->counts().rows);
  std::iota(all.begin(), all.end(), 0);
  StepEntry entry = Make(*validation_, all, micro_batches);
  entry.data.train = false;
  entry.data.step = completed;
  entry.data.reads_update = completed;
  return entry;
}

StepEntry StepMaker::Train(int64_t step, int micro_batches) {
  StepEntry entry = Make(train_, order_.Batch(step - 1), micro_batches);
  entry.data.train = true;
  entry.data.step = step;
  const bool stale = spec_.spec().optimizer_mode == OptimizerMode::kAsync;
  entry.data.reads_update = stale ? step - 2 : step - 1;
  if (stale) entry.data.version = previous_version_;
  previous_version_ = version_;
  version_ = next_pass_++;
  entry.data.next_version = version_;
  return entry;
}

}  // namespace roundhouse
