// A channel to one roundhoused and the stubs on it.
//
// Opening never blocks: the first call connects.  Thread-safe.
#ifndef ROUNDHOUSE_CLIENT_CONNECTION_H_
#define ROUNDHOUSE_CLIENT_CONNECTION_H_

#include <grpcpp/client_context.h>

#include <memory>

#include "absl/time/time.h"
#include "client/interrupt.h"
#include "client/server_address.h"
#include "proto/roundhouse/v1/account.grpc.pb.h"
#include "proto/roundhouse/v1/checkpoint.grpc.pb.h"
#include "proto/roundhouse/v1/dataset.grpc.pb.h"
#include "proto/roundhouse/v1/fine_tuning_job.grpc.pb.h"
#include "proto/roundhouse/v1/model.grpc.pb.h"
#include "proto/roundhouse/v1/plan.grpc.pb.h"
#include "proto/roundhouse/v1/system.grpc.pb.h"
#include "proto/roundhouse/v1/upload.grpc.pb.h"

namespace roundhouse::client {

// The deadline of a call that answers once.
inline constexpr absl::Duration kCallDeadline = absl::Seconds(30);

class Connection {
 public:
  explicit Connection(const ServerAddress& address);

  v1::FineTuningJobService::StubInterface& jobs() { return *jobs_; }
  v1::DatasetService::StubInterface& datasets() { return *datasets_; }
  v1::CheckpointService::StubInterface& checkpoints() { return *checkpoints_; }
  v1::ModelService::StubInterface& models() { return *models_; }
  v1::PlanService::StubInterface& plans() { return *plans_; }
  v1::SystemService::StubInterface& system() { return *system_; }
  v1::AccountService::StubInterface& accounts() { return *accounts_; }
  v1::UploadService::StubInterface& uploads() { return *uploads_; }
  const ServerAddress& address() const { return address_; }

 private:
  ServerAddress address_;
  std::unique_ptr<v1::FineTuningJobService::StubInterface> jobs_;
  std::unique_ptr<v1::DatasetService::StubInterface> datasets_;
  std::unique_ptr<v1::CheckpointService::StubInterface> checkpoints_;
  std::unique_ptr<v1::ModelService::StubInterface> models_;
  std::unique_ptr<v1::PlanService::StubInterface> plans_;
  std::unique_ptr<v1::SystemService::StubInterface> system_;
  std::unique_ptr<v1::AccountService::StubInterface> accounts_;
  std::unique_ptr<v1::UploadService::StubInterface> uploads_;
};

// The context of one call: with a deadline (none when
// infinite), cancelled by Ctrl-C.
class UnaryContext {
 public:
  explicit UnaryContext(Interrupt* interrupt,
                        absl::Duration deadline = kCallDeadline);
  grpc::ClientContext* get() { return &context_; }

 private:
  grpc::ClientContext context_;
  Interrupt::Scope scope_;
};

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_CONNECTION_H_
