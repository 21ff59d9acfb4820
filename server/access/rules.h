// Which role a call needs, and of what: one table for all RPCs of the API.
//
// A request's message type says which RPC it is of: no two have the same.  An
// RPC without a rule is refused (gate.h), so a new one fails until it has one.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_ACCESS_RULES_H_
#define ROUNDHOUSE_SERVER_ACCESS_RULES_H_

#include <string>

#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "server/access/caller.h"

namespace roundhouse {

// What the role is needed in.
enum class Subject {
  // Not about one job or project: the role in any project is enough. A handler
  // that shows jobs filters them itself (Entered::SeesAllOf).
  kServer,
  // The project that the request's `project` names; "": the caller's only one.
  kProject,
  // The job that `resource` names.
  kJob,
  // The same; those without a role in its project are told its outline.
  kJobOutline,
  // The same; without one, all jobs are meant.
  kJobsOutline,
  // The job that `resource` names; it must be the caller's own, or the caller
  // an admin.
  kOwnJob,
};

// What the audit keeps of a call besides a refusal (server/audit).
enum class Effect {
  // Nothing: it gets, lists or watches.
  kLooks,
  // A row: it changes something, or takes something out.
  kActs,
  // A row too: it takes something out, or changes nothing when it is made again
  // for the same resource.  Those alike within a minute are counted.
  kActsAlike,
};

struct Rule {
  // The type of the RPC's request.
  const google::protobuf::Descriptor* (*request)();
  Role role;
  Subject subject;
  Effect effect;
  // The request's field that names what the call is about, also in details of
  // errors; "": none.
  const char* resource;
};

absl::Span<const Rule> Rules();

// nullptr: its RPC has no rule.
const Rule* RuleOf(const google::protobuf::Message& request);

// The RPC that takes such a request: "AccountService/SetUser"; the message's
// own name where there is none.
std::string RpcOf(const google::protobuf::Message& request);

// The value of `rule.resource`; "" without one.
std::string ResourceOf(const Rule& rule,
                       const google::protobuf::Message& request);
// The value of a string field, "" where there is none of that name.
std::string TextField(const google::protobuf::Message& message,
                      const std::string& field);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ACCESS_RULES_H_
