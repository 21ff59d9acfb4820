// The program itself: signals, exit codes, streams.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <string>
#include <vector>

#include "base/log.h"
#include "client/testing/fake_server.h"

namespace roundhouse::client {
namespace {

// A running `roundhouse`; its standard error comes through a pipe.
class ClientProcess {
 public:
  explicit ClientProcess(const std::vector<std::string>& args,
                         const char* out_path = "/dev/null") {
    int fds[2];
    ROUNDHOUSE_CHECK(pipe2(fds, O_CLOEXEC) == 0);
    err_fd_ = fds[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDERR_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_path,
                                     O_WRONLY, 0);
    std::vector<std::string> words = {"client/roundhouse"};
    words.insert(words.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    ROUNDHOUSE_CHECK(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(),
                                 environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
  }
  ~ClientProcess() { close(err_fd_); }

  void Signal(int signal) { ROUNDHOUSE_CHECK(kill(pid_, signal) == 0); }

  // Waits for its end; standard error, then the wait status.
  std::string ReadErr() {
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = read(err_fd_, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, count);
    }
    return text;
  }
  int Wait() {
    int status = 0;
    ROUNDHOUSE_CHECK(waitpid(pid_, &status, 0) == pid_);
    return status;
  }

 private:
  pid_t pid_ = 0;
  int err_fd_ = -1;
};

// Sends one change, then `started` is ready and the stream stays open until
// the client goes.
void WatchForever(FakeServer* server, std::promise<void>* started) {
  server->answers().watch = [started](const auto&, const SendWatch& send) {
    v1::WatchFineTuningJobsResponse message;
    message.set_kind(v1::WatchFineTuningJobsResponse::CHANGE);
    message.set_revision(1);
    message.mutable_job()->set_name("projects/default/fineTuningJobs/a1");
    message.mutable_job()->set_state(v1::RUNNING);
    send(message);
    started->set_value();
    message.set_kind(v1::WatchFineTuningJobsResponse::BOOKMARK);
    message.clear_job();
    while (send(message)) {
    }
    return grpc::Status::OK;
  };
}

TEST(MainTest, CtrlCDetachesAndSaysHowToComeBack) {
  for (int signal : {SIGINT, SIGTERM}) {
    FakeServer server;
    std::promise<void> started;
    WatchForever(&server, &started);
    ClientProcess client({"--server", server.address(), "watch", "a1"});
    started.get_future().wait();
    client.Signal(signal);
    const std::string err = client.ReadErr();
    EXPECT_NE(err.find("Come back with: roundhouse --server " +
                       server.address() + " watch a1\n"),
              std::string::npos)
        << err;
    const int status = client.Wait();
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 130);
  }
}

TEST(MainTest, TheExitCodeIsTheJobs) {
  FakeServer server;
  server.answers().watch = [](const auto&, const SendWatch& send) {
    v1::WatchFineTuningJobsResponse message;
    message.set_revision(1);
    message.mutable_job()->set_state(v1::CANCELLED);
    send(message);
    return grpc::Status::OK;
  };
  server.answers().get = [](const std::string& name, v1::FineTuningJob* job) {
    job->set_name(name);
    job->set_state(v1::CANCELLED);
    return grpc::Status::OK;
  };
  ClientProcess client({"watch", "a1", "--server=" + server.address()});
  const std::string err = client.ReadErr();
  const int status = client.Wait();
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 9) << err;
}

TEST(MainTest, AFullDiskIsAnError) {
  ClientProcess client({"job-template"}, "/dev/full");
  EXPECT_EQ(client.ReadErr(), "roundhouse: standard output can't be written\n");
  const int status = client.Wait();
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace roundhouse::client
