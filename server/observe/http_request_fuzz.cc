// libFuzzer entry: whatever comes is a request, the beginning of one or
// refused, and more behind a whole head changes nothing.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "server/observe/http_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using roundhouse::ParseHttpRequest;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto request = ParseHttpRequest(text);
  if (!request.ok()) {
    ROUNDHOUSE_CHECK(!request.status().message().empty());
    return 0;
  }
  if (!request->has_value()) return 0;
  ROUNDHOUSE_CHECK((*request)->path[0] == '/');
  ROUNDHOUSE_CHECK((*request)->path.size() <= roundhouse::kMaxHttpHeadBytes);
  const auto again = ParseHttpRequest(text + "more");
  ROUNDHOUSE_CHECK(again.ok() && again->has_value());
  ROUNDHOUSE_CHECK((*again)->path == (*request)->path &&
                   (*again)->host == (*request)->host);
  return 0;
}
