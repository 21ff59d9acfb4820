// One thread that feeds every open server stream.  A stream has at most one
// write outstanding and makes its next message only when that one is gone, so a
// slow reader costs one message; one that takes nothing for a minute is
// cancelled and may resume from the revision it has.
//
// StreamPump is thread-safe.  PumpedStream::Pump runs on its thread only.
#ifndef ROUNDHOUSE_SERVER_API_STREAM_PUMP_H_
#define ROUNDHOUSE_SERVER_API_STREAM_PUMP_H_

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "server/api/errors.h"

namespace roundhouse {

inline constexpr size_t kMaxStreams = 200;
inline constexpr absl::Duration kPumpInterval = absl::Milliseconds(100);
inline constexpr absl::Duration kStalledReaderLimit = absl::Seconds(60);

class PumpedStream {
 public:
  virtual ~PumpedStream() = default;
  // Sends what there is to send, if it may.
  virtual void Pump(absl::Time now) = 0;
};

class StreamPump {
 public:
  StreamPump();
  // Stop().
  ~StreamPump();
  StreamPump(const StreamPump&) = delete;
  StreamPump& operator=(const StreamPump&) = delete;

  // False: too many streams are open.  Keeps the stream until Remove.
  bool Add(std::shared_ptr<PumpedStream> stream);
  void Remove(PumpedStream* stream);
  // Something may have changed; returns at once.
  void Wake();
  // Joins the thread.  REQUIRES: every stream is done (the gRPC server was shut
  // down).
  void Stop();

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<PumpedStream*, std::shared_ptr<PumpedStream>>
      streams_;         // By mutex_.
  bool woken_ = false;  // By mutex_.
  bool stop_ = false;   // By mutex_.
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

  void Pump(absl::Time now) final {
    if (!MayWrite(now)) return;
    Response message;
    const absl::StatusOr<NextMessage> next = Next(now, &message);
    if (next.ok() && *next == NextMessage::kNothing) return;
    if (next.ok() && *next == NextMessage::kSend) {
      message_ = std::move(message);
      SetWriting(now);
      this->StartWrite(&message_);
      return;
    }
    End(ToGrpcStatus(next.status(), resource_));
  }

  void OnWriteDone(bool ok) final {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      writing_ = false;
      if (!ok) cancelled_ = true;
    }
    pump_->Wake();
  }

  void OnCancel() final {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      cancelled_ = true;
    }
    pump_->Wake();
  }

  void OnDone() final { pump_->Remove(this); }

 protected:
  // The next message; kSend after filling `out`.  An error ends the stream.
  virtual absl::StatusOr<NextMessage> Next(absl::Time now, Response* out) = 0;
  std::string resource_;  // Goes into error details.

 private:
  bool MayWrite(absl::Time now) {
    bool cancelled = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (ended_) return false;
      if (writing_) {
        if (now - write_began_ > kStalledReaderLimit) context_->TryCancel();
        return false;
      }
      cancelled = cancelled_;
    }
    if (cancelled) End(ToGrpcStatus(absl::CancelledError("cancelled")));
    return !cancelled;
  }

  void SetWriting(absl::Time now) {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = true;
    write_began_ = now;
  }

  void End(const grpc::Status& status) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (ended_) return;
      ended_ = true;
    }
    this->Finish(status);
  }

  StreamPump* const pump_;
  grpc::CallbackServerContext* const context_;
  Response message_;  // The outstanding write.
  std::mutex mutex_;
  bool writing_ = false;                           // Guarded by mutex_.
  bool cancelled_ = false;                         // Guarded by mutex_.
  bool ended_ = false;                             // Guarded by mutex_.
  absl::Time write_began_ = absl::InfinitePast();  // Guarded by mutex_.
};

// Answers a call with an error and nothing else.
template <typename Response>
class RefusedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(const absl::Status& status,
                         const std::string& resource = "") {
    this->Finish(ToGrpcStatus(status, resource));
  }
  void OnDone() override { delete this; }
};

// Hands `stream` to the pump and to gRPC; kResourceExhausted when too many are
// open.
template <typename Response>
grpc::ServerWriteReactor<Response>* BeginStream(
    StreamPump* pump, std::shared_ptr<PumpedWriter<Response>> stream) {
  PumpedWriter<Response>* raw = stream.get();
  if (pump->Add(std::move(stream))) return raw;
  return new RefusedStream<Response>(
      absl::ResourceExhaustedError("too many streams are open"));
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_STREAM_PUMP_H_
