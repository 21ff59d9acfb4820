// The weights that a sample reads, in the host arena: a frozen base, which jobs
// and other samples share, and adapters where there are some, with the layout
// table that device workers read (base/wire/layout.h).
//
// Nobody writes them once they are loaded: all version words stand at
// kBaseVersion from then on.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_SAMPLE_SAMPLING_STATE_H_
#define ROUNDHOUSE_SERVER_SAMPLE_SAMPLING_STATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/directory.h"
#include "base/model/parameters.h"
#include "base/wire/commands.h"
#include "server/arena/host_arena.h"
#include "server/weights/base_weights.h"
#include "server/weights/file_table.h"

namespace roundhouse {

struct SamplingStateOptions {
  uint64_t job = 0;
  ModelConfig model;
  AdapterConfig adapter;      // not present(): none
  DType dtype = DType::kF32;  // of the model's weights and of activations
};

// RunSample::units: those of every layer, where the word of each stands at what
// `version` gives.
std::vector<wire::SlotUnit> SampleUnits(
    const ModelConfig& model, const AdapterConfig& adapter,
    const std::function<wire::BufferRef(int unit)>& weights,
    const std::function<wire::WordRef(int unit)>& version);

class SamplingState {
 public:
  // `base` is of the model and dtype.  Shared, because jobs and the cache hold
  // it too.  RESOURCE_EXHAUSTED as HostArena::Allocate.
  static absl::StatusOr<std::unique_ptr<SamplingState>> Create(
      HostArena& arena, const SamplingStateOptions& options,
      std::shared_ptr<BaseWeights> base);

  uint64_t layout_offset() const { return range_.offset(); }
  uint64_t host_bytes() const { return range_.bytes(); }  // without the base
  BaseWeights& base() const { return *base_; }
  const SamplingStateOptions& options() const { return options_; }
  std::vector<wire::SlotUnit> units() const;

  // What to read from where: sources as ModelDirectory and AdapterDirectory
  // have them.
  std::vector<FilePart> BaseParts(
      const std::vector<std::vector<ParameterSource>>& sources) const;
  std::vector<FilePart> AdapterParts(
      const std::vector<std::vector<ParameterSource>>& sources) const;
  // The adapters are loaded.  REQUIRES: called once, where there are some.
  void PublishAdapters();

 private:
  SamplingState(HostArena& arena, const SamplingStateOptions& options,
                std::shared_ptr<BaseWeights> base)
      : arena_(arena), options_(options), base_(std::move(base)) {}

  uint64_t Place(uint64_t offset);
  std::vector<FilePart> Parts(
      const std::vector<std::vector<ParameterSource>>& sources,
      size_t first_unit) const;
  size_t model_units() const {
    return static_cast<size_t>(options_.model.layer_count) + 2;
  }

  HostArena& arena_;
  const SamplingStateOptions options_;
  const std::shared_ptr<BaseWeights> base_;
  std::vector<UnitSpec> units_;
  std::vector<wire::UnitLayout> layouts_;
  std::vector<wire::ParameterLayout> parameters_;
  wire::JobLayout job_layout_ = {};
  ArenaRange range_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SAMPLE_SAMPLING_STATE_H_
