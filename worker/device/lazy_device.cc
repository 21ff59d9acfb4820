#include "worker/device/lazy_device.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/convert.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "worker/device/injected_loss.h"
#include "worker/device/lazy_peers.h"
#include "worker/device/memory_account.h"
#include "worker/device/peers.h"

namespace roundhouse::worker {
namespace {

constexpr int kNonsense = 0xFF;  // a NaN in every float dtype

// What a stream has to do.  Outlives it as long as an event is there.
class WorkList {
 public:
  // Returns the number of all pieces so far.
  uint64_t Add(std::function<absl::Status()> work) {
    MutexLock lock(mutex_);
    work_.push_back(std::move(work));
    return ++added_;
  }
  uint64_t added() const {
    MutexLock lock(mutex_);
    return added_;
  }
  absl::Status DoUntil(uint64_t number) {
    MutexLock doing(doing_);
    while (true) {
      std::function<absl::Status()> next;
      {
        MutexLock lock(mutex_);
        if (done_ >= number || work_.empty()) return failure_;
        next = std::move(work_.front());
        work_.pop_front();
      }
      absl::Status status = next();
      next = nullptr;  // with what it keeps, in the stream's order
      MutexLock lock(mutex_);
      ++done_;
      failure_.Update(status);
    }
  }

 private:
  Mutex doing_;  // held while work is done
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(doing_);
  std::deque<std::function<absl::Status()>> work_ ABSL_GUARDED_BY(mutex_);
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

class LazyEvent : public Event {
 public:
  LazyEvent(std::shared_ptr<WorkList> work, uint64_t number)
      : work_(std::move(work)), number_(number) {}
  absl::Status Wait() override { return work_->DoUntil(number_); }

 private:
  const std::shared_ptr<WorkList> work_;
  const uint64_t number_;
};

class LazyMark : public TimeMark {
 public:
  // `at_ns` is 0 until the work before the mark is done.
  explicit LazyMark(std::shared_ptr<int64_t> at_ns)
      : at_ns_(std::move(at_ns)) {}
  absl::StatusOr<int64_t> NsSince(const TimeMark& earlier) const override {
    const int64_t from_ns = *static_cast<const LazyMark&>(earlier).at_ns_;
    ROUNDHOUSE_CHECK(*at_ns_ != 0 && from_ns != 0)
        << "a mark that was not waited for";
    return *at_ns_ - from_ns;
  }

 private:
  const std::shared_ptr<int64_t> at_ns_;
};

class LazyStream : public Stream {
 public:
  LazyStream(const PinnedRanges& pinned, InjectedLoss& loss)
      : pinned_(pinned), loss_(loss) {}
  ~LazyStream() override {
    work_->DoUntil(std::numeric_limits<uint64_t>::max()).IgnoreError();
  }

  absl::Status CopyToDevice(std::byte* to, const std::byte* from_host,
                            uint64_t bytes) override {
    CheckHost(from_host, bytes);
    return Copy(to, from_host, bytes);
  }
  absl::Status CopyToHost(std::byte* to_host, const std::byte* from,
                          uint64_t bytes) override {
    CheckHost(to_host, bytes);
    return Copy(to_host, from, bytes);
  }
  absl::Status CopyOnDevice(std::byte* to, const std::byte* from,
                            uint64_t bytes) override {
    return Copy(to, from, bytes);
  }
  absl::Status AddFloats(float* to, const float* from, int64_t count) override {
    return Add([=] {
      for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    });
  }
  absl::Status ZeroFloats(float* to, int64_t count) override {
    return Add([=] {
      std::memset(to, 0, static_cast<size_t>(count) * sizeof(float));
    });
  }
  absl::Status RoundFloats(std::byte* to, const float* from, int64_t count,
                           DType dtype) override {
    return Add([=] { FromF32(dtype, from, to, static_cast<uint64_t>(count)); });
  }
  absl::Status WidenFloats(float* to, const std::byte* from, int64_t count,
                           DType dtype) override {
    return Add([=] { ToF32(dtype, from, to, static_cast<uint64_t>(count)); });
  }
  absl::StatusOr<std::unique_ptr<Event>> Record() override {
    RETURN_IF_ERROR(loss_.Check());
    return std::make_unique<LazyEvent>(work_, work_->added());
  }
  absl::StatusOr<std::unique_ptr<TimeMark>> MarkTime() override {
    auto at_ns = std::make_shared<int64_t>(0);
    RETURN_IF_ERROR(Add([at_ns] { *at_ns = MonotonicNs(); }));
    return std::make_unique<LazyMark>(std::move(at_ns));
  }
  absl::Status BreakDevice() override {
    RETURN_IF_ERROR(loss_.Check());
    work_->Add([&loss = loss_] {
      loss.Happen();
      return loss.Check();
    });
    return absl::OkStatus();
  }
  NativeStream native() const override {
    return {NativeStream::kHost, work_.get()};
  }

 private:
  template <typename Work>
  absl::Status Add(Work work) {
    RETURN_IF_ERROR(loss_.Check());
    work_->Add([work = std::move(work)] {
      work();
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }
  absl::Status Copy(std::byte* to, const std::byte* from, uint64_t bytes) {
    return Add([=] { std::memcpy(to, from, bytes); });
  }

  void CheckHost(const std::byte* host, uint64_t bytes) const {
    ROUNDHOUSE_CHECK(pinned_.MayCopy(host, bytes))
        << "of " << bytes << " bytes some are pinned";
  }

  const PinnedRanges& pinned_;
  InjectedLoss& loss_;
  const std::shared_ptr<WorkList> work_ = std::make_shared<WorkList>();
};

class LazyBuffer : public DeviceBuffer {
 public:
  LazyBuffer(MemoryAccount& account, uint64_t bytes)
      : account_(account),
        bytes_(bytes),
        data_(static_cast<std::byte*>(
            std::aligned_alloc(kDeviceAlignBytes, DeviceBytes(bytes)))) {
    ROUNDHOUSE_CHECK(data_ != nullptr) << bytes;
    std::memset(data_, kNonsense, DeviceBytes(bytes));
  }
  ~LazyBuffer() override {
    std::memset(data_, kNonsense, DeviceBytes(bytes_));
    std::free(data_);
    account_.Give(DeviceBytes(bytes_));
  }
  std::byte* data() const override { return data_; }
  uint64_t bytes() const override { return bytes_; }

 private:
  MemoryAccount& account_;
  const uint64_t bytes_;
  std::byte* const data_;
};

class LazyPinnedHost : public PinnedHost {
 public:
  LazyPinnedHost(PinnedRanges& pinned, const std::byte* data)
      : pinned_(pinned), data_(data) {}
  ~LazyPinnedHost() override { ROUNDHOUSE_CHECK(pinned_.Remove(data_)); }

 private:
  PinnedRanges& pinned_;
  const std::byte* const data_;
};

class LazyDevice : public Device {
 public:
  explicit LazyDevice(uint64_t memory_bytes) : account_(memory_bytes) {}

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(
      uint64_t bytes, const std::string& what) override {
    ROUNDHOUSE_CHECK(bytes > 0) << what;
    RETURN_IF_ERROR(account_.Take(DeviceBytes(bytes), what));
    return std::make_unique<LazyBuffer>(account_, bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return std::make_unique<LazyStream>(pinned_, loss_);
  }
  DeviceMemory memory() const override { return account_.memory(); }
  uint64_t TakePeak() override { return account_.TakePeak(); }
  CopyChunks copy_chunks() const override { return {.in_flight = 3}; }
  absl::StatusOr<std::unique_ptr<PinnedHost>> PinHost(std::byte* data,
                                                      uint64_t bytes) override {
    const PinnedRanges::Added added = pinned_.Add(data, bytes);
    ROUNDHOUSE_CHECK(added != PinnedRanges::Added::kOverlaps);
    if (added == PinnedRanges::Added::kOverLimit) {
      return absl::ResourceExhaustedError("pinned enough");
    }
    return std::make_unique<LazyPinnedHost>(pinned_, data);
  }
  PeerLink* peers() override { return peers_.get(); }
  PinnedRanges& pinned() { return pinned_; }

 private:
  MemoryAccount account_;
  PinnedRanges pinned_;
  InjectedLoss loss_;
  const std::unique_ptr<PeerLink> peers_ = NewLazyPeers(loss_);
};

}  // namespace

std::unique_ptr<Device> NewLazyDevice(uint64_t memory_bytes) {
  return std::make_unique<LazyDevice>(memory_bytes);
}

PinnedRanges& PinnedOf(Device& device) {
  return static_cast<LazyDevice&>(device).pinned();
}

void QueueWork(const NativeStream& stream, std::function<absl::Status()> work) {
  static_cast<WorkList*>(stream.handle)->Add(std::move(work));
}

absl::Status FinishWork(const NativeStream& stream) {
  auto* const work = static_cast<WorkList*>(stream.handle);
  return work->DoUntil(work->added());
}

}  // namespace roundhouse::worker
