#include "server/run/resumed_rows.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/dataset/dataset.h"

namespace roundhouse {
namespace {

// How often each row was taken in whole epochs, and which rows once more.
struct Taken {
  int64_t epochs = 0;
  std::vector<bool> once_more;

  int64_t Times(int64_t row) const {
    return epochs + (once_more[static_cast<size_t>(row)] ? 1 : 0);
  }
};

Taken TakenBy(int64_t rows, int64_t steps, const RowOrder& how) {
  BatchOrder order(rows, how.batch_size, how.seed);
  Taken taken{.epochs = steps / order.steps_per_epoch(),
              .once_more = std::vector<bool>(static_cast<size_t>(rows))};
  const int64_t first = taken.epochs * order.steps_per_epoch();
  for (int64_t step = first; step < steps; ++step) {
    for (const int64_t row : order.Batch(step)) {
      taken.once_more[static_cast<size_t>(row)] = true;
    }
  }
  return taken;
}

void Count(int64_t row, int64_t times, int64_t* count,
           std::vector<int64_t>* first) {
  *count += times;
  if (first->size() < kNamedRows) first->push_back(row);
}

std::string TimesText(int64_t count, const std::vector<int64_t>& lines) {
  return absl::StrCat(count, count == 1 ? " time" : " times",
                      lines.empty()
                          ? ""
                          : absl::StrCat(" (the first: lines ",
                                         absl::StrJoin(lines, ", "), ")"));
}

std::string OrderText(const RowOrder& order) {
  return absl::StrCat("batch_size: ", order.batch_size,
                      " and seed: ", order.seed);
}

}  // namespace

ResumedRows CompareRows(int64_t rows, int64_t steps, const RowOrder& before,
                        const RowOrder& now) {
  ResumedRows found;
  if (before == now) return found;
  const Taken taken = TakenBy(rows, steps, before);
  const Taken assumed = TakenBy(rows, steps, now);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t more = taken.Times(row) - assumed.Times(row);
    if (more > 0) Count(row, more, &found.again, &found.first_again);
    if (more < 0) Count(row, -more, &found.left_out, &found.first_left_out);
  }
  return found;
}

std::string ResumedRowsText(const ResumedRows& found, int64_t steps,
                            const RowOrder& before, const RowOrder& now,
                            const std::vector<int64_t>& lines_again,
                            const std::vector<int64_t>& lines_left_out) {
  std::vector<std::string> parts;
  if (found.again > 0) {
    parts.push_back(absl::StrCat("are trained on again ",
                                 TimesText(found.again, lines_again)));
  }
  if (found.left_out > 0) {
    parts.push_back(absl::StrCat("are left out ",
                                 TimesText(found.left_out, lines_left_out)));
  }
  return absl::StrCat(
      "has ", steps, " steps with ", OrderText(before), "; this job, with ",
      OrderText(now), ", goes on with step ", steps + 1,
      " of its own order, where rows ", absl::StrJoin(parts, " and "), "; say ",
      OrderText(before), " to go on where it was");
}

}  // namespace roundhouse
