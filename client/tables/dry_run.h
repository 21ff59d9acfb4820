// What a dry run shows: the job in short, and what it would need.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_DRY_RUN_H_
#define ROUNDHOUSE_CLIENT_TABLES_DRY_RUN_H_

#include <string>

#include "nlohmann/json.hpp"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"

namespace roundhouse::client {

// A "key: value" line each: model, method, data, steps, memory of host and
// device, disk, training time.  What is not known yet says so, and where all
// rows were read, the steps are at most so many.  A field that `spec`, the
// resolved job file, does not have leaves its line out.  But for names of files
// no line is wider than 80 columns.
std::string DryRunText(const nlohmann::ordered_json& spec,
                       const v1::JobNeeds& needs);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_DRY_RUN_H_
