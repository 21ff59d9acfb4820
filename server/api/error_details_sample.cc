// Writes what the server puts into grpc-status-details-bin, a file a class of
// error, for error_details_test.py.
//
//   error_details_sample FOLDER
#include <fstream>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "server/calls/errors.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

std::map<std::string, absl::Status> Errors() {
  return {
      {"invalid",
       FieldError(FieldReason::kInvalidValue, "batch_size", "0 is too small")},
      {"quota", RequestError(absl::StatusCode::kResourceExhausted,
                             FieldReason::kHostMemory, "model_name_or_path",
                             "needs 9 bytes of 8")},
      {"precondition", absl::FailedPreconditionError("it has ended")},
      {"missing", absl::NotFoundError("there is no job job-9")},
      {"busy", absl::UnavailableError("the daemon is stopping")},
      {"ours", absl::InternalError("secret: host key")},
  };
}

int Main(const std::string& folder) {
  for (const auto& [name, status] : Errors()) {
    std::ofstream file(folder + "/" + name + ".bin", std::ios::binary);
    file << ToGrpcStatus(status, "projects/default/fineTuningJobs/job-9")
                .error_details();
    file.flush();
    if (!file) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace roundhouse

int main(int argc, char** argv) {
  return argc == 2 ? roundhouse::Main(argv[1]) : 2;
}
