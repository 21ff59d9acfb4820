#include "base/wire/gpu_processes.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace roundhouse::wire {
namespace {

constexpr char kUnknown[] = " unknown ";
constexpr char kNone[] = "-";
constexpr uint64_t kMaxBytes = uint64_t{1} << 50;
constexpr size_t kParts = 6;  // of a process

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("not the processes of a GPU: ", what));
}

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
         c == '_' || c == '+' || c == ':' || c == '/' || c == '?' || c == '-';
}

// "-" alone means that there is none.
bool IsName(absl::string_view name) {
  return !name.empty() && name != kNone &&
         name.size() <= kMaxProcessNameBytes &&
         std::all_of(name.begin(), name.end(), IsNameCharacter);
}

template <typename Number>
std::string NumberText(const std::optional<Number>& number) {
  return number.has_value() ? absl::StrCat(*number) : kNone;
}

// False: it is no number up to `most` as Encode writes it.
template <typename Number>
bool ReadNumber(absl::string_view text, Number most, Number& number) {
  return absl::SimpleAtoi(text, &number) && number <= most &&
         absl::StrCat(number) == text;
}

template <typename Number>
bool ReadNumber(absl::string_view text, Number most,
                std::optional<Number>& number) {
  if (text == kNone) return true;
  return ReadNumber(text, most, number.emplace());
}

bool ReadProcess(absl::string_view word, GpuProcess& process) {
  const std::vector<absl::string_view> parts = absl::StrSplit(word, ',');
  if (parts.size() != kParts || parts[5].empty()) return false;
  process.compute = parts[1] == "compute";
  if (parts[5] != kNone) process.name = std::string(parts[5]);
  return ReadNumber(parts[0], uint32_t{INT32_MAX}, process.pid) &&
         process.pid > 0 && (process.compute || parts[1] == "graphics") &&
         ReadNumber(parts[2], kMaxBytes, process.memory_bytes) &&
         ReadNumber(parts[3], uint32_t{100}, process.busy_percent) &&
         ReadNumber(parts[4], uint32_t{UINT32_MAX}, process.uid) &&
         (process.name.empty() || IsName(process.name));
}

}  // namespace

std::string NameOfProcess(absl::string_view name) {
  std::string text(name.substr(0, kMaxProcessNameBytes));
  for (char& c : text) {
    if (!IsNameCharacter(c)) c = '?';
  }
  return text == kNone ? "?" : text;
}

std::string EncodeGpuProcesses(const GpuProcesses& processes) {
  if (!processes.fault.empty()) {
    return absl::StrCat(processes.uuid, kUnknown, processes.fault);
  }
  std::string line =
      absl::StrCat(processes.uuid, " ", NumberText(processes.memory_bytes));
  for (const GpuProcess& process : processes.processes) {
    absl::StrAppend(
        &line, " ", process.pid, ",", process.compute ? "compute" : "graphics",
        ",", NumberText(process.memory_bytes), ",",
        NumberText(process.busy_percent), ",", NumberText(process.uid), ",",
        process.name.empty() ? kNone : process.name.c_str());
  }
  return line;
}

absl::StatusOr<GpuProcesses> DecodeGpuProcesses(absl::string_view line) {
  if (line.empty() || line.size() > kMaxGpuProcessesBytes) {
    return Bad(absl::StrCat("a line of ", line.size(), " bytes"));
  }
  if (!std::all_of(line.begin(), line.end(),
                   [](char c) { return c >= ' ' && c <= '~'; })) {
    return Bad("binary");
  }
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  GpuProcesses found;
  found.uuid = std::string(words[0]);
  if (words.size() < 2 || found.uuid.empty() ||
      found.uuid.size() > kMaxGpuWordsBytes) {
    return Bad(line.substr(0, kMaxGpuWordsBytes));
  }
  absl::string_view rest = line.substr(found.uuid.size());
  if (absl::ConsumePrefix(&rest, kUnknown)) {
    found.fault = std::string(rest);
    if (!rest.empty() && rest.size() <= kMaxGpuWordsBytes) return found;
    return Bad("why they are unknown");
  }
  if (!ReadNumber(words[1], kMaxBytes, found.memory_bytes)) {
    return Bad(words[1].substr(0, kMaxGpuWordsBytes));
  }
  if (words.size() - 2 > kMaxGpuProcesses) return Bad("too many");
  for (size_t i = 2; i < words.size(); ++i) {
    GpuProcess process;
    if (!ReadProcess(words[i], process) ||
        (i > 2 && process.pid <= found.processes.back().pid)) {
      return Bad(words[i].substr(0, kMaxGpuWordsBytes));
    }
    found.processes.push_back(std::move(process));
  }
  return found;
}

}  // namespace roundhouse::wire
