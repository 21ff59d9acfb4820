#include "client/dry_run.h"

#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

v1::JobNeeds Needs() {
  v1::JobNeeds needs;
  needs.set_host_state_bytes(512 << 20);
  needs.set_host_buffer_bytes(256 << 20);
  needs.set_host_table_bytes(256 << 20);
  needs.set_host_limit_bytes(int64_t{8} << 30);
  needs.set_device_slot_bytes(3 << 20);
  needs.set_device_limit_bytes(4 << 20);
  needs.set_checkpoint_bytes(5 << 20);
  needs.set_checkpoint_count(4);
  needs.set_export_bytes(1 << 20);
  needs.set_disk_bytes(21 << 20);
  needs.set_disk_free_bytes(99 << 20);
  needs.set_disk_path("/s\x1b");
  needs.set_parameters(1234);
  needs.set_trainable_parameters(34);
  return needs;
}

TEST(NeedsTextTest, NamesEveryNeed) {
  v1::JobNeeds needs = Needs();
  const std::string text = NeedsText(needs);
  for (const char* part :
       {"1.0 GiB of 8.0 GiB (training state 512.0 MiB, activations and tokens "
        "256.0 MiB, file tables 256.0 MiB)\n",
        "3.0 MiB of 4.0 MiB in the largest slot, without activations\n",
        "21.0 MiB (checkpoints 4 x 5.0 MiB, result 1.0 MiB); 99.0 MiB are free "
        "in /s",
        "1234, trained 34\n"}) {
    EXPECT_TRUE(Has(text, part)) << text;
  }
  EXPECT_FALSE(Has(text, "\x1b"));
  needs.set_host_base_bytes(int64_t{1} << 30);
  EXPECT_TRUE(
      Has(NeedsText(needs), "2.0 GiB of 8.0 GiB (frozen weights 1.0 GiB, "))
      << NeedsText(needs);
}

TEST(NeedsTextTest, TheTimeIsThatOfAnEarlierJobOrNotKnown) {
  v1::JobNeeds needs = Needs();
  EXPECT_TRUE(Has(NeedsText(needs), "training time:  not known: no job"))
      << NeedsText(needs);
  needs.set_step_seconds(0.25);
  needs.set_measured_in("projects/default/fineTuningJobs/job-3");
  EXPECT_TRUE(Has(NeedsText(needs),
                  "0.25 s a step, measured in job-3; steps are known once"))
      << NeedsText(needs);
  needs.set_steps(500);
  EXPECT_TRUE(Has(NeedsText(needs),
                  "2:05 for 500 steps (0.25 s a step, measured in job-3)\n"))
      << NeedsText(needs);
}

}  // namespace
}  // namespace roundhouse::client
