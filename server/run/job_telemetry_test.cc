#include "server/run/job_telemetry.h"

#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

class JobTelemetryTest : public JobPartsTest {
 protected:
  void Count();
};

TEST_F(JobTelemetryTest, DevicesAreCountedFromTheStartOfTheJob) {
  Prepare("max_steps: 1");
  Run([this] {
    Count();
    End();
  });
}

void JobTelemetryTest::Count() {
  const std::unique_ptr<ServerMetrics> metrics = ServerMetrics::Create();
  DeviceReports devices(*pool_, *metrics, {});
  TraceRecorder recorder(devices.ledgers());
  std::vector<std::string> notes;
  JobTelemetry telemetry(
      {*metrics, devices, recorder,
       [&](const std::string& text) { notes.push_back(text); }},
      "job-3");
  EXPECT_FALSE(telemetry.counts());
  EXPECT_TRUE(telemetry.device_use().empty());
  telemetry.StartCounting();
  EXPECT_TRUE(telemetry.counts());
  wire::SlotDone done;
  done.compute_ns = 2000000000;
  telemetry.OnSlot(DeviceId{1}, SlotKind::kFused, done);
  telemetry.OnSlot(DeviceId{1}, SlotKind::kFused, done);
  const std::vector<DeviceUse> use = telemetry.device_use();
  ASSERT_EQ(use.size(), static_cast<size_t>(kDevices));
  EXPECT_EQ(use[0].compute_seconds, 0);
  EXPECT_EQ(use[1].compute_seconds, 4);
  telemetry.OnRecovered(DeviceId{1}, 0.5);
  EXPECT_EQ(notes,
            std::vector<std::string>{"device 1 works again after 0.5 s"});
}

}  // namespace
}  // namespace roundhouse
