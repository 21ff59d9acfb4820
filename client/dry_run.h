// What a dry run shows beside the resolved spec.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_DRY_RUN_H_
#define ROUNDHOUSE_CLIENT_DRY_RUN_H_

#include <string>

#include "nlohmann/json.hpp"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"

namespace roundhouse::client {

// A "field: value" line for each of those that say what the job is.
std::string SpecText(const nlohmann::ordered_json& spec);

// A "key: value" line each: host and device memory, disk, parameters, ETA.
std::string NeedsText(const v1::JobNeeds& needs);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_DRY_RUN_H_
