#include "server/daemon_options.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

using Environment = std::map<std::string, std::string>;

absl::StatusOr<DaemonOptions> Make(const std::vector<std::string>& arguments,
                                   const Environment& environment = {}) {
  const auto settings = ParseArguments(arguments);
  if (!settings.ok()) return settings.status();
  return MakeDaemonOptions(*settings, environment, "/opt/rh/bin/roundhoused");
}

void ExpectBad(const absl::Status& status, const std::string& text) {
  EXPECT_TRUE(status.code() == absl::StatusCode::kInvalidArgument ||
              status.code() == absl::StatusCode::kUnimplemented)
      << status;
  EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
      << "no \"" << text << "\" in " << status;
}

TEST(DaemonOptionsTest, TheDefaultsAreTheDocumentedOnes) {
  const auto options = Make({}, {{"HOME", "/home/me"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->device_count, 4);
  EXPECT_EQ(options->device_threads, 1);
  EXPECT_EQ(options->host_threads, 1);
  EXPECT_EQ(options->max_running_jobs, 16);
  EXPECT_GE(options->dataset_processes, 1);
  EXPECT_LE(options->dataset_processes, 8);
  EXPECT_EQ(options->device_memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(options->host_memory_bytes, uint64_t{8} << 30);
  EXPECT_EQ(options->metrics_listen, "127.0.0.1:9464");
  EXPECT_EQ(options->link_gbps, 0);
  EXPECT_TRUE(options->realtime);
  EXPECT_EQ(options->state_dir, "/home/me/.local/state/roundhouse");
  EXPECT_EQ(options->data_roots, std::vector<std::string>{"/home/me"});
  EXPECT_EQ(options->python, "/home/me/.cache/roundhouse/venv/bin/python");
  EXPECT_EQ(options->hf_cache, "/home/me/.cache/huggingface/hub");
  EXPECT_EQ(options->worker_program, "/opt/rh/bin/roundhouse-worker");
  EXPECT_EQ(options->prepare_script, "/opt/rh/bin/prepare.py");
  EXPECT_EQ(options->listen.rfind("unix:/tmp/roundhouse-", 0), 0u);
  EXPECT_TRUE(options->worker_kill_at.empty());
  EXPECT_EQ(options->kill_at, "");
}

TEST(DaemonOptionsTest, XdgVariablesMoveThem) {
  const auto options = Make({}, {{"HOME", "/home/me"},
                                 {"XDG_STATE_HOME", "/s"},
                                 {"XDG_RUNTIME_DIR", "/r"},
                                 {"XDG_CACHE_HOME", "/c"}});
  EXPECT_EQ(options->state_dir, "/s/roundhouse");
  EXPECT_EQ(options->listen, "unix:/r/roundhouse/roundhoused.sock");
  EXPECT_EQ(options->python, "/c/roundhouse/venv/bin/python");
  EXPECT_EQ(Make({}, {{"ROUNDHOUSE_PYTHON", "/py"}})->python, "/py");
}

TEST(DaemonOptionsTest, TheHubsCacheIsWhereHuggingFaceHasIt) {
  Environment environment = {{"HOME", "/home/me"}, {"XDG_CACHE_HOME", "/c"}};
  EXPECT_EQ(Make({}, environment)->hf_cache, "/c/huggingface/hub");
  environment["HF_HOME"] = "/hf";
  EXPECT_EQ(Make({}, environment)->hf_cache, "/hf/hub");
  environment["HF_HUB_CACHE"] = "/models";
  EXPECT_EQ(Make({}, environment)->hf_cache, "/models");
  EXPECT_EQ(Make({"--hf-cache=/mine"}, environment)->hf_cache, "/mine");
  EXPECT_EQ(Make({"--hf-cache="}, environment)->hf_cache, "");
}

TEST(DaemonOptionsTest, EverySettingIsTaken) {
  const auto options =
      Make({"--state-dir=/state",  "--devices=cpu:3",
            "--device-threads=2",  "--device-memory=512MiB",
            "--host-memory",       "2GB",
            "--host_threads=5",    "--max-running-jobs=7",
            "--listen=unix:/x",    "--dataset-processes=64",
            "--metrics-listen=",   "--data-root=/a,/b,",
            "--link-gbps=1.5",     "--realtime=off",
            "--worker-program=/w", "--prepare-script=/p",
            "--python=/py",        "--worker-kill-at=0=a:1;host=b:2;0=c:3",
            "--kill-at=d:4",       "--file-fault-at=job.metrics:EIO"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->state_dir, "/state");
  EXPECT_EQ(options->device_count, 3);
  EXPECT_EQ(options->device_threads, 2);
  EXPECT_EQ(options->host_threads, 5);
  EXPECT_EQ(options->max_running_jobs, 7);
  EXPECT_EQ(options->dataset_processes, 64);
  EXPECT_EQ(options->device_memory_bytes, uint64_t{512} << 20);
  EXPECT_EQ(options->host_memory_bytes, 2000000000u);
  EXPECT_EQ(options->listen, "unix:/x");
  EXPECT_EQ(options->metrics_listen, "");
  EXPECT_EQ(options->data_roots, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(options->link_gbps, 1.5);
  EXPECT_FALSE(options->realtime);
  EXPECT_EQ(options->worker_program, "/w");
  EXPECT_EQ(options->prepare_script, "/p");
  EXPECT_EQ(options->python, "/py");
  EXPECT_EQ(options->kill_at, "d:4");
  EXPECT_EQ(options->file_fault_at, "job.metrics:EIO");
  EXPECT_EQ(options->worker_kill_at.at("0"),
            (std::deque<std::string>{"a:1", "c:3"}));
  EXPECT_EQ(options->worker_kill_at.at("host"),
            (std::deque<std::string>{"b:2"}));
  EXPECT_EQ(Make({"--devices=none"})->device_count, 0);
}

TEST(DaemonOptionsTest, DevicesAreYieldedOnlyWhereItIsAskedFor) {
  using Choice = YieldOptions::Choice;
  EXPECT_EQ(Make({})->yield.choice, Choice::kOff);
  EXPECT_EQ(Make({"--yield=off"})->yield.choice, Choice::kOff);
  const auto asked = Make({"--yield=auto"});
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->yield.choice, Choice::kAuto);
  EXPECT_EQ(asked->yield.back_after, absl::Minutes(1));
  const auto pretended = Make({"--yield=auto", "--yield-test-seconds=2"});
  ASSERT_TRUE(pretended.ok()) << pretended.status();
  EXPECT_EQ(pretended->yield.choice, Choice::kPretended);
  EXPECT_EQ(pretended->yield.back_after, absl::Seconds(2));
  ExpectBad(Make({"--yield=on"}).status(), "--yield: want auto or off");
  ExpectBad(Make({"--yield=auto", "--yield-test-seconds=0"}).status(),
            "--yield-test-seconds");
}

TEST(DaemonOptionsTest, Gpus) {
  const auto all = Make({"--devices=cuda"});
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_TRUE(all->gpus.has_value());
  EXPECT_TRUE(all->gpus->all);
  EXPECT_EQ(all->device_memory_bytes, 0u);
  EXPECT_EQ(all->gpu_probe_limit, absl::Seconds(60));
  const auto some = Make({"--devices=cuda:1,3", "--device-memory=20GiB",
                          "--gpu-probe=/probe", "--gpu-probe-seconds=5"});
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->gpus->indices, (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(some->device_memory_bytes, uint64_t{20} << 30);
  EXPECT_EQ(some->gpu_probe, "/probe");
  EXPECT_EQ(some->gpu_probe_limit, absl::Seconds(5));
  EXPECT_FALSE(Make({"--devices=cpu:2"})->gpus.has_value());
}

TEST(DaemonOptionsTest, WrongWordsAreNamed) {
  ExpectBad(Make({"devices=cpu:4"}).status(),
            "\"devices=cpu:4\" is not a flag");
  ExpectBad(Make({"--device=cpu:4"}).status(),
            "unknown flag --device; did you mean --devices?");
  ExpectBad(Make({"-devices=cpu:4"}).status(),
            "unknown flag -d in -devices; did you mean --devices?");
  ExpectBad(Make({"--nothing-like-it=1"}).status(), "nothing-like-it");
  ExpectBad(Make({"--devices"}).status(),
            "flag --devices needs a value, DEVICES");
  ExpectBad(Make({"--devices=cpu:1", "--devices=cpu:2"}).status(),
            "flag --devices is given twice; keep one of them");
  ExpectBad(Make({"--host_memory=1GiB", "--host-memory=1GiB"}).status(),
            "flag --host-memory is given twice; keep one of them");
}

TEST(DaemonOptionsTest, WrongValuesAreNamed) {
  for (const char* devices : {"cpu", "cpu:", "cpu:0", "cpu:-1", "cpu:63",
                              "cpu:x", "gpu:1", "4", ""}) {
    ExpectBad(Make({std::string("--devices=") + devices}).status(),
              "--devices: want cpu:N with N from 1 to 62");
  }
  for (const char* devices : {"cuda:", "cuda:x", "cuda4"}) {
    ExpectBad(Make({std::string("--devices=") + devices}).status(),
              "--devices: want cuda, or cuda: with GPUs by number");
  }
  ExpectBad(Make({"--devices=cuda", "--device-memory=much"}).status(),
            "--device-memory: want bytes");
  ExpectBad(Make({"--gpu-probe-seconds=0"}).status(),
            "--gpu-probe-seconds: want a number from 1 to 600");
  for (const char* key : {"device-threads", "host-threads"}) {
    for (const char* value : {"0", "-1", "1025", "two", "1.5", ""}) {
      ExpectBad(Make({std::string("--") + key + "=" + value}).status(),
                std::string("--") + key + ": want a number from 1 to 1024");
    }
  }
  for (const char* key : {"device-memory", "host-memory"}) {
    for (const char* value : {"", "0", "-1GiB", "GiB", "1XiB", "0.5", "nan",
                              "inf", "1000000TiB", "8 GiB x"}) {
      ExpectBad(Make({std::string("--") + key + "=" + value}).status(),
                std::string("--") + key + ": want bytes like 8GiB");
    }
  }
  for (const char* value : {"-1", "fast", "", "nan", "inf"}) {
    ExpectBad(Make({std::string("--link-gbps=") + value}).status(),
              "--link-gbps: want a number");
  }
  ExpectBad(Make({"--realtime=yes"}).status(),
            "--realtime: want auto or off; got \"yes\"");
  ExpectBad(Make({"--data-root=,"}).status(), "--data-root: names no folder");
  ExpectBad(Make({"--worker-kill-at=0"}).status(), "--worker-kill-at: want");
  ExpectBad(Make({"--worker-kill-at=0=a=b"}).status(),
            "--worker-kill-at: want");
}

TEST(DaemonOptionsTest, LongAndStrangeValuesAreShownOnOneLine) {
  ExpectBad(Make({"--peers=a\nb\x1b[31m"}).status(),
            "--peers: want auto, on or off; got \"a\\nb\\x1b[31m\"");
  const auto refused = Make({"--host-memory=" + std::string(100'000, '9')});
  ExpectBad(refused.status(), "--host-memory: want bytes like 8GiB; got \"99");
  EXPECT_LT(refused.status().message().size(), 200u);
}

TEST(DaemonOptionsTest, AConfigFileHasTheSameKeys) {
  const auto settings = ParseConfigFile(
      "# a comment\n\n devices: cpu:2  # two\nlisten = unix:/a=b\n"
      "state-dir:/s\r\n",
      "rh.conf");
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->at("devices").value, "cpu:2");
  EXPECT_EQ(settings->at("devices").where, "rh.conf:3");
  EXPECT_EQ(settings->at("listen").value, "unix:/a=b");
  EXPECT_EQ(settings->at("state-dir").value, "/s");
  ExpectBad(ParseConfigFile("\nnonsense\n", "rh.conf").status(),
            "rh.conf:2: want \"key: value\"");
  ExpectBad(ParseConfigFile("devces: cpu:1", "rh.conf").status(),
            "rh.conf:1: unknown setting \"devces\"; did you mean devices?");
  ExpectBad(ParseConfigFile("python: a\npython: b", "rh.conf").status(),
            "rh.conf:2: python is given twice");
  ExpectBad(ParseConfigFile(": a", "rh.conf").status(), "rh.conf:1: ");
  ExpectBad(ParseConfigFile("config: more.conf", "rh.conf").status(),
            "rh.conf:1: config: a config file cannot name another one");
}

class ConfigFileTest : public testing::Test {
 protected:
  ConfigFileTest() : path_(testing::TempDir() + "/daemon.conf") {}
  ~ConfigFileTest() override { std::filesystem::remove_all(path_); }

  absl::StatusOr<DaemonOptions> MakeWith(
      const std::string& text, std::vector<std::string> arguments = {}) {
    std::ofstream(path_) << text;
    arguments.push_back("--config=" + path_);
    const auto settings = ReadDaemonSettings(arguments);
    if (!settings.ok()) return settings.status();
    return MakeDaemonOptions(*settings, {}, "/opt/rh/bin/roundhoused");
  }

  const std::string path_;
};

TEST_F(ConfigFileTest, TlsIsOffUntilAnAddressIsGiven) {
  EXPECT_FALSE(MakeWith("")->listen_tls.has_value());
  const auto own = MakeWith("listen-tls: [::1]:7443\n");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->listen_tls, (HostPort{"::1", 7443}));
  EXPECT_EQ(own->tls.certificate, "");
  const auto given = MakeWith(
      "listen-tls: lab:1\ntls-certificate: /c\ntls-key: /k\n"
      "tls-client-ca: /a\n");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->tls.certificate, "/c");
  EXPECT_EQ(given->tls.key, "/k");
  EXPECT_EQ(given->tls.client_ca, "/a");
  ExpectBad(MakeWith("listen-tls: lab\n").status(), "daemon.conf:1: ");
  ExpectBad(MakeWith("listen-tls: lab\n").status(), "the port is missing");
  ExpectBad(MakeWith("tls-key: /k\n").status(), "--listen-tls=HOST:PORT");
  ExpectBad(MakeWith("listen-tls: lab:1\ntls-key: /k\n").status(),
            "needs --tls-certificate beside it");
  ExpectBad(MakeWith("listen-tls: lab:1\ntls-certificate: /k\n").status(),
            "needs --tls-key beside it");
}

TEST_F(ConfigFileTest, FlagsWinOverTheFile) {
  const auto options =
      MakeWith("devices: cpu:3\nhost-threads = 5\n", {"--host-threads=6"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->device_count, 3);
  EXPECT_EQ(options->host_threads, 6);
  EXPECT_EQ(MakeWith("")->device_count, 4);
}

TEST_F(ConfigFileTest, ARefusalNamesFileLineAndKey) {
  ExpectBad(MakeWith("\nhost-memory: lots\n").status(),
            path_ + ":2: --host-memory: want bytes like 8GiB; got \"lots\"");
  ExpectBad(MakeWith("devices: cuda:x\n").status(),
            path_ + ":1: --devices: want cuda, or cuda: with GPUs by number");
  ExpectBad(MakeWith("device: cpu:1\n").status(),
            path_ + ":1: unknown setting \"device\"; did you mean devices?");
  // A flag's own mistake has no line, whatever else the file says.
  const auto flag = MakeWith("host-threads: 1\n", {"--host-threads=0"});
  EXPECT_EQ(flag.status().message(),
            "--host-threads: want a number from 1 to 1024; got \"0\"");
}

TEST_F(ConfigFileTest, ALaterRefusalIsPutAtItsLineToo) {
  const auto settings = ParseConfigFile("\nlisten: tcp:1\n", "rh.conf");
  ASSERT_TRUE(settings.ok()) << settings.status();
  const absl::Status status =
      AtItsLine(absl::InternalError("--listen: in use"), *settings);
  EXPECT_EQ(status, absl::InternalError("rh.conf:2: --listen: in use"));
  for (const char* message :
       {"--peers=on: no", "--listener: x", "listen", ""}) {
    EXPECT_EQ(AtItsLine(absl::InternalError(message), *settings),
              absl::InternalError(message));
  }
  EXPECT_TRUE(AtItsLine(absl::OkStatus(), *settings).ok());
}

TEST_F(ConfigFileTest, AFileThatCannotBeReadIsNamed) {
  EXPECT_EQ(ReadDaemonSettings({"--config=/nowhere"}).status().message(),
            "--config: cannot read /nowhere: No such file or directory");
  std::filesystem::create_directory(path_);
  ExpectBad(ReadDaemonSettings({"--config=" + path_}).status(),
            "--config: cannot read " + path_ + ": Is a directory");
  std::filesystem::remove(path_);
  ExpectBad(MakeWith(std::string((1 << 20) + 1, '\n')).status(),
            "--config: " + path_ + " is longer than 1048576 bytes");
  EXPECT_TRUE(MakeWith(std::string(1 << 20, '\n')).ok());
}

TEST(DaemonOptionsTest, HelpHasEverySettingOnce) {
  std::map<std::string, int> seen;
  for (const SettingHelp& help : DaemonSettingsHelp()) {
    EXPECT_EQ(++seen[help.key], 1) << help.key;
    EXPECT_NE(std::string(help.meaning), "") << help.key;
    EXPECT_NE(std::string(help.value_name), "") << help.key;
    EXPECT_TRUE(ParseArguments({std::string("--") + help.key + "=1"}).ok());
  }
  std::istringstream lines(DaemonHelpText());
  std::string line;
  while (std::getline(lines, line)) EXPECT_LE(line.size(), 80u) << line;
}

// A program under Bazel finds its companions among its runfiles.
TEST(DaemonOptionsTest, RunfilesComeBeforeNeighbours) {
  const std::string program = testing::TempDir() + "/rh/roundhoused";
  const std::string worker =
      program + ".runfiles/roundhouse/worker/roundhouse-worker";
  std::filesystem::create_directories(
      std::filesystem::path(worker).parent_path());
  std::ofstream(worker) << "x";
  const auto options = MakeDaemonOptions({}, {}, program);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->worker_program, worker);
  EXPECT_EQ(options->prepare_script, testing::TempDir() + "/rh/prepare.py");
  std::filesystem::remove_all(testing::TempDir() + "/rh");
}

}  // namespace
}  // namespace roundhouse
