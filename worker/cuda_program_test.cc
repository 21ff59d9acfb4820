// roundhouse-worker of a build with CUDA where it sees no GPU: on a machine
// without one, and with CUDA_VISIBLE_DEVICES empty on any other.
#include <cstdlib>
#include <memory>
#include <string>

#include "base/wire/arena.h"
#include "base/wire/exit_status.h"
#include "gtest/gtest.h"
#include "worker/worker_process.h"

namespace roundhouse::worker {
namespace {

struct End {
  int status;
  std::string text;  // of standard error
};

End RunDeviceWorkerOn(const std::string& device) {
  const auto arena = *wire::Arena::Create(1 << 20, 4);
  EXPECT_EQ(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
  testing::internal::CaptureStderr();
  WorkerProcess worker("worker/roundhouse-worker", *arena,
                       {"--role=device", "--device=" + device});
  const int status = worker.Exit();
  return {status, testing::internal::GetCapturedStderr()};
}

TEST(CudaProgramTest, SaysInOneLineThatThereIsNoDevice) {
  const End end = RunDeviceWorkerOn("cuda:0");
  EXPECT_EQ(end.status, wire::kUnableExit) << end.text;
  EXPECT_NE(end.text.find("FAILED_PRECONDITION: --device=cuda:0: no CUDA "
                          "device (it takes an NVIDIA GPU and driver R580 or "
                          "newer; CUDA_VISIBLE_DEVICES=)"),
            std::string::npos)
      << end.text;
  EXPECT_EQ(end.text.find('\n'), end.text.size() - 1) << end.text;
}

TEST(CudaProgramTest, SaysWhichNamesThereAre) {
  for (const std::string device : {"cuda", "cuda:", "cuda:one", "cuda:-1"}) {
    const End end = RunDeviceWorkerOn(device);
    EXPECT_EQ(end.status, 1) << end.text;
    EXPECT_NE(end.text.find("INVALID_ARGUMENT: --device=" + device +
                            ": want cpu or cuda:N\n"),
              std::string::npos)
        << end.text;
  }
}

}  // namespace
}  // namespace roundhouse::worker
