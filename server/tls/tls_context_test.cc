#include "server/tls/tls_context.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"
#include "server/tls/self_signed.h"

namespace roundhouse {
namespace {

std::string Content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class TlsContextTest : public testing::Test {
 protected:
  TlsContextTest() {
    char name[] = "/tmp/rh_tls.XXXXXX";
    dir_ = mkdtemp(name);
  }
  ~TlsContextTest() override { std::filesystem::remove_all(dir_); }

  // A pair of its own, in a folder of this name.
  TlsFiles Pair(const std::string& name) {
    std::filesystem::create_directory(dir_ + "/" + name);
    const auto made = EnsureSelfSigned(dir_ + "/" + name, clock_.WallTime());
    EXPECT_TRUE(made.ok()) << made.status();
    return {.certificate = made->certificate, .key = made->key};
  }
  // `to` is `from` from now on, as an admin's tool replaces a file.
  void Replace(const std::string& to, const std::string& from) {
    std::filesystem::copy_file(from, to + ".new");
    std::filesystem::rename(to + ".new", to);
  }

  ManualClock clock_;
  std::string dir_;
};

TEST_F(TlsContextTest, AMadePairStaysAndItsKeyIsTheDaemonsAlone) {
  const TlsFiles files = Pair("a");
  const auto context = TlsContext::Load(files, clock_);
  ASSERT_TRUE(context.ok()) << context.status();
  struct stat info;
  ASSERT_EQ(stat(files.key.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  ASSERT_EQ(stat((dir_ + "/a/tls").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  const std::string key = Content(files.key);
  const std::string certificate = Content(files.certificate);
  Pair("a");
  EXPECT_EQ(Content(files.key), key);
  EXPECT_EQ(Content(files.certificate), certificate);
  // Whoever died between the two has a key without a certificate.
  std::filesystem::remove(files.certificate);
  Pair("a");
  EXPECT_EQ(Content(files.key), key);
  EXPECT_TRUE(TlsContext::Load(files, clock_).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_ + "/a/tls"),
                          std::filesystem::directory_iterator()),
            2);
}

TEST_F(TlsContextTest, AMadeCertificateIsForTheNamesOfThisMachine) {
  const std::string text = Content(Pair("a").certificate);
  const CertificatePtr certificate(
      PEM_read_bio_X509(ReadBio(text).get(), nullptr, nullptr, nullptr));
  ASSERT_NE(certificate, nullptr);
  for (const char* name : {"localhost"}) {
    EXPECT_EQ(X509_check_host(certificate.get(), name, 0, 0, nullptr), 1);
  }
  for (const char* address : {"127.0.0.1", "::1"}) {
    EXPECT_EQ(X509_check_ip_asc(certificate.get(), address, 0), 1) << address;
  }
  EXPECT_EQ(X509_check_host(certificate.get(), "example.org", 0, 0, nullptr),
            0);
}

TEST_F(TlsContextTest, AnotherPairHasAnotherFingerprint) {
  const auto a = TlsContext::Load(Pair("a"), clock_);
  const auto b = TlsContext::Load(Pair("b"), clock_);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE((*a)->fingerprint(), (*b)->fingerprint());
  EXPECT_EQ((*a)->fingerprint().size(), 7u + 43u);
  EXPECT_TRUE(absl::StartsWith((*a)->fingerprint(), "SHA256:"));
}

TEST_F(TlsContextTest, ARenewedPairIsTakenUpAndOneThatDoesNotFitIsNot) {
  const TlsFiles files = Pair("a");
  const TlsFiles fresh = Pair("b");
  const auto context = TlsContext::Load(files, clock_);
  ASSERT_TRUE(context.ok()) << context.status();
  const std::string before = (*context)->fingerprint();
  EXPECT_FALSE(*(*context)->LookAgain());
  Replace(files.certificate, fresh.certificate);
  const auto half = (*context)->LookAgain();
  EXPECT_TRUE(absl::IsInvalidArgument(half.status())) << half.status();
  EXPECT_TRUE(absl::StrContains(half.status().message(), "is not the key of"))
      << half.status();
  EXPECT_EQ((*context)->fingerprint(), before);
  EXPECT_FALSE(*(*context)->LookAgain()) << "it is told once in a while";
  clock_.Advance(kFailedFilesInterval);
  EXPECT_FALSE((*context)->LookAgain().ok())
      << "what failed may have failed for a moment";
  EXPECT_TRUE((*context)->LookAgain().ok());
  Replace(files.key, fresh.key);
  EXPECT_TRUE(*(*context)->LookAgain());
  EXPECT_NE((*context)->fingerprint(), before);
  EXPECT_NE((*context)->NewConnection(), nullptr);
}

TEST_F(TlsContextTest, WhatIsWrongWithAFileIsTold) {
  const TlsFiles good = Pair("a");
  const TlsFiles other = Pair("b");
  std::ofstream(dir_ + "/text") << "no PEM";
  std::ofstream(dir_ + "/big") << std::string(kMaxTlsFileBytes + 1, 'x');
  const struct {
    TlsFiles files;
    const char* says;
  } rows[] = {
      {{.certificate = dir_ + "/none", .key = good.key}, "--tls-certificate: "},
      {{.certificate = dir_ + "/text", .key = good.key},
       "has no certificate in PEM form"},
      {{.certificate = dir_ + "/big", .key = good.key}, "is longer than"},
      {{.certificate = dir_, .key = good.key}, "is no file"},
      {{.certificate = good.certificate, .key = dir_ + "/text"}, "--tls-key: "},
      {{.certificate = good.certificate, .key = other.key},
       "is not the key of"},
      {{.certificate = good.certificate,
        .key = good.key,
        .client_ca = dir_ + "/text"},
       "--tls-client-ca: "}};
  for (const auto& row : rows) {
    const auto context = TlsContext::Load(row.files, clock_);
    EXPECT_TRUE(absl::IsInvalidArgument(context.status())) << row.says;
    EXPECT_TRUE(absl::StrContains(context.status().message(), row.says))
        << context.status();
  }
}

// The key is in no message, and nobody is asked for a password.
TEST_F(TlsContextTest, AKeyWithAPasswordIsRefused) {
  const TlsFiles files = Pair("a");
  const std::string key_text = Content(files.key);
  const KeyPtr key(PEM_read_bio_PrivateKey(ReadBio(key_text).get(), nullptr,
                                           nullptr, nullptr));
  ASSERT_NE(key, nullptr);
  const BioPtr out(BIO_new(BIO_s_mem()));
  char password[] = "secret";
  ASSERT_EQ(PEM_write_bio_PrivateKey(out.get(), key.get(), EVP_aes_256_cbc(),
                                     nullptr, 0, nullptr, password),
            1);
  std::ofstream(files.key, std::ios::trunc) << WrittenTo(out.get());
  const auto context = TlsContext::Load(files, clock_);
  EXPECT_TRUE(
      absl::StrContains(context.status().message(), "without a password"))
      << context.status();
}

}  // namespace
}  // namespace roundhouse
