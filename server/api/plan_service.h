// roundhouse.v1.PlanService.
#ifndef ROUNDHOUSE_SERVER_API_PLAN_SERVICE_H_
#define ROUNDHOUSE_SERVER_API_PLAN_SERVICE_H_

#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/plan.grpc.pb.h"
#include "server/calls/unary_call.h"
#include "server/door/call_queue.h"
#include "server/planning/training_planner.h"

namespace roundhouse {

// Calls that wait for the one plan that is made at a time, in all and of one
// user; more are refused.
inline constexpr size_t kMaxWaitingPlans = 64;
inline constexpr size_t kMaxWaitingPlansEach = 8;
// The longest timeline that an answer of 4 MiB has room for.
inline constexpr size_t kMaxTimelineIntervals = 100'000;

// kResourceExhausted when the timeline is wanted and too long.  Pure.
absl::StatusOr<v1::PlanTrainingResponse> ToProto(const TrainingPlan& plan,
                                                 bool timeline);

// Thread-safe.  All that is given must outlive the gRPC server.
class PlanService final : public v1::PlanService::CallbackService {
 public:
  PlanService(const TrainingPlanner* planner, const CallDoor& door)
      : planner_(planner),
        work_({.threads = 1,
               .waiting = kMaxWaitingPlans,
               .waiting_each = kMaxWaitingPlansEach}),
        door_(door) {
    door_.queue = &work_;
  }

  grpc::ServerUnaryReactor* PlanTraining(
      grpc::CallbackServerContext* context,
      const v1::PlanTrainingRequest* request,
      v1::PlanTrainingResponse* response) override;

  // After the server's shutdown: waits for the plan that is made; plans of
  // calls that are gone are not made.
  void Stop() { work_.Stop(); }

 private:
  const TrainingPlanner* const planner_;
  CallQueue work_;
  CallDoor door_;  // with the queue of plans
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_PLAN_SERVICE_H_
