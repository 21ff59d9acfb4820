#include "client/error_text.h"

#include <gtest/gtest.h>

#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace roundhouse::client {
namespace {

constexpr char kPath[] = "unix:/s";

grpc::Status Detailed(grpc::StatusCode code, const std::string& message,
                      const google::protobuf::Message& detail) {
  google::rpc::Status details;
  details.add_details()->PackFrom(detail);
  return grpc::Status(code, message, details.SerializeAsString());
}

std::string Text(const grpc::Status& status) {
  return ErrorText("submit a.yaml", status, {kPath, "--server"});
}

TEST(ErrorTextTest, CodeAndMessage) {
  EXPECT_EQ(Text(grpc::Status(grpc::StatusCode::NOT_FOUND, "no job b")),
            "roundhouse: submit a.yaml: NOT_FOUND: no job b\n");
}

TEST(ErrorTextTest, FieldViolationsAreListed) {
  google::rpc::BadRequest detail;
  auto* violation = detail.add_field_violations();
  violation->set_field("learning_rat");
  violation->set_description("unknown; did you mean learning_rate?");
  violation = detail.add_field_violations();
  violation->set_field("seed");
  violation->set_description("is negative");
  EXPECT_EQ(
      Text(Detailed(grpc::StatusCode::INVALID_ARGUMENT, "two errors", detail)),
      "roundhouse: submit a.yaml: INVALID_ARGUMENT: two errors\n"
      "  learning_rat: unknown; did you mean learning_rate?\n"
      "  seed: is negative\n");
}

TEST(ErrorTextTest, WhatTheMessageSaysIsNotRepeated) {
  google::rpc::BadRequest detail;
  auto* violation = detail.add_field_violations();
  violation->set_field("seed");
  violation->set_description("is negative");
  EXPECT_EQ(Text(Detailed(grpc::StatusCode::INVALID_ARGUMENT,
                          "a.yaml:3: seed: is negative", detail)),
            "roundhouse: submit a.yaml: INVALID_ARGUMENT: "
            "a.yaml:3: seed: is negative\n");
}

// A subject that only the details name, as they do a job's whole name.
TEST(ErrorTextTest, ASubjectAloneIsNoReasonToSayItAgain) {
  google::rpc::PreconditionFailure detail;
  detail.add_violations()->set_subject("projects/default/fineTuningJobs/job-1");
  detail.mutable_violations(0)->set_description("the job is SUCCEEDED");
  EXPECT_EQ(Text(Detailed(grpc::StatusCode::FAILED_PRECONDITION,
                          "the job is SUCCEEDED", detail)),
            "roundhouse: submit a.yaml: FAILED_PRECONDITION: the job is "
            "SUCCEEDED\n");
}

TEST(ErrorTextTest, ADescriptionThatNamesItsFieldStandsAlone) {
  google::rpc::BadRequest detail;
  detail.add_field_violations()->set_field("seed");
  detail.mutable_field_violations(0)->set_description("line 3: seed: is bad");
  EXPECT_EQ(Text(Detailed(grpc::StatusCode::INVALID_ARGUMENT,
                          "a.yaml has 2 errors", detail)),
            "roundhouse: submit a.yaml: INVALID_ARGUMENT: a.yaml has 2 errors\n"
            "  line 3: seed: is bad\n");
}

TEST(ErrorTextTest, AServerThatAnswersIsThere) {
  google::rpc::ErrorInfo info;
  info.set_reason("TRY_LATER");
  EXPECT_EQ(Text(Detailed(grpc::StatusCode::UNAVAILABLE,
                          "the job store can't be written", info)),
            "roundhouse: submit a.yaml: UNAVAILABLE: the job store can't be "
            "written\n");
}

TEST(ErrorTextTest, TheOtherDetails) {
  google::rpc::QuotaFailure quota;
  quota.add_violations()->set_subject("host memory");
  quota.mutable_violations(0)->set_description("9 of 8 GiB");
  EXPECT_NE(
      Text(Detailed(grpc::StatusCode::RESOURCE_EXHAUSTED, "too big", quota))
          .find("\n  host memory: 9 of 8 GiB\n"),
      std::string::npos);
  google::rpc::PreconditionFailure precondition;
  precondition.add_violations()->set_subject("state");
  precondition.mutable_violations(0)->set_description("is PAUSED");
  EXPECT_NE(Text(Detailed(grpc::StatusCode::FAILED_PRECONDITION, "not now",
                          precondition))
                .find("\n  state: is PAUSED\n"),
            std::string::npos);
  google::rpc::ResourceInfo resource;
  resource.set_resource_name("b2");
  resource.set_description("was deleted");
  EXPECT_NE(Text(Detailed(grpc::StatusCode::NOT_FOUND, "gone", resource))
                .find("\n  b2: was deleted\n"),
            std::string::npos);
}

TEST(ErrorTextTest, BrokenDetailsAreLeftOut) {
  EXPECT_EQ(Text(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "bad",
                              "\xff\xff\xff")),
            "roundhouse: submit a.yaml: INVALID_ARGUMENT: bad\n");
}

TEST(ErrorTextTest, UnavailableSaysWhereItLooked) {
  const std::string text =
      Text(grpc::Status(grpc::StatusCode::UNAVAILABLE, "connect failed"));
  EXPECT_NE(text.find("No answer from unix:/s (--server)"), std::string::npos)
      << text;
}

TEST(ErrorTextTest, NobodyThereIsOneLineAndWhatToDo) {
  const std::string grpc_says =
      "failed to connect to all addresses; last error: UNKNOWN: unix:/s: ";
  EXPECT_EQ(Text(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                              grpc_says + "Connection refused")),
            "roundhouse: submit a.yaml: no answer from unix:/s (--server): "
            "Connection refused\n"
            "Is roundhoused running there?  --server or ROUNDHOUSE_SERVER "
            "names another address.\n");
  EXPECT_EQ(Text(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                              grpc_says + "Permission denied")),
            "roundhouse: submit a.yaml: no answer from unix:/s (--server): "
            "Permission denied\n"
            "Ask the server's admin for access to the socket and its "
            "folder.\n");
}

TEST(ErrorTextTest, NoTextMovesTheCursor) {
  EXPECT_EQ(MessageText("a\x1b[2J\rb\tc\x7f\xc3\xa9"),
            "a\\x1b[2J\\x0db\tc\\x7f\xc3\xa9");
  EXPECT_EQ(MessageText("a\xc2\x9b"
                        "2J\xc2\x85\xc2\xa0"),
            "a\\u009b2J\\u0085\xc2\xa0");
}

// A server's message with a file's name in it, and the file the user named.
TEST(ErrorTextTest, NoNameForgesALineOfOurs) {
  const grpc::Status status(grpc::StatusCode::INVALID_ARGUMENT,
                            "dataset: /data/a\nroundhouse: all well");
  EXPECT_EQ(ErrorText("submit a\nb\x1b.yaml", status,
                      ServerAddress{"unix:/s", "--server"}),
            "roundhouse: submit a\\nb\\x1b.yaml: INVALID_ARGUMENT: "
            "dataset: /data/a\n    roundhouse: all well\n");
}

}  // namespace
}  // namespace roundhouse::client
