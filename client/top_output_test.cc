#include "client/top_output.h"

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

v1::Device MakeDevice(int index, double compute, double bubble) {
  v1::Device device;
  device.set_index(index);
  device.set_state(v1::UP);
  device.set_compute_seconds(compute);
  device.set_bubble_seconds(bubble);
  return device;
}

void AddCause(v1::Device* device, const char* cause, double seconds) {
  v1::BubbleCause* const added = device->add_bubble_causes();
  added->set_cause(cause);
  added->set_seconds(seconds);
}

struct Looks {
  TopLook before, after;
};

// Ten seconds: device 0 computes six and waits three.
Looks MakeLooks() {
  Looks looks;
  looks.before.time = absl::FromUnixSeconds(1000);
  looks.after.time = absl::FromUnixSeconds(1010);
  looks.before.devices = {MakeDevice(0, 100, 50), MakeDevice(1, 0, 0)};
  looks.after.devices = {MakeDevice(0, 106, 53), MakeDevice(1, 0, 0)};
  AddCause(&looks.before.devices[0], "h2d_wait", 20);
  AddCause(&looks.before.devices[0], "optimizer", 7);
  AddCause(&looks.after.devices[0], "h2d_wait", 20.5);
  AddCause(&looks.after.devices[0], "optimizer", 9);
  AddCause(&looks.after.devices[0], "memory", 0.04);
  looks.after.devices[0].set_job("projects/default/fineTuningJobs/job-3");
  looks.after.devices[0].set_h2d_bytes(20 << 20);
  looks.after.server.set_running_jobs(1);
  looks.after.server.set_host_memory_used_bytes(1 << 30);
  looks.after.server.set_host_memory_limit_bytes(int64_t{8} << 30);
  v1::FineTuningJob job;
  job.set_name("projects/default/fineTuningJobs/job-3");
  job.set_state(v1::RUNNING);
  job.set_step(7);
  job.set_total_steps(100);
  job.set_loss(1.25);
  job.set_tokens_per_second(13200);
  job.mutable_eta()->set_seconds(1052);
  looks.after.jobs = {job};
  return looks;
}

TEST(TopOutputTest, SharesAreOfTheTimeBetweenTheLooks) {
  const Looks looks = MakeLooks();
  EXPECT_EQ(
      TopText(looks.before, looks.after, 80),
      "1 running, 0 queued; host memory 1.0 GiB of 8.0 GiB\n\n"
      "DEVICE  STATE  BUSY  BUBBLE  H2D        D2H    JOB    WAITS FOR\n"
      "0       UP     60%   30%     2.0 MiB/s  0 B/s  job-3  optimizer 20%, "
      "h2d_wait 5%\n"
      "1       UP     0%    0%      0 B/s      0 B/s\n\n"
      "JOB    STATE    STEP   LOSS    TOKENS/S  ETA\n"
      "job-3  RUNNING  7/100  1.2500  13.2k     0:42\n");
}

TEST(TopOutputTest, NoLineIsWiderThanTheTerminal) {
  Looks looks = MakeLooks();
  AddCause(&looks.after.devices[0], "dependency", 3);
  AddCause(&looks.after.devices[0], "dispatch", 2);
  for (int columns : {80, 60, 20, 1}) {
    for (absl::string_view line :
         absl::StrSplit(TopText(looks.before, looks.after, columns), '\n')) {
      EXPECT_LE(line.size(), columns) << line;
    }
  }
}

TEST(TopOutputTest, CausesAreLeftOutWhole) {
  const Looks looks = MakeLooks();
  const std::string text = TopText(looks.before, looks.after, 75);
  EXPECT_NE(text.find("job-3  optimizer 20%\n"), std::string::npos) << text;
}

TEST(TopOutputTest, ADeviceThatWasNotThereHasNoShares) {
  Looks looks = MakeLooks();
  looks.before.devices.clear();
  const std::string text = TopText(looks.before, looks.after, 80);
  EXPECT_NE(text.find("0       UP     -     -       -    -    job-3\n"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace roundhouse::client
