// One connection between a client and gRPC: bytes both ways, frames of the
// client counted on their way (http2_frames.h).
//
// Thread-compatible; all calls from the front door's thread.
#ifndef ROUNDHOUSE_SERVER_DOOR_RELAY_H_
#define ROUNDHOUSE_SERVER_DOOR_RELAY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/files/descriptor.h"
#include "server/door/byte_stream.h"
#include "server/door/http2_frames.h"
#include "server/door/peers.h"
#include "server/door/token_bucket.h"

namespace roundhouse {

// What a relay holds of each direction at most.
inline constexpr size_t kRelayBytes = 64 << 10;
// Requests of a connection that are not whole; gRPC lets 100 be open.
inline constexpr size_t kMaxUnfinishedRequests = 256;
// A client that has not begun to speak HTTP/2 is cut off after this.
inline constexpr absl::Duration kSilentClientLimit = absl::Seconds(10);
// One over the network that has shown no token, where others need its place.
inline constexpr absl::Duration kStrangerLimit = absl::Seconds(10);
// One that takes nothing of what there is for it, after this.
inline constexpr absl::Duration kDeafClientLimit = absl::Seconds(60);

class Relay {
 public:
  struct Ends {
    std::unique_ptr<ByteStream> client;
    Descriptor server;  // the other end of the pair is gRPC's
    int grpc = -1;      // gRPC's end, by its name only
  };
  // The peer has entered; leaves with the relay.  Registers both ends with
  // `epoll`, the connection's number doubled, plus one for the server's end.
  // `peers` outlives the relay.
  Relay(Peers* peers, int epoll, uint64_t connection, const Peer& peer,
        Ends ends, absl::Time now);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Passes on what can be.  `hung_up`: epoll says so of that end.  False: the
  // connection is over.
  bool OnClient(bool hung_up, absl::Time now);
  bool OnServer(bool hung_up, absl::Time now);
  // Whether bytes wait for time to pass.
  bool waits() const { return waits_; }
  // Passes on what time allows now.  False: the connection is over.
  bool OnTime(absl::Time now);
  // Whether the client does what a client does, and epoll watches it; false:
  // cut it off.
  bool Behaves(absl::Time now) const;

 private:
  // Read and not yet written; most of what passes is never in it.
  class Pending {
   public:
    absl::string_view rest() const {
      return absl::string_view(bytes_).substr(written_);
    }
    bool empty() const { return written_ == bytes_.size(); }
    // `rest` is the end of rest(), or not of this.
    void Keep(absl::string_view rest);

   private:
    std::string bytes_;
    size_t written_ = 0;
  };
  enum class Flow { kDry, kOver };  // nothing more now, nothing more ever

  Flow PassUp(absl::Time now);
  Flow PassDown(absl::Time now);
  bool AdmitFrame(const Http2Frame& frame, absl::Time now);
  // False: too much of them.
  bool CountRequest(const Http2Frame& frame);
  void ForgetRequest(uint32_t stream);
  // False: the other side is gone.  Else as many of the first `limit` bytes as
  // it takes now are taken off.
  static bool Write(ByteStream& to, absl::string_view& bytes, size_t limit);
  // False: an end can't be watched, so nothing more would pass.
  bool Watch();

  Peers* const peers_;
  const int epoll_;
  const uint64_t connection_;
  const Peer peer_;
  const Ends ends_;
  PlainStream server_;  // over ends_.server
  const absl::Time began_;
  Http2Frames frames_;
  TokenBucket calls_;
  TokenBucket resets_;
  TokenBucket every_frame_;
  bool call_admitted_ = false;   // by calls_, the peer's share not yet
  bool frame_admitted_ = false;  // by every_frame_, the rest not yet
  bool misbehaves_ = false;
  bool unwatched_ = false;                   // an end of it, by epoll
  std::map<uint32_t, uint64_t> unfinished_;  // bytes of requests, by stream
  bool waits_ = false;
  bool server_gone_ = false;
  Pending up_;
  size_t admitted_ = 0;  // bytes of up_'s rest that may go on
  Pending down_;
  absl::Time took_at_;  // when the client last took bytes, or there were none
  uint32_t client_events_ = 0;
  uint32_t server_events_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_RELAY_H_
