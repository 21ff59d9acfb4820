#include "server/hub/curl_source.h"

#include <curl/curl.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/version.h"
#include "base/visible_text.h"

namespace roundhouse {
namespace {

// Answers that are no files are read so far.
constexpr size_t kMaxErrorBodyBytes = 64 << 10;
constexpr long kReadBytes = 256 << 10;  // NOLINT: libcurl's own type
constexpr size_t kMaxErrorBytes = 200;

absl::StatusOr<std::string> HeaderOf(CURL* handle, const char* name) {
  curl_header* header = nullptr;
  if (curl_easy_header(handle, name, 0, CURLH_HEADER, -1, &header) !=
      CURLHE_OK) {
    return absl::NotFoundError(name);
  }
  return std::string(header->value);
}

// What the answer that comes says of itself; kFailedPrecondition: a part of a
// file that does not say which.
absl::StatusOr<WebHead> HeadOf(CURL* handle) {
  WebHead head;
  long status = 0;  // NOLINT: libcurl's own type
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  head.status = static_cast<int>(status);
  curl_off_t length = -1, wait_seconds = 0;
  curl_easy_getinfo(handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &wait_seconds);
  head.retry_after = absl::Seconds(std::max<curl_off_t>(wait_seconds, 0));
  if (status == 206) {
    const auto range = HeaderOf(handle, "Content-Range");
    if (!range.ok() || !ReadContentRange(*range, &head)) {
      return absl::FailedPreconditionError(
          "the hub sends a part of a file, and not which one");
    }
  } else if (length >= 0) {
    head.total = static_cast<uint64_t>(length);
  }
  return head;
}

// "" where it is no address of the internet.
std::string TextOf(const curl_sockaddr& address) {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(&address.addr, address.addrlen, text, sizeof(text), nullptr,
                  0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return text;
}

// Whether the answer came through a proxy, which libcurl 7.88 does not say.
// Through one of HTTP the hub is reached by CONNECT, since it speaks TLS.  One
// of SOCKS is known by its port, which is not the hub's.
bool CameByProxy(CURL* handle, const UrlOrigin& origin) {
  long connected = 0, port = 0;  // NOLINT: libcurl's own type
  curl_easy_getinfo(handle, CURLINFO_HTTP_CONNECTCODE, &connected);
  curl_easy_getinfo(handle, CURLINFO_PRIMARY_PORT, &port);
  return connected != 0 || absl::StrCat(port) != origin.port;
}

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 ||
         status == 308;
}

}  // namespace

// One request on its way; libcurl calls back with it.
struct CurlSource::Transfer {
  CURL* handle;
  const CurlOptions* options;
  const WebSink* sink;
  bool to_hub = false;
  bool public_only = false;
  bool refused_address = false;
  size_t error_body_bytes = 0;
  bool too_long = false;  // an answer that is no file
  absl::Status ended;     // by us
  char error[CURL_ERROR_SIZE] = "";
  curl_slist* headers = nullptr;

  ~Transfer() { curl_slist_free_all(headers); }

  absl::Status Take(absl::string_view data) {
    ASSIGN_OR_RETURN(const WebHead head, HeadOf(handle));
    if (head.status >= 200 && head.status < 300) return (*sink)(head, data);
    error_body_bytes += data.size();
    too_long = error_body_bytes > kMaxErrorBodyBytes;
    return too_long ? absl::AbortedError("too long") : absl::OkStatus();
  }

  static size_t Write(char* data, size_t size, size_t count, void* self) {
    auto* const transfer = static_cast<Transfer*>(self);
    transfer->ended = transfer->Take(absl::string_view(data, size * count));
    return transfer->ended.ok() ? size * count : CURL_WRITEFUNC_ERROR;
  }

  static int Progress(void* self, curl_off_t, curl_off_t, curl_off_t,
                      curl_off_t) {
    return static_cast<Transfer*>(self)->options->stopped() ? 1 : 0;
  }

  static curl_socket_t Open(void* self, curlsocktype, curl_sockaddr* to) {
    auto* const transfer = static_cast<Transfer*>(self);
    if (transfer->public_only && !transfer->options->is_public(TextOf(*to))) {
      transfer->refused_address = true;
      return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
  }
};

absl::StatusOr<std::unique_ptr<WebSource>> CurlSource::Create(
    HubAddress hub, CurlOptions options) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  CURL* const handle = ready == CURLE_OK ? curl_easy_init() : nullptr;
  if (handle == nullptr) return absl::InternalError("libcurl can't be set up");
  return std::unique_ptr<WebSource>(
      new CurlSource(std::move(hub), std::move(options), handle));
}

CurlSource::~CurlSource() { curl_easy_cleanup(handle_); }

absl::Status CurlSource::SetUp(Transfer& transfer, const WebRequest& request) {
  CURL* const handle = transfer.handle;
  const std::string agent = absl::StrCat("roundhouse/", kVersion);
  CURLcode code = CURLE_OK;
  const auto set = [&](CURLoption option, auto value) {
    if (code == CURLE_OK) code = curl_easy_setopt(handle, option, value);
  };
  set(CURLOPT_PROTOCOLS_STR, hub_.is_plain() ? "http,https" : "https");
  set(CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});
  set(CURLOPT_NOSIGNAL, 1L);
  // A name server that does not answer holds nobody up who was told to stop.
  set(CURLOPT_QUICK_EXIT, 1L);
  set(CURLOPT_USERAGENT, agent.c_str());
  set(CURLOPT_BUFFERSIZE, kReadBytes);
  set(CURLOPT_CONNECTTIMEOUT_MS,
      long{absl::ToInt64Milliseconds(options_.connect_limit)});
  set(CURLOPT_LOW_SPEED_LIMIT, long{options_.low_speed_bytes});
  set(CURLOPT_LOW_SPEED_TIME,
      long{absl::ToInt64Seconds(options_.low_speed_time)});
  if (request.limit < absl::InfiniteDuration()) {
    set(CURLOPT_TIMEOUT_MS, long{absl::ToInt64Milliseconds(request.limit)});
  }
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(transfer.error));
  set(CURLOPT_WRITEFUNCTION, &Transfer::Write);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &Transfer::Progress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  set(CURLOPT_OPENSOCKETFUNCTION, &Transfer::Open);
  set(CURLOPT_OPENSOCKETDATA, static_cast<void*>(&transfer));
  if (hub_.is_plain()) set(CURLOPT_NOPROXY, "*");
  if (!transfer.to_hub && hub_has_proxy_) set(CURLOPT_NOPROXY, "");
  if (code == CURLE_OK) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("libcurl: ", curl_easy_strerror(code)));
}

absl::StatusOr<WebHead> CurlSource::Outcome(const Transfer& transfer,
                                            const UrlOrigin& origin,
                                            int code) const {
  if (code == CURLE_ABORTED_BY_CALLBACK || options_.stopped()) {
    return absl::CancelledError("stopped");
  }
  const std::string where = VisibleLine(origin.Text());
  // The rest of a long answer that is no file is not waited for.
  const absl::StatusOr<WebHead> head = HeadOf(transfer.handle);
  if (transfer.too_long && head.ok()) return head;
  RETURN_IF_ERROR(transfer.ended);
  if (code == CURLE_OK) return head;
  // Another address of the same name may have been taken instead.
  if (transfer.refused_address && code == CURLE_COULDNT_CONNECT) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the hub leads to ", where, ", which is in a private network"));
  }
  const absl::string_view why = transfer.error[0] != '\0'
                                    ? transfer.error
                                    : curl_easy_strerror(CURLcode(code));
  const std::string text =
      VisibleLine({why.data(), std::min(why.size(), kMaxErrorBytes)});
  if (code == CURLE_PEER_FAILED_VERIFICATION) {
    return absl::FailedPreconditionError(absl::StrCat(
        where, ": this server trusts no certificate of it (", text, ")"));
  }
  return absl::UnavailableError(absl::StrCat(where, ": ", text));
}

void CurlSource::SeeHub() {
  if (!hub_.is_plain() && CameByProxy(handle_, hub_.origin())) {
    hub_has_proxy_ = true;
  }
  char* address = nullptr;
  curl_easy_getinfo(handle_, CURLINFO_PRIMARY_IP, &address);
  // Behind a proxy it is the proxy's.
  if (!hub_has_proxy_ && address != nullptr && options_.is_public(address)) {
    hub_is_public_ = true;
  }
}

absl::StatusOr<WebHead> CurlSource::GetOnce(const WebRequest& request,
                                            const WebSink& sink,
                                            std::string* next) {
  ASSIGN_OR_RETURN(const UrlOrigin origin, ParseOrigin(request.url));
  const bool to_hub = origin == hub_.origin();
  curl_easy_reset(handle_);  // connections stay
  Transfer transfer{.handle = handle_,
                    .options = &options_,
                    .sink = &sink,
                    .to_hub = to_hub,
                    .public_only = hub_is_public_};
  RETURN_IF_ERROR(SetUp(transfer, request));
  if (to_hub && !options_.token.empty()) {
    const std::string shown =
        absl::StrCat("Authorization: Bearer ", options_.token);
    transfer.headers = curl_slist_append(nullptr, shown.c_str());
    curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, transfer.headers);
  }
  const std::string range = absl::StrCat(request.from, "-");
  if (request.from > 0) curl_easy_setopt(handle_, CURLOPT_RANGE, range.c_str());
  curl_easy_setopt(handle_, CURLOPT_URL, request.url.c_str());
  const CURLcode code = curl_easy_perform(handle_);
  ASSIGN_OR_RETURN(const WebHead head, Outcome(transfer, origin, code));
  if (to_hub) SeeHub();
  char* location = nullptr;
  curl_easy_getinfo(handle_, CURLINFO_REDIRECT_URL, &location);
  *next = IsRedirect(head.status) && location != nullptr ? location : "";
  return head;
}

absl::StatusOr<WebHead> CurlSource::Get(const WebRequest& request,
                                        const WebSink& sink) {
  WebRequest now = request;
  std::string next;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    ASSIGN_OR_RETURN(const WebHead head, GetOnce(now, sink, &next));
    if (next.empty()) return head;
    RETURN_IF_ERROR(hub_.CheckRedirect(next));
    now.url = next;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the hub leads on from address to address, ", kMaxRedirects,
                   " times and more"));
}

}  // namespace roundhouse
