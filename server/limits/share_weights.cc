#include "server/limits/share_weights.h"

namespace roundhouse {

ShareWeights ShareWeightsOf(const LimitRows& rows) {
  ShareWeights weights;
  for (const auto& [key, value] : rows.values) {
    const auto& [limit, text] = key;
    const auto subject = ParseLimitSubject(text);
    if (limit != Limit::kShare || !subject.ok()) continue;
    const auto weight = static_cast<double>(value);
    if (!subject->project.empty()) {
      weights.projects[subject->project] = weight;
    } else if (!subject->user.empty()) {
      weights.users[subject->user] = weight;
    } else {
      weights.other_users = weight;
    }
  }
  return weights;
}

}  // namespace roundhouse
