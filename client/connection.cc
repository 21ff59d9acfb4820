#include "client/connection.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/version.h"
#include "client/error_text.h"
#include "client/tls/certificate.h"

namespace roundhouse::client {
namespace {

// Our own retries decide how long to wait, so gRPC's backoff stays below them.
constexpr int kReconnectFirstMs = 100;
constexpr int kReconnectLongestMs = 1000;
// What gRPC calls the least backoff is how long a connection may take to come
// about; on a server that computes on every core that is more than moments.
constexpr int kConnectLongestMs = 10'000;

// A server over the network that says nothing is asked whether it is there: a
// laptop that slept, or a router that forgot the connection, would watch for
// ever.  The server takes such questions (kLeastPingInterval of its API).
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 20'000;

// gRPC's own shutdown may wait 10 s for a poller of its own when a call has
// just been cancelled.  An initialisation without its shutdown leaves that to
// the end of the process.
void KeepGrpcToTheEnd() {
  static const bool kept = (grpc_init(), true);
  (void)kept;
}

// Takes the one certificate that is remembered, whatever name, age and
// authority it has, as ssh takes a host's key.
class RememberedCertificate final
    : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit RememberedCertificate(const std::string& fingerprint)
      : fingerprint_(fingerprint) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const grpc::string_ref pem = request->peer_cert();
    const std::string shown =
        FingerprintOfPem(absl::string_view(pem.data(), pem.size()));
    if (shown != fingerprint_) {
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                             absl::StrCat(kOtherCertificate, shown));
    }
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {
  }

 private:
  const std::string fingerprint_;
};

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(
    const TlsAccess& access) {
  if (access.fingerprint.empty()) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = access.roots;
    options.pem_cert_chain = access.certificate;
    options.pem_private_key = access.key;
    return grpc::SslCredentials(options);
  }
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);  // the verifier compares it
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      RememberedCertificate::Create<RememberedCertificate>(access.fingerprint));
  if (!access.certificate.empty()) {
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
            std::vector<grpc::experimental::IdentityKeyCertPair>{
                {access.key, access.certificate}}));
    options.watch_identity_key_cert_pairs();
  }
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> Credentials(const TlsAccess& access) {
  if (access.server.empty()) return grpc::InsecureChannelCredentials();
  if (access.token.empty()) return ChannelCredentials(access);
  return grpc::CompositeChannelCredentials(
      ChannelCredentials(access), grpc::AccessTokenCredentials(access.token));
}

std::shared_ptr<grpc::Channel> MakeChannel(const ServerAddress& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectFirstMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectLongestMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectLongestMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetUserAgentPrefix(std::string("roundhouse/") + kVersion);
  const TlsAccess& tls = address.tls;
  if (!tls.server.empty()) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    // As many in a row as it takes; without a call there are none.
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  return grpc::CreateCustomChannel(
      tls.server.empty() ? address.target : absl::StrCat("dns:///", tls.server),
      Credentials(tls), arguments);
}

}  // namespace

Connection::Connection(const ServerAddress& address) : address_(address) {
  KeepGrpcToTheEnd();
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(address);
  jobs_ = v1::FineTuningJobService::NewStub(channel);
  datasets_ = v1::DatasetService::NewStub(channel);
  checkpoints_ = v1::CheckpointService::NewStub(channel);
  models_ = v1::ModelService::NewStub(channel);
  accounts_ = v1::AccountService::NewStub(channel);
  uploads_ = v1::UploadService::NewStub(channel);
  plans_ = v1::PlanService::NewStub(channel);
  system_ = v1::SystemService::NewStub(channel);
}

UnaryContext::UnaryContext(Interrupt* interrupt, absl::Duration deadline)
    : scope_(interrupt, &context_) {
  if (deadline == absl::InfiniteDuration()) return;
  context_.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
}

}  // namespace roundhouse::client
