#include "client/tls/certificate.h"

#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files/descriptor.h"
#include "base/status.h"
#include "client/files.h"

namespace roundhouse::client {
namespace {

constexpr size_t kMaxRootsBytes = 4 << 20;
constexpr unsigned char kHttp2[] = {2, 'h', '2'};
// Where distributions have them.
constexpr const char* kRootFiles[] = {
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem", "/etc/ssl/cert.pem"};

template <auto Free>
struct FreeSsl {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using ContextPtr = std::unique_ptr<SSL_CTX, FreeSsl<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, FreeSsl<SSL_free>>;
using BioPtr = std::unique_ptr<BIO, FreeSsl<BIO_free>>;
using CertificatePtr = std::unique_ptr<X509, FreeSsl<X509_free>>;

absl::Status Unavailable(const HostPort& server, absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("no answer from ", server.Text(), ": ", why));
}

std::string SslReason() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT: OpenSSL's type
  ERR_clear_error();
  const char* const reason =
      error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "it does not speak TLS there" : reason;
}

std::string FingerprintOf(X509* certificate) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  if (X509_digest(certificate, EVP_sha256(), hash, &bytes) != 1) return "";
  const std::string text = absl::Base64Escape(
      absl::string_view(reinterpret_cast<const char*>(hash), bytes));
  return absl::StrCat("SHA256:", text.substr(0, text.find('=')));
}

void AddRoots(const std::string& pem, SSL_CTX* context) {
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  while (true) {
    const CertificatePtr root(
        PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (root == nullptr) break;
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), root.get());
  }
  ERR_clear_error();
}

// Waits until `fd` is ready for `events`.
bool Ready(int fd, short events, absl::Time deadline) {  // NOLINT: poll's type
  struct pollfd waited = {.fd = fd, .events = events};
  const absl::Duration left = deadline - absl::Now();
  return left > absl::ZeroDuration() &&
         poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) ==
             1;
}

absl::StatusOr<Descriptor> Connect(const HostPort& server,
                                   absl::Time deadline) {
  struct addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  struct addrinfo* found = nullptr;
  const int error = getaddrinfo(
      server.host.c_str(), absl::StrCat(server.port).c_str(), &hints, &found);
  if (error != 0) return Unavailable(server, gai_strerror(error));
  const std::unique_ptr<struct addrinfo, FreeSsl<freeaddrinfo>> addresses(
      found);
  std::string why = "it has no address";
  for (const auto* at = found; at != nullptr; at = at->ai_next) {
    Descriptor fd(
        socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() < 0) continue;
    int result =
        connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (result == EINPROGRESS) {
      socklen_t bytes = sizeof(result);
      if (!Ready(fd.get(), POLLOUT, deadline)) {
        result = ETIMEDOUT;
      } else if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &result, &bytes)) {
        result = errno;
      }
    }
    if (result == 0) return fd;
    why = std::strerror(result);
  }
  return Unavailable(server, why);
}

absl::Status ShakeHands(const HostPort& server, int fd, SSL* connection,
                        absl::Time deadline) {
  while (true) {
    ERR_clear_error();
    const int result = SSL_connect(connection);
    if (result == 1) return absl::OkStatus();
    const int error = SSL_get_error(connection, result);
    // The certificate has come before the server asks for ours.
    const CertificatePtr shown(SSL_get1_peer_certificate(connection));
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
      if (Ready(fd, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT,
                deadline)) {
        continue;
      }
      return Unavailable(server, "it has not shaken hands in time");
    }
    if (shown != nullptr) return absl::OkStatus();
    return Unavailable(server, SslReason());
  }
}

absl::StatusOr<SslPtr> NewConnection(const HostPort& server, SSL_CTX* context) {
  SslPtr connection(SSL_new(context));
  if (connection == nullptr) return absl::InternalError(SslReason());
  SSL_set_alpn_protos(connection.get(), kHttp2, sizeof(kHttp2));
  X509_VERIFY_PARAM* const rules = SSL_get0_param(connection.get());
  // An address is one, or it is a name.
  if (X509_VERIFY_PARAM_set1_ip_asc(rules, server.host.c_str()) != 1) {
    X509_VERIFY_PARAM_set1_host(rules, server.host.c_str(), server.host.size());
    SSL_set_tlsext_host_name(connection.get(), server.host.c_str());
  }
  ERR_clear_error();
  return connection;
}

}  // namespace

absl::StatusOr<ShownCertificate> AskCertificate(const HostPort& server,
                                                const std::string& roots) {
  const absl::Time deadline = absl::Now() + kCertificateLimit;
  // OpenSSL writes as one writes to files.
  signal(SIGPIPE, SIG_IGN);
  ASSIGN_OR_RETURN(const Descriptor fd, Connect(server, deadline));
  const ContextPtr context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return absl::InternalError(SslReason());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  AddRoots(roots, context.get());
  ASSIGN_OR_RETURN(const SslPtr connection,
                   NewConnection(server, context.get()));
  SSL_set_fd(connection.get(), fd.get());
  RETURN_IF_ERROR(ShakeHands(server, fd.get(), connection.get(), deadline));
  const CertificatePtr shown(SSL_get1_peer_certificate(connection.get()));
  if (shown == nullptr) return Unavailable(server, "it shows no certificate");
  const long verdict = SSL_get_verify_result(connection.get());  // NOLINT
  return ShownCertificate{
      .fingerprint = FingerprintOf(shown.get()),
      .vouched_for = verdict == X509_V_OK,
      .reason =
          verdict == X509_V_OK ? "" : X509_verify_cert_error_string(verdict)};
}

std::string TrustedRoots(const Environment& environment) {
  const auto named = environment.variable("SSL_CERT_FILE");
  if (named.has_value() && !named->empty()) {
    return ReadSmallFile(*named, kMaxRootsBytes).value_or("");
  }
  for (const char* path : kRootFiles) {
    const auto text = ReadSmallFile(path, kMaxRootsBytes);
    if (text.ok()) return *text;
  }
  return "";
}

std::string FingerprintOfPem(absl::string_view pem) {
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const CertificatePtr certificate(
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate == nullptr ? "" : FingerprintOf(certificate.get());
}

}  // namespace roundhouse::client
