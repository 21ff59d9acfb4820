// What the seeds of rpc_fuzz.cc look like: calls as text, a line each.
//
//   #PauseFineTuningJob name: "job-1"
//
// A method's name, then its request in protobuf's text format.  For fuzz tests.
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_API_RPC_FUZZ_SCRIPT_H_
#define ROUNDHOUSE_SERVER_API_RPC_FUZZ_SCRIPT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/api/rpc_caller.h"

namespace roundhouse {

inline constexpr size_t kMostScriptCalls = 16;

struct ScriptedCall {
  const RpcMethod* method = nullptr;
  std::string request;  // serialized
};

// The calls of `script`, the first kMostScriptCalls.  Of a request that is half
// right its right half counts; a line of a method that is none of `methods` is
// left out.
std::vector<ScriptedCall> ParseRpcScript(
    absl::string_view script, const std::vector<const RpcMethod*>& methods);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_RPC_FUZZ_SCRIPT_H_
