#include "client/tables/disk_output.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/visible_text.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// The columns of kinds in tables of users, projects and jobs.
constexpr size_t kColumns = 4;
constexpr const char* kColumnNames[kColumns] = {"CHECKPOINTS", "RESULTS",
                                                "UPLOADS", "OTHER"};

std::string KindText(v1::DiskKind kind) {
  switch (kind) {
    case v1::DISK_KIND_CHECKPOINT:
      return "checkpoints";
    case v1::DISK_KIND_OUTPUT:
      return "results of jobs";
    case v1::DISK_KIND_PREPARED_DATA:
      return "prepared data of jobs";
    case v1::DISK_KIND_LOGS:
      return "logs of jobs";
    case v1::DISK_KIND_EXPORT:
      return "exports, and results of deleted jobs";
    case v1::DISK_KIND_UPLOAD:
      return "uploads";
    case v1::DISK_KIND_PREPARED_CACHE:
      return "prepared data for the next jobs";
    case v1::DISK_KIND_STORE:
      return "job store and the like";
    default:
      return "other";
  }
}

size_t ColumnOf(v1::DiskKind kind) {
  switch (kind) {
    case v1::DISK_KIND_CHECKPOINT:
      return 0;
    case v1::DISK_KIND_OUTPUT:
    case v1::DISK_KIND_EXPORT:
      return 1;
    case v1::DISK_KIND_UPLOAD:
      return 2;
    default:
      return 3;
  }
}

std::string NameOf(const v1::DiskPart& part, DiskView view) {
  switch (view) {
    case DiskView::kUser:
      return part.owner();
    case DiskView::kProject:
      return part.project();
    default:
      return part.kind() == v1::DISK_KIND_EXPORT ? "outputs/" + part.name()
                                                 : ShortName(part.name());
  }
}

std::string SizeText(int64_t bytes, bool partial) {
  return absl::StrCat(partial ? "at least " : "", FormatBytes(bytes));
}

std::string KindTable(const std::vector<v1::DiskPart>& parts) {
  std::map<int, std::pair<int64_t, bool>> kinds;
  int64_t all = 0;
  for (const v1::DiskPart& part : parts) {
    auto& [bytes, partial] = kinds[part.kind()];
    bytes += part.size_bytes();
    partial = partial || part.partial();
    all += part.size_bytes();
  }
  Rows rows = {{"WHAT", "SIZE"}};
  for (const auto& [kind, size] : kinds) {
    rows.push_back({KindText(static_cast<v1::DiskKind>(kind)),
                    SizeText(size.first, size.second)});
  }
  rows.push_back({"in all", FormatBytes(all)});
  return FormatTable(rows);
}

struct Sum {
  std::array<int64_t, kColumns> columns{};
  int64_t all = 0;
  std::string owner;
};

std::string SumTable(const std::map<std::string, Sum>& sums, DiskView view) {
  std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(
      sorted.begin(), sorted.end(),
      [](const auto& a, const auto& b) { return a.second.all > b.second.all; });
  std::vector<std::string> head = {view == DiskView::kUser      ? "USER"
                                   : view == DiskView::kProject ? "PROJECT"
                                                                : "JOB"};
  if (view == DiskView::kJob) head.push_back("OWNER");
  head.insert(head.end(), std::begin(kColumnNames), std::end(kColumnNames));
  head.push_back("ALL");
  Rows rows = {head};
  for (const auto& [name, sum] : sorted) {
    std::vector<std::string> row = {name.empty() ? "-" : name};
    if (view == DiskView::kJob) {
      row.push_back(sum.owner.empty() ? "-" : sum.owner);
    }
    for (const int64_t bytes : sum.columns) row.push_back(FormatBytes(bytes));
    row.push_back(FormatBytes(sum.all));
    rows.push_back(std::move(row));
  }
  return FormatTable(rows);
}

}  // namespace

std::string DiskUsageTable(const std::vector<v1::DiskPart>& parts,
                           DiskView view) {
  if (view == DiskView::kKind) return KindTable(parts);
  std::map<std::string, Sum> sums;
  for (const v1::DiskPart& part : parts) {
    Sum& sum = sums[NameOf(part, view)];
    sum.columns[ColumnOf(part.kind())] += part.size_bytes();
    sum.all += part.size_bytes();
    sum.owner = part.owner();
  }
  return SumTable(sums, view);
}

std::string DiskFreeText(const v1::GetDiskUsageResponse& answer) {
  return absl::StrCat(FormatBytes(answer.disk_free_bytes()), " of ",
                      FormatBytes(answer.disk_total_bytes()), " are free.\n");
}

int64_t BytesOf(const v1::DeleteFineTuningJobResponse& answer) {
  int64_t bytes = 0;
  for (const v1::DiskPart& part : answer.parts()) bytes += part.size_bytes();
  return bytes;
}

std::string DeletionText(const std::string& job,
                         const v1::DeleteFineTuningJobResponse& answer) {
  Rows rows = {{"WHAT", "SIZE"}, {"record and events", "-"}};
  for (const v1::DiskPart& part : answer.parts()) {
    std::string what = KindText(part.kind());
    if (part.kind() == v1::DISK_KIND_CHECKPOINT) {
      what = part.step() > 0 ? absl::StrCat("checkpoint of step ", part.step())
                             : "what is left of checkpoints";
    } else if (part.kind() == v1::DISK_KIND_OUTPUT) {
      what = "its result, which was trained";
    }
    rows.push_back({what, SizeText(part.size_bytes(), part.partial())});
  }
  rows.push_back({"in all", FormatBytes(BytesOf(answer))});
  std::string text = absl::StrCat("This goes with ", VisibleLine(job), ":\n",
                                  FormatTable(rows));
  if (answer.has_kept_output()) {
    absl::StrAppend(&text, "Its result stays in ",
                    VisibleLine(answer.kept_output_path()), " (",
                    FormatBytes(answer.kept_output().size_bytes()),
                    "); --output deletes it, too.\n");
  }
  return text;
}

int64_t BytesOf(const std::vector<v1::Checkpoint>& checkpoints) {
  int64_t bytes = 0;
  for (const v1::Checkpoint& one : checkpoints) bytes += one.size_bytes();
  return bytes;
}

std::string CheckpointTable(const std::vector<v1::Checkpoint>& checkpoints) {
  Rows rows = {{"JOB", "STEP", "SIZE", "MADE (UTC)", "OWNER", "PROJECT"}};
  for (const v1::Checkpoint& one : checkpoints) {
    rows.push_back(
        {ShortName(one.job()), absl::StrCat(one.step()),
         FormatBytes(one.size_bytes()),
         absl::FormatTime("%Y-%m-%d %H:%M", TimeOf(one.create_time()),
                          absl::UTCTimeZone()),
         one.owner(), one.project()});
  }
  return absl::StrCat(FormatTable(rows), "in all ",
                      FormatBytes(BytesOf(checkpoints)), "\n");
}

std::string LeftText(const std::string& left) {
  if (left.empty()) return "";
  return absl::StrCat(
      "Some files could not be removed now: ", VisibleLine(left),
      "; the daemon's next start tries again.\n");
}

}  // namespace roundhouse::client
