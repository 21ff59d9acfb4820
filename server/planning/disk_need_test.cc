#include "server/planning/disk_need.h"

#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/planning/job_needs.h"
#include "server/spec/spec_error.h"
#include "server/testing/test_model.h"
#include "server/weights/file_table.h"

namespace roundhouse {
namespace {

JobSpec Spec(const std::string& fields) {
  return *ParseJobSpec(
      absl::StrCat("model_name_or_path: m\ndataset: d\n", fields), "job");
}

TEST(DiskNeedTest, IsWhatTheFilesHold) {
  for (const bool tied : {false, true}) {
    for (const char* method : {"full", "lora"}) {
      for (const std::string rest :
           {"fp32", "bf16", "bf16\noptimizer_mode: async"}) {
        const ResolvedSpec spec = ResolvedSpec::Resolve(
            Spec(absl::StrCat("max_steps: 1\nmethod: ", method,
                              "\ndtype: ", rest, "\n")),
            2);
        TrainingStateOptions options = TestStateOptions(tied, spec.dtype());
        options.adapter = spec.adapter();
        options.stale = absl::StrContains(rest, "async");
        const auto arena = *HostArena::Create(64 << 20, 3);
        const auto state = MakeTestState(*arena, options);
        const SavedState saved = SavedStateOf(*state, 0);
        const uint64_t weights = TrainedFiles(saved, "/d")->total_bytes;
        const uint64_t optimizer = OptimizerFiles(saved, "/d")->total_bytes;
        const DiskNeed need = DiskNeedOf(spec, options.model, 0);
        EXPECT_EQ(need.export_bytes, weights);
        EXPECT_EQ(need.checkpoint_bytes, weights + optimizer);
        EXPECT_EQ(need.checkpoint_count, 1);
        EXPECT_EQ(need.total_bytes(), 2 * weights + optimizer);
      }
    }
  }
}

struct CountCase {
  const char* fields;
  int64_t start_step;
  int64_t count;
};

TEST(CheckpointsAtOnceTest, AsTheSpecSays) {
  const std::string best =
      "validation_dataset: v\neval_steps: 1\nload_best_model_at_end: true\n";
  const CountCase cases[] = {
      {"max_steps: 10\nsave_steps: 0\n", 0, 1},
      {"max_steps: 10\nsave_steps: 3\n", 0, 4},  // 3, 6, 9, 10
      {"max_steps: 9\nsave_steps: 3\n", 0, 3},   // 3, 6, 9
      {"max_steps: 10\nsave_steps: 3\n", 6, 2},  // 9, 10
      {"max_steps: 10\nsave_steps: 3\n", 7, 2},
      {"max_steps: 10\nsave_steps: 1\nsave_total_limit: 2\n", 0, 3},
      {"max_steps: 10\nsave_steps: 5\nsave_total_limit: 7\n", 0, 2},
      {"num_train_epochs: 2\nsave_total_limit: 7\n", 0, 8},
      {"num_train_epochs: 2\nsave_total_limit: 7\nsave_steps: 0\n", 0, 1},
      {"num_train_epochs: 2\n", 0, 1}};
  for (const CountCase& c : cases) {
    EXPECT_EQ(CheckpointsAtOnce(Spec(c.fields), c.start_step), c.count)
        << c.fields;
    EXPECT_EQ(CheckpointsAtOnce(Spec(c.fields + best), c.start_step),
              c.count + 1)
        << c.fields;
  }
}

TEST(DiskNeedTest, TooManyBytesToCountAreTheMost) {
  const DiskNeed need = {.checkpoint_bytes = uint64_t{1} << 40,
                         .checkpoint_count = int64_t{1} << 30,
                         .export_bytes = 1};
  EXPECT_EQ(need.total_bytes(), std::numeric_limits<uint64_t>::max());
}

TEST(CheckDiskTest, AllOfItMustFit) {
  const DiskNeed need = {
      .checkpoint_bytes = 70, .checkpoint_count = 2, .export_bytes = 20};
  EXPECT_TRUE(CheckDisk(need, 160, "/d").ok());
  const absl::Status status = CheckDisk(need, 159, "/d");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(ErrorReason(status), FieldReason::kStorageFull);
  const std::string text(status.message());
  for (const char* part :
       {"needs 160 bytes", "2 checkpoints at once of 70",
        "20 bytes of its result", "159 bytes are free in /d"}) {
    EXPECT_TRUE(absl::StrContains(text, part)) << text;
  }
}

}  // namespace
}  // namespace roundhouse
