// Who did what, when, from where and with which result: the table `audit` of
// the job store, to which rows are only added (its triggers see to that).
//
// Each call of an RPC that acts (server/access/rules.h) leaves a row, a stream
// one when it begins and one when it ends; so does each refusal of any call.
// What fails again for the same caller, RPC and result within a minute is
// counted, and the count is one row (repeat_book.h).  So is what succeeds again
// without changing anything.
//
//   AuditLog audit(store, {});
//   audit.Record({.principal = "uid:1000", .rpc = "AccountService/SetUser"});
//
// A row that can't be written (a full disk) is lost: what it tells of was done
// by then.  The log says so, once a minute, and AuditOptions::on_loss counts
// it.
//
// Thread-safe.  Owned by the API's server.
#ifndef ROUNDHOUSE_SERVER_AUDIT_AUDIT_LOG_H_
#define ROUNDHOUSE_SERVER_AUDIT_AUDIT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/audit/audit_record.h"
#include "server/audit/repeat_book.h"
#include "server/store/store.h"

namespace roundhouse {

// The newest that are kept, as the table's trigger has it.
inline constexpr int64_t kMaxAuditRows = 200'000;
// Rows that wait for the thread; those beyond are lost.
inline constexpr size_t kMaxWaitingAuditRows = 4'096;
// The log tells of lost rows this often.
inline constexpr absl::Duration kAuditWarningInterval = absl::Minutes(1);

struct AuditOptions {
  // Called for each row that is lost, on any thread.
  std::function<void()> on_loss = [] {};
  const Clock* clock = &SystemClock();  // outlives the log
};

// What ListAudit asks for; what is empty holds for all.
struct AuditQuery {
  std::string user;  // or the principal
  std::optional<absl::Time> since;
  std::optional<absl::Time> until;  // before then
  std::string rpc;                  // with or without its service
  std::string resource;             // whole, or behind its last '/'
  std::optional<absl::StatusCode> code;
  bool failed = false;            // whatever is not OK
  std::optional<int64_t> before;  // numbers below
  int limit = 50;
};

struct AuditPage {
  std::vector<AuditRecord> records;    // newest first
  std::optional<int64_t> next_before;  // there are more
};

class AuditLog {
 public:
  // `store` outlives the log.
  AuditLog(JobStore* store, AuditOptions options);
  // Stop().
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Blocks until the row is on disk, or lost.
  void Record(AuditRecord record);
  // The same, of a call that changes nothing when it is made again: what is
  // alike within a minute is counted.
  void RecordAlike(AuditRecord record);
  // Never blocks: the log's thread writes it soon.
  void RecordLater(AuditRecord record);
  // Writes what waits and what is counted, then joins the thread; rows that
  // come after it are lost.
  void Stop();

  // kDataLoss: a row differs from its checksum.
  absl::StatusOr<AuditPage> List(const AuditQuery& query) const;

 private:
  void Loop();
  // The next rows; none: it is the last time.
  std::vector<AuditRecord> Await();
  void Write(const std::vector<AuditRecord>& records);
  void Lose(size_t count, const absl::Status& why);

  JobStore* const store_;
  const AuditOptions options_;
  Mutex mutex_;
  CondVar wake_;
  RepeatBook repeats_ ABSL_GUARDED_BY(mutex_);
  std::deque<AuditRecord> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> warned_ns_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_AUDIT_AUDIT_LOG_H_
