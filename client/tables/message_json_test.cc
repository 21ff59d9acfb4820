#include "client/tables/message_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace roundhouse::client {
namespace {

v1::FineTuningJob SomeJob() {
  v1::FineTuningJob job;
  job.set_name("projects/default/fineTuningJobs/a1");
  job.set_state(v1::SUCCEEDED);
  job.set_step(12);
  job.set_submitted_text("a: \"b\"\n");
  job.set_resolved_spec(R"({"batch_size":8})");
  job.mutable_create_time()->set_seconds(1'700'000'000);
  for (int step = 1; step <= 2; ++step) {
    v1::LossPoint* point = job.add_loss_history();
    point->set_step(step);
    point->set_loss(0.5 * step);
  }
  return job;
}

TEST(MessageJsonTest, NumbersAreNumbersAndNamesAreTheProtos) {
  const nlohmann::ordered_json json = JobJson(SomeJob());
  EXPECT_EQ(json["step"], 12);
  EXPECT_TRUE(json["step"].is_number_integer());
  EXPECT_EQ(json["state"], "SUCCEEDED");
  EXPECT_EQ(json["create_time"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(json["loss_history"].dump(),
            R"([{"step":1,"loss":0.5},{"step":2,"loss":1.0}])");
}

TEST(MessageJsonTest, WhatHasNoValueIsLeftOutOnlyWhereItCanBeTold) {
  const nlohmann::ordered_json json = JobJson(SomeJob());
  EXPECT_FALSE(json.contains("loss"));
  EXPECT_FALSE(json.contains("end_time"));
  EXPECT_FALSE(json.contains("dataset"));
  EXPECT_EQ(json["output_path"], "");
  EXPECT_EQ(json["eval_history"].dump(), "[]");
  EXPECT_EQ(json["reason"], "JOB_REASON_UNSPECIFIED");
}

TEST(MessageJsonTest, TheResolvedSpecIsAnObject) {
  v1::FineTuningJob job = SomeJob();
  EXPECT_EQ(JobJson(job)["resolved_spec"]["batch_size"], 8);
  job.set_resolved_spec("");
  EXPECT_EQ(JobJson(job)["resolved_spec"], "");
  job.set_resolved_spec("{");
  EXPECT_EQ(JobJson(job)["resolved_spec"], "{");
}

TEST(MessageJsonTest, BriefLeavesTheLargeFieldsOut) {
  const nlohmann::ordered_json json = BriefJobJson(SomeJob());
  EXPECT_FALSE(json.contains("loss_history"));
  EXPECT_FALSE(json.contains("eval_samples"));
  EXPECT_FALSE(json.contains("submitted_text"));
  EXPECT_EQ(json["step"], 12);
}

TEST(MessageJsonTest, NonFiniteNumbersStayTellable) {
  v1::FineTuningJob job;
  job.set_loss(std::nan(""));
  EXPECT_EQ(JobJson(job)["loss"], "NaN");
  job.set_loss(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(JobJson(job)["loss"], "-Infinity");
}

// A terminal may be what reads it.
TEST(MessageJsonTest, TextMovesNoCursorAndStaysItself) {
  nlohmann::ordered_json json;
  json["a\x7f"] = "\x1b[2J\xc2\x9b\xe2\x80\xae \xc3\xa4";
  const std::string text = JsonText(json, 2);
  EXPECT_EQ(text,
            "{\n  \"a\\u007f\": \"\\u001b[2J\\u009b\\u202e \xc3\xa4\"\n}");
  EXPECT_EQ(nlohmann::ordered_json::parse(text), json);
}

TEST(MessageJsonTest, TextIsOneLineOrIndented) {
  nlohmann::ordered_json json;
  json["b"] = "\xff";
  json["a"] = 1;
  EXPECT_EQ(JsonText(json, -1), "{\"b\":\"\xef\xbf\xbd\",\"a\":1}");
  EXPECT_EQ(JsonText(json, 2), "{\n  \"b\": \"\xef\xbf\xbd\",\n  \"a\": 1\n}");
}

}  // namespace
}  // namespace roundhouse::client
