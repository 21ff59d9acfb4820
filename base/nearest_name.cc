#include "base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace roundhouse {
namespace {

// In so short a name a wrong first letter makes another word of it.
constexpr size_t kShortName = 3;

// Letters put in, left out, replaced, and neighbours swapped: the optimal
// string alignment distance, three rows at a time.
int EditDistance(const std::string& a, const std::string& b) {
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row.back();
}

bool MayBeMeant(const std::string& name, const std::string& candidate,
                int reach) {
  const auto longer =
      static_cast<int>(candidate.size()) - static_cast<int>(name.size());
  if (candidate.empty() || std::abs(longer) > reach) return false;
  return name.size() > kShortName || name[0] == candidate[0];
}

}  // namespace

std::string NearestName(const std::string& name,
                        const std::vector<std::string>& names) {
  constexpr size_t kLongestCompared = 64;
  if (name.empty() || name.size() > kLongestCompared) return "";
  if (std::find(names.begin(), names.end(), name) != names.end()) return "";
  const int reach = std::max(1, static_cast<int>(name.size()) / 3);
  std::string nearest;
  int least = reach + 1;
  for (const std::string& candidate : names) {
    if (!MayBeMeant(name, candidate, reach)) continue;
    const int distance = EditDistance(name, candidate);
    if (distance >= least || distance >= static_cast<int>(candidate.size())) {
      continue;
    }
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string DidYouMean(const std::string& name,
                       const std::vector<std::string>& names) {
  const std::string nearest = NearestName(name, names);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace roundhouse
