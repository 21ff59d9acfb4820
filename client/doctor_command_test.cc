// `roundhouse doctor` against a server on a Unix socket, and its own checks.
#include <nlohmann/json.hpp>

#include "absl/time/time.h"
#include "client/error_text.h"
#include "client/tables/doctor_output.h"
#include "client/testing/client_fixture.h"
#include "gmock/gmock.h"

namespace roundhouse::client {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class DoctorCommandTest : public ClientTest {
 protected:
  DoctorCommandTest() {
    server_.answers().server = [](v1::Server* server) {
      server->set_version("0.0.1");
      return grpc::Status::OK;
    };
    server_.answers().diagnosis = [this](v1::Diagnosis* diagnosis) {
      v1::Finding* const finding = diagnosis->add_findings();
      finding->set_name("disk");
      finding->set_found("12 bytes are free");
      finding->set_verdict(verdict_);
      finding->set_remedy("df");
      diagnosis->mutable_time()->set_seconds(absl::ToUnixSeconds(absl::Now()));
      return grpc::Status::OK;
    };
  }

  v1::Verdict verdict_ = v1::VERDICT_WARNING;
};

TEST_F(DoctorCommandTest, FindingsOfBothSides) {
  EXPECT_EQ(Run({"doctor"}), ExitCode::kOk) << err();
  EXPECT_THAT(out(), StartsWith("ok       address          unix:"));
  EXPECT_THAT(out(), HasSubstr("ok       connection       the daemon answers"));
  EXPECT_THAT(out(), HasSubstr("warning  version          client "));
  EXPECT_THAT(out(), HasSubstr("ok       clocks "));
  EXPECT_THAT(out(), HasSubstr("warning  disk             12 bytes are free\n"
                               "                          -> df\n"));
  verdict_ = v1::VERDICT_PROBLEM;
  EXPECT_EQ(Run({"doctor"}), ExitCode::kError);
  EXPECT_EQ(Run({"doctor", "-o", "json"}), ExitCode::kError);
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ(json["findings"].back()["verdict"], "VERDICT_PROBLEM");
  EXPECT_EQ(json["findings"].back()["remedy"], "df");
  EXPECT_EQ(Run({"doctor", "-o", "name"}), ExitCode::kError);
  EXPECT_EQ(out(), "address\nconnection\nversion\nclocks\ndisk\n");
}

TEST_F(DoctorCommandTest, WhereNoDaemonAnswersItSaysWhatToDo) {
  EXPECT_EQ(Run({"doctor", "--server=unix:/no/such/socket"}), ExitCode::kError);
  EXPECT_THAT(out(), HasSubstr("problem  connection "));
  EXPECT_THAT(out(), HasSubstr("systemctl status roundhoused"));
  EXPECT_THAT(out(), HasSubstr("journalctl -u roundhoused"));
}

TEST_F(DoctorCommandTest, ADaemonOfBeforeIsAWarning) {
  server_.answers().diagnosis = nullptr;
  EXPECT_EQ(Run({"doctor"}), ExitCode::kOk);
  EXPECT_THAT(out(), HasSubstr("warning  server "));
}

TEST_F(DoctorCommandTest, RefusedCalls) {
  const auto refused = [](auto*) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not for you");
  };
  server_.answers().diagnosis = refused;
  EXPECT_EQ(Run({"doctor"}), ExitCode::kOk);
  EXPECT_THAT(out(), HasSubstr("warning  server           not for you"));
  server_.answers().server = refused;
  EXPECT_EQ(Run({"doctor"}), ExitCode::kError);
  EXPECT_THAT(out(), HasSubstr("problem  connection       not for you"));
}

TEST(DoctorOutputTest, Connection) {
  const ServerAddress address = {"unix:/s", "--server"};
  const v1::Finding changed =
      CheckConnection(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                   std::string(kOtherCertificate) + "SHA256:x"),
                      address);
  EXPECT_EQ(changed.verdict(), v1::VERDICT_PROBLEM);
  EXPECT_THAT(changed.remedy(), testing::HasSubstr("logout --forget"));
  EXPECT_EQ(CheckConnection(grpc::Status::OK, address).verdict(),
            v1::VERDICT_OK);
  for (const auto code :
       {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::INTERNAL,
        grpc::StatusCode::UNAUTHENTICATED}) {
    const v1::Finding finding =
        CheckConnection(grpc::Status(code, "why"), address);
    EXPECT_EQ(finding.verdict(), v1::VERDICT_PROBLEM) << code;
    EXPECT_THAT(finding.found(), HasSubstr("why"));
    EXPECT_FALSE(finding.remedy().empty());
  }
}

TEST(DoctorOutputTest, Versions) {
  EXPECT_EQ(CheckVersions("1", "1").verdict(), v1::VERDICT_OK);
  EXPECT_EQ(CheckVersions("1", "2").verdict(), v1::VERDICT_WARNING);
}

TEST(DoctorOutputTest, Clocks) {
  const absl::Time sent = absl::FromUnixSeconds(1'000'000);
  const absl::Time received = sent + absl::Seconds(40);
  const auto check = [&](absl::Time server) {
    return CheckClocks(sent, received, server);
  };
  // A call that took long says nothing against a clock.
  EXPECT_EQ(check(sent).found(), "both sides agree");
  EXPECT_EQ(check(received).found(), "both sides agree");
  EXPECT_EQ(check(received + kMostClockDifference).verdict(), v1::VERDICT_OK);
  const v1::Finding ahead =
      check(received + kMostClockDifference + absl::Seconds(1));
  EXPECT_EQ(ahead.verdict(), v1::VERDICT_WARNING);
  EXPECT_EQ(ahead.found(), "the server's is 31s ahead");
  const v1::Finding behind =
      check(sent - kMostClockDifference - absl::Seconds(1));
  EXPECT_EQ(behind.verdict(), v1::VERDICT_WARNING);
  EXPECT_EQ(behind.found(), "the server's is 31s behind");
}

TEST(DoctorOutputTest, TextOfTheServerMovesNoCursor) {
  v1::Diagnosis diagnosis;
  v1::Finding* const finding = diagnosis.add_findings();
  finding->set_name("x\n");
  finding->set_found("\x1b[31m");
  finding->set_remedy("a\rb");
  EXPECT_EQ(DiagnosisText(diagnosis).find('\x1b'), std::string::npos);
  EXPECT_EQ(DiagnosisText(diagnosis).find('\r'), std::string::npos);
}

}  // namespace
}  // namespace roundhouse::client
