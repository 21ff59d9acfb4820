#include "tests/bench/samples.h"

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

// slot,DEVICE,STARTED,ENDED,WAIT,H2D,COMPUTE,D2H
TEST(SamplesTest, SharesOfTheTimeBetweenTwoSteps) {
  const auto samples = ReadSamples(
      "dispatch,1\n"
      "step,2,1000\n"
      "slot,0,1000,1600,100,50,400,20\n"
      "dispatch,5000\n"
      "slot,1,1200,1400,0,0,200,0\n"
      "host,1500,1700\n"
      "step,3,1500\n"
      "step,4,2000\n"
      "dispatch,2\n",
      2, 4);
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(samples->steps, 2);
  EXPECT_EQ(samples->begin_ns, 1000);
  EXPECT_EQ(samples->end_ns, 2000);
  EXPECT_DOUBLE_EQ(samples->step_seconds, 500e-9);
  ASSERT_EQ(samples->dispatch_seconds.size(), 1u);
  EXPECT_DOUBLE_EQ(samples->dispatch_seconds[0], 5e-6);
  ASSERT_EQ(samples->devices.size(), 2u);
  EXPECT_DOUBLE_EQ(samples->devices[0].compute, 0.4);
  EXPECT_DOUBLE_EQ(samples->devices[0].wait, 0.1);
  EXPECT_DOUBLE_EQ(samples->devices[0].idle, 0.5);
  EXPECT_DOUBLE_EQ(samples->devices[0].h2d, 0.05);
  EXPECT_DOUBLE_EQ(samples->devices[0].d2h, 0.02);
  EXPECT_DOUBLE_EQ(samples->devices[1].compute, 0.2);
  EXPECT_DOUBLE_EQ(samples->devices[1].idle, 0.8);
  EXPECT_DOUBLE_EQ(samples->host_busy, 0.2);
}

TEST(SamplesTest, ASlotAtAnEdgeCountsAsFarAsItLiesInside) {
  const auto samples = ReadSamples(
      "step,1,1000\n"
      "slot,0,900,1100,100,0,100,0\n"
      "slot,0,1900,2300,0,40,400,0\n"
      "step,2,2000\n",
      1, 2);
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_DOUBLE_EQ(samples->devices[0].compute, 0.15);
  EXPECT_DOUBLE_EQ(samples->devices[0].wait, 0.05);
  EXPECT_DOUBLE_EQ(samples->devices[0].h2d, 0.01);
}

TEST(SamplesTest, LayersHaveTheirMeanTimes) {
  const auto samples = ReadSamples(
      "layer,0,900,900\n"
      "step,1,1000\n"
      "slot,0,1000,1100,0,0,100,0\n"
      "layer,0,10,0\n"
      "layer,2,5,7\n"
      "slot,0,1100,1200,0,0,100,0\n"
      "layer,0,20,40\n"
      "step,2,2000\n"
      "layer,0,900,900\n",
      1, 2);
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->layers.size(), 3u);
  EXPECT_DOUBLE_EQ(samples->layers[0].forward_ns, 15);
  EXPECT_DOUBLE_EQ(samples->layers[0].backward_ns, 40);
  EXPECT_DOUBLE_EQ(samples->layers[1].forward_ns, 0);
  EXPECT_DOUBLE_EQ(samples->layers[2].backward_ns, 7);
}

TEST(SamplesTest, NamesTheLineThatIsNoSample) {
  for (const char* bad : {"slot,0,1,2", "dispatch,x", "bogus,1",
                          "slot,-1,1,1,1,1,1,1", "layer,-1,1,1", "layer,0,1"}) {
    const auto samples =
        ReadSamples(std::string("step,1,10\n") + bad + "\n", 1, 1);
    ASSERT_EQ(samples.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(samples.status().message().find("line 2"), std::string::npos)
        << samples.status();
  }
}

TEST(SamplesTest, AStepThatIsNotThereIsNotFound) {
  EXPECT_EQ(ReadSamples("step,1,10\n", 1, 2).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadSamples("step,1,10\nstep,2,20\n", 1, 2).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace roundhouse::bench
