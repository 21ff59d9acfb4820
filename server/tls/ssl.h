// OpenSSL's objects, owned, and its errors in words.
#ifndef ROUNDHOUSE_SERVER_TLS_SSL_H_
#define ROUNDHOUSE_SERVER_TLS_SSL_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace roundhouse {

template <auto Free>
struct FreeSsl {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using SslPtr = std::unique_ptr<SSL, FreeSsl<SSL_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeSsl<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, FreeSsl<X509_free>>;
using BioPtr = std::unique_ptr<BIO, FreeSsl<BIO_free>>;

// The last error of this thread, "" where there is none; forgets all of them.
std::string TakeSslError();
// A BIO that reads `text`, which outlives it.
BioPtr ReadBio(absl::string_view text);
// The first private key of a PEM text; null: it has none, or asks for a
// password.
KeyPtr ReadPrivateKey(absl::string_view text);
// By itself OpenSSL would wait for a password at the terminal.
int NoPassword(char*, int, int, void*);
// What was written to it.
std::string WrittenTo(BIO* bio);
// "SHA256:" and the base64 of the hash of its DER form, as ssh shows keys.
std::string FingerprintOf(X509* certificate);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_TLS_SSL_H_
