#include "server/calls/stream_pump.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr const char* kKindNames[kStreamKinds] = {"streams", "exports",
                                                  "samples", "traces", "pulls"};

absl::Status TooMany(const char* have, size_t count, absl::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat(
      have, count, what, ", the most of a user; end some and try again"));
}

}  // namespace

StreamPlace& StreamPlace::operator=(StreamPlace&& other) noexcept {
  std::swap(pump_, other.pump_);
  std::swap(peer_, other.peer_);
  std::swap(kind_, other.kind_);
  return *this;
}

StreamPlace::~StreamPlace() {
  if (pump_ != nullptr) pump_->GiveBack(peer_, kind_);
}

StreamPump::StreamPump(absl::Duration patience) : patience_(patience) {
  thread_ = std::thread([this] { Loop(); });
}

StreamPump::~StreamPump() { Stop(); }

void StreamPump::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ROUNDHOUSE_CHECK(streams_.empty());
    stop_ = true;
  }
  changed_.NotifyOne();
  thread_.join();
}

absl::StatusOr<StreamPlace> StreamPump::Take(const Peer& peer,
                                             StreamKind kind) {
  const auto index = static_cast<size_t>(kind);
  MutexLock lock(mutex_);
  const auto found = shares_.find(peer);
  const Share has = found == shares_.end() ? Share() : found->second;
  if (has.all >= kMaxStreamsEach) {
    return TooMany("you have ", has.all, " streams open");
  }
  if (has.of_kind[index] >= kMaxStreamsOfKind[index]) {
    return TooMany("you have ", has.of_kind[index],
                   absl::StrCat(" ", kKindNames[index], " open"));
  }
  if (places_ >= kMaxStreams) {
    return absl::ResourceExhaustedError(absl::StrCat(
        kMaxStreams, " streams are open, the most in all; try again later"));
  }
  Share& share = shares_[peer];
  ++share.all;
  ++share.of_kind[index];
  ++places_;
  return StreamPlace(this, peer, kind);
}

void StreamPump::GiveBack(const Peer& peer, StreamKind kind) {
  MutexLock lock(mutex_);
  const auto found = shares_.find(peer);
  ROUNDHOUSE_CHECK(found != shares_.end());
  --found->second.of_kind[static_cast<size_t>(kind)];
  --places_;
  if (--found->second.all == 0) shares_.erase(found);
}

void StreamPump::Add(std::shared_ptr<PumpedStream> stream) {
  {
    MutexLock lock(mutex_);
    PumpedStream* const key = stream.get();
    streams_.emplace(key, std::move(stream));
    woken_one_.insert(key);
  }
  changed_.NotifyOne();
}

void StreamPump::Remove(PumpedStream* stream) {
  std::shared_ptr<PumpedStream> last;  // Dies without the lock.
  MutexLock lock(mutex_);
  woken_one_.erase(stream);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  last = std::move(found->second);
  streams_.erase(found);
}

void StreamPump::Wake() {
  {
    MutexLock lock(mutex_);
    woken_ = true;
  }
  changed_.NotifyOne();
}

void StreamPump::WakeOne(PumpedStream* stream) {
  {
    MutexLock lock(mutex_);
    if (streams_.count(stream) == 0) return;
    woken_one_.insert(stream);
  }
  changed_.NotifyOne();
}

void StreamPump::StoreChanged() {
  ++changes_;
  Wake();
}

void StreamPump::Loop() {
  absl::Time all_at = WallTime();
  MutexLock lock(mutex_);
  while (!stop_) {
    const CondVar::Deadline deadline = CondVar::DeadlineIn(kPumpInterval);
    while (!stop_ && !woken_ && woken_one_.empty() &&
           changed_.WaitUntil(mutex_, deadline)) {
    }
    const absl::Time now = WallTime();
    std::vector<std::shared_ptr<PumpedStream>> streams;
    if (std::exchange(woken_, false) || now - all_at >= kPumpInterval ||
        now < all_at) {
      all_at = now;
      for (const auto& [key, stream] : streams_) streams.push_back(stream);
    } else {
      for (PumpedStream* key : woken_one_) streams.push_back(streams_.at(key));
    }
    woken_one_.clear();
    mutex_.Unlock();
    for (const auto& stream : streams) stream->Pump(WallTime());
    streams.clear();
    mutex_.Lock();
  }
}

}  // namespace roundhouse
