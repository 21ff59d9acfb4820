#include "worker/device/lazy_peers.h"

#include <atomic>
#include <utility>
#include <vector>

#include "base/status.h"
#include "worker/device/cpu/socket_peers.h"
#include "worker/device/lazy_device.h"

namespace roundhouse::worker {
namespace {

class LazyGroup : public PeerGroup {
 public:
  explicit LazyGroup(std::unique_ptr<PeerGroup> group)
      : group_(std::move(group)) {}
  ~LazyGroup() override { LazyGroup::Abort(); }

  // A group that fails is no error of the stream, which goes on; it says so
  // itself from then on.
  absl::Status Exchange(Stream& stream,
                        const std::vector<PeerCopy>& copies) override {
    RETURN_IF_ERROR(group_->Finish(stream));
    QueueWork(stream.native(), [group = group_, &stream, copies] {
      group->Exchange(stream, copies).IgnoreError();
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  absl::Status Finish(Stream& stream) override {
    RETURN_IF_ERROR(FinishWork(stream.native()));
    return group_->Finish(stream);
  }

  void Abort() override { group_->Abort(); }

 private:
  const std::shared_ptr<PeerGroup> group_;  // queued work has it, too
};

class LazyPeers : public PeerLink {
 public:
  explicit LazyPeers(const InjectedLoss& loss)
      : sockets_(NewSocketPeers(loss)) {}

  absl::StatusOr<PeerGroupId> NewGroupId() override {
    return sockets_->NewGroupId();
  }
  absl::StatusOr<std::unique_ptr<PeerGroup>> Join(
      const PeerGroupId& id, int rank, int size,
      const std::atomic<bool>& given_up) override {
    ASSIGN_OR_RETURN(std::unique_ptr<PeerGroup> group,
                     sockets_->Join(id, rank, size, given_up));
    return std::make_unique<LazyGroup>(std::move(group));
  }

 private:
  const std::unique_ptr<PeerLink> sockets_;
};

}  // namespace

std::unique_ptr<PeerLink> NewLazyPeers(const InjectedLoss& loss) {
  return std::make_unique<LazyPeers>(loss);
}

}  // namespace roundhouse::worker
