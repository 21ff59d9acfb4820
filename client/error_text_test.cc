#include "client/error_text.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

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

// What the server says has details; the exit code has the code.
grpc::Status Refused(
    const std::string& field, const std::string& message,
    grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT) {
  google::rpc::BadRequest detail;
  detail.add_field_violations()->set_field(field);
  detail.mutable_field_violations(0)->set_description(message);
  return Detailed(code, message, detail);
}

std::string TextOf(const std::string& doing, const grpc::Status& status) {
  return ErrorText(doing, status, {kPath, "--server"});
}

TEST(ErrorTextTest, TheServersOwnWordsNeedNoCode) {
  for (const grpc::StatusCode code :
       {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::NOT_FOUND,
        grpc::StatusCode::FAILED_PRECONDITION,
        grpc::StatusCode::UNIMPLEMENTED}) {
    EXPECT_EQ(TextOf("cancel job-1", Refused("", "it has ended", code)),
              "roundhouse: cancel job-1: it has ended\n");
  }
  EXPECT_EQ(
      TextOf("submit a.yaml",
             Refused("", "too big", grpc::StatusCode::RESOURCE_EXHAUSTED)),
      "roundhouse: submit a.yaml: RESOURCE_EXHAUSTED: too big\n");
}

TEST(ErrorTextTest, AFileIsNamedOnce) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"submit job.yaml", "job.yaml:4: seed: is bad", ""},
      {"submit my job.yaml", "my job.yaml:4: seed: is bad", ""},
      {"submit job.yaml", "job.yaml has 2 errors", ""},
      {"submit job.yaml", "job.yaml: dataset is missing", ""},
      {"dataset validate d.jsonl", "/data/d.jsonl:1: has no text", ""},
      {"dataset preview a.jsonl b.jsonl", "/data/b.jsonl:1: no", ""},
      {"dataset preview a.jsonl b.jsonl", "/data/a.jsonl:1: no", ""},
      // Another file than the one that was named.
      {"submit job.yaml", "/d/x.jsonl:1: no", "submit job.yaml: "},
      {"submit job.yaml", "/d/x.jsonl:1: see /d/job.yaml: no",
       "submit job.yaml: "},
      {"submit job.yaml", "/d/myjob.yaml:1: no", "submit job.yaml: "},
      {"dataset validate d", "/data/d/1.jsonl:1: no", "dataset validate d: "},
      {"submit -", "-:4: seed: is bad", "submit -: "},
      // A job is no file.
      {"trace job-3", "job-3 has ended", "trace job-3: "}};
  for (const auto& [doing, message, head] : cases) {
    EXPECT_EQ(TextOf(doing, Refused("x", message)),
              "roundhouse: " + head + message + "\n");
  }
  // Nor is the code, whoever says it.
  EXPECT_EQ(
      TextOf("submit a.yaml", grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                           "a.yaml:3: seed: is bad")),
      "roundhouse: a.yaml:3: seed: is bad\n");
}

TEST(ErrorTextTest, FieldsAreTheWordsOfTheCommandLine) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"plan m", "model_name_or_path: \"m\" does not exist",
       "flag --model: \"m\" does not exist"},
      {"plan m", "devices: \"8x\" is no device",
       "flag --devices: \"8x\" is no device"},
      {"dataset validate d", "dataset_format: \"dpo\" is none of text",
       "flag --dataset-format: \"dpo\" is none of text"},
      {"dataset validate d", "dataset: \"d\" does not exist",
       "\"d\" does not exist"},
      {"dataset preview d", "model_name_or_path: is missing",
       "flag --model: is missing"},
      {"get x", "name: is no job", "is no job"},
      {"model show x", "name: \"x\" does not exist", "\"x\" does not exist"},
      {"export x", "source: tensor y: is damaged", "tensor y: is damaged"},
      {"export x", "output: is taken", "flag --output: is taken"},
      {"sample x", "model: is being written", "is being written"},
      {"sample x", "prompts: 900 prompts", "flag --prompt: 900 prompts"},
      {"submit f", "request_id: was another's",
       "flag --request-id: was another's"},
      {"submit f", "request_id \"a\" was another's",
       "flag --request-id \"a\" was another's"},
      {"sample x", "model \"y\" is gone", "model \"y\" is gone"},
      {"plan m", "devices are missing", "devices are missing"},
      {"plan m", "devices", "devices"},
      // The job file's own fields, and what is no field.
      {"submit f", "model_name_or_path: is missing",
       "model_name_or_path: is missing"},
      {"submit f", "name: is unknown", "name: is unknown"},
      {"plan m", "/m/config.json: is damaged", "/m/config.json: is damaged"},
      {"get x", "no colon", "no colon"}};
  for (const auto& [doing, message, told] : cases) {
    EXPECT_EQ(TextOf(doing, Refused("x", message)),
              "roundhouse: " + doing + ": " + told + "\n");
  }
  google::rpc::BadRequest detail;
  for (const char* field : {"max_length", "dataset"}) {
    auto* violation = detail.add_field_violations();
    violation->set_field(field);
    violation->set_description("is bad");
  }
  EXPECT_EQ(
      TextOf("dataset validate d", Detailed(grpc::StatusCode::INVALID_ARGUMENT,
                                            "two errors", detail)),
      "roundhouse: dataset validate d: two errors\n"
      "  flag --max-length: is bad\n"
      "  is bad\n");
}

TEST(ErrorTextTest, AJobThatIsNotThereHasACommandBesideIt) {
  const auto code = grpc::StatusCode::NOT_FOUND;
  EXPECT_EQ(TextOf("get job-9", Refused("", "there is no job job-9", code)),
            "roundhouse: get job-9: there is no job job-9; roundhouse list "
            "shows them\n");
  EXPECT_EQ(TextOf("get x", Refused("", "there is no job x; see y", code)),
            "roundhouse: get x: there is no job x; see y\n");
  EXPECT_EQ(TextOf("sample x", Refused("", "x has no checkpoint-3", code)),
            "roundhouse: sample x: x has no checkpoint-3\n");
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
      "roundhouse: submit a.yaml: two errors\n"
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
            "roundhouse: a.yaml:3: seed: is negative\n");
}

// A subject that only the details name, as they do a job's whole name.
TEST(ErrorTextTest, ASubjectAloneIsNoReasonToSayItAgain) {
  google::rpc::PreconditionFailure detail;
  detail.add_violations()->set_subject("projects/default/fineTuningJobs/job-1");
  detail.mutable_violations(0)->set_description("the job is SUCCEEDED");
  EXPECT_EQ(Text(Detailed(grpc::StatusCode::FAILED_PRECONDITION,
                          "the job is SUCCEEDED", detail)),
            "roundhouse: submit a.yaml: the job is SUCCEEDED\n");
}

TEST(ErrorTextTest, ADescriptionThatNamesItsFieldStandsAlone) {
  google::rpc::BadRequest detail;
  detail.add_field_violations()->set_field("seed");
  detail.mutable_field_violations(0)->set_description("line 3: seed: is bad");
  EXPECT_EQ(Text(Detailed(grpc::StatusCode::INVALID_ARGUMENT,
                          "a.yaml has 2 errors", detail)),
            "roundhouse: a.yaml has 2 errors\n"
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

TEST(ErrorTextTest, WhatBrokeMayBeBegunAgainButNotWithAnotherCertificate) {
  const auto broke = [](grpc::StatusCode code, const std::string& message) {
    return BrokeOnTheWay(grpc::Status(code, message));
  };
  EXPECT_TRUE(broke(grpc::StatusCode::UNAVAILABLE, "connection reset"));
  EXPECT_TRUE(broke(grpc::StatusCode::INTERNAL, "RST_STREAM"));
  // As the server answers when its disk has failed: trying for a minute would
  // say nothing new.
  EXPECT_FALSE(BrokeOnTheWay(grpc::Status(grpc::StatusCode::INTERNAL,
                                          "internal error", "an ErrorInfo")));
  EXPECT_FALSE(broke(grpc::StatusCode::UNAVAILABLE,
                     std::string(kOtherCertificate) + "SHA256:x"));
  EXPECT_FALSE(broke(grpc::StatusCode::UNAUTHENTICATED, "no token"));
  EXPECT_FALSE(broke(grpc::StatusCode::OK, ""));
}

}  // namespace
}  // namespace roundhouse::client
