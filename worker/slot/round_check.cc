#include "worker/slot/round_check.h"

#include "gtest/gtest.h"

namespace roundhouse::worker {

namespace {

// Adapters of every other matrix, with dropout, on packed rows of a bf16 model.
RoundShape WithAdapters(RoundShape shape, bool tied) {
  shape.adapter = {
      .rank = 3, .alpha = 6, .dropout = 0.25, .targets = 0b1010101};
  shape.packed = true;
  shape.dtype = DType::kBF16;
  shape.tied = tied;
  shape.name += "_lora_packed_bf16";
  if (tied) {
    shape.recompute = wire::Recompute::kLayer;
    shape.name += "_tied_layer";
  }
  return shape;
}

}  // namespace

std::vector<RoundShape> AllRoundShapes() {
  using wire::Recompute;
  const std::vector<Stage> pairs = {{0, 1}, {2, 3}};
  std::vector<RoundShape> shapes = {
      {{{0, 1}}, {{2, 4}, {0, 1}}, 4, 2},
      {{{0, 3}}, {{4, 4}, {2, 3}, {0, 1}}, 5, 3},
      {{}, {{0, 4}}, 3, 1},
      {pairs, {{4, 4}, {3, 3}, {1, 2}, {0, 0}}, 7, 7},
      {{{0, 0}, {1, 2}}, {{3, 4}, {0, 2}}, 6, 6, 2},
      {pairs, {{4, 4}, {0, 3}}, 1, 1},
      {{{0, 0}, {1, 1}, {2, 2}, {3, 3}},
       {{4, 4}, {3, 3}, {2, 2}, {1, 1}, {0, 0}},
       4,
       3,
       1},
  };
  const char* const names[] = {"two",    "head_alone", "all_fused",    "uneven",
                               "halves", "one_batch",  "single_layers"};
  for (size_t i = 0; i < shapes.size(); ++i) shapes[i].name = names[i];
  const size_t count = shapes.size();
  for (size_t i = 0; i < count; ++i) {
    RoundShape variant = shapes[i];
    variant.dtype = DType::kBF16;
    variant.recompute = Recompute::kLayer;
    variant.tied = true;
    variant.name += "_bf16_tied_layer";
    shapes.push_back(variant);
  }
  for (size_t i = 0; i < count; ++i) {
    shapes.push_back(WithAdapters(shapes[i], i % 2 == 1));
  }
  // One sum of all groups, and several, in both dtypes.
  for (const size_t i : {size_t{1}, size_t{3}, size_t{4}, count - 1}) {
    RoundShape variant = shapes[i];
    variant.dtype = i % 2 == 0 ? DType::kBF16 : DType::kF16;
    variant.contribution_dtype = variant.dtype;
    variant.name += std::string("_rounded_") + DTypeName(variant.dtype);
    shapes.push_back(variant);
  }
  return shapes;
}

std::vector<RoundShape> ExpertRoundShapes() {
  std::vector<RoundShape> shapes;
  size_t i = 0;
  for (RoundShape shape : AllRoundShapes()) {
    // Every third: all partitions, dtypes, recompute modes, adapters.
    if (i++ % 3 != 0) continue;
    shape.experts = true;
    // Experts have none.
    shape.adapter.targets &= kAttentionTargets;
    shape.name += "_experts";
    shapes.push_back(shape);
  }
  return shapes;
}

void CheckWholeRound(const RoundShape& shape, int devices,
                     const StageRunFactory& make_run,
                     const TestWorkerOptions& options, const RoundLook& look) {
  SlotTestJob job(ConfigOf(shape), shape, 11);
  const SlotTestJob::Reference reference = job.ComputeReference(make_run);
  std::vector<std::unique_ptr<TestWorker>> workers;
  for (int i = 0; i < devices; ++i) {
    TestWorkerOptions one = options;
    one.runner.make_run = make_run;
    workers.push_back(std::make_unique<TestWorker>(job, i, one));
  }
  job.RaiseVersions();
  for (uint64_t pass = 1; pass <= 2; ++pass) {
    SCOPED_TRACE("pass " + std::to_string(pass));
    const std::vector<wire::RunSlot> slots = job.MakeRound(pass, pass * 100);
    // One round finds its inputs there, the other one waits for them.
    if (pass == 1) job.RaiseInputs();
    std::thread host;
    if (pass == 2) host = std::thread([&job] { job.RaiseInputs(); });
    const auto done = RunSlots(workers, slots);
    if (host.joinable()) host.join();
    ASSERT_EQ(done.size(), slots.size());
    job.CheckRound(slots, done, reference);
    if (look != nullptr) look(job, slots);
  }
}

}  // namespace roundhouse::worker
