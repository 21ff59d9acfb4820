#include "base/kill_point.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace roundhouse {
namespace {

std::atomic<int64_t> hits_left{0};
char armed_name[128] = "";

bool IsArmedPass(const char* name) {
  if (hits_left.load(std::memory_order_relaxed) <= 0) return false;
  return std::strcmp(name, armed_name) == 0 && hits_left.fetch_sub(1) == 1;
}

}  // namespace

void KillPoint(const char* name) {
  if (!IsArmedPass(name)) return;
  dprintf(STDERR_FILENO, "killed at %s\n", name);
  kill(getpid(), SIGKILL);
  pause();
}

bool FaultPoint(const char* name) {
  if (!IsArmedPass(name)) return false;
  dprintf(STDERR_FILENO, "fault at %s\n", name);
  return true;
}

absl::Status ArmKillPoint(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  const size_t colon = text.rfind(':');
  int64_t count = 0;
  if (colon == std::string::npos || colon == 0 || colon >= sizeof(armed_name) ||
      !absl::SimpleAtoi(text.substr(colon + 1), &count) || count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("kill_at: want NAME:COUNT, got \"", text, "\""));
  }
  std::memcpy(armed_name, text.data(), colon);
  armed_name[colon] = '\0';
  hits_left = count;
  return absl::OkStatus();
}

}  // namespace roundhouse
