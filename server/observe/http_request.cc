#include "server/observe/http_request.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace roundhouse {
namespace {

absl::Status NoHead(const char* why) { return absl::InvalidArgumentError(why); }

bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("!#$%&'*+-.^_`|~").find(c) !=
               absl::string_view::npos;
  });
}

// No control characters: a path is only compared, but it may be logged.
bool IsVisible(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c > ' ' && c < '\x7f'; });
}

absl::Status ReadRequestLine(absl::string_view line, HttpRequest* out) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || !IsToken(words[0]) ||
      !absl::StartsWith(words[1], "/") || !IsVisible(words[1])) {
    return NoHead("the request line is not METHOD /PATH HTTP/1.1");
  }
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") {
    return NoHead("the version is not HTTP/1.1 or HTTP/1.0");
  }
  out->method = std::string(words[0]);
  out->path = std::string(words[1].substr(0, words[1].find('?')));
  return absl::OkStatus();
}

// RFC 6750 and RFC 7617.
std::string SecretIn(absl::string_view credentials) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(credentials, absl::MaxSplits(' ', 1));
  const absl::string_view shown = absl::StripAsciiWhitespace(parts.second);
  if (absl::EqualsIgnoreCase(parts.first, "Bearer")) return std::string(shown);
  std::string decoded;
  if (!absl::EqualsIgnoreCase(parts.first, "Basic") ||
      !absl::Base64Unescape(shown, &decoded)) {
    return "";
  }
  const size_t colon = decoded.find(':');
  return colon == std::string::npos ? "" : decoded.substr(colon + 1);
}

absl::Status ReadField(absl::string_view line, HttpRequest* out) {
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos || !IsToken(line.substr(0, colon))) {
    return NoHead("a header field is not NAME: VALUE");
  }
  const absl::string_view name = line.substr(0, colon);
  const absl::string_view value =
      absl::StripAsciiWhitespace(line.substr(colon + 1));
  if (absl::EqualsIgnoreCase(name, "Host")) {
    if (!out->host.empty()) return NoHead("Host is given twice");
    if (value.empty()) return NoHead("Host is empty");
    out->host = std::string(value);
  } else if (absl::EqualsIgnoreCase(name, "Authorization")) {
    if (!out->secret.empty()) return NoHead("Authorization is given twice");
    out->secret = SecretIn(value);
  } else if (absl::EqualsIgnoreCase(name, "Accept-Encoding")) {
    out->accepts_gzip |= absl::StrContains(value, "gzip");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<HttpRequest>> ParseHttpRequest(
    absl::string_view received) {
  const size_t end = received.find("\r\n\r\n");
  if (std::min(end, received.size()) > kMaxHttpHeadBytes) {
    return absl::ResourceExhaustedError("the head of the request is too long");
  }
  if (end == absl::string_view::npos) return std::optional<HttpRequest>();
  HttpRequest request;
  bool first = true;
  for (absl::string_view line :
       absl::StrSplit(received.substr(0, end), "\r\n")) {
    RETURN_IF_ERROR(first ? ReadRequestLine(line, &request)
                          : ReadField(line, &request));
    first = false;
  }
  return std::optional<HttpRequest>(std::move(request));
}

}  // namespace roundhouse
