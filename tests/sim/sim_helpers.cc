#include "tests/sim/sim_helpers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "base/files/descriptor.h"
#include "base/log.h"
#include "nlohmann/json.hpp"

namespace roundhouse::sim {
namespace {

using nlohmann::json;

// The wait status of a child that could not write: prepare.py exits with 4.
constexpr int kNoOutput = 4 << 8;
// A child that says nothing for much longer is taken for one that hangs.
constexpr absl::Duration kSaysStill = absl::Seconds(100);

// The word behind the flag; "": there is none.
std::string Argument(const ChildOptions& options, absl::string_view flag) {
  const auto found =
      std::find(options.arguments.begin(), options.arguments.end(), flag);
  if (found == options.arguments.end()) return "";
  return std::next(found) == options.arguments.end() ? "" : *std::next(found);
}

bool DiskIsFull(const ChildOptions& options) {
  return std::any_of(options.environment.begin(), options.environment.end(),
                     [](const std::string& variable) {
                       return absl::StrContains(variable, "prepared.array:");
                     });
}

// The child's own, as the daemon closes its ones.
Descriptor Own(int fd) {
  Descriptor own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  ROUNDHOUSE_CHECK(own.get() >= 0);
  return own;
}

std::string ReadWhole(int fd) {
  std::string text;
  char bytes[4096];
  ssize_t count = 0;
  while ((count = pread(fd, bytes, sizeof(bytes),
                        static_cast<off_t>(text.size()))) > 0) {
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

}  // namespace

std::vector<int32_t> TokensOf(absl::string_view prompt) {
  std::vector<int32_t> tokens;
  for (const char c : prompt) {
    tokens.push_back(static_cast<unsigned char>(c) % kPromptTokens);
  }
  return tokens;
}

char LetterOf(int32_t token) { return static_cast<char>('A' + token); }

// --- both ---

class SimHelpers::Helper : public Child {
 public:
  Helper(SimHelpers& owner, EventLoop& loop,
         std::function<void(int wait_status)> on_exit)
      : owner_(owner),
        loop_(loop),
        number_(owner.next_number_++),
        on_exit_(std::move(on_exit)) {
    owner_.alive_[number_] = this;
  }
  ~Helper() override {
    loop_.CancelTimer(timer_);
    owner_.alive_.erase(number_);
  }

  void Kill(int signal) override {
    if (std::exchange(ends_, true)) return;
    Stop();
    Next(absl::ZeroDuration(), [this, signal] { Exit(signal); });
  }
  const std::string& stderr_tail() const override { return stderr_; }

 protected:
  // It does nothing of its own any more.
  virtual void Stop() {}
  // One thing follows at a time.
  void Next(absl::Duration delay, std::function<void()> then) {
    loop_.CancelTimer(timer_);
    timer_ = loop_.After(delay, std::move(then));
  }
  // The last that it does: whoever hears of it may destroy it.
  void Exit(int wait_status) {
    ends_ = true;
    owner_.alive_.erase(number_);
    const auto on_exit = std::move(on_exit_);
    on_exit(wait_status);
  }
  absl::Duration Draw() { return owner_.Draw(); }

  SimHelpers& owner_;
  EventLoop& loop_;
  std::string stderr_;

 private:
  const uint64_t number_;
  std::function<void(int)> on_exit_;
  EventLoop::TimerId timer_ = 0;
  bool ends_ = false;
};

// --- prepare.py ---

class SimHelpers::DataHelper final : public Helper {
 public:
  DataHelper(SimHelpers& owner, EventLoop& loop, const ChildOptions& options,
             std::function<void(int wait_status)> on_exit)
      : Helper(owner, loop, std::move(on_exit)),
        out_(Argument(options, "--out")),
        full_(DiskIsFull(options)) {
    Next(Draw(), [this] { End(); });
  }

 private:
  void End() {
    if (full_) {
      stderr_ = R"({"error": "No space left on device", "errno": 28})";
      stderr_ += "\n";
      return Exit(kNoOutput);
    }
    std::filesystem::create_directories(out_);
    using Options = std::filesystem::copy_options;
    std::filesystem::copy(owner_.options_.prepared, out_,
                          Options::recursive | Options::overwrite_existing);
    Exit(0);
  }

  const std::string out_;
  const bool full_;
};

// --- prepare_sample.py ---

class SimHelpers::TextHelper final : public Helper {
 public:
  TextHelper(SimHelpers& owner, EventLoop& loop, const ChildOptions& options,
             std::function<void(int wait_status)> on_exit,
             std::function<void(const std::string&)> on_stdout)
      : Helper(owner, loop, std::move(on_exit)),
        prompts_(Own(options.descriptors.at(0))),
        socket_(Own(options.descriptors.at(1))),
        print_(std::move(on_stdout)) {
    Next(Draw(), [this] { Begin(); });
  }
  ~TextHelper() override { Stop(); }

 private:
  void Stop() override { loop_.Unwatch(socket_.get()); }

  void Begin() {
    json tokens = json::array();
    for (const std::string prompt : json::parse(ReadWhole(prompts_.get()))) {
      tokens.push_back(TokensOf(prompt));
    }
    loop_.Watch(socket_.get(), EPOLLIN, [this](uint32_t) { Read(); });
    Say({{"prompts", tokens},
         {"end_tokens", {kEndToken}},
         {"control_tokens", json::array()}});
  }
  // The daemon may kill it for what it says.
  void Say(const json& words) {
    SayStillLater();
    print_(words.dump() + "\n");
  }
  void SayStillLater() {
    Next(kSaysStill, [this] { Say({{"still", "waiting"}}); });
  }

  void Read() {
    char bytes[4096];
    const ssize_t count =
        recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0) return;
    if (count == 0) {  // the daemon wants no more
      Stop();
      return Next(absl::ZeroDuration(), [this] { Exit(0); });
    }
    asked_.append(bytes, static_cast<size_t>(count));
    if (asked_.back() != '\n') return;
    json texts = json::array();
    for (const json& drawn : json::parse(std::exchange(asked_, ""))) {
      std::string text;
      for (const int32_t token : drawn.at(1)) text += LetterOf(token);
      texts.push_back(text);
    }
    Next(Draw() / 10, [this, texts] { Say({{"texts", texts}}); });
  }

  const Descriptor prompts_;
  const Descriptor socket_;
  const std::function<void(const std::string&)> print_;
  std::string asked_;  // of a line
};

// --- all of them ---

SimHelpers::SimHelpers(const SimHelpersOptions& options)
    : options_(options), random_(options.seed) {}

SimHelpers::~SimHelpers() { ROUNDHOUSE_CHECK(alive_.empty()); }

absl::Duration SimHelpers::Draw() {
  const double share = static_cast<double>(random_() >> 11) * 0x1p-53;
  return share * options_.longest;
}

absl::StatusOr<std::unique_ptr<Child>> SimHelpers::Start(
    EventLoop& loop, const ChildOptions& options,
    std::function<void(int wait_status)> on_exit,
    std::function<void(const std::string&)> on_stdout) {
  std::unique_ptr<Child> child;
  if (absl::EndsWith(options.arguments.at(0), "prepare_sample.py")) {
    child = std::make_unique<TextHelper>(
        *this, loop, options, std::move(on_exit), std::move(on_stdout));
  } else {
    child =
        std::make_unique<DataHelper>(*this, loop, options, std::move(on_exit));
  }
  return child;
}

bool SimHelpers::KillOne() {
  if (alive_.empty()) return false;
  std::next(alive_.begin(), static_cast<int64_t>(random_() % alive_.size()))
      ->second->Kill(SIGKILL);
  return true;
}

}  // namespace roundhouse::sim
