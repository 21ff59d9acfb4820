// Models for people.
//
// Names and messages are somebody else's: what moves the cursor is not printed.
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_MODEL_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_MODEL_OUTPUT_H_

#include <string>

#include "proto/roundhouse/v1/model.pb.h"

namespace roundhouse::client {

// A line for each, under a head.
std::string ModelTable(const v1::ListModelsResponse& response);
// One in full, a "key: value" line each.
std::string ModelText(const v1::Model& model);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_MODEL_OUTPUT_H_
