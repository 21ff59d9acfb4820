// `roundhouse export` against a server on a Unix socket.
#include <nlohmann/json.hpp>
#include <thread>

#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

v1::ExportCheckpointResponse Message(int64_t done, const std::string& path) {
  v1::ExportCheckpointResponse message;
  message.set_kind(v1::EXPORT_KIND_MERGED);
  message.set_done_bytes(done);
  message.set_total_bytes(4096);
  message.set_path(path);
  return message;
}

class ExportCommandTest : public ClientTest {
 protected:
  ExportCommandTest() {
    server_.answers().export_checkpoint =
        [this](const v1::ExportCheckpointRequest& request,
               const SendExport& send) {
          request_ = request;
          send(v1::ExportCheckpointResponse());
          send(Message(1024, ""));
          send(Message(4096, "/outputs/m\x1b"));
          return grpc::Status::OK;
        };
  }

  v1::ExportCheckpointRequest request_;
};

TEST_F(ExportCommandTest, SendsWhatIsAskedAndPrintsThePath) {
  environment_.now = [] { return absl::UnixEpoch(); };  // no time passes
  EXPECT_EQ(
      Run({"export", "job-7", "--merge", "--dtype=bf16", "--output", "m"}),
      ExitCode::kOk)
      << err();
  EXPECT_EQ(request_.source(), "job-7");
  EXPECT_EQ(request_.kind(), v1::EXPORT_KIND_MERGED);
  EXPECT_EQ(request_.dtype(), "bf16");
  EXPECT_EQ(request_.output(), "m");
  EXPECT_EQ(out(), "/outputs/m\\x1b\n");
  EXPECT_EQ(err(), "waiting\n");  // further lines come later
}

TEST_F(ExportCommandTest, WithoutMergeItIsAsItIs) {
  EXPECT_EQ(Run({"export", "a/b", "--output=m", "-o", "json"}), ExitCode::kOk);
  EXPECT_EQ(request_.kind(), v1::EXPORT_KIND_UNSPECIFIED);
  EXPECT_EQ(request_.dtype(), "");
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ(json["kind"], "EXPORT_KIND_MERGED");
  EXPECT_EQ(json["done_bytes"], 4096);
}

TEST_F(ExportCommandTest, ATerminalHasOneLine) {
  environment_.err_is_terminal = true;
  EXPECT_EQ(Run({"export", "a", "--output=m"}), ExitCode::kOk);
  EXPECT_EQ(err(),
            "\r\x1b[Kwaiting"
            "\r\x1b[Kmerged model: 25%, 1.0 KiB of 4.0 KiB"
            "\r\x1b[Kmerged model: 100%, 4.0 KiB of 4.0 KiB\n");
}

TEST_F(ExportCommandTest, AnErrorIsItsExitCodeAndNothingOnOut) {
  server_.answers().export_checkpoint = [](const auto&, const auto& send) {
    send(Message(1024, ""));
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "disk full");
  };
  EXPECT_EQ(Run({"export", "a", "--output=m"}), ExitCode::kQuota);
  EXPECT_TRUE(Has(err(), "export a: RESOURCE_EXHAUSTED: disk full")) << err();
  EXPECT_EQ(out(), "");
}

TEST_F(ExportCommandTest, AnEndWithoutAPathIsAnError) {
  server_.answers().export_checkpoint = [](const auto&, const auto& send) {
    send(Message(4096, ""));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"export", "a", "--output=m"}), ExitCode::kError);
  EXPECT_TRUE(Has(err(), "named no path")) << err();
}

TEST_F(ExportCommandTest, CtrlCCancelsTheCall) {
  server_.answers().export_checkpoint = [this](const auto&, const auto& send) {
    interrupt_.Request();
    while (send(Message(1024, ""))) std::this_thread::yield();
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"export", "a", "--output=m"}), ExitCode::kDetached);
  EXPECT_TRUE(Has(err(), "export a: interrupted")) << err();
  EXPECT_EQ(out(), "");
}

TEST_F(ExportCommandTest, OutputIsWhereToAndTheFormatHasItsLetter) {
  EXPECT_EQ(Run({"export", "--help"}), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "--output=NAME|DIR")) << out();
  EXPECT_TRUE(Has(out(), "-o, --format=FORMAT")) << out();
  EXPECT_EQ(Run({"--output=json", "export", "a", "--output=m"}), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["path"], "/outputs/m\x1b");
}

TEST_F(ExportCommandTest, UsageErrors) {
  EXPECT_EQ(Run({"export", "a"}), ExitCode::kUsage);
  EXPECT_TRUE(Has(err(), "flag --output is missing")) << err();
  EXPECT_EQ(Run({"export", "--output=m"}), ExitCode::kUsage);
  EXPECT_TRUE(Has(err(), "JOB|CHECKPOINT|DIR is missing")) << err();
}

}  // namespace
}  // namespace roundhouse::client
