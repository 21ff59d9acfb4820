#include "tests/bench/real_time_report.h"

#include <string>

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

RealTimeRun TestRun() {
  RealTimeRun run;
  run.work_ms = 150;
  run.forecast = {90, 28.5};
  run.samples.steps = 4;
  run.samples.begin_ns = 1000;
  run.samples.end_ns = 2000;
  run.samples.step_seconds = 0.05;  // 100 ms of the inputs
  run.samples.dispatch_seconds = {100e-6, 300e-6, 200e-6};
  run.samples.devices = {{0.75, 0.2, 0.05, 0.1, 0.02}, {0.65, 0.1, 0.25, 0, 0}};
  run.samples.host_busy = 0.5;
  run.use.cpu_seconds = 0.1;
  run.cores = 2;
  run.trips = {{500, 900'000}, {1200, 1250}, {1500, 1530}, {1999, 2500}};
  run.trips_at_once = {{1100, 1180}, {1100, 1200}};
  return run;
}

RealTimeKey Key() {
  return {"small", "published", 2, 1.6, 16, 1, 5, 0.5, true};
}

double Value(const std::string& quantity, int device) {
  for (const RealTimeRow& row : RealTimeRows(Key(), TestRun())) {
    if (row.quantity == quantity && row.device == device) return row.value;
  }
  ADD_FAILURE() << quantity;
  return 0;
}

TEST(RealTimeReportTest, StepsInTheTimeOfTheInputs) {
  EXPECT_DOUBLE_EQ(Value("step", -1), 100);
  EXPECT_DOUBLE_EQ(Value("step without bubbles", -1), 93.75);
  EXPECT_DOUBLE_EQ(Value("bubble by the step's time", -1), 6.25);
}

TEST(RealTimeReportTest, BubblesOfDevices) {
  EXPECT_DOUBLE_EQ(Value("bubble", 0), 25);
  EXPECT_DOUBLE_EQ(Value("bubble", 1), 35);
  EXPECT_DOUBLE_EQ(Value("bubble", -1), 30);
  EXPECT_DOUBLE_EQ(Value("waiting in a slot", 1), 10);
  EXPECT_DOUBLE_EQ(Value("without a slot", 1), 25);
  EXPECT_DOUBLE_EQ(Value("h2d link busy", -1), 5);
}

TEST(RealTimeReportTest, TheForecastStandsBesideIt) {
  EXPECT_DOUBLE_EQ(Value("simulated step", -1), 90);
  EXPECT_DOUBLE_EQ(Value("simulated bubble", -1), 28.5);
  EXPECT_DOUBLE_EQ(Value("bubble beyond the simulated one", -1), 1.5);
}

TEST(RealTimeReportTest, LatenciesWithinTheSteps) {
  EXPECT_DOUBLE_EQ(Value("dispatch p50", -1), 200);
  EXPECT_DOUBLE_EQ(Value("socket loop p50", -1), 0.04);
  EXPECT_DOUBLE_EQ(Value("socket loop, 2 at once p50", -1), 0.09);
  RealTimeRun run = TestRun();
  EXPECT_TRUE(HasLatencies(run));
  run.trips = {{500, 900}};
  EXPECT_FALSE(HasLatencies(run));
  run = TestRun();
  run.trips_at_once.clear();
  EXPECT_FALSE(HasLatencies(run));
}

TEST(RealTimeReportTest, ShareOfTheMachine) {
  EXPECT_DOUBLE_EQ(Value("CPU time of daemon and workers", -1), 25);
}

TEST(RealTimeReportTest, TextsOfTwoRuns) {
  const std::vector<std::vector<RealTimeRow>> runs = {
      {{"step", -1, "ms", 1850.25}, {"bubble", 3, "%", 12.3456}},
      {{"step", -1, "ms", 1950.25}, {"bubble", 3, "%", 10}}};
  EXPECT_EQ(
      RealTimeCsv(Key(), runs),
      "model,plan,devices,speed,micro_batches,first_step,steps,scale,clip,"
      "run,quantity,device,unit,value\n"
      "small,published,2,1.6,16,1,5,0.5,on,1,step,all,ms,1850.25\n"
      "small,published,2,1.6,16,1,5,0.5,on,1,bubble,3,%,12.3456\n"
      "small,published,2,1.6,16,1,5,0.5,on,2,step,all,ms,1950.25\n"
      "small,published,2,1.6,16,1,5,0.5,on,2,bubble,3,%,10\n");
  const std::string table = RealTimeMarkdown(runs);
  EXPECT_NE(table.find("| step | ms | 1.9e+03 |"), std::string::npos) << table;
  EXPECT_NE(table.find("| device 3: bubble | % | 11.2 | 10 | 12.3 | 2 |"),
            std::string::npos)
      << table;
}

}  // namespace
}  // namespace roundhouse::bench
