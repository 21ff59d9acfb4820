// Messages as JSON for scripts: field names as in the .proto, every number a
// number (protobuf's own form writes 64-bit integers as strings), enums by
// name, times in RFC 3339, fields without a value that know of it left out,
// all others present.  NaN and infinities, which JSON lacks, are the strings
// "NaN", "Infinity", "-Infinity" as in protobuf's form.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_MESSAGE_JSON_H_
#define ROUNDHOUSE_CLIENT_TABLES_MESSAGE_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "proto/roundhouse/v1/fine_tuning_job.pb.h"

namespace roundhouse::client {

nlohmann::ordered_json MessageJson(const google::protobuf::Message& message);

// MessageJson with resolved_spec as an object rather than text of one.
nlohmann::ordered_json JobJson(const v1::FineTuningJob& job);

// JobJson without what lists and watches don't carry: the texts and the
// histories.
nlohmann::ordered_json BriefJobJson(const v1::FineTuningJob& job);

// indent < 0: one line.  No newline at the end.
std::string JsonText(const nlohmann::ordered_json& json, int indent);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_MESSAGE_JSON_H_
