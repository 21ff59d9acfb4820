#include "server/devices/device_loans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/store/store_check.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

absl::Status InOtherHands(int device, const DeviceLoan& loan,
                          const std::string& remedy) {
  return absl::FailedPreconditionError(
      absl::StrCat(TextOf(device, loan), remedy));
}

absl::Status CheckNote(const std::string& note) {
  if (note.size() <= kMaxLoanNoteBytes) return absl::OkStatus();
  return FieldError(FieldReason::kInvalidValue, "note",
                    absl::StrCat("has ", note.size(), " bytes; ",
                                 kMaxLoanNoteBytes, " at most"));
}

// 0: never.
int64_t EndMicros(absl::Time until) {
  return until == absl::InfiniteFuture() ? 0 : ToMicros(until);
}

}  // namespace

std::string ProcessText(const DeviceLoan& loan) {
  const std::string id =
      absl::StrCat("process ", loan.process.pid,
                   loan.owner.empty() ? "" : " of ", loan.owner);
  return loan.process.name.empty()
             ? id
             : absl::StrCat(loan.process.name, " (", id, ")");
}

std::string TextOf(int device, const DeviceLoan& loan) {
  if (loan.kind == DeviceLoan::Kind::kYielded) {
    return absl::StrCat("device ", device, " is left to ", ProcessText(loan));
  }
  std::string text =
      loan.kind == DeviceLoan::Kind::kFenced
          ? absl::StrCat("device ", device, " is fenced by ", loan.owner)
          : absl::StrCat("device ", device, " is lent to ", loan.owner);
  if (loan.until != absl::InfiniteFuture()) {
    absl::StrAppend(&text, " until ", TimeText(loan.until));
  }
  if (!loan.note.empty()) absl::StrAppend(&text, " (", loan.note, ")");
  return text;
}

std::vector<std::string> DeviceLoans::KeysOf(const std::vector<wire::Gpu>& gpus,
                                             int device_count) {
  std::vector<std::string> keys;
  for (int i = 0; i < device_count; ++i) {
    if (gpus.empty()) {
      keys.push_back(absl::StrCat("cpu-", i));
      continue;
    }
    const auto before = std::count_if(
        gpus.begin(), gpus.begin() + i,
        [&](const wire::Gpu& gpu) { return gpu.uuid == gpus[i].uuid; });
    keys.push_back(gpus[i].uuid);
    if (before > 0) absl::StrAppend(&keys.back(), "#", before + 1);
  }
  return keys;
}

absl::StatusOr<std::set<std::string>> DeviceLoans::GpusOut(JobStore* store,
                                                           const Clock& clock) {
  std::set<std::string> uuids;
  const int64_t now_us = ToMicros(clock.WallTime());
  RETURN_IF_ERROR(store->ReadWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(Statement select,
                     db->Prepare("SELECT device FROM device_loans WHERE "
                                 "until_us = 0 OR until_us > ?"));
    select.Bind(now_us);
    while (true) {
      ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) return absl::OkStatus();
      const std::string key = select.Text(0);
      uuids.insert(key.substr(0, key.find('#')));
    }
  }));
  return uuids;
}

absl::StatusOr<std::unique_ptr<DeviceLoans>> DeviceLoans::Load(
    JobStore* store, std::vector<std::string> keys, const Clock& clock) {
  auto loans = std::unique_ptr<DeviceLoans>(
      new DeviceLoans(store, std::move(keys), clock));
  DeviceLoanList list(loans->keys_.size());
  RETURN_IF_ERROR(store->ReadWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement select,
        db->Prepare(absl::StrCat(
            "SELECT device, kind, owner, note, since_us, until_us, ",
            RowIsWhole("device_loans"), " FROM device_loans")));
    while (true) {
      ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) return absl::OkStatus();
      const int64_t kind = select.Int(1);
      if (select.Int(6) == 0 || (kind != 1 && kind != 2)) {
        return DamagedRow("device_loans", select.Text(0));
      }
      const auto found =
          std::find(loans->keys_.begin(), loans->keys_.end(), select.Text(0));
      if (found == loans->keys_.end()) continue;
      const int64_t until_us = select.Int(5);
      list[found - loans->keys_.begin()] =
          DeviceLoan{.kind = static_cast<DeviceLoan::Kind>(kind),
                     .owner = select.Text(2),
                     .note = select.Text(3),
                     .since = absl::FromUnixMicros(select.Int(4)),
                     .until = until_us == 0 ? absl::InfiniteFuture()
                                            : absl::FromUnixMicros(until_us)};
    }
  }));
  MutexLock lock(loans->mutex_);
  loans->loans_ = std::move(list);
  return loans;
}

DeviceLoanList DeviceLoans::Stored() const {
  MutexLock lock(mutex_);
  DeviceLoanList now = loans_;
  for (auto& loan : now) {
    if (loan.has_value() && IsOver(*loan)) loan.reset();
  }
  return now;
}

DeviceLoanList DeviceLoans::Now() const {
  DeviceLoanList now = Stored();
  MutexLock lock(mutex_);
  for (size_t i = 0; i < yields_.size(); ++i) {
    if (!now[i].has_value()) now[i] = yields_[i];
  }
  return now;
}

void DeviceLoans::SetYields(const DeviceLoanList& yields) {
  MutexLock lock(mutex_);
  yields_ = yields;
}

void DeviceLoans::OnTakenBack(std::function<void(int)> taken_back) {
  MutexLock change(change_mutex_);
  taken_back_ = std::move(taken_back);
}

void DeviceLoans::OnChange(std::function<void(const DeviceLoanList&)> changed) {
  MutexLock change(change_mutex_);
  changed_ = std::move(changed);
  changed_(Stored());
}

absl::Status DeviceLoans::CheckDevice(int device) const {
  if (device >= 0 && device < device_count()) return absl::OkStatus();
  return FieldError(absl::StatusCode::kNotFound, FieldReason::kNotFound, "name",
                    absl::StrCat("there is no device ", device, "; there are ",
                                 device_count(), ", from 0 on"));
}

std::optional<DeviceLoan> DeviceLoans::Find(int device) const {
  return Stored()[device];
}

int64_t DeviceLoans::LentTo(const std::string& owner) const {
  const DeviceLoanList now = Now();
  return std::count_if(now.begin(), now.end(), [&](const auto& loan) {
    return loan.has_value() && loan->kind == DeviceLoan::Kind::kLent &&
           (owner.empty() || loan->owner == owner);
  });
}

absl::Status DeviceLoans::CheckEnd(const Caller& caller, absl::Time since,
                                   absl::Time* until) const {
  const absl::Time latest =
      caller.admin ? absl::InfiniteFuture() : since + kLongestMemberLoan;
  if (*until == absl::InfiniteFuture()) *until = latest;
  if (*until > latest || latest <= clock_.WallTime()) {
    return FieldError(FieldReason::kInvalidValue, "until_time",
                      absl::StrCat("a member may have a device for ",
                                   absl::FormatDuration(kLongestMemberLoan),
                                   " at a time, until ", TimeText(latest),
                                   "; an admin may have it longer"));
  }
  if (*until > clock_.WallTime()) return absl::OkStatus();
  return FieldError(FieldReason::kInvalidValue, "until_time",
                    absl::StrCat(TimeText(*until), " is not in the future"));
}

absl::StatusOr<DeviceLoan> DeviceLoans::Lend(const Caller& caller,
                                             const LimitCheck& limits,
                                             int device, absl::Time until,
                                             const std::string& note) {
  RETURN_IF_ERROR(CheckDevice(device));
  RETURN_IF_ERROR(CheckNote(note));
  MutexLock lock(change_mutex_);
  const DeviceLoanList now = Stored();
  DeviceLoan loan = {
      .owner = caller.owner(), .note = note, .since = clock_.WallTime()};
  if (now[device].has_value()) {
    const DeviceLoan& before = *now[device];
    if (before.kind != DeviceLoan::Kind::kLent || before.owner != loan.owner) {
      return InOtherHands(device, before, "");
    }
    loan.since = before.since;
    if (note.empty()) loan.note = before.note;
    if (until == absl::InfiniteFuture()) until = before.until;
  } else {
    RETURN_IF_ERROR(limits.CheckCount(
        caller, Limit::kLentDevices,
        [&](const std::string& owner) { return LentTo(owner); }));
  }
  loan.until = until;
  RETURN_IF_ERROR(CheckEnd(caller, loan.since, &loan.until));
  RETURN_IF_ERROR(Put(device, loan));
  return loan;
}

absl::StatusOr<DeviceLoan> DeviceLoans::Return(const Caller& caller,
                                               int device) {
  RETURN_IF_ERROR(CheckDevice(device));
  MutexLock lock(change_mutex_);
  const std::optional<DeviceLoan> loan = Find(device);
  if (!loan.has_value()) return ReturnYielded(caller, device);
  if (loan->kind == DeviceLoan::Kind::kFenced) {
    return InOtherHands(device, *loan,
                        "; an admin takes it back into use with: roundhouse "
                        "device unfence");
  }
  if (!caller.admin && loan->owner != caller.owner()) {
    return absl::PermissionDeniedError(
        absl::StrCat(TextOf(device, *loan), "; he or an admin returns it"));
  }
  RETURN_IF_ERROR(Drop(device));
  return *loan;
}

absl::StatusOr<DeviceLoan> DeviceLoans::ReturnYielded(const Caller& caller,
                                                      int device) {
  const std::optional<DeviceLoan> loan = Now()[device];
  if (!loan.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", device, " is not lent"));
  }
  if (!caller.admin && loan->owner != caller.owner()) {
    return absl::PermissionDeniedError(absl::StrCat(
        TextOf(device, *loan), ", until it ends; an admin takes it back"));
  }
  {
    MutexLock lock(mutex_);
    yields_[device].reset();
  }
  taken_back_(device);
  return *loan;
}

absl::StatusOr<DeviceLoan> DeviceLoans::Fence(const Caller& caller, int device,
                                              const std::string& note) {
  RETURN_IF_ERROR(CheckDevice(device));
  RETURN_IF_ERROR(CheckNote(note));
  MutexLock lock(change_mutex_);
  DeviceLoan loan = {.kind = DeviceLoan::Kind::kFenced,
                     .owner = caller.owner(),
                     .note = note,
                     .since = clock_.WallTime()};
  if (const auto before = Find(device); before.has_value()) {
    if (before->kind == DeviceLoan::Kind::kLent) {
      return InOtherHands(device, *before,
                          "; return it first: roundhouse device return");
    }
    loan.since = before->since;
  }
  RETURN_IF_ERROR(Put(device, loan));
  return loan;
}

absl::StatusOr<DeviceLoan> DeviceLoans::Unfence(int device) {
  RETURN_IF_ERROR(CheckDevice(device));
  MutexLock lock(change_mutex_);
  const std::optional<DeviceLoan> loan = Find(device);
  if (!loan.has_value() || loan->kind != DeviceLoan::Kind::kFenced) {
    return absl::FailedPreconditionError(
        loan.has_value()
            ? absl::StrCat(TextOf(device, *loan), "; it is not fenced")
            : absl::StrCat("device ", device, " is not fenced"));
  }
  RETURN_IF_ERROR(Drop(device));
  return *loan;
}

absl::Status DeviceLoans::Put(int device, const DeviceLoan& loan) {
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement put,
        db->Prepare(
            "INSERT INTO device_loans VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT "
            "(device) DO UPDATE SET kind = excluded.kind, owner = "
            "excluded.owner, note = excluded.note, since_us = "
            "excluded.since_us, until_us = excluded.until_us"));
    put.Bind(keys_[device]).Bind(static_cast<int64_t>(loan.kind));
    put.Bind(loan.owner).Bind(loan.note).Bind(ToMicros(loan.since));
    RETURN_IF_ERROR(put.Bind(EndMicros(loan.until)).Run());
    // What is over does not come back, whatever the clock does.
    ASSIGN_OR_RETURN(Statement drop,
                     db->Prepare("DELETE FROM device_loans WHERE until_us > 0 "
                                 "AND until_us <= ?"));
    return drop.Bind(ToMicros(clock_.WallTime())).Run();
  }));
  Publish(device, loan);
  return absl::OkStatus();
}

absl::Status DeviceLoans::Drop(int device) {
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(Statement drop,
                     db->Prepare("DELETE FROM device_loans WHERE device = ?"));
    return drop.Bind(keys_[device]).Run();
  }));
  Publish(device, std::nullopt);
  return absl::OkStatus();
}

void DeviceLoans::Publish(int device, std::optional<DeviceLoan> loan) {
  {
    MutexLock lock(mutex_);
    loans_[device] = std::move(loan);
    for (auto& other : loans_) {
      if (other.has_value() && IsOver(*other)) other.reset();
    }
  }
  changed_(Stored());
}

}  // namespace roundhouse
