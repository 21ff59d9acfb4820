#include "client/testing/bad_request.h"

#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace roundhouse::client {

grpc::Status BadRequestStatus(const std::string& message,
                              const std::string& field,
                              const std::string& description) {
  google::rpc::BadRequest bad_request;
  google::rpc::BadRequest::FieldViolation* violation =
      bad_request.add_field_violations();
  violation->set_field(field);
  violation->set_description(description);
  google::rpc::ErrorInfo info;
  info.set_reason("INVALID_FIELD");
  info.set_domain("roundhouse");
  google::rpc::Status details;
  details.set_code(grpc::StatusCode::INVALID_ARGUMENT);
  details.set_message(message);
  details.add_details()->PackFrom(info);
  details.add_details()->PackFrom(bad_request);
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, message,
                      details.SerializeAsString());
}

}  // namespace roundhouse::client
