// What every device's PeerLink must do, as a suite (peers_conformance.cc) over
// members that are threads of the test's process.  A backend's test
// instantiates it, as those of device_conformance.h:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, PeersConformance,
//                            testing::Values(PeerDeviceFactory(...)));
#ifndef ROUNDHOUSE_WORKER_DEVICE_PEERS_CONFORMANCE_H_
#define ROUNDHOUSE_WORKER_DEVICE_PEERS_CONFORMANCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "worker/device/device.h"
#include "worker/device/peers.h"

namespace roundhouse::worker {

// Makes the device of member `rank`, whose limit is the given number of bytes.
// FAILED_PRECONDITION: this machine has not as many; the test is then skipped.
using PeerDeviceFactory =
    std::function<absl::StatusOr<std::unique_ptr<Device>>(int rank, uint64_t)>;

// A member of a group: its device, a stream of it, and memory in and out.
struct PeerMember {
  std::vector<std::byte> Download(const DeviceBuffer& buffer);
  std::unique_ptr<DeviceBuffer> Upload(const std::vector<std::byte>& bytes);
  absl::Status Join(const PeerGroupId& id);

  int rank = 0;
  int size = 1;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<PeerGroup> group;
  std::atomic<bool> given_up{false};
};

class PeersConformance : public testing::TestWithParam<PeerDeviceFactory> {
 protected:
  // `members_`, not joined.  False: there are not so many devices, and the test
  // is skipped.
  bool Open(int size);
  // Calls `act` for each member, at once, each in a thread of its own.
  void Each(const std::function<void(PeerMember&)>& act);
  // All of them, to a new group.
  void Join();

  std::vector<std::unique_ptr<PeerMember>> members_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_PEERS_CONFORMANCE_H_
