#include "client/testing/client_fixture.h"

#include <fstream>

#include "client/run.h"

namespace roundhouse::client {

ClientTest::ClientTest() {
  variables_["ROUNDHOUSE_SERVER"] = server_.address();
  environment_.out = &out_;
  environment_.err = &err_;
  environment_.variable =
      [this](const std::string& name) -> std::optional<std::string> {
    const auto found = variables_.find(name);
    return found == variables_.end() ? std::nullopt
                                     : std::optional(found->second);
  };
  environment_.interrupt = &interrupt_;
  environment_.submit_retry = {.attempts = 4,
                               .first_delay = absl::Milliseconds(1)};
  environment_.stream_retry = environment_.submit_retry;
}

ExitCode ClientTest::Run(const std::vector<std::string>& args) {
  out_.str("");
  err_.str("");
  return RunClient(args, &environment_);
}

std::string ClientTest::WriteFile(const std::string& name,
                                  const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

v1::FineTuningJob MakeJob(v1::JobState state) {
  v1::FineTuningJob job;
  job.set_name("projects/default/fineTuningJobs/a1");
  job.set_state(state);
  return job;
}

v1::WatchFineTuningJobsResponse MakeChange(int64_t revision,
                                           v1::JobState state) {
  v1::WatchFineTuningJobsResponse message;
  message.set_kind(v1::WatchFineTuningJobsResponse::CHANGE);
  message.set_revision(revision);
  *message.mutable_job() = MakeJob(state);
  return message;
}

}  // namespace roundhouse::client
