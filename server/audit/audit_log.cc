#include "server/audit/audit_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/visible_text.h"
#include "server/store/store_check.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

constexpr char kColumns[] =
    "number, time_us, principal, user, token, peer, rpc, part, resource, code, "
    "reason, message, count, duration_us";

absl::Status Insert(Database* db, const AuditRecord& record) {
  ASSIGN_OR_RETURN(
      Statement insert,
      db->Prepare("INSERT INTO audit (time_us, principal, user, token, peer, "
                  "rpc, part, resource, code, reason, message, count, "
                  "duration_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                  "?)"));
  insert.Bind(ToMicros(record.time)).Bind(record.principal).Bind(record.user);
  insert.Bind(record.token).Bind(record.peer).Bind(record.rpc);
  insert.Bind(static_cast<int64_t>(record.part));
  insert.Bind(CutText(record.resource, kMaxAuditResourceBytes));
  insert.Bind(static_cast<int64_t>(record.code)).Bind(record.reason);
  insert.Bind(CutText(record.message, kMaxAuditMessageBytes));
  insert.Bind(record.count).Bind(absl::ToInt64Microseconds(record.duration));
  return insert.Run();
}

absl::Status DropOldest(Database* db) {
  ASSIGN_OR_RETURN(Statement drop,
                   db->Prepare("DELETE FROM audit WHERE number <= "
                               "(SELECT max(number) FROM audit) - ?"));
  return drop.Bind(kMaxAuditRows).Run();
}

AuditRecord ReadRecord(const Statement& row) {
  AuditRecord record{.number = row.Int(0),
                     .time = absl::FromUnixMicros(row.Int(1)),
                     .principal = row.Text(2),
                     .user = row.Text(3),
                     .token = row.Text(4),
                     .peer = row.Text(5),
                     .rpc = row.Text(6)};
  record.part = static_cast<AuditPart>(row.Int(7));
  record.resource = row.Text(8);
  record.code = static_cast<absl::StatusCode>(row.Int(9));
  record.reason = row.Text(10);
  record.message = row.Text(11);
  record.count = row.Int(12);
  record.duration = absl::Microseconds(row.Int(13));
  return record;
}

// Each condition has its parameters behind it; -1 and "" are those that a query
// does not have.
std::string ListSql() {
  return absl::StrCat(
      "SELECT ", kColumns, ", ", RowIsWhole("audit"), " FROM audit WHERE ",
      "(?1 < 0 OR number < ?1) AND "
      "(?2 = '' OR user = ?2 OR principal = ?2) AND "
      "(?3 < 0 OR time_us >= ?3) AND (?4 < 0 OR time_us < ?4) AND "
      "(?5 = '' OR rpc = ?5 OR substr(rpc, instr(rpc, '/') + 1) = ?5) AND "
      "(?6 = '' OR resource = ?6 OR "
      "substr(resource, -length('/' || ?6)) = '/' || ?6) AND "
      "(?7 < 0 OR code = ?7) AND (?8 = 0 OR code <> 0) "
      "ORDER BY number DESC LIMIT ?9");
}

int64_t MicrosOr(const std::optional<absl::Time>& time, int64_t otherwise) {
  return time.has_value() ? std::max<int64_t>(0, ToMicros(*time)) : otherwise;
}

}  // namespace

std::string CutText(const std::string& text, size_t most_bytes) {
  if (text.size() <= most_bytes) return ValidUtf8(text);
  constexpr char kCut[] = "...";
  std::string cut = text.substr(0, most_bytes - sizeof(kCut) + 1);
  cut.resize(cut.size() - UnfinishedBytes(cut));
  return ValidUtf8(cut) + kCut;
}

AuditLog::AuditLog(JobStore* store, AuditOptions options)
    : store_(store), options_(std::move(options)) {
  thread_ = std::thread([this] { Loop(); });
}

AuditLog::~AuditLog() { Stop(); }

void AuditLog::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void AuditLog::Record(AuditRecord record) {
  record.time = options_.clock->WallTime();
  Write({record});
}

void AuditLog::RecordAlike(AuditRecord record) {
  record.time = options_.clock->WallTime();
  bool counted = false;
  {
    MutexLock lock(mutex_);
    counted = !stop_ && repeats_.Counts(record, options_.clock->MonotonicNs());
  }
  wake_.NotifyOne();
  if (!counted) Write({record});
}

void AuditLog::RecordLater(AuditRecord record) {
  record.time = options_.clock->WallTime();
  bool full = false;
  {
    MutexLock lock(mutex_);
    if (!stop_ && record.code != absl::StatusCode::kOk &&
        record.part == AuditPart::kCall &&
        repeats_.Counts(record, options_.clock->MonotonicNs())) {
      return;
    }
    full = stop_ || waiting_.size() >= kMaxWaitingAuditRows;
    if (!full) waiting_.push_back(std::move(record));
  }
  if (full) return Lose(1, absl::UnavailableError("too many rows wait"));
  wake_.NotifyOne();
}

std::vector<AuditRecord> AuditLog::Await() {
  MutexLock lock(mutex_);
  while (true) {
    const int64_t now_ns = options_.clock->MonotonicNs();
    std::vector<AuditRecord> rows(waiting_.begin(), waiting_.end());
    waiting_.clear();
    for (AuditRecord& row :
         stop_ ? repeats_.TakeAll() : repeats_.TakeEnded(now_ns)) {
      rows.push_back(std::move(row));
    }
    if (!rows.empty() || stop_) return rows;
    const std::optional<int64_t> next = repeats_.next_end_ns();
    wake_.WaitUntil(
        mutex_,
        CondVar::DeadlineIn(next.has_value() ? absl::Nanoseconds(*next - now_ns)
                                             : absl::InfiniteDuration()));
  }
}

void AuditLog::Loop() {
  while (true) {
    const std::vector<AuditRecord> rows = Await();
    if (rows.empty()) return;
    Write(rows);
  }
}

void AuditLog::Write(const std::vector<AuditRecord>& records) {
  const absl::Status written =
      store_->WriteWith([&records](Database* db) -> absl::Status {
        for (const AuditRecord& record : records) {
          RETURN_IF_ERROR(Insert(db, record));
        }
        return DropOldest(db);
      });
  if (!written.ok()) Lose(records.size(), written);
}

void AuditLog::Lose(size_t count, const absl::Status& why) {
  for (size_t i = 0; i < count; ++i) options_.on_loss();
  {
    MutexLock lock(mutex_);
    const int64_t now_ns = options_.clock->MonotonicNs();
    if (warned_ns_.has_value() &&
        now_ns - *warned_ns_ <
            absl::ToInt64Nanoseconds(kAuditWarningInterval)) {
      return;
    }
    warned_ns_ = now_ns;
  }
  RH_LOG(kError) << "audit: " << count << " rows are lost, of calls that were "
                 << "answered: " << why
                 << "; roundhouse_audit_lost_rows_total counts them";
}

absl::StatusOr<AuditPage> AuditLog::List(const AuditQuery& query) const {
  AuditPage page;
  const auto read = [&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(Statement select, db->Prepare(ListSql()));
    select.Bind(query.before.value_or(-1)).Bind(query.user);
    select.Bind(MicrosOr(query.since, -1)).Bind(MicrosOr(query.until, -1));
    select.Bind(query.rpc).Bind(query.resource);
    select.Bind(query.code.has_value() ? static_cast<int64_t>(*query.code)
                                       : int64_t{-1});
    select.Bind(int64_t{query.failed}).Bind(int64_t{query.limit} + 1);
    while (true) {
      ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) return absl::OkStatus();
      if (static_cast<int>(page.records.size()) == query.limit) {
        page.next_before = page.records.back().number;
        return absl::OkStatus();
      }
      if (select.Int(14) == 0) {
        return DamagedRow("audit", absl::StrCat(select.Int(0)));
      }
      page.records.push_back(ReadRecord(select));
    }
  };
  RETURN_IF_ERROR(store_->ReadWith(read));
  return page;
}

}  // namespace roundhouse
