#include "client/tables/top_output.h"

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

v1::Device MakeDevice(int index, double compute, double bubble,
                      double idle = 0) {
  v1::Device device;
  device.set_index(index);
  device.set_state(v1::UP);
  device.set_compute_seconds(compute);
  device.set_bubble_seconds(bubble);
  device.set_idle_seconds(idle);
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
  looks.before.devices = {MakeDevice(0, 100, 50, 20), MakeDevice(1, 0, 0, 5)};
  looks.after.devices = {MakeDevice(0, 106, 53, 21), MakeDevice(1, 0, 0, 15)};
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

// The row of device 0 from BUSY on.
std::string RowOf(const v1::Device& before, const v1::Device& after) {
  TopLook first, second;
  first.time = absl::FromUnixSeconds(0);
  second.time = absl::FromUnixSeconds(2);
  first.devices = {before};
  second.devices = {after};
  const std::string text = TopText(first, second, 200);
  const size_t at = text.find("0       UP");
  return text.substr(at + 15, text.find('\n', at) - at - 15);
}

// The server accounts a computation when it ends: 2.9 of these 3.1 seconds
// were before the looks, which are two seconds apart.
TEST(TopOutputTest, SharesNeverSumToMoreThanAll) {
  EXPECT_EQ(RowOf(MakeDevice(0, 0, 0), MakeDevice(0, 2.98, 0.12)).substr(0, 10),
            "96%   4%  ");
  EXPECT_EQ(RowOf(MakeDevice(0, 0, 0), MakeDevice(0, 62.5, 37.5)).substr(0, 10),
            "63%   37% ");
  EXPECT_EQ(
      RowOf(MakeDevice(0, 0, 0), MakeDevice(0, 0.001, 0, 2)).substr(0, 10),
      "<1%   0%  ");
  // Nothing was told meanwhile.
  EXPECT_EQ(RowOf(MakeDevice(0, 1, 1), MakeDevice(0, 1, 1)).substr(0, 10),
            "-     -   ");
}

TEST(TopOutputTest, CausesSumToTheBubbles) {
  const v1::Device before = MakeDevice(0, 0, 0);
  v1::Device after = MakeDevice(0, 38, 62);
  AddCause(&after, "h2d_wait", 14);
  EXPECT_NE(RowOf(before, after).find("  h2d_wait 14%, not known yet 48%"),
            std::string::npos)
      << RowOf(before, after);
  // Also of waits that began before the looks.
  AddCause(&after, "optimizer", 110);
  EXPECT_NE(RowOf(before, after).find("  optimizer 55%, h2d_wait 7%"),
            std::string::npos)
      << RowOf(before, after);
  for (const char* cause : {"data", "memory", "dispatch"}) {
    AddCause(&after, cause, 31);
  }
  EXPECT_NE(RowOf(before, after)
                .find("  optimizer 31%, data 9%, dispatch 9%, others 13%"),
            std::string::npos)
      << RowOf(before, after);
}

TEST(TopOutputTest, SharesAreOfTheTimeBetweenTheLooks) {
  const Looks looks = MakeLooks();
  EXPECT_EQ(
      TopText(looks.before, looks.after, 100),
      "1 running, 0 queued; host memory 1.0 GiB of 8.0 GiB\n\n"
      "DEVICE  STATE  BUSY  BUBBLE  H2D        D2H    JOB    WAITS FOR\n"
      "0       UP     60%   30%     2.0 MiB/s  0 B/s  job-3  optimizer 20%, "
      "h2d_wait 5%, not known yet 5%\n"
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

// The rest is said to be there, and no share is cut into.
TEST(TopOutputTest, CausesAreLeftOutWhole) {
  const Looks looks = MakeLooks();
  for (const auto& [columns, causes] :
       {std::pair{98, "optimizer 20%, h2d_wait 5%, not known yet 5%\n"},
        {97, "optimizer 20%, h2d_wait 5%, ...\n"},
        {85, "optimizer 20%, h2d_wait 5%, ...\n"},
        {84, "optimizer 20%, ...\n"},
        {75, "optimizer 20%, ...\n"}}) {
    const std::string text = TopText(looks.before, looks.after, columns);
    EXPECT_NE(text.find(std::string("job-3  ") + causes), std::string::npos)
        << columns << "\n"
        << text;
  }
}

TEST(TopOutputTest, OnlyCausesAreAListThatIsCut) {
  const Looks looks = MakeLooks();
  const std::string text = TopText(looks.before, looks.after, 40);
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "1 running, 0 queued; host memory 1.0 GiB");
}

TEST(TopOutputTest, NothingIsCutWithoutATerminal) {
  Looks looks = MakeLooks();
  looks.after.devices[0].set_job("jobs/" + std::string(300, 'j'));
  EXPECT_NE(TopText(looks.before, looks.after, std::nullopt)
                .find("j  optimizer 20%, h2d_wait 5%, not known yet 5%\n"),
            std::string::npos);
}

TEST(TopOutputTest, AJobThatReadsItsDataSaysHowFarItIs) {
  Looks looks = MakeLooks();
  looks.after.jobs[0].set_state(v1::VALIDATING);
  looks.after.jobs[0].set_data_read(0.5);
  const std::string text = TopText(looks.before, looks.after, 80);
  EXPECT_NE(text.find("job-3  VALIDATING (data read: 50 %)  "),
            std::string::npos)
      << text;
}

TEST(TopOutputTest, WideCharactersAreCutWhole) {
  Looks looks = MakeLooks();
  looks.after.jobs[0].set_name("jobs/\xe6\xbc\xa2\xe5\xad\x97");
  const std::string text = TopText(looks.before, looks.after, 3);
  EXPECT_NE(text.find("\n\xe6\xbc\xa2\n"), std::string::npos) << text;
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
