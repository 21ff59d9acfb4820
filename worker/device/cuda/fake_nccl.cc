#include "worker/device/cuda/fake_nccl.h"

#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "worker/device/cuda/fake_cudart.h"

namespace roundhouse::worker {
namespace {

struct Letter {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// All members of one id.
struct Clique {
  std::set<int> joined;
  // Sent and not received, by from and to.
  std::map<std::pair<int, int>, std::deque<Letter>> letters;
};

struct Copy {
  bool send = false;
  int peer = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// What a group call queues; outlives its communicator.
struct Kernel {
  std::shared_ptr<Clique> clique;
  std::shared_ptr<std::atomic<bool>> aborted;
  int rank = 0;
  std::vector<Copy> copies;
  bool sent = false;
};

Mutex mutex;
std::map<std::string, std::shared_ptr<Clique>> cliques ABSL_GUARDED_BY(mutex);

}  // namespace
}  // namespace roundhouse::worker

struct ncclComm {
  std::shared_ptr<roundhouse::worker::Clique> clique;
  std::shared_ptr<std::atomic<bool>> aborted =
      std::make_shared<std::atomic<bool>>(false);
  int rank = 0;
  int size = 0;
  std::atomic<bool> in_use{false};
  int in_progress = 0;
  cudaStream_t stream = nullptr;
  std::vector<roundhouse::worker::Copy> begun;  // and not yet on the stream
};

namespace roundhouse::worker {
namespace {

std::set<ncclComm_t> alive ABSL_GUARDED_BY(mutex);

thread_local int group_depth = 0;
thread_local ncclComm_t group_comm = nullptr;
thread_local std::vector<Copy> group_copies;

// For as long as a call with a communicator lasts.
class Call {
 public:
  explicit Call(ncclComm_t comm) : comm_(comm) {
    MutexLock lock(mutex);
    ROUNDHOUSE_CHECK(alive.count(comm) == 1) << "no communicator";
    ROUNDHOUSE_CHECK(!comm->in_use.exchange(true)) << "two calls at a time";
  }
  ~Call() { comm_->in_use = false; }

 private:
  const ncclComm_t comm_;
};

// Whether the kernel is done.
bool TryCopies(Kernel& kernel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  auto& letters = kernel.clique->letters;
  bool done = true;
  for (Copy& copy : kernel.copies) {
    if (!copy.send) {
      auto& waiting = letters[{copy.peer, kernel.rank}];
      if (copy.bytes > 0 && !waiting.empty()) {
        ROUNDHOUSE_CHECK(waiting.front().bytes == copy.bytes);
        std::memcpy(copy.data, waiting.front().data, copy.bytes);
        waiting.pop_front();
        copy.bytes = 0;
      }
      done = done && copy.bytes == 0;
      continue;
    }
    auto& waiting = letters[{kernel.rank, copy.peer}];
    if (!kernel.sent) waiting.push_back({copy.data, copy.bytes});
    done = done && waiting.empty();
  }
  kernel.sent = true;
  return done;
}

cudaError_t Launch(ncclComm& comm) {
  auto kernel = std::make_shared<Kernel>();
  kernel->clique = comm.clique;
  kernel->aborted = comm.aborted;
  kernel->rank = comm.rank;
  kernel->copies = std::exchange(comm.begun, {});
  ++Nccl().kernels;
  return QueueFakeKernel(comm.stream, [kernel] {
    MutexLock lock(mutex);
    return *kernel->aborted || TryCopies(*kernel);
  });
}

ncclResult_t Queue(const Copy& copy, ncclDataType_t type, ncclComm_t comm,
                   cudaStream_t stream) {
  const Call call(comm);
  ROUNDHOUSE_CHECK(group_depth == 1 && type == ncclUint8 && copy.bytes > 0);
  ROUNDHOUSE_CHECK(copy.peer >= 0 && copy.peer < comm->size &&
                   copy.peer != comm->rank);
  ROUNDHOUSE_CHECK(comm->begun.empty() && comm->in_progress == 0)
      << "the last call is in progress";
  ROUNDHOUSE_CHECK(group_comm == nullptr || group_comm == comm);
  group_comm = comm;
  comm->stream = stream;
  group_copies.push_back(copy);
  return ncclSuccess;
}

}  // namespace

FakeNccl& Nccl() {
  static FakeNccl nccl;
  return nccl;
}

}  // namespace roundhouse::worker

using namespace roundhouse::worker;  // NOLINT: the functions are NCCL's
using roundhouse::MutexLock;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "fake remote error" : "fake error";
}

const char* ncclGetLastError(ncclComm_t) { return Nccl().last_error; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  const std::string text = std::to_string(++made);
  std::memset(id->internal, 0, sizeof(id->internal));
  text.copy(id->internal, sizeof(id->internal));
  return Nccl().id;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t* config) {
  ROUNDHOUSE_CHECK(config->size == sizeof(ncclConfig_t) &&
                   config->blocking == 0);
  size_t free = 0;
  size_t total = 0;
  // Checks which device is current.
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    return ncclUnhandledCudaError;
  }
  if (Nccl().init != ncclSuccess) return Nccl().init;
  MutexLock lock(mutex);
  auto& clique = cliques[std::string(id.internal, sizeof(id.internal))];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  ROUNDHOUSE_CHECK(clique->joined.insert(rank).second) << "rank " << rank;
  *comm = new ncclComm;
  (*comm)->clique = clique;
  (*comm)->rank = rank;
  (*comm)->size = size;
  (*comm)->in_progress = Nccl().in_progress;
  alive.insert(*comm);
  ++Nccl().communicators;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Call call(comm);
  *state = Nccl().async;
  if (*state != ncclSuccess) {
    const cudaError_t lost = Nccl().async_lost;
    if (lost != cudaSuccess) Cudart().lost = lost;
    return ncclSuccess;
  }
  {
    MutexLock lock(mutex);
    const bool all = comm->clique->joined.size() == size_t(comm->size);
    if (!all || comm->in_progress > 0) *state = ncclInProgress;
    if (all && comm->in_progress > 0) --comm->in_progress;
  }
  if (*state == ncclSuccess && !comm->begun.empty() &&
      Launch(*comm) != cudaSuccess) {
    *state = ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const Call call(comm);
    *comm->aborted = true;
    while (Nccl().hold_aborts) std::this_thread::yield();
    ++Nccl().aborts;
    --Nccl().communicators;
    MutexLock lock(mutex);
    alive.erase(comm);
  }
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ROUNDHOUSE_CHECK(group_depth++ == 0);
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  ROUNDHOUSE_CHECK(--group_depth == 0);
  const ncclComm_t comm = std::exchange(group_comm, nullptr);
  std::vector<Copy> copies = std::exchange(group_copies, {});
  if (comm == nullptr) return ncclSuccess;
  const Call call(comm);
  if (Nccl().group != ncclSuccess) return Nccl().group;
  comm->begun = std::move(copies);
  comm->in_progress = Nccl().in_progress;
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* data, size_t bytes, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  auto* const from =
      const_cast<std::byte*>(static_cast<const std::byte*>(data));
  return Queue({true, peer, from, bytes}, type, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t bytes, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Queue({false, peer, static_cast<std::byte*>(data), bytes}, type, comm,
               stream);
}

}  // extern "C"
