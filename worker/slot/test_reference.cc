// What a round must leave behind, computed without slots.
#include <algorithm>

#include "base/convert.h"
#include "gtest/gtest.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

// Adds each gradient it gets to the unit's place for it.
class UnitGradients : public GradientSink {
 public:
  UnitGradients(const ModelConfig& config, const AdapterConfig& adapter,
                const std::vector<UnitSpec>& units)
      : config_(config), adapter_(adapter), units_(units) {
    for (const UnitSpec& unit : units) {
      sums.emplace_back(static_cast<size_t>(unit.element_count), 0.0f);
    }
  }

  void OnGradient(int64_t layer, ParamRole role, const float* fp32,
                  int64_t element_count) override {
    for (int u : TrainingUnitsOfLayer(config_, adapter_, layer)) {
      for (const ParameterSpec& spec :
           units_[static_cast<size_t>(u)].parameters) {
        const bool tied =
            spec.role == ParamRole::kEmbedding && role == ParamRole::kLmHead;
        if (spec.role != role && !tied) continue;
        ASSERT_TRUE(IsTrainable(config_, adapter_, u)) << spec.name;
        ASSERT_EQ(spec.element_count, element_count);
        std::copy(
            fp32, fp32 + element_count,
            sums[static_cast<size_t>(u)].begin() + spec.unit_offset_elements);
      }
    }
  }

  std::vector<std::vector<float>> sums;

 private:
  const ModelConfig& config_;
  const AdapterConfig& adapter_;
  const std::vector<UnitSpec>& units_;
};

}  // namespace

SlotTestJob::Reference SlotTestJob::ComputeReference(
    const StageRunFactory& make_run) const {
  Reference reference;
  const int64_t head = config_.layer_count;
  for (size_t m = 0; m < inputs_.size(); ++m) {
    UnitGradients sink(config_, shape_.adapter, units_);
    auto run = *make_run({.config = config_,
                          .adapter = shape_.adapter,
                          .dtype = shape_.dtype,
                          .rows = kRows,
                          .row_tokens = kRowTokens,
                          .keep = Keep::kStage,
                          .train = true,
                          .seed = kJobSeed,
                          .step = kStep,
                          .micro_batch = m});
    const wire::BufferRef copy = {0, activation_bytes()};
    std::string bytes(copy.bytes, '\0');
    EXPECT_TRUE(run->SetInput(arena_->Bytes(inputs_[m])).ok());
    if (shape_.packed) {
      EXPECT_TRUE(run->SetPositions(positions(m)).ok());
    }
    for (int64_t layer = 0; layer < head; ++layer) {
      EXPECT_TRUE(run->ForwardLayer(layer, Weights(layer)).ok());
      EXPECT_TRUE(run->CopyOutput(bytes.data()).ok());
      reference.activations[{static_cast<uint32_t>(layer + 1), m}] = bytes;
    }
    reference.results.push_back(
        *run->Head(Weights(head),
                   arena_->At<int32_t>(labels_[m].offset, kRows * kRowTokens),
                   HeadMode::kLossAndGradient, loss_scale(), &sink));
    for (int64_t layer = head - 1; layer >= 0; --layer) {
      EXPECT_TRUE(run->BackwardLayer(layer, &sink).ok());
    }
    EXPECT_TRUE(run->CopyInputGradient(bytes.data()).ok());
    reference.input_gradients[m] = bytes;
    reference.gradients.push_back(std::move(sink.sums));
  }
  return reference;
}

std::vector<float> SlotTestJob::GroupSum(const Reference& reference,
                                         uint32_t unit, int64_t group) const {
  const IndexRange range = GroupRanges(
      shape_.micro_batches, shape_.groups)[static_cast<size_t>(group)];
  std::vector<float> sum =
      reference.gradients[static_cast<size_t>(range.begin)][unit];
  for (int64_t m = range.begin + 1; m < range.end; ++m) {
    const auto& addend = reference.gradients[static_cast<size_t>(m)][unit];
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
  }
  return sum;
}

std::vector<float> SlotTestJob::TreeSum(const Reference& reference,
                                        uint32_t unit,
                                        IndexRange groups) const {
  if (groups.size() == 1) return GroupSum(reference, unit, groups.begin);
  int64_t split = 1;
  while (split * 2 < groups.size()) split *= 2;
  std::vector<float> sum =
      TreeSum(reference, unit, {groups.begin, groups.begin + split});
  const std::vector<float> right =
      TreeSum(reference, unit, {groups.begin + split, groups.end});
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

std::string SlotTestJob::ExpectedSum(const Reference& reference, uint32_t unit,
                                     IndexRange groups) const {
  const std::vector<float> sum = TreeSum(reference, unit, groups);
  const DType dtype = shape_.contribution_dtype;
  std::string bytes(sum.size() * DTypeBytes(dtype), '\0');
  FromF32(dtype, sum.data(), bytes.data(), sum.size());
  return bytes;
}

void SlotTestJob::CheckRound(const std::vector<wire::RunSlot>& slots,
                             const std::map<uint64_t, wire::SlotDone>& done,
                             const Reference& reference) const {
  for (const wire::RunSlot& slot : slots) {
    SCOPED_TRACE("slot " + std::to_string(slot.slot));
    for (const wire::SlotOutput& output : slot.outputs) {
      EXPECT_EQ(WordValue(output.raise), output.raise.value);
      const auto at =
          std::make_pair(output.boundary, size_t{output.micro_batch});
      if (output.kind == wire::OutputKind::kActivation) {
        EXPECT_TRUE(Bytes(output.buffer) == reference.activations.at(at))
            << "boundary " << output.boundary << " micro-batch "
            << output.micro_batch;
      } else if (output.boundary == 0) {
        EXPECT_TRUE(Bytes(output.buffer) ==
                    reference.input_gradients.at(at.second))
            << "micro-batch " << output.micro_batch;
      }
    }
    for (const wire::SlotContribution& given : slot.contributions) {
      EXPECT_TRUE(Bytes(given.buffer) ==
                  ExpectedSum(reference, given.unit,
                              {given.first_group,
                               given.first_group + given.group_count}))
          << "unit " << given.unit << " groups from " << given.first_group;
    }
    if (slot.kind != SlotKind::kFused) continue;
    const auto& results = done.at(slot.slot).results;
    ASSERT_EQ(results.size(), reference.results.size());
    for (size_t m = 0; m < results.size(); ++m) {
      EXPECT_EQ(results[m].loss_sum, reference.results[m].loss_sum);
      EXPECT_EQ(results[m].target_tokens,
                static_cast<uint64_t>(reference.results[m].target_tokens));
    }
  }
}

}  // namespace roundhouse::worker
