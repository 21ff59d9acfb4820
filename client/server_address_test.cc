#include "client/server_address.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "base/token_text.h"
#include "client/tls/logins.h"

namespace roundhouse::client {
namespace {

class ServerAddressTest : public testing::Test {
 protected:
  ServerAddressTest() {
    std::string folder = testing::TempDir() + "/configXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    EXPECT_EQ(mkdir((folder + "/roundhouse").c_str(), 0700), 0);
    variables_["XDG_CONFIG_HOME"] = folder;
    variables_["XDG_RUNTIME_DIR"] = "/run/user/7";
    config_ = folder + "/roundhouse/config";
    environment_.variable =
        [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::nullopt
                                       : std::optional(found->second);
    };
  }
  void WriteConfig(const std::string& text) { std::ofstream(config_) << text; }
  std::string Found(const std::string& flag) {
    const auto address = FindServer(flag, environment_, config_ + ".system");
    return address.ok() ? address->target + " " + address->source
                        : std::string(address.status().message());
  }

  std::map<std::string, std::string> variables_;
  std::string config_;
  Environment environment_;
};

TEST_F(ServerAddressTest, FlagThenVariableThenFileThenDefault) {
  EXPECT_EQ(Found(""), "unix:/run/user/7/roundhouse/roundhoused.sock default");
  WriteConfig("# mine\n\n server: unix:/c \n");
  EXPECT_EQ(Found(""), "unix:/c " + config_ + ":3");
  variables_["ROUNDHOUSE_SERVER"] = "unix:/v";
  EXPECT_EQ(Found(""), "unix:/v ROUNDHOUSE_SERVER");
  EXPECT_EQ(Found("unix:/f"), "unix:/f --server");
}

TEST_F(ServerAddressTest, TheMachinesFileIsForWhoHasNone) {
  const std::string system = config_ + ".system";
  std::ofstream(system) << "server: unix:/run/all\n";
  EXPECT_EQ(Found(""), "unix:/run/all " + system + ":1");
  WriteConfig("server: unix:/mine\n");
  EXPECT_EQ(Found(""), "unix:/mine " + config_ + ":1");
  variables_["ROUNDHOUSE_SERVER"] = "unix:/v";
  EXPECT_EQ(Found(""), "unix:/v ROUNDHOUSE_SERVER");
  std::ofstream(system) << "sorver: unix:/run/all\n";
  variables_.clear();
  EXPECT_EQ(Found("").find(system + ":1: unknown key"), 0u) << Found("");
}

TEST_F(ServerAddressTest, EmptyVariablesAreNotSet) {
  variables_["ROUNDHOUSE_SERVER"] = "";
  variables_["XDG_RUNTIME_DIR"] = "";
  EXPECT_EQ(Found(""), "unix:/tmp/roundhouse-" + std::to_string(getuid()) +
                           "/roundhoused.sock default");
}

TEST_F(ServerAddressTest, ConfigIsUnderHomeWithoutXdg) {
  variables_["HOME"] = variables_["XDG_CONFIG_HOME"];
  variables_.erase("XDG_CONFIG_HOME");
  const std::string folder = variables_["HOME"] + "/.config";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(mkdir((folder + "/roundhouse").c_str(), 0700), 0);
  std::ofstream(folder + "/roundhouse/config") << "server: unix:/h";
  EXPECT_EQ(Found(""), "unix:/h " + folder + "/roundhouse/config:1");
}

TEST_F(ServerAddressTest, ErrorsNameTheFileAndTheLine) {
  WriteConfig("\nserver\n");
  EXPECT_EQ(Found(""), config_ + ":2: \"server\" is not \"key: value\"");
  WriteConfig("serve: unix:/c\n");
  EXPECT_EQ(Found(""), config_ +
                           ":1: unknown key \"serve\"; the keys are server, "
                           "client-certificate, client-key");
  WriteConfig("server: unix:/c\nserver: unix:/d\n");
  EXPECT_EQ(Found(""), config_ + ":2: server is given a second time");
  WriteConfig(std::string(kMaxConfigFileBytes + 1, '#'));
  EXPECT_EQ(Found(""),
            config_ + ": longer than the limit of 65536 bytes (64.0 KiB)");
}

TEST_F(ServerAddressTest, AServerOverTheNetworkWithWhatIsKnownOfIt) {
  const std::string fingerprint = "SHA256:" + std::string(43, 'A');
  const std::string other = "SHA256:" + std::string(43, 'E');
  const std::string token = MakeTokenText();
  const std::string path = LoginsPath(environment_);
  ASSERT_TRUE(WriteLogins(path, {{"lab:7443", fingerprint, token},
                                 {"[::1]:1", "", MakeTokenText()}})
                  .ok());
  EXPECT_EQ(Found(""), "tls:lab:7443 login");
  EXPECT_EQ(Found("tls:LAB:7443"), "tls:lab:7443 --server");
  const auto known = FindServer("tls:lab:7443", environment_);
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_EQ(known->tls.server, "lab:7443");
  EXPECT_EQ(known->tls.fingerprint, fingerprint);
  EXPECT_EQ(known->tls.token, token);
  // A server that nobody logged in to has no token of another.
  const auto unknown = FindServer("tls:lab:7444", environment_);
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_EQ(unknown->tls.token, "");
  EXPECT_EQ(unknown->tls.fingerprint, "");
  EXPECT_EQ(FindServer("unix:/a", environment_)->tls.token, "");
  variables_["ROUNDHOUSE_TOKEN"] = MakeTokenText();
  variables_["ROUNDHOUSE_FINGERPRINT"] = other;
  const auto told = FindServer("tls:lab:7443", environment_);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->tls.token, variables_["ROUNDHOUSE_TOKEN"]);
  EXPECT_EQ(told->tls.fingerprint, other);
  // They are of the server that the environment names.
  variables_["ROUNDHOUSE_SERVER"] = "tls:LAB:7443";
  EXPECT_EQ(FindServer("", environment_)->tls.token,
            variables_["ROUNDHOUSE_TOKEN"]);
  EXPECT_EQ(FindServer("tls:lab:7443", environment_)->tls.fingerprint, other);
  EXPECT_EQ(FindServer("tls:lab:7444", environment_)->tls.token, "");
  EXPECT_EQ(FindServer("tls:lab:7444", environment_)->tls.fingerprint, "");
  variables_["ROUNDHOUSE_SERVER"] = "";
  variables_["ROUNDHOUSE_TOKEN"] = "rh_secret";
  const std::string wrong = Found("tls:lab:7443");
  EXPECT_NE(wrong.find("ROUNDHOUSE_TOKEN is no token"), std::string::npos);
  EXPECT_EQ(wrong.find("secret"), std::string::npos) << wrong;
  variables_["ROUNDHOUSE_TOKEN"] = "";
  WriteConfig("server: unix:/c\n");
  EXPECT_EQ(Found(""), "unix:/c " + config_ + ":1");
  EXPECT_NE(Found("tls:lab").find("--server: \"tls:lab\": the port is missing"),
            std::string::npos)
      << Found("tls:lab");
  WriteConfig("client-certificate: /none\nclient-key: /none\n");
  EXPECT_NE(Found("tls:lab:1").find(config_ + ":1: client-certificate: /none"),
            std::string::npos)
      << Found("tls:lab:1");
}

TEST_F(ServerAddressTest, OnlyUnixSocketsAndTls) {
  EXPECT_EQ(Found("localhost:50051"),
            "--server: \"localhost:50051\" is not a server address; it is "
            "unix:PATH, the socket that roundhoused --listen names, or "
            "tls:HOST:PORT, what --listen-tls names");
  EXPECT_NE(Found("unix:").find("is not a server address"), std::string::npos);
}

TEST_F(ServerAddressTest, TooLongPathsAreRefusedByName) {
  const std::string longest = "unix:" + std::string(107, 'p');
  EXPECT_EQ(Found(longest), longest + " --server");
  EXPECT_NE(Found(longest + "p")
                .find("has 108 bytes, the system's limit is "
                      "107"),
            std::string::npos);
}

}  // namespace
}  // namespace roundhouse::client
