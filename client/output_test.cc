#include "client/output.h"

#include <gtest/gtest.h>

#include <cmath>

namespace roundhouse::client {
namespace {

absl::Time At(int64_t seconds) { return absl::FromUnixSeconds(seconds); }

v1::FineTuningJob RunningJob() {
  v1::FineTuningJob job;
  job.set_name("projects/default/fineTuningJobs/a1");
  job.set_state(v1::RUNNING);
  job.set_step(3);
  job.set_total_steps(10);
  job.set_loss(2.5);
  job.set_tokens_per_second(13200);
  job.mutable_create_time()->set_seconds(1000);
  job.mutable_eta()->set_seconds(1100);
  return job;
}

TEST(OutputTest, ACellStaysInItsTable) {
  EXPECT_EQ(FormatTable({{"NAME", "OUTPUT"},
                         {"a\x1b[2J\nb", "\xc3\xa4\xe2\x80\xae"},
                         {"c\td", "e\r"}}),
            "NAME         OUTPUT\n"
            "a\\x1b[2J\\nb  \xc3\xa4\\u202e\n"
            "c\\td         e\\x0d\n");
}

TEST(OutputTest, AJobsTextsStayOnTheirLines) {
  v1::FineTuningJob job = RunningJob();
  job.set_state(v1::FAILED);
  job.set_message("/data/a\x1b[2J\njob-2 succeeded");
  job.set_output_name("m\nn");
  job.set_last_checkpoint_path("/c\n\x9b");
  EXPECT_NE(JobText(job).find("/data/a\\x1b[2J\\njob-2 succeeded\n"),
            std::string::npos);
  EXPECT_NE(JobTable({job}, At(1100)).find(" m\\nn\n"), std::string::npos);
  EXPECT_EQ(FinalText(job),
            "a1 failed at step 3: /data/a\\x1b[2J\\njob-2 succeeded\n"
            "last checkpoint: /c\\n\\x9b\n");
}

TEST(OutputTest, FormatsByName) {
  EXPECT_EQ(*ParseOutputFormat("json"), OutputFormat::kJson);
  EXPECT_EQ(*ParseOutputFormat("table"), OutputFormat::kTable);
  EXPECT_EQ(*ParseOutputFormat("name"), OutputFormat::kName);
  EXPECT_EQ(ParseOutputFormat("yaml").status().message(),
            "flag --output: \"yaml\" is none of table, json, name");
}

TEST(OutputTest, TableAlignsColumnsAndEndsLinesWithoutBlanks) {
  EXPECT_EQ(FormatTable({{"A", "BB"}, {"long", ""}, {"x", "y"}}),
            "A     BB\nlong\nx     y\n");
}

TEST(OutputTest, JobTableShowsRunningNumbers) {
  v1::FineTuningJob queued;
  queued.set_name("projects/default/fineTuningJobs/b22");
  queued.set_state(v1::QUEUED);
  queued.set_output_name("mine");
  queued.mutable_create_time()->set_seconds(900);
  EXPECT_EQ(JobTable({RunningJob(), queued}, At(1012)),
            "NAME  STATE    STEP  LOSS    TOKENS/S  ETA   AGE  OUTPUT\n"
            "a1    RUNNING  3/10  2.5000  13.2k     1:28  12s  -\n"
            "b22   QUEUED   0     -       -         -     1m   mine\n");
}

TEST(OutputTest, UrgentAndBackfillJobsAreSaidToBe) {
  v1::FineTuningJob urgent = RunningJob();
  EXPECT_EQ(JobTable({urgent}, At(1012)).find("PRIORITY"), std::string::npos);
  EXPECT_EQ(JobText(urgent).find("priority:"), std::string::npos);
  urgent.set_priority(v1::URGENT);
  const std::string table = JobTable({RunningJob(), urgent}, At(1012));
  EXPECT_NE(table.find("OUTPUT  PRIORITY\n"), std::string::npos) << table;
  EXPECT_NE(table.find("-       urgent\n"), std::string::npos) << table;
  EXPECT_NE(JobText(urgent).find("priority:  urgent\n"), std::string::npos);
  v1::FineTuningJob backfill = RunningJob();
  backfill.set_priority(v1::BACKFILL);
  EXPECT_NE(JobTable({urgent, backfill}, At(1012)).find("-       backfill\n"),
            std::string::npos);
  EXPECT_NE(JobText(backfill).find("priority:  backfill\n"), std::string::npos);
}

TEST(OutputTest, JobTextLeavesOutWhatIsNotKnown) {
  const std::string text = JobText(RunningJob());
  EXPECT_NE(text.find("state:     RUNNING\n"), std::string::npos) << text;
  EXPECT_NE(text.find("step:      3/10\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("ended:"), std::string::npos) << text;
  EXPECT_EQ(text.find("output:"), std::string::npos) << text;
}

TEST(OutputTest, APausedJobSaysWhetherItKeepsItsMemory) {
  v1::FineTuningJob job = RunningJob();
  EXPECT_EQ(JobText(job).find("memory:"), std::string::npos);
  job.set_state(v1::PAUSED);
  job.set_memory(v1::KEPT);
  EXPECT_NE(JobText(job).find("memory:    kept: it goes on where it was\n"),
            std::string::npos)
      << JobText(job);
  EXPECT_NE(JobTable({job}, At(1012)).find("PAUSED (memory kept)"),
            std::string::npos);
  job.set_memory(v1::GIVEN_BACK);
  EXPECT_NE(JobText(job).find("given back"), std::string::npos);
  EXPECT_EQ(JobTable({job}, At(1012)).find("kept"), std::string::npos);
}

TEST(OutputTest, AJobThatReadsItsDataSaysHowFarItIs) {
  v1::FineTuningJob job = RunningJob();
  EXPECT_EQ(JobText(job).find("data read"), std::string::npos);
  EXPECT_EQ(JobTable({job}, At(1012)).find("data read"), std::string::npos);
  job.set_state(v1::VALIDATING);
  job.set_data_read(0.437);
  EXPECT_NE(JobText(job).find("data read:  43 %\n"), std::string::npos)
      << JobText(job);
  EXPECT_NE(JobTable({job}, At(1012)).find("  VALIDATING (data read: 43 %)  "),
            std::string::npos)
      << JobTable({job}, At(1012));
}

TEST(OutputTest, AShareOfTheDataIsOneWhateverTheWireSays) {
  EXPECT_EQ(DataReadText(0), "");
  EXPECT_EQ(DataReadText(-3), "");
  EXPECT_EQ(DataReadText(std::nan("")), "");
  EXPECT_EQ(DataReadText(0.001), "0 %");
  EXPECT_EQ(DataReadText(7), "100 %");
  EXPECT_EQ(DataReadText(HUGE_VAL), "100 %");
}

TEST(OutputTest, OneIsSingular) {
  v1::FineTuningJob job = RunningJob();
  job.set_state(v1::SUCCEEDED);
  job.set_step(1);
  EXPECT_EQ(FinalText(job), "a1 succeeded: 1 step\n");
  job.mutable_dataset()->set_train_sequences(1);
  job.mutable_dataset()->set_train_tokens(1);
  job.mutable_dataset()->set_validation_sequences(1);
  job.mutable_dataset()->set_validation_tokens(2);
  EXPECT_NE(JobText(job).find("  1 sequence, 1 token; 0 truncated"),
            std::string::npos)
      << JobText(job);
  EXPECT_NE(JobText(job).find("  1 sequence, 2 tokens\n"), std::string::npos)
      << JobText(job);
}

TEST(OutputTest, JobTextShowsHowTokensAreSpreadOverExperts) {
  v1::FineTuningJob job = RunningJob();
  EXPECT_EQ(JobText(job).find("experts:"), std::string::npos);
  v1::ExpertLoad* const load = job.mutable_expert_load();
  load->set_max_over_mean(3.25);
  load->set_layer(17);
  load->set_entropy(0.875);
  load->set_unhit_experts(5);
  EXPECT_NE(JobText(job).find("the busiest has 3.2 times the mean (layer 17); "
                              "lowest entropy 0.88; 5 without a token\n"),
            std::string::npos)
      << JobText(job);
}

TEST(OutputTest, JobTextShowsEvaluationsAndDevices) {
  v1::FineTuningJob job = RunningJob();
  for (int step = 0; step < 6; ++step) {
    v1::EvalPoint* point = job.add_eval_history();
    point->set_step(step);
    point->set_loss(step + 0.5);
  }
  v1::JobDeviceUse* use = job.add_device_use();
  use->set_device(2);
  use->set_compute_seconds(3);
  use->set_bubble_seconds(1);
  use->set_bubble_ratio(0.25);
  const std::string text = JobText(job);
  EXPECT_NE(text.find("step 0 0.5000 ..., step 3 3.5000, step 4 4.5000, step "
                      "5 5.5000\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("compute 3.0 s, bubble 1.0 s (25.0 %)"),
            std::string::npos)
      << text;
}

TEST(OutputTest, FinalTextOfEachEnd) {
  v1::FineTuningJob job = RunningJob();
  job.set_state(v1::SUCCEEDED);
  job.set_step(10);
  job.set_output_path("/out/a1");
  job.mutable_start_time()->set_seconds(1000);
  job.mutable_end_time()->set_seconds(1061);
  job.add_eval_history()->set_loss(6);
  job.add_eval_history()->set_loss(1.5);
  job.mutable_dataset()->set_bigram_validation_loss(2.25);
  EXPECT_EQ(FinalText(job),
            "a1 succeeded: 10 steps in 1:01, validation loss 6.0000 -> 1.5000 "
            "(bigram model 2.2500)\noutput: /out/a1\n");
  job.set_state(v1::FAILED);
  job.set_reason(v1::NON_FINITE_LOSS);
  job.set_message("loss is nan");
  job.set_last_checkpoint_path("/out/checkpoint-5");
  EXPECT_EQ(FinalText(job),
            "a1 failed at step 10: NON_FINITE_LOSS: loss is nan\n"
            "last checkpoint: /out/checkpoint-5\n");
  job.set_state(v1::CANCELLED);
  job.set_reason(v1::JOB_REASON_UNSPECIFIED);
  job.clear_message();
  job.clear_last_checkpoint_path();
  EXPECT_EQ(FinalText(job), "a1 was cancelled at step 10\n");
}

TEST(OutputTest, DeviceTable) {
  v1::Device device;
  device.set_index(1);
  device.set_kind("cpu");
  device.set_state(v1::UP);
  device.set_memory_limit_bytes(int64_t{1} << 30);
  device.set_memory_used_bytes(1536);
  device.set_bubble_ratio(0.125);
  device.set_compute_seconds(7);
  device.set_job("projects/default/fineTuningJobs/a1");
  const std::string table = DeviceTable({device});
  EXPECT_NE(table.find("1       cpu   UP     1.5 KiB of 1.0 GiB  12.5%"),
            std::string::npos)
      << table;
  EXPECT_EQ(table.substr(table.size() - 4), " a1\n");
}

TEST(OutputTest, ADeviceThatComputedNothingHasNoBubblesYet) {
  v1::Device device;
  device.set_state(v1::UP);
  device.set_memory_limit_bytes(int64_t{1} << 30);
  const std::string table = DeviceTable({device});
  EXPECT_NE(table.find("  - of 1.0 GiB  -       0.0 s"), std::string::npos)
      << table;
}

// "\xe6\xbc\xa2" is one character of two columns.
TEST(OutputTest, ColumnsOfATableAreThoseOfTheTerminal) {
  EXPECT_EQ(FormatTable({{"NAME", "X"}, {"\xe6\xbc\xa2", "1"}, {"abcd", "2"}}),
            "NAME  X\n\xe6\xbc\xa2    1\nabcd  2\n");
}

TEST(OutputTest, AProcessThatHasADeviceIsNamed) {
  v1::Device device;
  device.set_index(1);
  device.set_state(v1::YIELDED);
  device.mutable_loan()->set_owner("uid:1000");
  device.mutable_loan()->mutable_process()->set_pid(4711);
  device.mutable_loan()->mutable_process()->set_command("pyth\x1bon3");
  EXPECT_EQ(DeviceLine(device),
            "device 1 is YIELDED to pyth\\x1bon3 (process 4711 of uid:1000)\n");
  EXPECT_NE(
      DeviceTable({device}).find("pyth\\x1bon3 (process 4711 of uid:1000)"),
      std::string::npos);
  device.mutable_loan()->clear_owner();
  device.mutable_loan()->mutable_process()->clear_command();
  EXPECT_EQ(DeviceLine(device), "device 1 is YIELDED to process 4711\n");
}

TEST(OutputTest, DeviceTableOfGpusNamesThem) {
  v1::Device device;
  device.set_kind("cuda");
  device.set_product_name("NVIDIA GeForce RTX 4090");
  const std::string table = DeviceTable({device});
  EXPECT_NE(table.find("JOB  GPU\n"), std::string::npos) << table;
  EXPECT_NE(table.find("-    NVIDIA GeForce RTX 4090\n"), std::string::npos)
      << table;
}

TEST(OutputTest, Numbers) {
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(int64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(FormatBytes(int64_t{3} << 50), "3072.0 TiB");
  EXPECT_EQ(ClockText(absl::Seconds(-5)), "0:00");
  EXPECT_EQ(ClockText(absl::Seconds(59)), "0:59");
  EXPECT_EQ(ClockText(absl::Seconds(3723)), "1:02:03");
  EXPECT_EQ(FormatCount(999.4), "999");
  EXPECT_EQ(FormatCount(999.6), "1.0k");
  EXPECT_EQ(FormatCount(4.1e6), "4.1M");
  EXPECT_EQ(FormatCount(999.96e6), "1.0B");
  EXPECT_EQ(FormatCount(32.76e9), "32.8B");
  EXPECT_EQ(FormatLoss(std::nan("")), "nan");
}

}  // namespace
}  // namespace roundhouse::client
