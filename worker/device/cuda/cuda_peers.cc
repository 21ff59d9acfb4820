#include "worker/device/cuda/cuda_peers.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/device.h"

namespace roundhouse::worker {
namespace {

static_assert(sizeof(PeerGroupId) == sizeof(ncclUniqueId));

// Between two looks at what is under way: a part of what the shortest exchange
// that is worth one takes, and as long as a thread takes to wake up.
constexpr absl::Duration kLookEvery = absl::Microseconds(50);

bool IsError(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

absl::Status MakeCurrent(int device) {
  return CudaStatus(cudaSetDevice(device), "cudaSetDevice");
}

// ABORTED if the device is lost: whatever NCCL says comes of that.
absl::Status CheckNotLost(int device) {
  RETURN_IF_ERROR(MakeCurrent(device));
  size_t free = 0;
  size_t total = 0;
  // Any call says so; this one needs the device's context.
  const absl::Status status =
      CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return absl::IsAborted(status) ? status : absl::OkStatus();
}

absl::Status Failure(int device, ncclResult_t result, const std::string& what) {
  RETURN_IF_ERROR(CheckNotLost(device));
  const char* const last = ncclGetLastError(nullptr);  // of the process
  return absl::UnavailableError(
      absl::StrCat("peers: ", what, ": ", ncclGetErrorString(result),
                   last == nullptr || *last == '\0' ? "" : ": ", last));
}

class NcclGroup : public PeerGroup {
 public:
  NcclGroup(int device, absl::Duration max_abort)
      : device_(device), max_abort_(max_abort) {}
  ~NcclGroup() override {
    NcclGroup::Abort();
    {
      MutexLock lock(mutex_);
      if (!AwaitAbort()) {
        if (!failure_.ok()) RH_LOG(kError) << failure_.message();
        RH_LOG(kError) << AbortHangs().message() << "; this process ends";
        std::fflush(nullptr);
        _exit(1);
      }
    }
    if (abort_.joinable()) abort_.join();
  }

  // Once, before anything else.
  absl::Status Join(const PeerGroupId& id, int rank, int size,
                    const std::atomic<bool>& given_up) {
    RETURN_IF_ERROR(MakeCurrent(device_));
    const std::string what =
        absl::StrCat("joining as rank ", rank, " of ", size);
    ncclUniqueId unique;
    std::copy(id.begin(), id.end(), unique.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun =
        ncclCommInitRankConfig(&comm_, size, unique, rank, &config);
    if (IsError(begun)) return Fail(begun, what);
    const int64_t deadline_ns =
        MonotonicNs() + absl::ToInt64Nanoseconds(kMaxPeerJoin);
    return Settle(what, [&] {
      if (!given_up && MonotonicNs() < deadline_ns) return absl::OkStatus();
      return absl::UnavailableError(absl::StrCat(
          "peers: ", what, given_up ? " was given up" : " took too long"));
    });
  }

  absl::Status Exchange(Stream& stream,
                        const std::vector<PeerCopy>& copies) override {
    RETURN_IF_ERROR(MakeCurrent(device_));
    ncclResult_t begun = ncclSuccess;
    {
      MutexLock lock(mutex_);
      if (comm_ != nullptr) begun = Begin(stream, copies);
    }
    if (IsError(begun)) return Fail(begun, "an exchange");
    // Only then the kernel is on the stream, and the next call may be made.
    return Settle("an exchange", [] { return absl::OkStatus(); });
  }

  absl::Status Finish(Stream& stream) override {
    RETURN_IF_ERROR(MakeCurrent(device_));
    RETURN_IF_ERROR(Drain(stream));
    Look();
    const absl::Status state = State();
    // What NCCL's threads had not queued by then.
    if (!state.ok()) RETURN_IF_ERROR(Drain(stream));
    return state;
  }

  // In a thread of its own: the kernels under way see it and end, but the call
  // waits for that, for NCCL's threads, and, where it frees memory, for all
  // that the device does, which may be another group that is to be aborted.
  void Abort() override {
    over_ = true;
    MutexLock lock(mutex_);
    if (comm_ == nullptr) return;
    aborting_ = true;
    abort_deadline_ = CondVar::DeadlineIn(max_abort_);
    abort_ = std::thread([this, comm = std::exchange(comm_, nullptr)] {
      MakeCurrent(device_).IgnoreError();
      ncclCommAbort(comm);  // an error leaves memory behind, nothing else
      MutexLock aborted(mutex_);
      aborting_ = false;
      aborted_.NotifyAll();
    });
  }

 private:
  ncclResult_t Begin(Stream& stream, const std::vector<PeerCopy>& copies)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto handle = static_cast<cudaStream_t>(stream.native().handle);
    ncclResult_t first = ncclGroupStart();
    if (IsError(first)) return first;
    const auto note = [&first](ncclResult_t result) {
      if (!IsError(first)) first = result;
    };
    for (const PeerCopy& copy : copies) {
      if (copy.send_bytes > 0) {
        note(ncclSend(copy.send, copy.send_bytes, ncclUint8, copy.rank, comm_,
                      handle));
      }
      if (copy.receive_bytes > 0) {
        note(ncclRecv(copy.receive, copy.receive_bytes, ncclUint8, copy.rank,
                      comm_, handle));
      }
    }
    // Also after an error: the thread's next group is another one.
    note(ncclGroupEnd());
    return first;
  }

  // What NCCL's threads have come to.
  ncclResult_t Asked() {
    MutexLock lock(mutex_);
    if (comm_ == nullptr) return ncclSuccess;  // over_ says why
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    return IsError(asked) ? asked : state;
  }

  // Until the stream has nothing to do; looks after the group meanwhile.
  absl::Status Drain(Stream& stream) {
    const auto handle = static_cast<cudaStream_t>(stream.native().handle);
    while (true) {
      const cudaError_t done = cudaStreamQuery(handle);
      if (done == cudaSuccess) return absl::OkStatus();
      const absl::Status status = CudaStatus(done, "cudaStreamQuery");
      if (done != cudaErrorNotReady) return status;
      Look();
      absl::SleepFor(kLookEvery);
    }
  }

  // Ends the group if something has gone wrong.
  void Look() {
    const ncclResult_t state = Asked();
    if (IsError(state)) Fail(state, "an exchange").IgnoreError();
  }

  // Until nothing of what was begun is left to be done by NCCL's threads.
  // `stop`, not OK: ends the group.
  absl::Status Settle(const std::string& what,
                      const std::function<absl::Status()>& stop) {
    while (true) {
      const ncclResult_t state = Asked();
      if (IsError(state)) return Fail(state, what);
      if (over_ || state == ncclSuccess) return State();
      const absl::Status stopped = stop();
      if (!stopped.ok()) return FailWith(stopped);
      absl::SleepFor(kLookEvery);
    }
  }

  absl::Status Fail(ncclResult_t result, const std::string& what) {
    return FailWith(Failure(device_, result, what));
  }

  // The first reason is the group's.
  absl::Status FailWith(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      if (!over_) failure_.Update(status);
    }
    Abort();
    return State();
  }

  // The state for calls that come, or go on, after the group's end. They wait
  // until nothing of NCCL's is left that could queue more.
  absl::Status State() {
    if (!over_) return absl::OkStatus();
    Abort();  // who has said so may not have begun
    MutexLock lock(mutex_);
    if (!absl::IsAborted(failure_) && !AwaitAbort()) return AbortHangs();
    return failure_.ok()
               ? absl::UnavailableError("peers: the group was aborted")
               : failure_;
  }

  // False: NCCL has not come back; what of its kernels is left on the device,
  // nobody knows.
  bool AwaitAbort() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (aborting_ && aborted_.WaitUntil(mutex_, abort_deadline_)) {
    }
    return !aborting_;
  }
  absl::Status AbortHangs() const {
    return absl::AbortedError(
        absl::StrCat("device is lost: ncclCommAbort has not returned for ",
                     absl::FormatDuration(max_abort_)));
  }

  const int device_;
  const absl::Duration max_abort_;
  std::atomic<bool> over_{false};  // set before comm_ goes
  Mutex mutex_;  // held for every call with comm_; none takes long
  CondVar aborted_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool aborting_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar::Deadline abort_deadline_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // why it is over
  std::thread abort_;
};

class CudaPeers : public PeerLink {
 public:
  CudaPeers(int device, absl::Duration max_abort)
      : device_(device), max_abort_(max_abort) {}

  absl::StatusOr<PeerGroupId> NewGroupId() override {
    RETURN_IF_ERROR(MakeCurrent(device_));
    ncclUniqueId unique;
    const ncclResult_t made = ncclGetUniqueId(&unique);
    if (IsError(made)) return Failure(device_, made, "ncclGetUniqueId");
    PeerGroupId id;
    std::copy(std::begin(unique.internal), std::end(unique.internal),
              id.begin());
    return id;
  }

  absl::StatusOr<std::unique_ptr<PeerGroup>> Join(
      const PeerGroupId& id, int rank, int size,
      const std::atomic<bool>& given_up) override {
    ROUNDHOUSE_CHECK(0 <= rank && rank < size && size <= kMaxPeers)
        << "rank " << rank << " of " << size;
    auto group = std::make_unique<NcclGroup>(device_, max_abort_);
    RETURN_IF_ERROR(group->Join(id, rank, size, given_up));
    return group;
  }

 private:
  const int device_;
  const absl::Duration max_abort_;
};

}  // namespace

std::unique_ptr<PeerLink> NewCudaPeers(int device, absl::Duration max_abort) {
  return std::make_unique<CudaPeers>(device, max_abort);
}

}  // namespace roundhouse::worker
