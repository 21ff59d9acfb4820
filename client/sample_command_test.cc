// `roundhouse sample` against a server on a Unix socket.
#include <nlohmann/json.hpp>

#include "client/tables/sample_output.h"
#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ParsePromptsTest, StringsAndObjects) {
  const auto prompts = ParsePrompts(
      "\"one\"\n\n{\"prompt\": \"two\\n\", \"id\": 1}\n", "p.jsonl");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_EQ(*prompts, (std::vector<std::string>{"one", "two\n"}));
}

TEST(ParsePromptsTest, WhatIsNoPromptIsNamed) {
  for (const char* bad : {"1", "{\"text\": \"a\"}", "{\"prompt\": 1}", "one"}) {
    const auto prompts = ParsePrompts(std::string("\"a\"\n") + bad, "p.jsonl");
    EXPECT_FALSE(prompts.ok()) << bad;
    EXPECT_TRUE(Has(std::string(prompts.status().message()), "p.jsonl:2: "));
  }
}

v1::SampleResponse Piece(int prompt, const std::string& text,
                         std::vector<int32_t> tokens, v1::SampleEnd end) {
  v1::SampleResponse piece;
  piece.set_prompt(prompt);
  piece.set_text(text);
  piece.mutable_tokens()->Add(tokens.begin(), tokens.end());
  piece.set_end(end);
  return piece;
}

class SampleCommandTest : public ClientTest {
 protected:
  SampleCommandTest() {
    server_.answers().sample = [this](const v1::SampleRequest& asked,
                                      const SendSample& send) {
      asked_ = asked;
      v1::SampleResponse source;
      source.set_source("/data/out");
      send(source);
      send(Piece(1, "x", {5}, v1::END_TOKEN));
      send(Piece(0, "a\x1b", {6}, v1::SAMPLE_END_UNSPECIFIED));
      send(Piece(0, "b", {7, 8}, v1::MAX_NEW_TOKENS));
      send(Piece(9, "nobody's", {7}, v1::MAX_NEW_TOKENS));
      return grpc::Status::OK;
    };
  }

  v1::SampleRequest asked_;
};

TEST_F(SampleCommandTest, EveryFlagIsSent) {
  const std::string file = WriteFile("p.jsonl", "{\"prompt\": \"three\"}\n");
  EXPECT_EQ(Run({"sample", "job-7", "--prompt", "one", "-p", "two",
                 "--prompts-file", file, "--max-new-tokens", "9",
                 "--temperature", "0.7", "--seed", "3", "--raw"}),
            ExitCode::kOk)
      << err();
  EXPECT_EQ(asked_.model(), "job-7");
  ASSERT_EQ(asked_.prompts_size(), 3);
  EXPECT_EQ(asked_.prompts(2), "three");
  EXPECT_EQ(asked_.max_new_tokens(), 9);
  EXPECT_EQ(asked_.temperature(), 0.7);
  EXPECT_EQ(asked_.seed(), 3u);
  EXPECT_TRUE(asked_.raw());
}

TEST_F(SampleCommandTest, CompletionsComeInTheOrderOfPrompts) {
  const std::vector<std::string> args = {"sample", "job-7", "-p",
                                         "one",    "-p",    "two"};
  EXPECT_EQ(Run(args), ExitCode::kOk) << err();
  EXPECT_EQ(out(),
            "--- 3 tokens, cut off\none[[a\\x1bb]]\n"
            "--- 1 token, ended\ntwo[[x]]\n");
  EXPECT_TRUE(Has(err(), "sampling from /data/out")) << err();
  EXPECT_EQ(asked_.max_new_tokens(), 128);
  EXPECT_EQ(asked_.temperature(), 0);
  environment_.out_is_terminal = true;
  EXPECT_EQ(Run(args), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "two\x1b[32mx\x1b[0m\n")) << out();
}

TEST_F(SampleCommandTest, JsonHasAllOfIt) {
  EXPECT_EQ(Run({"sample", "job-7", "-p", "one", "-p", "two", "-o", "json"}),
            ExitCode::kOk);
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ(json["source"], "/data/out");
  EXPECT_EQ(json["samples"][0], (nlohmann::json{{"prompt", "one"},
                                                {"completion",
                                                 "a\x1b"
                                                 "b"},
                                                {"tokens", {6, 7, 8}},
                                                {"end", "max_new_tokens"}}));
  EXPECT_EQ(json["samples"][1]["end"], "end_token");
}

TEST_F(SampleCommandTest, AnErrorEndsIt) {
  server_.answers().sample = [](const auto&, const auto&) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        "job job-7 has no weights yet");
  };
  EXPECT_EQ(Run({"sample", "job-7", "-p", "one", "-o", "json"}),
            ExitCode::kPrecondition);
  EXPECT_EQ(out(), "");
  EXPECT_TRUE(Has(err(), "sample job-7: FAILED_PRECONDITION: job job-7 has"))
      << err();
}

TEST_F(SampleCommandTest, UsageErrors) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"sample", "job-7"}, "flag --prompt is missing"},
      {{"sample", "-p", "one"}, "JOB|DIRECTORY is missing"},
      {{"sample", "a", "-p", "b", "--max-new-tokens", "1025"}, "than 1024"},
      {{"sample", "a", "-p", "b", "--temperature", "hot"}, "\"hot\" is not"},
      {{"sample", "a", "-p", "b", "--temperature", "-1"}, "\"-1\" is not"}};
  for (const auto& [args, text] : cases) {
    EXPECT_EQ(Run(args), ExitCode::kUsage) << text;
    EXPECT_TRUE(Has(err(), text)) << err();
    EXPECT_EQ(out(), "");
  }
  const std::string file = WriteFile("none.jsonl", "\n");
  EXPECT_EQ(Run({"sample", "a", "--prompts-file", file}), ExitCode::kError);
  EXPECT_TRUE(Has(err(), "has no prompt")) << err();
}

}  // namespace
}  // namespace roundhouse::client
