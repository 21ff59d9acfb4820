// One thread that feeds every open server stream.  A stream has at most one
// write outstanding and makes its next message only when that one is gone, so a
// slow reader costs one message; one that takes nothing for a minute is
// cancelled and may resume from the revision it has.
//
// Each user has a share of the streams, so that nobody locks the others out:
// a stream begins with a place (StreamPlace), and gives it back when it dies.
//
// StreamPump is thread-safe.  PumpedStream::Pump runs on its thread only.
#ifndef ROUNDHOUSE_SERVER_CALLS_STREAM_PUMP_H_
#define ROUNDHOUSE_SERVER_CALLS_STREAM_PUMP_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "server/calls/call_audit.h"
#include "server/calls/errors.h"
#include "server/calls/unary_call.h"
#include "server/door/peer.h"
#include "server/limits/limit_check.h"

namespace roundhouse {

// What streams are of: each kind has a share of its own beside the whole.
enum class StreamKind { kFollow, kExport, kSample, kTrace, kPull };
inline constexpr int kStreamKinds = 5;

inline constexpr size_t kMaxStreams = 2000;
inline constexpr size_t kMaxStreamsEach = 100;  // of a user, of all kinds
// A user's share, by kind: what others wait for is less than what nobody does.
inline constexpr std::array<size_t, kStreamKinds> kMaxStreamsOfKind = {
    kMaxStreamsEach, 4, 8, 4, 4};
inline constexpr absl::Duration kPumpInterval = absl::Milliseconds(100);
inline constexpr absl::Duration kStalledReaderLimit = absl::Seconds(60);

class PumpedStream {
 public:
  virtual ~PumpedStream() = default;
  // Sends what there is to send, if it may.
  virtual void Pump(absl::Time now) = 0;
};

class StreamPump;

// A stream that a user may have open.  Movable; empty when moved from.
class StreamPlace {
 public:
  StreamPlace() = default;
  StreamPlace(StreamPlace&& other) noexcept { *this = std::move(other); }
  StreamPlace& operator=(StreamPlace&& other) noexcept;
  ~StreamPlace();

 private:
  friend class StreamPump;
  StreamPlace(StreamPump* pump, const Peer& peer, StreamKind kind)
      : pump_(pump), peer_(peer), kind_(kind) {}

  StreamPump* pump_ = nullptr;
  Peer peer_;
  StreamKind kind_ = StreamKind::kFollow;
};

class StreamPump {
 public:
  // A stream whose reader takes nothing for `patience` is cancelled.
  explicit StreamPump(absl::Duration patience = kStalledReaderLimit);
  // Stop().
  ~StreamPump();
  StreamPump(const StreamPump&) = delete;
  StreamPump& operator=(const StreamPump&) = delete;

  // A place for a stream of `peer`, a user of this machine or a token's
  // holder.  kResourceExhausted when he has no more, or all together have none.
  absl::StatusOr<StreamPlace> Take(const Peer& peer, StreamKind kind);
  absl::Duration patience() const { return patience_; }
  // Keeps the stream until Remove.
  void Add(std::shared_ptr<PumpedStream> stream);
  void Remove(PumpedStream* stream);
  // Something may have changed, for every stream or for one; returns at once.
  void Wake();
  void WakeOne(PumpedStream* stream);
  // The job store may have changed: changes() is another from now on.
  void StoreChanged();
  uint64_t changes() const { return changes_; }
  // Joins the thread.  REQUIRES: every stream is done (the gRPC server was shut
  // down).
  void Stop();

 private:
  friend class StreamPlace;
  struct Share {
    size_t all = 0;
    std::array<size_t, kStreamKinds> of_kind = {};
  };

  void GiveBack(const Peer& peer, StreamKind kind);
  void Loop();

  const absl::Duration patience_;
  std::atomic<uint64_t> changes_ = 1;
  Mutex mutex_;
  CondVar changed_;
  // Who has streams.
  std::map<Peer, Share> shares_ ABSL_GUARDED_BY(mutex_);
  size_t places_ ABSL_GUARDED_BY(mutex_) = 0;  // Taken.
  std::map<PumpedStream*, std::shared_ptr<PumpedStream>> streams_
      ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;  // All of them.
  std::set<PumpedStream*> woken_one_
      ABSL_GUARDED_BY(mutex_);  // Part of streams_.
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// What a stream has to say now.
enum class NextMessage { kSend, kNothing, kEnd };

// The gRPC side of a stream of Response; a subclass makes the messages.
template <typename Response>
class PumpedWriter : public grpc::ServerWriteReactor<Response>,
                     public PumpedStream {
 public:
  PumpedWriter(StreamPump* pump, grpc::CallbackServerContext* context)
      : pump_(pump), context_(context) {}

  // Once, before Pump.  The place is kept until the stream dies; the stream
  // ends when its caller is not any more who he was; `resource` goes into
  // details of errors, `audit` is told of the end.
  void Begin(StreamPlace place, StreamTicket ticket, const Gate& gate,
             const Caller& caller, const std::string& resource,
             StreamAudit audit) {
    ticket_ = std::move(ticket);
    audit_ = std::move(audit);
    place_ = std::move(place);
    gate_ = &gate;
    caller_ = caller;
    resource_ = resource;
  }

  void Pump(absl::Time now) final {
    if (!MayWrite(now)) return;
    if (const absl::Status still = CallerIsStill(); !still.ok()) {
      return End(still);
    }
    Response message;
    const absl::StatusOr<NextMessage> next = Next(now, &message);
    if (next.ok() && *next == NextMessage::kNothing) return;
    if (next.ok() && *next == NextMessage::kSend) {
      message_ = std::move(message);
      SetWriting(now);
      this->StartWrite(&message_);
      return;
    }
    End(next.status());
  }

  void OnWriteDone(bool ok) final {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) cancelled_ = true;
    }
    pump_->WakeOne(this);
  }

  void OnCancel() final {
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
    }
    pump_->WakeOne(this);
  }

  void OnDone() final { pump_->Remove(this); }

 protected:
  // The next message; kSend after filling `out`.  An error ends the stream.
  virtual absl::StatusOr<NextMessage> Next(absl::Time now, Response* out) = 0;

 private:
  bool MayWrite(absl::Time now) {
    bool cancelled = false;
    {
      MutexLock lock(mutex_);
      if (ended_) return false;
      if (writing_) {
        if (now - write_began_ > pump_->patience()) context_->TryCancel();
        return false;
      }
      cancelled = cancelled_;
    }
    if (cancelled) End(absl::CancelledError("cancelled"));
    return !cancelled;
  }

  absl::Status CallerIsStill() {
    if (gate_->generation() == generation_) return absl::OkStatus();
    generation_ = gate_->generation();
    return gate_->IsStill(caller_);
  }

  void SetWriting(absl::Time now) {
    MutexLock lock(mutex_);
    writing_ = true;
    write_began_ = now;
  }

  void End(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      if (ended_) return;
      ended_ = true;
    }
    audit_.End(status);
    this->Finish(ToGrpcStatus(status, resource_));
  }

  StreamPump* const pump_;
  grpc::CallbackServerContext* const context_;
  StreamPlace place_;
  StreamTicket ticket_;
  StreamAudit audit_;
  std::string resource_;
  const Gate* gate_ = nullptr;
  Caller caller_;
  uint64_t generation_ = 0;  // of the accounts that he was looked for in
  Response message_;         // The outstanding write.
  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time write_began_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_CALLS_STREAM_PUMP_H_
