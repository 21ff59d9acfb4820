#include "base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>

namespace roundhouse {
namespace {

// Levenshtein distance, one row at a time.
int EditDistance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string NearestName(const std::string& name,
                        const std::vector<std::string>& names) {
  constexpr size_t kLongestCompared = 64;
  if (name.size() > kLongestCompared) return "";
  const int reach = std::max(2, static_cast<int>(name.size()) / 3);
  std::string nearest;
  int least = reach + 1;
  for (const std::string& candidate : names) {
    const auto longer =
        static_cast<int>(candidate.size()) - static_cast<int>(name.size());
    if (std::abs(longer) > reach) continue;
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
