// The status page: one file of HTML with its style and script in it
// (status_page.html), which asks for /status.json every second.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_STATUS_PAGE_H_
#define ROUNDHOUSE_SERVER_OBSERVE_STATUS_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace roundhouse {

absl::string_view StatusPageHtml();

// Its Content-Security-Policy: its own script and style by their hashes,
// requests to its own origin, nothing else; and no text becomes markup.
const std::string& StatusPagePolicy();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_STATUS_PAGE_H_
