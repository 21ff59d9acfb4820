#include "server/planning/job_needs.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

constexpr uint64_t kHostBytes = 1 << 30;
constexpr HostRoom kRoomy = {2, kHostBytes};

HostNeed Need(const std::string& fields, const ModelConfig& model,
              uint64_t host_bytes = kHostBytes) {
  const auto spec = ParseJobSpec(
      absl::StrCat("model_name_or_path: m\ndataset: d\n", fields), "job.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  const ResolvedSpec resolved = ResolvedSpec::Resolve(*spec, 2);
  const auto plan = InitialPlan(resolved, model, {2, host_bytes}, {1 << 30});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return NeedOf(resolved, model, *plan, 32, {1, host_bytes});
}

// They are completed while nothing is loaded or saved.
TEST(JobNeedsTest, EvalPromptsAndTablesAreNotThereAtOnce) {
  ModelConfig model = TestModel(false);
  const HostNeed without = Need("", model);
  EXPECT_EQ(Need("eval_prompts: [a]", model).table_bytes, without.table_bytes);
  model.max_position_tokens = 1 << 17;
  const uint64_t one = ((1 << 17) + kEvalNewTokens) * sizeof(int32_t) + 64;
  EXPECT_EQ(Need("eval_prompts: [a, b]", model).table_bytes, 2 * one);
  EXPECT_EQ(Need("", model).table_bytes, without.table_bytes);
}

// A sum is needed between rounds, and until the norm is known.
TEST(JobNeedsTest, GradientSumsAreKeptWhereAnUpdateWaits) {
  const ModelConfig model = TestModel(false);
  const auto state = [&](const std::string& fields) {
    return Need(absl::StrCat("bf16: true\nmicro_batch_size: 2\n", fields),
                model)
        .state_bytes;
  };
  const uint64_t clipped = state("");
  const uint64_t one_pass = state("max_grad_norm: 0");
  uint64_t without = 0;  // parameters whose sums are gone: not the embedding's
  const std::vector<UnitSpec> units = ModelUnits(model);
  for (size_t unit = 1; unit < units.size(); ++unit) {
    without += units[unit].element_count;
  }
  EXPECT_EQ(clipped - one_pass, 4 * without);
  EXPECT_EQ(state("max_grad_norm: 0\noptimizer_mode: async") -
                state("max_grad_norm: 0"),
            state("optimizer_mode: async") - clipped);
  EXPECT_EQ(state("max_grad_norm: 0\nmicro_batches_per_round: 2"), clipped);
  const auto fp16 = [&](const char* clip) {
    return Need(absl::StrCat("fp16: true\nmax_grad_norm: ", clip), model)
        .state_bytes;
  };
  EXPECT_EQ(fp16("0"), fp16("1"));
}

// What is planned for is what will run.
TEST(JobNeedsTest, TheSimulatorHasTheUpdatesOfTheJob) {
  const auto updates = [](const std::string& fields) {
    const auto spec = ParseJobSpec(
        absl::StrCat("model_name_or_path: m\ndataset: d\nbatch_size: 16\n"
                     "micro_batch_size: 2\n",
                     fields),
        "job.yaml");
    EXPECT_TRUE(spec.ok()) << spec.status();
    return UpdatesOf(ResolvedSpec::Resolve(*spec, 2));
  };
  EXPECT_EQ(updates(""), Updates::kClipped);
  EXPECT_EQ(updates("max_grad_norm: 0"), Updates::kOnePass);
  EXPECT_EQ(updates("max_grad_norm: 0\nmicro_batches_per_round: 4"),
            Updates::kAsReduced);
  EXPECT_EQ(updates("max_grad_norm: 0\nfp16: true"), Updates::kClipped);
  const std::string async = "\noptimizer_mode: async";
  EXPECT_EQ(updates("max_grad_norm: 1" + async), Updates::kStale);
  EXPECT_EQ(updates("max_grad_norm: 0" + async), Updates::kOnePassStale);
  EXPECT_EQ(updates("max_grad_norm: 0\nmicro_batches_per_round: 4" + async),
            Updates::kStale);
}

// The next step's slot runs while updates hold the blocks of the one before.
TEST(JobNeedsTest, OneStageInOnePassHasBlocksForTwoSteps) {
  const auto bytes = [](const char* clip) {
    return Need(absl::StrCat("micro_batch_size: 2\nmax_grad_norm: ", clip,
                             "\nplan: {forward: [], backward: [[0, 3]]}"),
                TestModel(false))
        .contribution_bytes;
  };
  EXPECT_EQ(bytes("0"), 2 * bytes("1"));
}

constexpr char kWideJob[] =
    "batch_size: 16\nmicro_batch_size: 2\ngradient_groups: 8\n"
    "plan: {forward: [[0, 1]], backward: [[2, 3], [0, 1]]";

absl::Status Widths(const std::string& fields, int devices) {
  const auto spec = ParseJobSpec(
      absl::StrCat("model_name_or_path: m\ndataset: d\n", fields), "job.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  const ResolvedSpec resolved = ResolvedSpec::Resolve(*spec, devices);
  return CheckWidths(resolved, devices);
}

// Down to the running slot and the next.
TEST(JobNeedsTest, WithLittleRoomFewerSlotsAreSentAhead) {
  const ModelConfig model = TestModel(false, 40);
  constexpr char kFields[] =
      "gradient_accumulation_steps: 8\nmicro_batch_size: 1\nmax_length: 32\n"
      "saved_inputs: all\nplan: {forward: [[0, 9], [10, 19], [20, 29]], "
      "backward: [[30, 40], "
      "[20, 29], [10, 19], [0, 9]]}";
  const HostNeed most = Need(kFields, model);
  const auto least = Need(kFields, model, 0);
  EXPECT_EQ(least.boundary_tensors, 7);  // four inputs, two outputs, and one
  EXPECT_GT(most.boundary_tensors, least.boundary_tensors);
  const uint64_t tensor = (most.buffer_bytes - least.buffer_bytes) /
                          (most.boundary_tensors - least.boundary_tensors);
  constexpr uint64_t kAllowance = 1 << 20;
  const auto with = [&](int64_t bytes) {
    return Need(kFields, model, most.total() + kAllowance + bytes)
        .boundary_tensors;
  };
  EXPECT_EQ(with(0), most.boundary_tensors);
  EXPECT_EQ(with(-1), most.boundary_tensors - 1);
  EXPECT_EQ(with(-static_cast<int64_t>(tensor)), most.boundary_tensors - 1);
  EXPECT_EQ(with(-3 * static_cast<int64_t>(tensor)), least.boundary_tensors);
}

constexpr char kManyStages[] =
    "model_name_or_path: m\ndataset: d\ngradient_accumulation_steps: 8\n"
    "micro_batch_size: 1\nmax_length: 4096\ngradient_groups: 4\n"
    "plan: {forward: [[0, 2], [3, 5], "
    "[6, 8]], forward_width: [1, 2, 2], backward: [[9, 9], [8, 8], [7, 7], "
    "[6, 6], [5, 5], [4, 4], [3, 3], [2, 2], [1, 1], [0, 0]]}\n";

// As few as there must be.
TEST(JobNeedsTest, WithLessRoomFewerInputsAreKept) {
  const ModelConfig model = TestModel(false, 9);
  const auto plan_of = [&model](const std::string& more, uint64_t bytes) {
    const auto spec = ParseJobSpec(absl::StrCat(kManyStages, more), "job.yaml");
    EXPECT_TRUE(spec.ok()) << spec.status();
    const ResolvedSpec resolved = ResolvedSpec::Resolve(*spec, 2);
    const HostRoom room = {2, bytes};
    const auto plan = InitialPlan(resolved, model, room, {1 << 30});
    EXPECT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(CheckPlan(*plan, 10), absl::OkStatus());
    return std::pair(*plan, NeedOf(resolved, model, *plan, 4096, room).total());
  };
  const auto [all, least_of_all] = plan_of("saved_inputs: all", 0);
  EXPECT_EQ(all.saving.every, 1);
  EXPECT_EQ(plan_of("", kHostBytes).first, all);
  EXPECT_EQ(plan_of("", least_of_all).first, all);
  const auto [fewer, need] = plan_of("", least_of_all - 1);
  EXPECT_EQ(fewer.saving.every, 2);
  EXPECT_EQ(fewer.saving.groups, 1);
  EXPECT_LT(need, least_of_all);
  // What runs again is as wide as the first time.
  const std::vector<PlanSlot> slots = SlotsOf(fewer);
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (!slots[slot].again) continue;
    EXPECT_EQ(fewer.split[slot].size(), slots[slot].layers.first < 3 ? 1u : 2u);
  }
  const auto [fewest, fewest_need] = plan_of("", 0);
  EXPECT_GT(fewest.saving.every, 1);
  EXPECT_GT(fewest.saving.groups, 1);
  EXPECT_LT(fewest_need, need);
  EXPECT_EQ(plan_of("saved_inputs: every 5", kHostBytes).first.saving.every, 5);
}

TEST(JobNeedsTest, AWidePlanNeedsASumOfEachPart) {
  const ModelConfig model = TestModel(false);
  const HostNeed narrow = Need(absl::StrCat(kWideJob, "}"), model);
  const HostNeed wide = Need(absl::StrCat(kWideJob, ", width: 2}"), model);
  EXPECT_EQ(wide.contribution_bytes, 2 * narrow.contribution_bytes);
  EXPECT_EQ(wide.state_bytes, narrow.state_bytes);
  // With slots in two parts fewer are with devices.
  EXPECT_LE(wide.buffer_bytes, narrow.buffer_bytes);
  // Forward slots have none.
  EXPECT_EQ(Need(absl::StrCat(kWideJob, ", forward_width: [8]}"), model)
                .contribution_bytes,
            narrow.contribution_bytes);
  // Two of each part, of the stage with layers 0 and 1 only.
  const HostNeed part =
      Need(absl::StrCat(kWideJob, ", backward_width: [1, [3, 5]]}"), model);
  const uint64_t layer =
      ContributedUnits(model, {})[0].elements * sizeof(float);
  EXPECT_EQ(part.contribution_bytes - narrow.contribution_bytes, 2 * 3 * layer);
}

TEST(JobNeedsTest, FastJobsHaveContributionsInTheModelsDType) {
  struct Case {
    const char* fields;
    DType dtype;
  };
  for (const auto& [fields, dtype] :
       {Case{"determinism: fast", DType::kF32},
        Case{"determinism: fast\nbf16: true", DType::kBF16},
        Case{"determinism: fast\nfp16: true", DType::kF16},
        Case{"determinism: bitwise\nbf16: true", DType::kF32},
        Case{"bf16: true", DType::kF32},
        Case{"determinism: fast\nbf16: true\nmethod: lora", DType::kF32}}) {
    const auto spec = ParseJobSpec(
        absl::StrCat("model_name_or_path: m\ndataset: d\n", fields), "job");
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(ContributionDType(ResolvedSpec::Resolve(*spec, 2)), dtype)
        << fields;
  }
  EXPECT_EQ(UsualDeterminism({1 << 30, true}), Determinism::kFast);
  EXPECT_EQ(UsualDeterminism({1 << 30, false}), Determinism::kBitwise);
}

ModelDirectory FilesIn(const std::vector<std::pair<DType, uint64_t>>& sources) {
  ModelDirectory model;
  model.config.max_position_tokens = 256;
  for (const auto& [dtype, bytes] : sources) {
    model.sources.push_back({{.bytes = bytes, .dtype = dtype}});
  }
  return model;
}

TEST(JobNeedsTest, DtypeAndLengthComeFromTheModelsFiles) {
  using D = DType;
  EXPECT_EQ(UsualDtype(FilesIn({{D::kBF16, 100}})), DType::kBF16);
  EXPECT_EQ(UsualDtype(FilesIn({{D::kF16, 100}})), DType::kBF16);
  EXPECT_EQ(UsualDtype(FilesIn({{D::kF32, 100}})), DType::kF32);
  // By numbers, not by bytes.
  EXPECT_EQ(UsualDtype(FilesIn({{D::kF32, 120}, {D::kBF16, 100}})),
            DType::kBF16);
  EXPECT_EQ(UsualDtype(FilesIn({{D::kF32, 240}, {D::kF16, 100}})), DType::kF32);
  ModelDirectory none = FilesIn({});
  EXPECT_EQ(UsualDtype(none), DType::kF32);
  none.config.dtype = D::kBF16;
  EXPECT_EQ(UsualDtype(none), DType::kBF16);
  EXPECT_EQ(DefaultsOf(none, {1 << 30, true}).max_length, 256);
  none.config.max_position_tokens = 40'960;
  EXPECT_EQ(DefaultsOf(none, {1 << 30, true}).max_length, kUsualMaxLength);
}

TEST(JobNeedsTest, AFastJobNeedsHalfTheBytesForContributions) {
  const ModelConfig model = TestModel(false);
  const HostNeed bitwise = Need("bf16: true", model);
  const HostNeed fast = Need("bf16: true\ndeterminism: fast", model);
  EXPECT_EQ(2 * fast.contribution_bytes, bitwise.contribution_bytes);
  EXPECT_EQ(bitwise.total() - fast.total(), fast.contribution_bytes);
}

TEST(JobNeedsTest, WidthsBecomeTheSplitOfThePlan) {
  const auto spec = ParseJobSpec(
      absl::StrCat("model_name_or_path: m\ndataset: d\n", kWideJob,
                   ", forward_width: 3, backward_width: [[3, 5], 8]}"),
      "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto plan = InitialPlan(ResolvedSpec::Resolve(*spec, 2),
                                TestModel(false), kRoomy, {1 << 30});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->split, (std::vector<std::vector<int>>{
                             {3, 3, 2}, {3, 5}, {1, 1, 1, 1, 1, 1, 1, 1}}));
}

// The published planner does not know what computes a stage.
TEST(JobNeedsTest, OfLongRowsStagesAreCutUntilTheirWorkFits) {
  const auto spec = ParseJobSpec(
      "model_name_or_path: m\ndataset: d\nbatch_size: 8\nmax_length: 4096\n"
      "micro_batch_size: 1\n",
      "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const ResolvedSpec resolved = ResolvedSpec::Resolve(*spec, 2);
  ModelConfig model = TestModel(false, 12);
  model.vocab_size = 2000;  // a head of many layers' cost
  const auto limits = [&](const DeviceRoom& device) {
    return PlanLimits(LimitsOf(resolved, model, 4096, 2, device));
  };
  DeviceRoom device = {uint64_t{1} << 30, true};
  const auto roomy = InitialPlan(resolved, model, kRoomy, device);
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  ASSERT_EQ(limits(device).CheckSlots(*roomy), absl::OkStatus());
  device.bytes = limits(device).LargestSlotBytes(*roomy) - 1;
  const auto cut = InitialPlan(resolved, model, kRoomy, device);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(limits(device).CheckSlots(*cut), absl::OkStatus());
  EXPECT_GT(cut->backward.size(), roomy->backward.size());
  // Not even single layers fit.
  device.bytes = 4 << 20;
  const auto large = InitialPlan(resolved, model, kRoomy, device);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_TRUE(absl::IsResourceExhausted(limits(device).CheckSlots(*large)));
  device.with_libraries = false;
  EXPECT_EQ(InitialPlan(resolved, model, kRoomy, device)->backward.size(),
            roomy->backward.size());
}

// gradient_groups is a limit: four micro-batches are four groups.
TEST(JobNeedsTest, AStepOfFewMicroBatchesIsSplitByWhatItHas) {
  const auto spec = ParseJobSpec(
      "model_name_or_path: m\ndataset: d\nbatch_size: 8\n"
      "micro_batch_size: 2\nmicro_batches_per_round: 8\ngradient_groups: 8\n"
      "plan: {forward: [], backward: [[0, 3]], backward_width: [[3, 5]]}",
      "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto plan = InitialPlan(ResolvedSpec::Resolve(*spec, 2),
                                TestModel(false), kRoomy, {1 << 30});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->split, (std::vector<std::vector<int>>{{2, 2}}));
}

TEST(JobNeedsTest, AWidthBeyondTheDevicesIsRefusedByName) {
  EXPECT_TRUE(Widths(absl::StrCat(kWideJob, ", width: 4}"), 4).ok());
  EXPECT_EQ(Widths(absl::StrCat(kWideJob, ", width: 4}"), 3).message(),
            "plan: forward_width[0] is 4 devices wide; this server has 3");
  EXPECT_EQ(
      Widths(absl::StrCat(kWideJob, ", backward_width: [2, [2, 3, 3]]}"), 2)
          .message(),
      "plan: backward_width[1] is 3 devices wide; this server has 2");
}

}  // namespace
}  // namespace roundhouse
