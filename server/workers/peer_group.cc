#include "server/workers/peer_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"

namespace roundhouse {

PeerGroup::PeerGroup(EventLoop& loop, WorkerPool& pool, const Options& options)
    : loop_(loop), pool_(pool), options_(options) {}

PeerGroup::~PeerGroup() {
  loop_.CancelTimer(check_timer_);
  loop_.CancelTimer(retry_timer_);
}

uint32_t PeerGroup::RankOf(DeviceId device) const {
  const auto found = std::find(members_.begin(), members_.end(), device);
  ROUNDHOUSE_CHECK(found != members_.end()) << "device " << Number(device);
  return static_cast<uint32_t>(found - members_.begin());
}

bool PeerGroup::IsMember(WorkerId worker) const {
  return std::any_of(members_.begin(), members_.end(), [&](DeviceId device) {
    return pool_.DeviceWorker(device) == worker;
  });
}

void PeerGroup::OnWorkerUp(WorkerId worker) {
  if (Number(worker) >= pool_.device_count()) return;
  if (phase_ != Phase::kNone && !IsMember(worker)) {
    End(absl::StrCat("device ", Number(worker), " came back"), Blame::kWorker);
  }
  FormIfComplete();
}

void PeerGroup::OnWorkerDown(WorkerId worker) {
  if (!IsMember(worker)) return;
  if (retry_timer_ != 0) {
    // So that was why a member left the group: it had noticed first.
    loop_.CancelTimer(std::exchange(retry_timer_, 0));
    --failures_;
  }
  if (phase_ == Phase::kNone) return;
  if (phase_ == Phase::kForming) ++failures_;  // it may have died of joining
  End(absl::StrCat("the worker of device ", Number(worker), " is gone"),
      Blame::kWorker);
}

// What failed because of it may work without it.
void PeerGroup::OnDeviceLost(DeviceId) {
  failures_ = 0;
  FormIfComplete();
}

// Forms a group of all devices that are not gone.
void PeerGroup::FormIfComplete() {
  if (!options_.enabled || phase_ != Phase::kNone ||
      failures_ >= kMaxFailures || retry_timer_ != 0) {
    return;
  }
  std::vector<DeviceId> members;
  for (int i = 0; i < pool_.device_count(); ++i) {
    const auto device = static_cast<DeviceId>(i);
    if (pool_.gone(device)) continue;
    if (!pool_.up(pool_.DeviceWorker(device))) return;
    members.push_back(device);
  }
  if (members.size() < 2) return;
  members_ = std::move(members);
  joined_.clear();
  phase_ = Phase::kForming;
  ++number_;
  awaited_ = 0;
  heard_ns_ = loop_.clock().MonotonicNs();
  pool_.Send(pool_.DeviceWorker(members_[0]),
             wire::JoinPeers{.group = number_,
                             .rank = 0,
                             .size = static_cast<uint32_t>(members_.size())});
  CheckLater();
}

void PeerGroup::OnMessage(WorkerId worker, const wire::Message& message) {
  const wire::Body& body = message.body;
  if (const auto* invited = std::get_if<wire::PeersInvited>(&body)) {
    if (phase_ != Phase::kForming || invited->group != number_) return;
    for (size_t rank = 1; rank < members_.size(); ++rank) {
      pool_.Send(pool_.DeviceWorker(members_[rank]),
                 wire::JoinPeers{.group = number_,
                                 .rank = static_cast<uint32_t>(rank),
                                 .size = static_cast<uint32_t>(members_.size()),
                                 .id = invited->id});
    }
  } else if (const auto* joined = std::get_if<wire::PeersJoined>(&body)) {
    if (phase_ != Phase::kForming || joined->group != number_) return;
    joined_.insert(worker);
    if (joined_.size() < members_.size()) return;
    phase_ = Phase::kThere;
    heard_ns_ = loop_.clock().MonotonicNs();
    RH_LOG(kInfo) << members_.size()
                  << " devices add up sums of wide slots between them (group "
                  << number_ << ")";
  } else if (const auto* left = std::get_if<wire::PeersLeft>(&body)) {
    if (phase_ == Phase::kNone || left->group != number_) return;
    End(absl::StrCat("device ", Number(worker), ": ", left->text),
        Blame::kGroup);
  } else if (const auto* slice = std::get_if<wire::SliceDown>(&body)) {
    if (slice->group != number()) return;
    --awaited_;
    heard_ns_ = loop_.clock().MonotonicNs();
  }
}

void PeerGroup::NoteSent() {
  if (awaited_++ == 0) heard_ns_ = loop_.clock().MonotonicNs();
}

void PeerGroup::End(const std::string& why, Blame blame) {
  const bool failure = blame == Blame::kGroup;
  const bool was_there = phase_ == Phase::kThere;
  phase_ = Phase::kNone;
  loop_.CancelTimer(std::exchange(check_timer_, 0));
  for (const DeviceId device : members_) {
    const WorkerId worker = pool_.DeviceWorker(device);
    if (pool_.up(worker)) pool_.Send(worker, wire::LeavePeers{number_});
  }
  if (failure) ++failures_;
  const bool given_up = failures_ >= kMaxFailures;
  RH_LOG(kWarning) << "the devices add up no sums between them (group "
                   << number_ << "): " << why
                   << (given_up ? "; not tried again" : "");
  if (failure && !given_up) {
    retry_timer_ = loop_.After(options_.retry_delay, [this] {
      retry_timer_ = 0;
      FormIfComplete();
    });
  }
  if (was_there) over_();
}

void PeerGroup::CheckLater() {
  check_timer_ = loop_.After(options_.limit / 4, [this] { Check(); });
}

void PeerGroup::Check() {
  check_timer_ = 0;
  if (phase_ == Phase::kNone) return;
  const bool awaits = phase_ == Phase::kForming || awaited_ > 0;
  const bool silent = loop_.clock().MonotonicNs() - heard_ns_ >
                      absl::ToInt64Nanoseconds(options_.limit);
  if (awaits && silent) {
    return End(
        absl::StrCat("no answer for ", absl::FormatDuration(options_.limit)),
        Blame::kGroup);
  }
  CheckLater();
}

}  // namespace roundhouse
