// A device on which nothing is computed and nothing is copied: what it does
// takes time, and that is all.  Its memory is address space that nobody may
// touch, with the accounting of a real device.
//
// It has a compute engine and a link in each direction (tests/fakes/pace.h).
// Each piece of work begins when its resource is free and when the work before
// it on the same buffers is over, as streams and events order it on a GPU:
//
//   computation   the compute engine's, queued: what its thread is late with
//                 is not the device's time.  A backfill slot's is asked for
//                 when its thread has the device
//   downloads     queued likewise: they follow the computation that fills their
//                 buffer
//   uploads       asked for when the copy queue's thread hands them over, since
//                 a host thread has seen their word then
//
// Links take bytes / rate; work of streams on the device takes no time of its
// own.
#ifndef ROUNDHOUSE_TESTS_FAKES_FAKE_DEVICE_H_
#define ROUNDHOUSE_TESTS_FAKES_FAKE_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/fakes/pace.h"
#include "worker/device/device.h"
#include "worker/device/injected_loss.h"
#include "worker/device/memory_account.h"

namespace roundhouse::fakes {

enum class Engine { kCompute, kUpload, kDownload };

struct FakeDeviceOptions {
  uint64_t memory_bytes = 0;
  // The speed in each direction; 0: copies take no time.
  double link_bytes_per_second = 0;
  double upload_bytes_per_second = 0;  // 0: the link's
  // Is told each interval that takes time, by the thread that waits it out.
  std::function<void(Engine, Resource::Interval)> observe;
};

// Thread rule: as Device; one thread uploads, one downloads.  The first stream
// is the compute thread's (worker/slot/slot_runner.cc); native() of each later
// one has a handle.
class FakeDevice : public worker::Device {
 public:
  // Mappings that wait for their next use.
  static constexpr size_t kMaxSpare = 256;

  // `clock` outlives it.
  FakeDevice(FakeDeviceOptions options, Clock& clock);
  ~FakeDevice() override;

  absl::StatusOr<std::unique_ptr<worker::DeviceBuffer>> Allocate(
      uint64_t bytes, const std::string& what) override;
  absl::StatusOr<std::unique_ptr<worker::Stream>> NewStream() override;
  worker::DeviceMemory memory() const override { return account_.memory(); }
  uint64_t TakePeak() override { return account_.TakePeak(); }
  worker::CopyChunks copy_chunks() const override { return {}; }
  worker::LinkBandwidth link_bandwidth() const override;

  // Occupies the compute engine for `duration_ns`, once the work before it on
  // the buffers in which `uses` lie is over; blocks until then.  An address
  // that lies in no buffer waits for nothing.
  void Compute(int64_t duration_ns, const std::vector<const void*>& uses);
  // The same, and not before the call.
  void ComputeAsked(int64_t duration_ns, const std::vector<const void*>& uses);
  // A copy of `bytes` to or from the buffer in which `device` lies.
  void Upload(const void* device, uint64_t bytes);
  void Download(const void* device, uint64_t bytes);

 private:
  class Buffer;
  class WorkStream;
  struct Region {
    uint64_t bytes = 0;
    int64_t ready_ns = 0;  // the last work on it is over
  };

  // What is mapped for `bytes`, maybe before; null: no address space, see
  // errno.
  std::byte* Map(uint64_t bytes);
  void Register(const std::byte* data, uint64_t bytes);
  void Forget(std::byte* data, uint64_t bytes);
  Region* Find(const void* address);  // holds mutex_; null: in no buffer
  int64_t ReadyAt(const std::vector<const void*>& uses);
  void Finish(Engine engine, Resource::Interval interval,
              const std::vector<const void*>& uses);
  double LinkRate(Engine engine) const;  // bytes per second; 0: at once
  int64_t LinkNs(Engine engine, uint64_t bytes) const;

  const FakeDeviceOptions options_;
  worker::MemoryAccount account_;
  worker::InjectedLoss loss_;
  Resource compute_;
  Resource uploads_;
  Resource downloads_;
  std::atomic<int> streams_ = 0;
  std::mutex mutex_;
  std::map<const std::byte*, Region> regions_;  // guarded by mutex_
  // By their bytes; a GPU's pool makes no system call either.  Guarded by
  // mutex_.
  std::multimap<uint64_t, std::byte*> spare_;
};

}  // namespace roundhouse::fakes

#endif  // ROUNDHOUSE_TESTS_FAKES_FAKE_DEVICE_H_
