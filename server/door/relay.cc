#include "server/door/relay.h"

#include <sys/epoll.h>

#include <utility>

#include "absl/strings/string_view.h"

namespace roundhouse {
namespace {

// Reads in a row, so that no connection holds up the others.
constexpr int kReadsInARow = 4;

// Takes what is there, at most kRelayBytes.  False: the other side is gone.
bool Read(ByteStream& from, std::string& to, bool& dry) {
  char buffer[kRelayBytes];
  size_t bytes = 0;
  const bool there = from.Read(buffer, sizeof(buffer), &bytes);
  to.assign(buffer, bytes);
  dry = bytes == 0;
  return there;
}

// False: the system has no memory for it, or no more watches for this user.
bool Register(int epoll, int fd, uint64_t key, uint32_t events, int change) {
  struct epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(epoll, change, fd, &event) == 0;
}

}  // namespace

Relay::Relay(Peers* peers, int epoll, uint64_t connection, const Peer& peer,
             Ends ends, absl::Time now)
    : peers_(peers),
      epoll_(epoll),
      connection_(connection),
      peer_(peer),
      ends_(std::move(ends)),
      server_(ends_.server.get()),
      began_(now),
      calls_(peers->limits().connection_calls, now),
      resets_(peers->limits().connection_resets, now),
      every_frame_(peers->limits().connection_frames, now),
      took_at_(now) {
  peers_->Note(ends_.grpc, peer_, connection_);
  client_events_ = server_events_ = EPOLLIN;
  unwatched_ = !Register(epoll_, ends_.client->fd(), 2 * connection_, EPOLLIN,
                         EPOLL_CTL_ADD) ||
               !Register(epoll_, ends_.server.get(), 2 * connection_ + 1,
                         EPOLLIN, EPOLL_CTL_ADD);
}

Relay::~Relay() {
  while (!unfinished_.empty()) ForgetRequest(unfinished_.begin()->first);
  peers_->Forget(ends_.grpc, connection_);
  peers_->Leave(peer_);
  // Closing takes them out of the epoll.
}

bool Relay::Write(ByteStream& to, Pending& pending, size_t limit) {
  while (pending.written < limit) {
    size_t bytes = 0;
    const bool there =
        to.Write(absl::string_view(pending.bytes)
                     .substr(pending.written, limit - pending.written),
                 &bytes);
    if (!there || bytes == 0) return there;
    pending.written += bytes;
  }
  return true;
}

// A frame that has to wait is asked about again; it has paid once.
bool Relay::AdmitFrame(const Http2Frame& frame, absl::Time now) {
  const bool large =
      frame.type == kDataFrame && frame.payload_bytes >= kLargeFrameBytes;
  if (!large && !frame_admitted_ && !every_frame_.Take(now)) return false;
  frame_admitted_ = true;
  if (frame.type == kHeadersFrame) {
    if (!call_admitted_ && !calls_.Take(now)) return false;
    call_admitted_ = true;
    if (!peers_->MayBeginCall(peer_, now)) return false;
  }
  if (!CountRequest(frame) ||
      (frame.type == kResetFrame && !resets_.Take(now))) {
    misbehaves_ = true;
    return false;
  }
  frame_admitted_ = false;
  call_admitted_ = false;
  return true;
}

bool Relay::CountRequest(const Http2Frame& frame) {
  const bool ends = frame.type == kResetFrame ||
                    (frame.type == kDataFrame && (frame.flags & kEndStream));
  if (ends) {
    ForgetRequest(frame.stream);
    return true;
  }
  if (frame.type != kDataFrame || frame.payload_bytes == 0) return true;
  if (unfinished_.size() >= kMaxUnfinishedRequests ||
      !peers_->AddUnfinished(peer_, frame.payload_bytes)) {
    return false;
  }
  unfinished_[frame.stream] += frame.payload_bytes;
  return true;
}

void Relay::ForgetRequest(uint32_t stream) {
  const auto found = unfinished_.find(stream);
  if (found == unfinished_.end()) return;
  peers_->TakeBackUnfinished(peer_, found->second);
  unfinished_.erase(found);
}

Relay::Flow Relay::PassUp(absl::Time now) {
  for (int i = 0; i < kReadsInARow; ++i) {
    bool dry = false;
    if (up_.left() == 0) {
      if (!Read(*ends_.client, up_.bytes, dry)) return Flow::kOver;
      if (dry) return Flow::kDry;
    }
    admitted_ += frames_.Follow(absl::string_view(up_.bytes).substr(admitted_),
                                [this, now](const Http2Frame& frame) {
                                  return AdmitFrame(frame, now);
                                });
    if (misbehaves_) return Flow::kOver;
    waits_ = admitted_ < up_.bytes.size();
    if (!Write(server_, up_, admitted_)) return Flow::kOver;
    if (up_.left() > 0) return Flow::kDry;
    // Less than asked for: there was no more, and epoll says when there is.
    const bool all = up_.bytes.size() < kRelayBytes;
    up_ = {};
    admitted_ = 0;
    if (all) return Flow::kDry;
  }
  return Flow::kDry;
}

Relay::Flow Relay::PassDown(absl::Time now) {
  // Nobody says so again of a server that is gone.
  for (int i = 0; i < kReadsInARow || server_gone_; ++i) {
    bool dry = false;
    if (down_.left() == 0) {
      took_at_ = now;
      if (!Read(server_, down_.bytes, dry)) return Flow::kOver;
      if (dry) return Flow::kDry;
    }
    const size_t before = down_.written;
    if (!Write(*ends_.client, down_, down_.bytes.size())) return Flow::kOver;
    if (down_.written > before) took_at_ = now;
    if (down_.left() > 0) return Flow::kDry;
    const bool all = down_.bytes.size() < kRelayBytes;
    down_ = {};
    if (all && !server_gone_) return Flow::kDry;
  }
  return Flow::kDry;
}

// Each end is watched for what can be done with it now.
bool Relay::Watch() {
  const bool reads = up_.left() == 0 && !server_gone_;
  const bool writes =
      down_.left() > 0 || (reads && ends_.client->reads_by_writing());
  const uint32_t client =
      (reads ? uint32_t{EPOLLIN} : 0) | (writes ? uint32_t{EPOLLOUT} : 0);
  if (client != client_events_) {
    client_events_ = client;
    if (!Register(epoll_, ends_.client->fd(), 2 * connection_, client,
                  EPOLL_CTL_MOD)) {
      unwatched_ = true;
    }
  }
  if (server_gone_) return !unwatched_;
  const bool blocked = up_.written < admitted_;
  const uint32_t server = (down_.left() == 0 ? uint32_t{EPOLLIN} : 0) |
                          (blocked ? uint32_t{EPOLLOUT} : 0);
  if (server != server_events_) {
    server_events_ = server;
    if (!Register(epoll_, ends_.server.get(), 2 * connection_ + 1, server,
                  EPOLL_CTL_MOD)) {
      unwatched_ = true;
    }
  }
  return !unwatched_;
}

bool Relay::OnClient(bool hung_up, absl::Time now) {
  // Nobody is there to be answered: its calls are cancelled.
  if (hung_up) return false;
  if (down_.left() > 0 && PassDown(now) == Flow::kOver) return false;
  return OnTime(now);
}

bool Relay::OnServer(bool hung_up, absl::Time now) {
  if (hung_up && !server_gone_) {
    // Its last words are passed on as the client takes them.
    server_gone_ = true;
    (void)Register(epoll_, ends_.server.get(), 0, 0, EPOLL_CTL_DEL);
  }
  if (down_.left() == 0 && PassDown(now) == Flow::kOver) return false;
  if (up_.left() > 0) return OnTime(now);
  return Watch();
}

bool Relay::OnTime(absl::Time now) {
  if (!server_gone_ && PassUp(now) == Flow::kOver) return false;
  return Watch();
}

bool Relay::Behaves(absl::Time now) const {
  if (unwatched_) return false;
  if (!frames_.begun() && now - began_ > kSilentClientLimit) return false;
  if (now - began_ > kStrangerLimit &&
      peers_->GivesWay(ends_.grpc, connection_)) {
    return false;
  }
  return down_.left() == 0 || now - took_at_ <= kDeafClientLimit;
}

}  // namespace roundhouse
