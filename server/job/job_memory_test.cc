#include "server/job/job_memory.h"

#include "absl/strings/match.h"
#include "base/wire/words.h"
#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

class JobMemoryTest : public JobPartsTest {};

TEST_F(JobMemoryTest, WhatIsTakenIsGivenBack) {
  Prepare("max_steps: 1");
  const uint64_t before = arena_->used_bytes();
  EXPECT_FALSE(memory_->allocated());
  EXPECT_EQ(memory_->use().weight_bytes, 0u);
  Allocate();
  EXPECT_TRUE(memory_->allocated());
  const HostUse use = memory_->use();
  // fp32: weights 4 bytes a parameter, master and moments 12, one sum 4.
  EXPECT_EQ(use.optimizer_bytes, 3 * use.weight_bytes);
  EXPECT_GT(use.gradient_bytes, 0u);
  EXPECT_GT(use.activation_bytes, 0u);
  EXPECT_GT(memory_->table_bytes(), 0u);
  EXPECT_EQ(memory_->base_key(), "");
  memory_->Release();
  EXPECT_FALSE(memory_->allocated());
  EXPECT_EQ(arena_->used_bytes(), before);
}

TEST_F(JobMemoryTest, AnArenaWithoutRoomIsResourceExhausted) {
  arena_ = *HostArena::Create(1 << 16, kDevices + 2);
  Prepare("max_steps: 1");
  EXPECT_TRUE(absl::IsResourceExhausted(memory_->Allocate(kDevices)));
  EXPECT_FALSE(memory_->allocated());
}

TEST_F(JobMemoryTest, AnAsynchronousJobHasItsWeightsTwice) {
  Prepare("max_steps: 1");
  Allocate();
  const uint64_t once = memory_->use().weight_bytes;
  EXPECT_FALSE(memory_->Shape().stale);
  memory_->Release();
  Prepare("max_steps: 1\noptimizer_mode: async");
  Allocate();
  EXPECT_EQ(memory_->use().weight_bytes, 2 * once);
  EXPECT_TRUE(memory_->Shape().stale);
}

TEST_F(JobMemoryTest, TheDispatcherSeesLayersAndTheHead) {
  Prepare("max_steps: 1");
  Allocate();
  const JobShape shape = memory_->Shape();
  EXPECT_EQ(shape.layer_count, 4);  // three and the head
  EXPECT_EQ(shape.unit_count, 5);   // and the embedding
  EXPECT_FALSE(shape.tied_head);
  EXPECT_TRUE(shape.trainable.empty());  // all
  const auto notes = memory_->Notes();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_TRUE(absl::StartsWith(notes[0], "plan: ")) << notes[0];
  EXPECT_TRUE(absl::StartsWith(notes[1], "trainable parameters: "));
}

TEST_F(JobMemoryTest, VersionsRiseInEveryUnit) {
  Prepare("max_steps: 1");
  Allocate();
  memory_->RaiseVersions(7);
  for (size_t unit = 0; unit < memory_->state().units().size(); ++unit) {
    const auto& layout = memory_->state().layout(static_cast<int>(unit));
    EXPECT_EQ(arena_->arena().WordAt(layout.version_word_offset).value.load(),
              7u);
  }
}

TEST_F(JobMemoryTest, AnotherPlanComesWithItsBuffers) {
  Prepare("max_steps: 1");
  Allocate();
  const Plan plan = {.forward = {{0, 2}}, .backward = {{3, 3}, {0, 2}}};
  auto buffers =
      *RoundBuffers::WithPlan(*arena_, plan, memory_->buffers(), 1 << 20);
  const RoundBuffers* const made = buffers.get();
  memory_->Adopt(plan, std::move(buffers));
  EXPECT_EQ(&memory_->buffers(), made);
  EXPECT_EQ(ToString(memory_->plan()), ToString(plan));
}

TEST_F(JobMemoryTest, PagesAreThereOrNobodyIsTold) {
  Prepare("max_steps: 1");
  Allocate();
  int told = 0;
  memory_->WaitForPages([&](const absl::Status& ready) {
    EXPECT_TRUE(ready.ok()) << ready;
    ++told;
  });
  EXPECT_EQ(told, 1);  // this arena's are always there
}

}  // namespace
}  // namespace roundhouse
