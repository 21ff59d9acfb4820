// roundhouse.v1.DatasetService.
#ifndef ROUNDHOUSE_SERVER_API_DATASET_SERVICE_H_
#define ROUNDHOUSE_SERVER_API_DATASET_SERVICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/dataset.grpc.pb.h"
#include "server/calls/unary_call.h"
#include "server/dataset/dataset_inspector.h"

namespace roundhouse {

// What PreviewDatasetRequest.samples 0 stands for.
inline constexpr int kDefaultPreviewSamples = 3;

// prepare.py's {"report"} or {"samples"} as the API's message.  kInternal when
// the text is not what the helper prints.  Pure.  A report's second line
// becomes held_out.
absl::StatusOr<v1::ValidateDatasetResponse> ReportFromJson(
    const std::string& text);
absl::StatusOr<v1::PreviewDatasetResponse> SamplesFromJson(
    const std::string& text);

// What a dry run shows of the data.
struct FirstRows {
  v1::DatasetSample sample;
  std::string what;  // for people: which rows were read and checked
  std::vector<std::string> warnings;  // for people, of those rows
  int64_t rows = 0;  // of the dataset; 0 where not all were read
};
// From the {"samples"} of the dataset, and of the validation data in a second
// line.
absl::StatusOr<FirstRows> FirstRowsFromJson(const std::string& text);

// Thread-safe.  Everything given must outlive the gRPC server.
class DatasetService final : public v1::DatasetService::CallbackService {
 public:
  DatasetService(DatasetInspector* inspector, const CallDoor& door)
      : inspector_(inspector), door_(door) {}

  grpc::ServerUnaryReactor* ValidateDataset(
      grpc::CallbackServerContext* context,
      const v1::ValidateDatasetRequest* request,
      v1::ValidateDatasetResponse* response) override;
  grpc::ServerUnaryReactor* PreviewDataset(
      grpc::CallbackServerContext* context,
      const v1::PreviewDatasetRequest* request,
      v1::PreviewDatasetResponse* response) override;

 private:
  DatasetInspector* const inspector_;
  const CallDoor door_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_DATASET_SERVICE_H_
