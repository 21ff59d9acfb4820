#include "worker/model/sequential_gradient.h"

#include <algorithm>
#include <cstddef>

#include "base/convert.h"
#include "base/log.h"

namespace roundhouse::worker {
namespace {

void AddTo(const float* from, int64_t count, float* into) {
  for (int64_t i = 0; i < count; ++i) into[i] += from[i];
}

void CopyOrAdd(bool copy, const float* from, int64_t count, float* into) {
  if (copy) {
    std::copy_n(from, count, into);
  } else {
    AddTo(from, count, into);
  }
}

}  // namespace

SequentialGradient::SequentialGradient(const ModelConfig& config,
                                       const AdapterConfig& adapter,
                                       const std::vector<UnitSpec>& units)
    : tied_(config.tie_word_embeddings),
      adapters_only_(adapter.present()),
      layer_count_(config.layer_count),
      hidden_(config.hidden_size),
      units_(&units) {
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const bool trains =
        IsTrainable(config, adapter, static_cast<int64_t>(unit));
    dense_.emplace_back(
        trains ? static_cast<size_t>(units[unit].element_count) : 0, 0.0f);
  }
}

SequentialGradient::Place SequentialGradient::PlaceOf(int64_t layer,
                                                      ParamRole role) const {
  const bool is_head = layer == layer_count_ && role == ParamRole::kLmHead;
  if (is_head && tied_ && !adapters_only_) return {};
  const size_t unit = static_cast<size_t>(
      adapters_only_ ? layer_count_ + 2 + layer : 1 + layer);
  ROUNDHOUSE_CHECK(unit < units_->size()) << "layer " << layer;
  for (const ParameterSpec& parameter : (*units_)[unit].parameters) {
    if (parameter.role == role) return {unit, parameter.unit_offset_elements};
  }
  ROUNDHOUSE_CHECK(false) << "layer " << layer << " has no role "
                          << static_cast<uint32_t>(role);
  return {};
}

void SequentialGradient::OnGradient(int64_t layer, ParamRole role,
                                    const float* fp32, int64_t element_count) {
  const Place place = PlaceOf(layer, role);
  CopyOrAdd(micro_batches_ == 1, fp32, element_count,
            dense_[place.unit].data() + place.offset);
}

void SequentialGradient::AddEmbeddingTokens(const int32_t* tokens,
                                            int64_t count,
                                            const float* gradient) {
  for (int64_t i = 0; i < count; ++i) {
    const float* addend = gradient + i * hidden_;
    const auto [row, is_new] = embedding_rows_.try_emplace(tokens[i]);
    if (is_new) row->second.resize(static_cast<size_t>(hidden_));
    CopyOrAdd(is_new, addend, hidden_, row->second.data());
  }
}

void SequentialGradient::Add(const SequentialGradient& right) {
  for (size_t unit = 0; unit < dense_.size(); ++unit) {
    AddTo(right.dense_[unit].data(), static_cast<int64_t>(dense_[unit].size()),
          dense_[unit].data());
  }
  for (const auto& [token, addend] : right.embedding_rows_) {
    const auto [row, is_new] = embedding_rows_.try_emplace(token, addend);
    if (!is_new) AddTo(addend.data(), hidden_, row->second.data());
  }
}

void SequentialGradient::Round(int unit, DType dtype) {
  AlignedVector<float>& sum = dense_[static_cast<size_t>(unit)];
  AlignedVector<std::byte> rounded(sum.size() * DTypeBytes(dtype));
  FromF32(dtype, sum.data(), rounded.data(), sum.size());
  ToF32(dtype, rounded.data(), sum.data(), sum.size());
}

void SequentialGradient::AddTiedRows() {
  if (!tied_) return;
  for (const auto& [token, row] : embedding_rows_) {
    AddTo(row.data(), hidden_, dense_[0].data() + token * hidden_);
  }
  embedding_rows_.clear();
}

void SequentialGradient::DensifyEmbedding() {
  for (const auto& [token, row] : embedding_rows_) {
    std::copy_n(row.data(), hidden_, dense_[0].data() + token * hidden_);
  }
  embedding_rows_.clear();
}

}  // namespace roundhouse::worker
