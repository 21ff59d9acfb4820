#include "server/doctor/doctor.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(DoctorTest, OneExaminationAtATime) {
  absl::Notification begun;
  absl::Notification go_on;
  Doctor doctor([&] {
    if (!begun.HasBeenNotified()) begun.Notify();
    go_on.WaitForNotification();
    return std::vector<Finding>{{.name = "disk"}};
  });
  std::thread first([&] {
    const auto found = doctor.Diagnose();
    EXPECT_TRUE(found.ok() && found->size() == 1);
  });
  begun.WaitForNotification();
  EXPECT_TRUE(absl::IsUnavailable(doctor.Diagnose().status()));
  go_on.Notify();
  first.join();
  EXPECT_TRUE(doctor.Diagnose().ok());
}

// A machine where nothing is installed: every check says so, none fails.
TEST(DoctorTest, ExaminesWhatIsNotThere) {
  const std::vector<Finding> findings =
      Examine({.state_dir = "/dev/null/state",
               .socket_path = "/dev/null/run/socket",
               .data_roots = {"/no/such/root", testing::TempDir()},
               .host_memory_bytes = 1 << 20,
               .devices = DeviceKind::kGpu,
               .worker_program = "/no/worker",
               .gpu_probe = "/no/probe",
               .prepare_script = "/no/prepare.py",
               .python = "/no/python"});
  std::vector<std::string> problems;
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kProblem) problems.push_back(finding.name);
  }
  EXPECT_THAT(problems, testing::ElementsAre(
                            "GPUs", "LibTorch", "Python", "dataset helper",
                            "state directory", "socket", "data root"));
}

}  // namespace
}  // namespace roundhouse
