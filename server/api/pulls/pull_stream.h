// ModelService.PullModel: how far a pull is, then what it has become.
#ifndef ROUNDHOUSE_SERVER_API_PULLS_PULL_STREAM_H_
#define ROUNDHOUSE_SERVER_API_PULLS_PULL_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/roundhouse/v1/model.pb.h"
#include "server/access/gate.h"
#include "server/calls/stream_pump.h"
#include "server/calls/unary_call.h"
#include "server/hub/model_pulls.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

// Between two messages of one pull.
inline constexpr absl::Duration kPullProgressInterval = absl::Milliseconds(200);

// What the caller wants, for his project and within his limits; `limits` are
// asked until the pull ends.  kInvalidArgument with the field.
absl::StatusOr<PullWish> FromProto(const v1::PullModelRequest& request,
                                   const Entered& entered,
                                   const LimitCheck* limits);

// One pull's progress, and its end.  Dropping the stream cancels the pull.
class PullStream final : public PumpedWriter<v1::PullModelResponse> {
 public:
  PullStream(StreamPump* pump, grpc::CallbackServerContext* context,
             std::shared_ptr<PullTask> task);
  ~PullStream() override;

 protected:
  absl::StatusOr<NextMessage> Next(absl::Time now,
                                   v1::PullModelResponse* out) override;

 private:
  const std::shared_ptr<PullTask> task_;
  PullProgress sent_;
  absl::Time next_ = absl::InfinitePast();
  bool begun_ = false;
  bool ended_ = false;
};

// Answers the call; the request is copied.  All but the context outlive the
// gRPC server.  Thread-safe.
grpc::ServerWriteReactor<v1::PullModelResponse>* BeginPull(
    ModelPulls* pulls, Uploads* uploads, const CallDoor& door,
    grpc::CallbackServerContext* context, const v1::PullModelRequest& request);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_PULLS_PULL_STREAM_H_
