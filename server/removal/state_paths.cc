#include "server/removal/state_paths.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace roundhouse {
namespace {

bool LiesIn(absl::string_view name, absl::string_view folder) {
  return absl::ConsumePrefix(&name, folder) &&
         (name.empty() || name.front() == '/');
}

// Without "//" and "..", and without a slash at its end.
std::string Normal(const std::string& path) {
  const std::string normal =
      std::filesystem::path(path).lexically_normal().string();
  return std::string(absl::StripSuffix(normal, "/"));
}

}  // namespace

StatePaths::StatePaths(const std::string& state_dir)
    : roots_{Normal(state_dir)} {
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(state_dir, error);
  if (!error) roots_.push_back(Normal(real.string()));
}

std::string StatePaths::Below(const std::string& path) const {
  const std::string normal = Normal(path);
  for (const std::string& root : roots_) {
    absl::string_view rest = normal;
    if (absl::ConsumePrefix(&rest, absl::StrCat(root, "/")) &&
        (absl::StartsWith(rest, "jobs/") ||
         absl::StartsWith(rest, "outputs/"))) {
      return std::string(rest);
    }
  }
  return "";
}

bool StatePaths::Overlap(absl::string_view a, absl::string_view b) {
  return LiesIn(a, b) || LiesIn(b, a);
}

}  // namespace roundhouse
