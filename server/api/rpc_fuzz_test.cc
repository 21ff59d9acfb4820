// The RPC fuzzer reaches every RPC: a new one needs a line in a seed.
#include <algorithm>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"
#include "server/api/random_request.h"
#include "server/api/rpc_caller.h"
#include "server/api/rpc_fuzz_script.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

class RpcFuzzTest : public ApiTestFixture {
 protected:
  std::vector<ScriptedCall> Seeds() {
    std::vector<ScriptedCall> all;
    for (const char* file :
         {"rpc_jobs.txt", "rpc_streams.txt", "rpc_questions.txt",
          "rpc_limits.txt", "rpc_uploads.txt", "rpc_disk.txt",
          "rpc_devices.txt"}) {
      const std::string script =
          ReadTestFile(std::string("server/api/testdata/") + file);
      const auto lines = std::count(script.begin(), script.end(), '\n');
      const auto calls = ParseRpcScript(script, ListRpcs(channel_));
      EXPECT_EQ(static_cast<size_t>(lines), calls.size()) << file;
      all.insert(all.end(), calls.begin(), calls.end());
    }
    return all;
  }
};

TEST_F(RpcFuzzTest, TheSeedsHaveEveryRpcOfTheServer) {
  std::set<std::string> listed;
  for (const RpcMethod* method : ListRpcs(channel_)) {
    listed.insert(method->full_name());
  }
  std::set<std::string> seeded;
  for (const ScriptedCall& call : Seeds()) {
    seeded.insert(call.method->full_name());
  }
  EXPECT_EQ(seeded, listed);
  EXPECT_EQ(listed.count("roundhouse.v1.FineTuningJobService."
                         "CreateFineTuningJob"),
            1u);
}

TEST_F(RpcFuzzTest, ACallBringsItsAnswer) {
  for (const ScriptedCall& call : Seeds()) {
    if (call.method->name() != "CreateFineTuningJob") continue;
    const RpcEnd end = CallRpc(channel_, *call.method, call.request);
    ASSERT_TRUE(end.status.ok()) << end.status.error_message();
    ASSERT_EQ(end.responses.size(), 1u);
    v1::FineTuningJob job;
    ASSERT_TRUE(job.ParseFromString(end.responses[0]));
    EXPECT_EQ(job.name(), "projects/default/fineTuningJobs/job-1");
    return;
  }
  FAIL() << "no seed";
}

TEST_F(RpcFuzzTest, WhatIsNoRequestIsAnError) {
  for (const RpcMethod* method : ListRpcs(channel_)) {
    EXPECT_FALSE(CallRpc(channel_, *method, "\xff\xff").status.ok())
        << method->full_name();
  }
}

TEST(RandomRequestTest, BytesDecideEveryField) {
  v1::CreateFineTuningJobRequest request;
  // Set: a word, a word of bytes, true; the last one is not.
  const std::string bytes("\1\1\1\xff\2ab\1\1\0", 10);
  ByteSource source(bytes);
  FillRandomly(source, {"x", "y"}, &request);
  EXPECT_EQ(request.text(), "y");
  EXPECT_EQ(request.request_id(), "ab");
  EXPECT_TRUE(request.validate_only());
  EXPECT_EQ(request.file_name(), "");
}

TEST(RpcFuzzScriptTest, WhatCannotBeReadIsLeftOut) {
  EXPECT_TRUE(ParseRpcScript("#NoSuchMethod\nGetServer\n#\n", {}).empty());
}

}  // namespace
}  // namespace roundhouse
