#include "server/tls/tls_context.h"

#include <openssl/pem.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/setting_file.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

// The names that OpenSSL has for ECDHE with an AEAD; TLS 1.3 has no others.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20:!PSK:!aNULL";
constexpr char kGroups[] = "X25519:P-256:P-384";
constexpr int kSecurityLevel = 2;
constexpr unsigned char kHttp2[] = {2, 'h', '2'};
constexpr size_t kMaxChain = 16;
constexpr absl::Duration kWarningInterval = absl::Hours(24);

// Every certificate of a PEM text, in its order.
std::vector<CertificatePtr> ParseCertificates(const std::string& text) {
  std::vector<CertificatePtr> certificates;
  const BioPtr bio = ReadBio(text);
  while (certificates.size() < kMaxChain) {
    CertificatePtr next(
        PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr));
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  TakeSslError();
  return certificates;
}

absl::Time EndOf(const X509* certificate) {
  struct tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) {
    return absl::InfinitePast();
  }
  return absl::FromTM(end, absl::UTCTimeZone());
}

int ChooseHttp2(SSL*, const unsigned char** out, unsigned char* out_bytes,
                const unsigned char* offered, unsigned int offered_bytes,
                void*) {
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_bytes, kHttp2, sizeof(kHttp2), offered,
                            offered_bytes) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

// Versions, ciphers and modes, without any file.
absl::StatusOr<std::shared_ptr<SSL_CTX>> NewContext() {
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()),
                                         SSL_CTX_free);
  if (context == nullptr) return absl::InternalError(TakeSslError());
  SSL_CTX* const c = context.get();
  SSL_CTX_set_security_level(c, kSecurityLevel);
  SSL_CTX_set_options(
      c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
             SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  // One record at a time, so that no connection holds up the others.
  SSL_CTX_clear_mode(c, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE |
                          SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                          SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(c, ChooseHttp2, nullptr);
  if (SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_cipher_list(c, kCiphers) != 1 ||
      SSL_CTX_set1_groups_list(c, kGroups) != 1 ||
      SSL_CTX_set_num_tickets(c, 0) != 1) {
    return absl::InternalError(absl::StrCat("--listen-tls: ", TakeSslError()));
  }
  return context;
}

absl::Status UseClientCa(SSL_CTX* context, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadSettingFile("tls-client-ca", path, kMaxTlsFileBytes));
  const std::vector<CertificatePtr> all = ParseCertificates(text);
  if (all.empty())
    return BadSettingFile("tls-client-ca", path, "has no certificate");
  for (const CertificatePtr& ca : all) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca.get()) != 1 ||
        SSL_CTX_add_client_CA(context, ca.get()) != 1) {
      return BadSettingFile("tls-client-ca", path, TakeSslError());
    }
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                     nullptr);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsContext::Loaded> TlsContext::LoadFiles(
    const TlsFiles& files) {
  ASSIGN_OR_RETURN(
      const std::string certificate_text,
      ReadSettingFile("tls-certificate", files.certificate, kMaxTlsFileBytes));
  ASSIGN_OR_RETURN(const std::string key_text,
                   ReadSettingFile("tls-key", files.key, kMaxTlsFileBytes));
  std::vector<CertificatePtr> chain = ParseCertificates(certificate_text);
  if (chain.empty()) {
    return BadSettingFile("tls-certificate", files.certificate,
                          "has no certificate in PEM form");
  }
  const KeyPtr key = ReadPrivateKey(key_text);
  if (key == nullptr) {
    return BadSettingFile("tls-key", files.key,
                          "has no private key in PEM form without a password");
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<SSL_CTX> context, NewContext());
  if (SSL_CTX_use_certificate(context.get(), chain[0].get()) != 1) {
    return BadSettingFile("tls-certificate", files.certificate, TakeSslError());
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) != 1) {
      return BadSettingFile("tls-certificate", files.certificate,
                            TakeSslError());
    }
  }
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    TakeSslError();
    return BadSettingFile(
        "tls-key", files.key,
        absl::StrCat("is not the key of ", files.certificate));
  }
  if (!files.client_ca.empty()) {
    RETURN_IF_ERROR(UseClientCa(context.get(), files.client_ca));
  }
  return Loaded{.context = context,
                .fingerprint = FingerprintOf(chain[0].get()),
                .expires = EndOf(chain[0].get())};
}

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(
    const TlsFiles& files, const Clock& clock) {
  std::unique_ptr<TlsContext> context(new TlsContext(files, clock));
  RETURN_IF_ERROR(context->LookAgain().status());
  return context;
}

TlsContext::~TlsContext() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

SslPtr TlsContext::NewConnection() const {
  MutexLock lock(mutex_);
  SslPtr connection(SSL_new(loaded_.context.get()));
  if (connection != nullptr) SSL_set_accept_state(connection.get());
  return connection;
}

std::string TlsContext::fingerprint() const {
  MutexLock lock(mutex_);
  return loaded_.fingerprint;
}

std::vector<TlsContext::Stamp> TlsContext::Stamps() const {
  std::vector<Stamp> stamps;
  for (const std::string* path :
       {&files_.certificate, &files_.key, &files_.client_ca}) {
    struct stat info = {};
    if (path->empty() || stat(path->c_str(), &info) != 0) {
      stamps.push_back({});
      continue;
    }
    const int64_t changed_ns =
        int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec;
    stamps.push_back({info.st_dev, info.st_ino, info.st_size, changed_ns});
  }
  return stamps;
}

absl::StatusOr<bool> TlsContext::LookAgain() {
  MutexLock look(look_mutex_);
  // Before they are read: what changes meanwhile is looked at once more.
  std::vector<Stamp> stamps = Stamps();
  Loaded used;
  {
    MutexLock lock(mutex_);
    used = loaded_;
  }
  bool changed = false;
  const absl::Time now = clock_.WallTime();
  if (stamps != stamps_ || now >= look_again_at_) {
    stamps_ = std::move(stamps);
    // What fails may have failed for a moment: no memory, no descriptor.
    look_again_at_ = now + kFailedFilesInterval;
    ASSIGN_OR_RETURN(Loaded fresh, LoadFiles(files_));
    look_again_at_ = absl::InfiniteFuture();
    changed = used.context != nullptr && fresh.fingerprint != used.fingerprint;
    if (fresh.fingerprint != used.fingerprint) warned_ = absl::InfinitePast();
    used = fresh;
    MutexLock lock(mutex_);
    loaded_ = std::move(fresh);
  }
  if (now + kExpiryWarning < used.expires || now < warned_ + kWarningInterval) {
    return changed;
  }
  warned_ = now;
  RH_LOG(kWarning) << "--tls-certificate: " << files_.certificate
                   << (used.expires <= now ? " has expired on "
                                           : " expires on ")
                   << absl::FormatTime("%Y-%m-%d", used.expires,
                                       absl::UTCTimeZone())
                   << "; renew it, the new one is taken up by itself";
  return changed;
}

void TlsContext::KeepLooking() {
  thread_ = std::thread([this] { Loop(); });
}

void TlsContext::Loop() {
  while (true) {
    {
      MutexLock lock(mutex_);
      const CondVar::Deadline deadline = CondVar::DeadlineIn(kFilesInterval);
      while (!stop_ && changed_.WaitUntil(mutex_, deadline)) {
      }
      if (stop_) return;
    }
    const absl::StatusOr<bool> looked = LookAgain();
    if (!looked.ok()) {
      RH_LOG(kWarning) << looked.status().message()
                       << "; the certificate of before stays in use";
    } else if (*looked) {
      RH_LOG(kInfo) << "the TLS certificate was renewed, its fingerprint is "
                    << fingerprint();
    }
  }
}

}  // namespace roundhouse
