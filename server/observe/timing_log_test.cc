#include "server/observe/timing_log.h"

#include <sstream>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(TimingLogTest, WritesOneLineASample) {
  const std::string path = testing::TempDir() + "/samples.csv";
  {
    auto log = TimingLog::Create(path);
    ASSERT_TRUE(log.ok()) << log.status();
    (*log)->AddDispatch(12.5e-6);
    (*log)->AddUrgent(0.25);
    wire::SlotDone slot;
    slot.started_ns = 100;
    slot.ended_ns = 900;
    slot.wait_ns = 1;
    slot.h2d_ns = 2;
    slot.compute_ns = 3;
    slot.d2h_ns = 4;
    slot.layers = {{.layer = 5, .samples = 3, .forward_ns = 6}};
    (*log)->AddSlot(2, slot);
    wire::HostOpDone op;
    op.started_ns = 10;
    op.ended_ns = 20;
    (*log)->AddHostOp(op);
    (*log)->AddStep(7, 1000);
  }
  EXPECT_EQ(Contents(path),
            "dispatch,12500\n"
            "urgent,250000000\n"
            "slot,2,100,900,1,2,3,4\n"
            "layer,5,6,0\n"
            "host,10,20\n"
            "step,7,1000\n");
}

TEST(TimingLogTest, NamesTheFileThatCannotBeWritten) {
  const auto log = TimingLog::Create("/nowhere/samples.csv");
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.status().message().find("/nowhere/samples.csv"),
            std::string::npos);
}

}  // namespace
}  // namespace roundhouse
