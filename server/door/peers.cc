#include "server/door/peers.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {

Peers::Peers(const PeerLimits& limits)
    : limits_(limits), handshakes_(limits.handshakes, absl::InfinitePast()) {}

int Peers::MostConnections(const Peer& peer) const {
  if (!peer.uid.has_value()) return limits_.connections_address;
  return IsTrusted(*peer.uid) ? limits_.connections_admin
                              : limits_.connections_each;
}

int Peers::MostOfAddresses() const {
  const int all = limits_.connections;
  return std::max(1, all - all / kLocalConnectionsPart);
}

absl::Status Peers::CheckRoom(const Peer& peer) const {
  const int all = limits_.connections;
  const bool trusted = peer.uid.has_value() && IsTrusted(*peer.uid);
  const int kept = trusted ? 0 : all / kTrustedConnectionsPart;
  if (connections_ >= all - kept) {
    return absl::ResourceExhaustedError(
        absl::StrCat(all - kept, " connections are open, the most in all"));
  }
  const int network = MostOfAddresses();
  if (peer.uid.has_value() || of_addresses_ < network) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      network, " connections are open over the network, the most of it"));
}

absl::Status Peers::Enter(const Peer& peer, absl::Time now) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckRoom(peer));
  const int most = MostConnections(peer);
  const auto found = shares_.find(peer);
  if (found != shares_.end() && found->second.connections >= most) {
    return absl::ResourceExhaustedError(absl::StrCat(
        peer.Text(), " has ", most, " connections open, the most of ",
        peer.uid.has_value() ? "a user" : "an address"));
  }
  ForgetIdle(now);
  const auto share = shares_.emplace(
      peer, Share{.calls = TokenBucket(limits_.user_calls, now),
                  .handshakes = TokenBucket(limits_.address_handshakes, now)});
  ++share.first->second.connections;
  ++connections_;
  of_addresses_ += peer.uid.has_value() ? 0 : 1;
  return absl::OkStatus();
}

void Peers::Leave(const Peer& peer) {
  MutexLock lock(mutex_);
  const auto share = shares_.find(peer);
  ROUNDHOUSE_CHECK(share != shares_.end());
  --connections_;
  of_addresses_ -= peer.uid.has_value() ? 0 : 1;
  --share->second.connections;
}

void Peers::ForgetIdle(absl::Time now) {
  // However many come, it is one look through them in a while.
  if (shares_.size() < kMaxSharesKept || now < next_forgetting_) return;
  next_forgetting_ = now + kForgetInterval;
  std::erase_if(shares_, [now](const auto& entry) {
    const Share& share = entry.second;
    return share.connections == 0 && share.calls.IsFull(now) &&
           share.handshakes.IsFull(now);
  });
}

void Peers::Note(int fd, const Peer& peer, uint64_t connection) {
  MutexLock lock(mutex_);
  noted_[fd] = {.peer = peer, .connection = connection};
}

void Peers::Forget(int fd, uint64_t connection) {
  MutexLock lock(mutex_);
  const auto found = noted_.find(fd);
  if (found == noted_.end() || found->second.connection != connection) return;
  noted_.erase(found);
}

void Peers::NoteToken(absl::string_view connection) {
  int fd = -1;
  if (!absl::ConsumePrefix(&connection, "fd:") ||
      !absl::SimpleAtoi(connection, &fd)) {
    return;
  }
  MutexLock lock(mutex_);
  const auto found = noted_.find(fd);
  if (found != noted_.end()) found->second.token = true;
}

bool Peers::GivesWay(int fd, uint64_t connection) const {
  MutexLock lock(mutex_);
  if (of_addresses_ <= MostOfAddresses() / 2) return false;
  const auto found = noted_.find(fd);
  return found != noted_.end() && found->second.connection == connection &&
         !found->second.peer.uid.has_value() && !found->second.token;
}

bool Peers::MayBeginCall(const Peer& peer, absl::Time now) {
  MutexLock lock(mutex_);
  const auto share = shares_.find(peer);
  return share != shares_.end() && share->second.calls.Take(now);
}

bool Peers::MayBeginHandshake(const Peer& peer, absl::Time now) {
  MutexLock lock(mutex_);
  const auto share = shares_.find(peer);
  return share != shares_.end() && share->second.handshakes.Take(now) &&
         handshakes_.Take(now);
}

bool Peers::AddUnfinished(const Peer& peer, uint64_t bytes) {
  uint64_t most = limits_.address_unfinished_bytes;
  if (peer.uid.has_value()) {
    most = limits_.user_unfinished_bytes;
    most = std::min(most, most_unfinished_(*peer.uid).value_or(most));
  }
  MutexLock lock(mutex_);
  const auto share = shares_.find(peer);
  if (share == shares_.end()) return false;
  const uint64_t sum = share->second.unfinished_bytes + bytes;
  if (sum > most) return false;
  if (!peer.uid.has_value()) {
    if (network_bytes_ + bytes > limits_.network_unfinished_bytes) return false;
    network_bytes_ += bytes;
  }
  share->second.unfinished_bytes = sum;
  return true;
}

void Peers::TakeBackUnfinished(const Peer& peer, uint64_t bytes) {
  MutexLock lock(mutex_);
  const auto share = shares_.find(peer);
  ROUNDHOUSE_CHECK(share != shares_.end() &&
                   share->second.unfinished_bytes >= bytes);
  share->second.unfinished_bytes -= bytes;
  if (!peer.uid.has_value()) network_bytes_ -= bytes;
}

absl::StatusOr<Peer> Peers::PeerOf(absl::string_view connection) const {
  int fd = -1;
  if (absl::ConsumePrefix(&connection, "fd:") &&
      absl::SimpleAtoi(connection, &fd)) {
    MutexLock lock(mutex_);
    const auto found = noted_.find(fd);
    if (found != noted_.end()) return found->second.peer;
  }
  return absl::UnauthenticatedError("it is not known whose connection this is");
}

absl::StatusOr<Peer> Peers::PeerOf(
    const grpc::ServerContextBase& context) const {
  return PeerOf(context.peer());
}

std::string Peers::AddressOf(const grpc::ServerContextBase& context) const {
  const absl::StatusOr<Peer> peer = PeerOf(context);
  if (!peer.ok()) return "unknown";
  return peer->uid.has_value() ? "unix" : peer->address;
}

size_t Peers::shares() const {
  MutexLock lock(mutex_);
  return shares_.size();
}

int Peers::connections() const {
  MutexLock lock(mutex_);
  return connections_;
}

}  // namespace roundhouse
