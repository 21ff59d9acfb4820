#include "server/door/relay.h"

#include <sys/epoll.h>

#include <utility>

#include "absl/strings/string_view.h"

namespace roundhouse {
namespace {

// Reads in a row, so that no connection holds up the others.
constexpr int kReadsInARow = 4;

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

void Relay::Pending::Keep(absl::string_view rest) {
  if (!empty() && rest.end() == this->rest().end()) {
    written_ = bytes_.size() - rest.size();
  } else {
    bytes_.assign(rest.data(), rest.size());
    written_ = 0;
  }
  if (empty()) *this = {};
}

bool Relay::Write(ByteStream& to, absl::string_view& bytes, size_t limit) {
  while (limit > 0) {
    size_t taken = 0;
    const bool there = to.Write(bytes.substr(0, limit), &taken);
    if (!there || taken == 0) return there;
    bytes.remove_prefix(taken);
    limit -= taken;
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
  char buffer[kRelayBytes];
  size_t read = kRelayBytes;
  // Less than asked for: there was no more, and epoll says when there is.
  for (int i = 0; i < kReadsInARow && read == kRelayBytes; ++i) {
    absl::string_view bytes = up_.rest();
    if (bytes.empty()) {
      if (!ends_.client->Read(buffer, kRelayBytes, &read)) return Flow::kOver;
      bytes = absl::string_view(buffer, read);
    }
    admitted_ += frames_.Follow(bytes.substr(admitted_),
                                [this, now](const Http2Frame& frame) {
                                  return AdmitFrame(frame, now);
                                });
    if (misbehaves_) return Flow::kOver;
    waits_ = admitted_ < bytes.size();
    const size_t before = bytes.size();
    if (!Write(server_, bytes, admitted_)) return Flow::kOver;
    admitted_ -= before - bytes.size();
    up_.Keep(bytes);
    if (!up_.empty()) break;
  }
  return Flow::kDry;
}

Relay::Flow Relay::PassDown(absl::Time now) {
  char buffer[kRelayBytes];
  size_t read = kRelayBytes;
  // Nobody says so again of a server that is gone.
  for (int i = 0; server_gone_ || (i < kReadsInARow && read == kRelayBytes);
       ++i) {
    absl::string_view bytes = down_.rest();
    if (bytes.empty()) {
      took_at_ = now;
      if (!server_.Read(buffer, kRelayBytes, &read)) return Flow::kOver;
      if (read == 0) break;
      bytes = absl::string_view(buffer, read);
    }
    const size_t before = bytes.size();
    if (!Write(*ends_.client, bytes, bytes.size())) return Flow::kOver;
    if (bytes.size() < before) took_at_ = now;
    down_.Keep(bytes);
    if (!down_.empty()) break;
  }
  return Flow::kDry;
}

// Each end is watched for what can be done with it now.
bool Relay::Watch() {
  const bool reads = up_.empty() && !server_gone_;
  const bool writes =
      !down_.empty() || (reads && ends_.client->reads_by_writing());
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
  const bool blocked = admitted_ > 0;
  const uint32_t server = (down_.empty() ? uint32_t{EPOLLIN} : 0) |
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
  if (!down_.empty() && PassDown(now) == Flow::kOver) return false;
  return OnTime(now);
}

bool Relay::OnServer(bool hung_up, absl::Time now) {
  if (hung_up && !server_gone_) {
    // Its last words are passed on as the client takes them.
    server_gone_ = true;
    (void)Register(epoll_, ends_.server.get(), 0, 0, EPOLL_CTL_DEL);
  }
  if (down_.empty() && PassDown(now) == Flow::kOver) return false;
  if (!up_.empty()) return OnTime(now);
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
  return down_.empty() || now - took_at_ <= kDeafClientLimit;
}

}  // namespace roundhouse
