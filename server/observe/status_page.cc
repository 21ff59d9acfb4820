#include "server/observe/status_page.h"

#include <openssl/sha.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse {
namespace {

constexpr char kPage[] =
#include "server/observe/status_page_text.inc"
    ;  // NOLINT: a string literal

// 'sha256-...' of the page's one element of that name.
std::string HashOf(absl::string_view element) {
  const absl::string_view page = kPage;
  const std::string begin = absl::StrCat("<", element, ">");
  const size_t start = page.find(begin);
  const size_t end = page.find(absl::StrCat("</", element, ">"));
  ROUNDHOUSE_CHECK(start != page.npos && end != page.npos) << element;
  const absl::string_view text =
      page.substr(start + begin.size(), end - start - begin.size());
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         digest);
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(absl::string_view(
          reinterpret_cast<const char*>(digest), sizeof(digest))),
      "'");
}

}  // namespace

absl::string_view StatusPageHtml() { return kPage; }

const std::string& StatusPagePolicy() {
  static const std::string& policy = *new std::string(absl::StrCat(
      "default-src 'none'; script-src ", HashOf("script"), "; style-src ",
      HashOf("style"),
      "; img-src data:; connect-src 'self'; base-uri 'none'; form-action "
      "'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
      "trusted-types 'none'"));
  return policy;
}

}  // namespace roundhouse
