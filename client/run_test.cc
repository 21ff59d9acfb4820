#include "client/run.h"

#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "base/version.h"
#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

using RunTest = ClientTest;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

grpc::Status Error(grpc::StatusCode code) {
  return grpc::Status(code, "the server says no");
}

TEST_F(RunTest, VersionAndHelp) {
  EXPECT_EQ(Run({"--version"}), ExitCode::kOk);
  EXPECT_EQ(out(), std::string("roundhouse ") + kVersion + "\n");
  for (const char* flag : {"--help", "-h", "help"}) {
    EXPECT_EQ(Run({flag}), ExitCode::kOk);
    EXPECT_TRUE(Has(out(), "Exit codes: 0 ok")) << out();
    EXPECT_EQ(err(), "");
  }
}

TEST_F(RunTest, EveryCommandHasHelp) {
  for (const char* command :
       {"submit",  "list",   "get",    "watch",  "logs",
        "pause",   "resume", "finish", "cancel", "priority",
        "dataset", "model",  "device", "export", "job-template",
        "plan",    "sample", "top",    "trace",  "why"}) {
    EXPECT_EQ(Run({command, "--help"}), ExitCode::kOk);
    EXPECT_TRUE(Has(out(), std::string("Usage: roundhouse ") + command))
        << out();
    EXPECT_TRUE(Has(out(), "=FORMAT"));
    std::istringstream lines(out());
    std::string line;
    while (std::getline(lines, line)) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_F(RunTest, HelpOfACommandIsItsFlag) {
  ASSERT_EQ(Run({"submit", "--help"}), ExitCode::kOk);
  const std::string submit = out();
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"help", "submit"},
        {"help", "help", "submit"},
        {"--server=unix:/s", "help", "submit"},
        {"help", "submit", "--wait"}}) {
    EXPECT_EQ(Run(args), ExitCode::kOk);
    EXPECT_EQ(out(), submit);
    EXPECT_EQ(err(), "");
  }
  ASSERT_EQ(Run({"--help"}), ExitCode::kOk);
  const std::string all = out();
  for (const char* word : {"help", "--help", "-h"}) {
    EXPECT_EQ(Run({"help", word}), ExitCode::kOk);
    EXPECT_EQ(out(), all);
  }
  EXPECT_EQ(Run({"help", "sumbit"}), ExitCode::kUsage);
  EXPECT_EQ(err(),
            "roundhouse: unknown command \"sumbit\"; did you mean submit?\n"
            "See: roundhouse --help\n");
}

TEST_F(RunTest, WordsOfOtherToolsNameTheirCommand) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"jobs", "list"},      {"gpu", "device"},
      {"gpus", "device"},    {"nodes", "device"},
      {"stats", "get"},      {"preview", "dataset preview"},
      {"models", "model"},   {"validate", "dataset validate"},
      {"devices", "device"}, {"lsit", "list"}};
  for (const auto& [word, command] : cases) {
    EXPECT_EQ(Run({word}), ExitCode::kUsage);
    EXPECT_TRUE(Has(err(), "\"; did you mean " + command + "?\n")) << err();
  }
  for (const char* word : {"job", "test", "new", "set", "put", "login", "st"}) {
    EXPECT_EQ(Run({word}), ExitCode::kUsage);
    EXPECT_FALSE(Has(err(), "did you mean")) << err();
  }
}

TEST_F(RunTest, UsageErrorsNameTheirCause) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "Usage: roundhouse [flags] COMMAND"},
      {{"gett"}, "unknown command \"gett\"; did you mean get?\nSee: "},
      {{"lst"}, "unknown command \"lst\"; did you mean list?\n"},
      {{"stop"}, "unknown command \"stop\"; did you mean cancel?\n"},
      {{"frobnicate"}, "unknown command \"frobnicate\"\n"},
      {{"list", "--sate=x"}, "unknown flag --sate; did you mean --state?\n"},
      {{"list", "--state=runing"},
       "\"runing\" is no state of a job; did you mean running?\n"},
      {{"model", "lst"},
       "model: \"lst\" is none of list, show, delete, pull; did you "
       "mean list?\n"},
      {{"model", "show"}, "model: show needs a MODEL\n"},
      {{"dataset", "preveiw", "f", "--model=m"},
       "\"preveiw\" is none of validate, preview, list, show, delete; did you "
       "mean preview?"},
      {{"--bogus", "list"}, "unknown flag --bogus"},
      {{"list", "--bogus"}, "list: unknown flag --bogus"},
      {{"list", "x"}, "unexpected argument \"x\""},
      {{"get"}, "get: JOB is missing"},
      {{"get", ""}, "get: JOB is empty"},
      {{"get", "a", "b"}, "unexpected argument \"b\""},
      {{"list", "-o", "xml"}, "\"xml\" is none of table, json, name"},
      {{"--server", "tcp:1", "list"}, "\"tcp:1\" is not a server address"},
      {{"list", "--state=done"}, "\"done\" is no state of a job"},
      {{"submit"}, "flag --file is missing"},
      {{"submit", "--file="}, "flag --file is missing"},
      {{"submit", "--file"}, "submit: flag --file needs a value, FILE\nSee: "},
      {{"submit", "--wait=yes"}, "submit: flag --wait takes no value\n"},
      {{"logs", "a1", "--tail=1\n2"},
       "logs: flag --tail: \"1\\n2\" is not a number from 0 on\nSee: "},
      {{"-help"}, "unknown flag -e in -help; did you mean --help?\n"},
      {{"get", "list", "get"}, "unexpected argument \"get\""},
      {{"submit", "-f", "x", "--wait", "--dry-run"}, "exclude each other"}};
  for (const auto& [args, text] : cases) {
    EXPECT_EQ(Run(args), ExitCode::kUsage) << text;
    EXPECT_TRUE(Has(err(), text)) << err();
    EXPECT_EQ(out(), "");
  }
}

TEST_F(RunTest, NoServerIsUnavailable) {
  EXPECT_EQ(Run({"list", "--server=unix:/tmp/roundhouse-none"}),
            ExitCode::kUnavailable);
  EXPECT_EQ(err(),
            "roundhouse: list: no answer from unix:/tmp/roundhouse-none "
            "(--server): No such file or directory\n"
            "Is roundhoused running there?  --server or ROUNDHOUSE_SERVER "
            "names another address.\n");
}

TEST_F(RunTest, ExitCodesFollowTheServersCodes) {
  const std::vector<std::pair<grpc::StatusCode, ExitCode>> cases = {
      {grpc::StatusCode::UNAUTHENTICATED, ExitCode::kAuth},
      {grpc::StatusCode::PERMISSION_DENIED, ExitCode::kAuth},
      {grpc::StatusCode::NOT_FOUND, ExitCode::kNotFound},
      {grpc::StatusCode::FAILED_PRECONDITION, ExitCode::kPrecondition},
      {grpc::StatusCode::ABORTED, ExitCode::kPrecondition},
      {grpc::StatusCode::RESOURCE_EXHAUSTED, ExitCode::kQuota},
      {grpc::StatusCode::UNAVAILABLE, ExitCode::kUnavailable},
      {grpc::StatusCode::DEADLINE_EXCEEDED, ExitCode::kUnavailable},
      {grpc::StatusCode::CANCELLED, ExitCode::kCancelled},
      {grpc::StatusCode::INVALID_ARGUMENT, ExitCode::kError},
      {grpc::StatusCode::INTERNAL, ExitCode::kError}};
  for (const auto& [code, exit_code] : cases) {
    server_.answers().get = [code = code](const std::string&, auto*) {
      return Error(code);
    };
    EXPECT_EQ(Run({"get", "a1"}), exit_code) << code;
    EXPECT_TRUE(Has(err(), "get a1")) << err();
    EXPECT_TRUE(Has(err(), "the server says no")) << err();
    EXPECT_EQ(out(), "");
  }
}

TEST_F(RunTest, GetInEveryFormat) {
  server_.answers().get = [](const std::string& name, v1::FineTuningJob* job) {
    EXPECT_EQ(name, "a1");
    *job = MakeJob(v1::SUCCEEDED);
    job->set_step(4);
    job->set_output_path("/out/a1");
    v1::LossPoint* point = job->add_loss_history();
    point->set_step(4);
    point->set_loss(0.5);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"get", "a1"}), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "SUCCEEDED")) << out();
  EXPECT_EQ(Run({"get", "a1", "-o", "name"}), ExitCode::kOk);
  EXPECT_EQ(out(), "projects/default/fineTuningJobs/a1\n");
  EXPECT_EQ(Run({"-o", "json", "get", "a1"}), ExitCode::kOk);
  const nlohmann::json json = nlohmann::json::parse(out());
  EXPECT_EQ(json["state"], "SUCCEEDED");
  EXPECT_EQ(json["step"], 4);
  EXPECT_EQ(json["loss_history"][0]["loss"], 0.5);
  EXPECT_EQ(json["output_path"], "/out/a1");
}

// 7 jobs in pages of at most 3.
grpc::Status ListInPages(const v1::ListFineTuningJobsRequest& request,
                         v1::ListFineTuningJobsResponse* response) {
  const int first =
      request.page_token().empty() ? 0 : std::stoi(request.page_token());
  const int last = std::min({first + 3, first + request.page_size(), 7});
  for (int i = first; i < last; ++i) {
    v1::FineTuningJob* job = response->add_jobs();
    job->set_name("projects/default/fineTuningJobs/j" + std::to_string(i));
    job->set_state(v1::QUEUED);
  }
  if (last < 7) {
    response->set_next_page_token(std::to_string(last));
  }
  return grpc::Status::OK;
}

TEST_F(RunTest, ListFollowsThePages) {
  server_.answers().list = ListInPages;
  EXPECT_EQ(Run({"list", "-o", "json"}), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["jobs"].size(), 7u);
  EXPECT_EQ(err(), "");
  EXPECT_EQ(Run({"list", "-o", "json", "--limit=0"}), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["jobs"].size(), 7u);
  EXPECT_EQ(Run({"list", "-o", "name", "--limit=4"}), ExitCode::kOk);
  EXPECT_EQ(out(),
            "projects/default/fineTuningJobs/j0\n"
            "projects/default/fineTuningJobs/j1\n"
            "projects/default/fineTuningJobs/j2\n"
            "projects/default/fineTuningJobs/j3\n");
  EXPECT_TRUE(Has(err(), "There are more")) << err();
}

TEST_F(RunTest, ListSendsItsStates) {
  server_.answers().list = [](const v1::ListFineTuningJobsRequest& request,
                              v1::ListFineTuningJobsResponse*) {
    EXPECT_EQ(request.states_size(), 2);
    EXPECT_EQ(request.states(0), v1::RUNNING);
    EXPECT_EQ(request.states(1), v1::PAUSED);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"list", "--state=running,PAUSED"}), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "NAME  STATE")) << out();
  EXPECT_EQ(Run({"list", "--state=running,PAUSED", "-o", "json"}),
            ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out()).dump(), R"({"jobs":[]})");
}

TEST_F(RunTest, ModelsAreListedAndShown) {
  server_.answers().models = [](v1::ListModelsResponse* response) {
    v1::Model* model = response->add_models();
    model->set_name("/m/a");
    model->set_family("qwen3");
    response->set_truncated(true);
    return grpc::Status::OK;
  };
  server_.answers().model = [](const std::string& name, v1::Model* model) {
    model->set_name(name);
    model->set_problem("broken");
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"model", "list"}), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "/m/a  qwen3")) << out();
  EXPECT_TRUE(Has(err(), "more models")) << err();
  EXPECT_EQ(Run({"model", "list", "-o", "name"}), ExitCode::kOk);
  EXPECT_EQ(out(), "/m/a\n");
  EXPECT_EQ(Run({"model", "show", "x"}), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "broken")) << out();
  EXPECT_EQ(Run({"model", "show", "x", "-o", "json"}), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["problem"], "broken");
  EXPECT_EQ(Run({"model", "show"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"model", "list", "x"}), ExitCode::kUsage);
}

TEST_F(RunTest, ChangesShowTheNewState) {
  server_.answers().change = [](const std::string& call,
                                const std::string& name,
                                v1::FineTuningJob* job) {
    EXPECT_EQ(name, "a1");
    *job = MakeJob(call == "pause"       ? v1::PAUSING
                   : call == "give back" ? v1::PAUSED
                   : call == "resume"    ? v1::QUEUED
                   : call == "finish"    ? v1::RUNNING
                                         : v1::CANCELLING);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"pause", "a1"}), ExitCode::kOk);
  EXPECT_EQ(out(), "a1 PAUSING\n");
  EXPECT_EQ(Run({"pause", "--give-back", "a1"}), ExitCode::kOk);
  EXPECT_EQ(out(), "a1 PAUSED\n");
  EXPECT_EQ(Run({"resume", "a1"}), ExitCode::kOk);
  EXPECT_EQ(out(), "a1 QUEUED\n");
  EXPECT_EQ(Run({"finish", "a1"}), ExitCode::kOk);
  EXPECT_EQ(out(), "a1 RUNNING\n");
  EXPECT_EQ(Run({"cancel", "a1", "-o", "json"}), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["state"], "CANCELLING");
  server_.answers().change = [](const auto&, const auto&, auto*) {
    return Error(grpc::StatusCode::FAILED_PRECONDITION);
  };
  EXPECT_EQ(Run({"resume", "a1"}), ExitCode::kPrecondition);
}

TEST_F(RunTest, APriorityIsAWord) {
  std::string asked;
  server_.answers().change = [&](const std::string& call, const std::string&,
                                 v1::FineTuningJob* job) {
    asked = call;
    *job = MakeJob(v1::RUNNING);
    if (call == "priority URGENT") job->set_priority(v1::URGENT);
    if (call == "priority BACKFILL") job->set_priority(v1::BACKFILL);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"priority", "a1", "urgent"}), ExitCode::kOk);
  EXPECT_EQ(out(), "a1 RUNNING (urgent)\n");
  EXPECT_EQ(Run({"priority", "a1", "backfill"}), ExitCode::kOk);
  EXPECT_EQ(out(), "a1 RUNNING (backfill)\n");
  EXPECT_EQ(Run({"priority", "a1", "normal"}), ExitCode::kOk);
  EXPECT_EQ(out(), "a1 RUNNING\n");
  EXPECT_EQ(asked, "priority NORMAL");
  EXPECT_EQ(Run({"priority", "a1", "urgnt"}), ExitCode::kUsage);
  EXPECT_TRUE(Has(err(), "did you mean urgent?")) << err();
  EXPECT_EQ(Run({"priority", "a1", "job_priority_unspecified"}),
            ExitCode::kUsage);
  EXPECT_EQ(Run({"priority", "a1"}), ExitCode::kUsage);
}

TEST_F(RunTest, Devices) {
  server_.answers().devices = [](v1::ListDevicesResponse* response) {
    v1::Device* device = response->add_devices();
    device->set_name("devices/0");
    device->set_kind("cpu");
    device->set_state(v1::UP);
    device->set_h2d_bytes(int64_t{1} << 33);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"device"}), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "8.0 GiB")) << out();
  EXPECT_EQ(Run({"device", "-o", "name"}), ExitCode::kOk);
  EXPECT_EQ(out(), "devices/0\n");
  EXPECT_EQ(Run({"device", "-o", "json"}), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["devices"][0]["h2d_bytes"],
            int64_t{1} << 33);
}

TEST_F(RunTest, ADeviceIsLentAndItsEndAwaited) {
  v1::LendDeviceRequest asked;
  server_.answers().lend = [&](const v1::LendDeviceRequest& request,
                               v1::Device* device) {
    asked = request;
    device->set_name(request.name());
    device->set_index(1);
    device->set_state(v1::LEAVING);
    return grpc::Status::OK;
  };
  int looks = 0;
  server_.answers().devices = [&](v1::ListDevicesResponse* response) {
    response->add_devices()->set_name("devices/0");
    v1::Device* device = response->add_devices();
    device->set_name("devices/1");
    device->set_index(1);
    device->set_state(++looks < 3 ? v1::LEAVING : v1::LENT);
    device->mutable_loan()->set_owner("anna");
    device->mutable_loan()->set_note("demo");
    device->mutable_loan()->mutable_until_time()->set_seconds(1800000000);
    return grpc::Status::OK;
  };
  ASSERT_EQ(Run({"device", "lend", "1", "--for=90m", "--note=demo"}),
            ExitCode::kOk)
      << err();
  EXPECT_EQ(looks, 3);
  EXPECT_EQ(asked.name(), "devices/1");
  EXPECT_EQ(asked.note(), "demo");
  EXPECT_EQ(asked.duration().seconds(), 90 * 60);
  EXPECT_FALSE(asked.has_until_time());
  EXPECT_EQ(out(),
            "device 1 is LENT to anna until 2027-01-15 08:00 UTC (demo); its "
            "memory is free\n");
  ASSERT_EQ(Run({"device"}), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "anna until 2027-01-15 08:00 UTC (demo)")) << out();

  ASSERT_EQ(Run({"device", "lend", "1", "--until=2027-01-15 18:00"}),
            ExitCode::kOk);
  EXPECT_FALSE(asked.has_duration());
  EXPECT_TRUE(asked.has_until_time());
  ASSERT_EQ(Run({"device", "lend", "1", "--until=18:00"}), ExitCode::kOk);
  const absl::Duration left =
      absl::FromUnixSeconds(asked.until_time().seconds()) - absl::Now();
  EXPECT_GT(left, -absl::Minutes(1));
  EXPECT_LE(left, absl::Hours(25));
}

TEST_F(RunTest, ADeviceIsReturnedFencedAndUnfenced) {
  std::vector<std::string> asked;
  server_.answers().change_device = [&](const std::string& call,
                                        const std::string& name,
                                        v1::Device* device) {
    asked.push_back(call + " " + name);
    device->set_state(v1::STARTING);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"device", "return", "0"}), ExitCode::kOk);
  EXPECT_EQ(out(), "device 0 is STARTING\n");
  EXPECT_EQ(Run({"device", "fence", "2", "--note=its fan"}), ExitCode::kOk);
  EXPECT_EQ(Run({"device", "unfence", "2"}), ExitCode::kOk);
  EXPECT_EQ(asked, (std::vector<std::string>{"return devices/0",
                                             "fence its fan devices/2",
                                             "unfence devices/2"}));
}

TEST_F(RunTest, WhatIsAskedOfADeviceIsChecked) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"device", "lent", "1"}, "did you mean lend?"},
      {{"device", "lend"}, "lend needs a DEVICE"},
      {{"device", "lend", "x"}, "lend needs a DEVICE"},
      {{"device", "lend", "1", "--for=2h", "--until=18:00"}, "exclude"},
      {{"device", "lend", "1", "--for=2x"}, "\"2x\" is no time from 1m"},
      {{"device", "lend", "1", "--until=25:00"}, "is no time such as 18:00"},
      {{"device", "return", "1", "--for=2h"}, "are for lend"},
      {{"device", "unfence", "1", "--note=x"}, "is for lend and fence"}};
  for (const auto& [arguments, text] : cases) {
    EXPECT_EQ(Run(arguments), ExitCode::kUsage) << text;
    EXPECT_TRUE(Has(err(), text)) << err();
  }
}

TEST_F(RunTest, LogsThenTheReasonOfAFailure) {
  server_.answers().logs = [](const v1::StreamFineTuningJobLogsRequest& request,
                              const SendLog& send) {
    EXPECT_FALSE(request.follow());
    EXPECT_EQ(request.tail_lines(), 5);
    send("line one\n");
    send("line two\n");
    return grpc::Status::OK;
  };
  server_.answers().get = [](const std::string&, v1::FineTuningJob* job) {
    *job = MakeJob(v1::FAILED);
    job->set_reason(v1::STORAGE_FULL);
    job->set_message("no space for checkpoint-5");
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"logs", "a1", "--tail=5"}), ExitCode::kOk);
  EXPECT_EQ(out(), "line one\nline two\n");
  EXPECT_TRUE(Has(err(), "STORAGE_FULL: no space for checkpoint-5")) << err();
}

TEST_F(RunTest, FollowedLogsGoOnWhereTheyBroke) {
  std::mutex mutex;
  int calls = 0;
  server_.answers().logs =
      [&](const v1::StreamFineTuningJobLogsRequest& request,
          const SendLog& send) {
        EXPECT_TRUE(request.follow());
        std::lock_guard<std::mutex> lock(mutex);
        send("line one\nli");
        if (++calls == 1) {
          return Error(grpc::StatusCode::UNAVAILABLE);
        }
        send("ne two\n");
        return grpc::Status::OK;
      };
  server_.answers().get = [](const std::string&, v1::FineTuningJob* job) {
    *job = MakeJob(v1::SUCCEEDED);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"logs", "-f", "a1"}), ExitCode::kOk);
  EXPECT_EQ(out(), "line one\nline two\n");
  EXPECT_EQ(calls, 2);
}

TEST_F(RunTest, LogsGiveUpAfterTheirAttempts) {
  int calls = 0;
  server_.answers().logs = [&](const auto&, const SendLog&) {
    ++calls;
    return Error(grpc::StatusCode::UNAVAILABLE);
  };
  EXPECT_EQ(Run({"logs", "a1"}), ExitCode::kUnavailable);
  EXPECT_EQ(calls, environment_.stream_retry.attempts);
}

// What an old daemon wrote may have them; the server cuts characters anywhere.
TEST_F(RunTest, LogsShowNoControlCharacters) {
  server_.answers().logs = [](const auto&, const SendLog& send) {
    send("red\x1b[31m \xf0\x9f");
    send("\x9a\x82\n\xc3");
    return grpc::Status::OK;
  };
  server_.answers().get = [](const std::string&, v1::FineTuningJob* job) {
    *job = MakeJob(v1::RUNNING);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"logs", "a1"}), ExitCode::kOk);
  EXPECT_EQ(out(), "red\\x1b[31m \xf0\x9f\x9a\x82\n\\xc3");
  EXPECT_EQ(Run({"logs", "-o", "json", "a1"}), ExitCode::kOk);
  std::istringstream lines(out());
  std::string data, line;
  while (std::getline(lines, line)) {
    data += nlohmann::json::parse(line)["data"].get<std::string>();
  }
  EXPECT_EQ(data, "red\x1b[31m \xf0\x9f\x9a\x82\n\xef\xbf\xbd");
}

// First column of the table in docs/job-spec.md.
std::set<std::string> DocumentedFields() {
  std::ifstream file("docs/job-spec.md");
  std::set<std::string> fields;
  std::string line;
  while (std::getline(file, line)) {
    std::smatch match;
    if (std::regex_search(line, match, std::regex("^\\| `([a-z_0-9]+)` \\|"))) {
      fields.insert(match[1]);
    }
  }
  return fields;
}

TEST_F(RunTest, TheTemplateHasDocumentedFieldsOnly) {
  variables_["ROUNDHOUSE_SERVER"] = "unix:/tmp/roundhouse-none";
  ASSERT_EQ(Run({"job-template"}), ExitCode::kOk);
  const std::set<std::string> documented = DocumentedFields();
  ASSERT_GT(documented.size(), 30u);
  std::set<std::string> used;
  std::istringstream lines(out());
  std::string line;
  while (std::getline(lines, line)) {
    std::smatch match;
    if (std::regex_search(line, match,
                          std::regex("^(?:# )?([a-z_0-9]+): *\\S"))) {
      EXPECT_EQ(documented.count(match[1]), 1u) << line;
      used.insert(match[1]);
    }
  }
  EXPECT_EQ(used.count("model_name_or_path"), 1u);
  EXPECT_EQ(used.count("dataset"), 1u);
  EXPECT_GT(used.size(), 15u);
}

}  // namespace
}  // namespace roundhouse::client
