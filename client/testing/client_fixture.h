// Runs the client's commands in the test's process against a FakeServer.
#ifndef ROUNDHOUSE_CLIENT_TESTING_CLIENT_FIXTURE_H_
#define ROUNDHOUSE_CLIENT_TESTING_CLIENT_FIXTURE_H_

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "client/environment.h"
#include "client/exit_code.h"
#include "client/interrupt.h"
#include "client/testing/fake_server.h"

namespace roundhouse::client {

class ClientTest : public testing::Test {
 protected:
  ClientTest();

  // With ROUNDHOUSE_SERVER naming the fake.  Output of earlier runs is gone.
  ExitCode Run(const std::vector<std::string>& args);
  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

  // A file with this text that lives as long as the test's folder.
  static std::string WriteFile(const std::string& name,
                               const std::string& text);

  FakeServer server_;
  Interrupt interrupt_;
  std::map<std::string, std::string> variables_;
  Environment environment_;

 private:
  std::ostringstream out_;
  std::ostringstream err_;
};

// "projects/default/fineTuningJobs/a1" in `state`.
v1::FineTuningJob MakeJob(v1::JobState state);
v1::WatchFineTuningJobsResponse MakeChange(int64_t revision,
                                           v1::JobState state);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TESTING_CLIENT_FIXTURE_H_
