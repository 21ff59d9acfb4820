#include "server/tls/self_signed.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/files/descriptor.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/files/whole_io.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/tls/ssl.h"

namespace roundhouse {
namespace {

constexpr absl::Duration kLifetime = absl::Hours(24 * 3650);
// A client's clock may be behind.
constexpr absl::Duration kBeforeNow = absl::Hours(24);
constexpr size_t kMaxPemBytes = 64 << 10;
constexpr size_t kMaxNames = 64;
constexpr size_t kSerialBytes = 16;
constexpr mode_t kSecretMode = 0600;
constexpr mode_t kSecretFolderMode = 0700;

absl::Status Failed(const char* what) {
  return absl::InternalError(
      absl::StrCat("--listen-tls: ", what, ": ", TakeSslError()));
}

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) return "";
  const std::string text = name;
  const bool fits =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
               c == '.';
      });
  return fits ? text : "";
}

std::set<std::string> Addresses() {
  std::set<std::string> addresses = {"127.0.0.1", "::1"};
  struct ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const struct ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || addresses.size() >= kMaxNames) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (at->ifa_addr->sa_family == AF_INET) {
      struct sockaddr_in v4;
      std::memcpy(&v4, at->ifa_addr, sizeof(v4));
      inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      struct sockaddr_in6 v6;
      std::memcpy(&v6, at->ifa_addr, sizeof(v6));
      if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) continue;
      inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    }
    if (text[0] != '\0') addresses.insert(text);
  }
  freeifaddrs(all);
  return addresses;
}

// Written and renamed, by nobody else ever read.
absl::Status WriteSecret(const std::string& path, absl::string_view content) {
  const std::string temporary = TempName(path);
  const auto failed = [&](const char* what) {
    absl::Status status = FileError(what, temporary, errno);
    file_calls::Discard(kTlsFile, temporary);
    return status;
  };
  const Descriptor file(file_calls::Open(
      kTlsFile, temporary,
      O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, kSecretMode));
  if (file.get() < 0) return failed("make");
  const bool written = WriteAll(content, [&](const char* from, size_t bytes) {
    return file_calls::Write(kTlsFile, file.get(), from, bytes);
  });
  if (!written) return failed("write");
  if (file_calls::Sync(kTlsFile, file.get()) != 0) return failed("sync");
  return RenameDurably(kTlsFile, temporary, path, RenameMode::kReplace);
}

absl::StatusOr<KeyPtr> MakeKey(const std::string& path) {
  KeyPtr key(EVP_EC_gen("P-256"));
  BioPtr text(BIO_new(BIO_s_secmem()));
  if (key == nullptr || text == nullptr ||
      PEM_write_bio_PrivateKey(text.get(), key.get(), nullptr, nullptr, 0,
                               nullptr, nullptr) != 1) {
    return Failed("a key can't be made");
  }
  RETURN_IF_ERROR(WriteSecret(path, WrittenTo(text.get())));
  return key;
}

absl::StatusOr<KeyPtr> ReadKey(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadWholeFile(kTlsFile, path, kMaxPemBytes));
  KeyPtr key = ReadPrivateKey(text);
  if (key != nullptr) return key;
  return absl::DataLossError(absl::StrCat(
      "--listen-tls: ", path,
      " is no private key any more; remove it, and a new one is made, which "
      "every client has to accept (roundhouse login)"));
}

bool AddExtension(X509* certificate, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  const bool added =
      extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool SetSerial(X509* certificate) {
  unsigned char bytes[kSerialBytes];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return false;
  bytes[0] = (bytes[0] & 0x7f) | 0x40;  // positive, and always as long
  BIGNUM* const number = BN_bin2bn(bytes, sizeof(bytes), nullptr);
  const bool set =
      number != nullptr &&
      BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return set;
}

bool SetNames(X509* certificate) {
  X509_NAME* const name = X509_get_subject_name(certificate);
  const std::string text =
      absl::StrCat("roundhoused ", HostName()).substr(0, 64);
  return X509_NAME_add_entry_by_txt(
             name, "CN", MBSTRING_UTF8,
             reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1,
             0) == 1 &&
         X509_set_issuer_name(certificate, name) == 1;
}

absl::Status MakeCertificate(EVP_PKEY* key, const std::string& path,
                             absl::Time now) {
  const CertificatePtr made(X509_new());
  BioPtr text(BIO_new(BIO_s_mem()));
  if (made == nullptr || text == nullptr) return Failed("no memory");
  X509* const x = made.get();
  const time_t from = absl::ToTimeT(now - kBeforeNow);
  const time_t to = absl::ToTimeT(now + kLifetime);
  const bool whole =
      X509_set_version(x, 2) == 1 && SetSerial(x) && SetNames(x) &&
      ASN1_TIME_set(X509_getm_notBefore(x), from) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(x), to) != nullptr &&
      X509_set_pubkey(x, key) == 1 &&
      AddExtension(x, NID_subject_alt_name, NamesOfThisMachine()) &&
      AddExtension(x, NID_basic_constraints, "critical,CA:FALSE") &&
      AddExtension(x, NID_ext_key_usage, "serverAuth") &&
      X509_sign(x, key, EVP_sha256()) != 0 &&
      PEM_write_bio_X509(text.get(), x) == 1;
  if (!whole) return Failed("a certificate can't be made");
  return WriteFileDurably(kTlsFile, path, WrittenTo(text.get()));
}

}  // namespace

std::string NamesOfThisMachine() {
  std::vector<std::string> names = {"DNS:localhost"};
  const std::string host = HostName();
  if (!host.empty() && host != "localhost") {
    names.push_back(absl::StrCat("DNS:", host));
  }
  for (const std::string& address : Addresses()) {
    names.push_back(absl::StrCat("IP:", address));
  }
  return absl::StrJoin(names, ",");
}

absl::StatusOr<SelfSignedFiles> EnsureSelfSigned(const std::string& state_dir,
                                                 absl::Time now) {
  const std::string folder = state_dir + "/tls";
  const SelfSignedFiles files = {.certificate = folder + "/certificate.pem",
                                 .key = folder + "/key.pem"};
  if (file_calls::MakeFolder(kTlsFolder, folder, kSecretFolderMode) != 0 &&
      errno != EEXIST) {
    return FileError("make", folder, errno);
  }
  RETURN_IF_ERROR(SyncFolder(kTlsFolder, state_dir));
  const bool has_key = PathExists(files.key);
  if (has_key && PathExists(files.certificate)) return files;
  ASSIGN_OR_RETURN(const KeyPtr key,
                   has_key ? ReadKey(files.key) : MakeKey(files.key));
  RETURN_IF_ERROR(MakeCertificate(key.get(), files.certificate, now));
  return files;
}

absl::StatusOr<std::unique_ptr<TlsContext>> OpenTls(
    const std::string& state_dir, const TlsFiles& given) {
  TlsFiles files = given;
  if (files.certificate.empty()) {
    ASSIGN_OR_RETURN(const SelfSignedFiles own,
                     EnsureSelfSigned(state_dir, WallTime()));
    files.certificate = own.certificate;
    files.key = own.key;
  }
  ASSIGN_OR_RETURN(auto context, TlsContext::Load(files));
  context->KeepLooking();
  return context;
}

}  // namespace roundhouse
