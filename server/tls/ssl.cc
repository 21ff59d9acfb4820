#include "server/tls/ssl.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace roundhouse {

std::string TakeSslError() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT: OpenSSL's type
  ERR_clear_error();
  if (error == 0) return "";
  const char* const reason = ERR_reason_error_string(error);
  return reason == nullptr ? absl::StrCat("OpenSSL's error ", error) : reason;
}

BioPtr ReadBio(absl::string_view text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

int NoPassword(char*, int, int, void*) { return 0; }

KeyPtr ReadPrivateKey(absl::string_view text) {
  KeyPtr key(PEM_read_bio_PrivateKey(ReadBio(text).get(), nullptr, NoPassword,
                                     nullptr));
  TakeSslError();
  return key;
}

std::string WrittenTo(BIO* bio) {
  char* data = nullptr;
  const auto bytes = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(bytes));
}

std::string FingerprintOf(X509* certificate) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  if (X509_digest(certificate, EVP_sha256(), hash, &bytes) != 1) return "";
  const std::string text = absl::Base64Escape(
      absl::string_view(reinterpret_cast<const char*>(hash), bytes));
  return absl::StrCat("SHA256:", text.substr(0, text.find('=')));
}

}  // namespace roundhouse
