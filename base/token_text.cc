#include "base/token_text.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/random_bytes.h"

namespace roundhouse {
namespace {

std::string Sha256(absl::string_view bytes) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  ROUNDHOUSE_CHECK(EVP_Digest(bytes.data(), bytes.size(), hash, &size,
                              EVP_sha256(), nullptr) == 1);
  return std::string(reinterpret_cast<const char*>(hash), size);
}

// The text of `secret` with its checksum.
std::string TextOf(absl::string_view secret) {
  const std::string checksum =
      Sha256(absl::StrCat(kTokenPrefix, secret)).substr(0, kTokenChecksumBytes);
  return absl::StrCat(
      kTokenPrefix, absl::WebSafeBase64Escape(absl::StrCat(secret, checksum)));
}

}  // namespace

std::string MakeTokenText() { return TextOf(RandomBytes(kTokenSecretBytes)); }

bool IsTokenText(absl::string_view text) {
  absl::string_view rest = text;
  std::string bytes;
  return text.size() == kTokenTextBytes &&
         absl::ConsumePrefix(&rest, kTokenPrefix) &&
         absl::WebSafeBase64Unescape(rest, &bytes) &&
         bytes.size() == kTokenSecretBytes + kTokenChecksumBytes &&
         TextOf(absl::string_view(bytes).substr(0, kTokenSecretBytes)) == text;
}

std::string HashOfToken(absl::string_view text) {
  return absl::BytesToHexString(Sha256(text));
}

}  // namespace roundhouse
