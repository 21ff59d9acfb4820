#include "server/access/tokens.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/token_text.h"
#include "server/access/accounts.h"
#include "server/spec/spec_error.h"
#include "server/store/store_check.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

constexpr size_t kIdHashLetters = 12;  // of the hash: no secret follows

// One text, whatever is wrong: nobody learns which tokens there were.
absl::Status Refused() {
  return absl::UnauthenticatedError(
      "the token is not one that works on this server: it was mistyped, "
      "revoked or has expired; make a new one with: roundhouse token add NAME");
}

absl::Status NoSuchToken(const std::string& token) {
  return FieldError(absl::StatusCode::kNotFound, FieldReason::kNotFound,
                    "token",
                    absl::StrCat("there is no token \"",
                                 absl::CHexEscape(token.substr(0, 80)),
                                 "\"; roundhouse token list shows them"));
}

int64_t MicrosOr0(const std::optional<absl::Time>& time) {
  return time.has_value() ? ToMicros(*time) : 0;
}

std::optional<absl::Time> TimeOr0(int64_t micros) {
  if (micros == 0) return std::nullopt;
  return absl::FromUnixMicros(micros);
}

absl::Status InsertToken(Database* db, const TokenRecord& record,
                         const std::string& hash) {
  ASSIGN_OR_RETURN(
      Statement insert,
      db->Prepare("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  insert.Bind(record.id).Bind(record.user).Bind(record.name).Bind(hash);
  insert.Bind(static_cast<int64_t>(record.scope));
  insert.Bind(ToMicros(record.create_time));
  insert.Bind(record.expire_time == absl::InfiniteFuture()
                  ? int64_t{0}
                  : ToMicros(record.expire_time));
  insert.Bind(MicrosOr0(record.last_use_time));
  return insert.Bind(MicrosOr0(record.revoke_time)).Run();
}

absl::Status DeleteTokens(Database* db, const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    ASSIGN_OR_RETURN(Statement drop,
                     db->Prepare("DELETE FROM tokens WHERE id = ?"));
    RETURN_IF_ERROR(drop.Bind(id).Run());
  }
  return absl::OkStatus();
}

// When it stopped working, for those that did.
absl::Time DiedAt(const TokenRecord& record) {
  return std::min(record.revoke_time.value_or(absl::InfiniteFuture()),
                  record.expire_time);
}

}  // namespace

const char* ScopeName(Role scope) {
  switch (scope) {
    case Role::kNone:
      return "none";
    case Role::kViewer:
      return "read";
    case Role::kMember:
      return "submit";
    case Role::kAdmin:
      return "admin";
  }
  return "none";
}

absl::StatusOr<std::unique_ptr<Tokens>> Tokens::Load(JobStore* store,
                                                     const Clock& clock) {
  std::unique_ptr<Tokens> tokens(new Tokens(store, clock));
  RETURN_IF_ERROR(tokens->Read());
  tokens->thread_ = std::thread([t = tokens.get()] { t->Loop(); });
  return tokens;
}

Tokens::~Tokens() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  WriteLastUses().IgnoreError();  // it was told where it failed before
}

void Tokens::Loop() {
  while (true) {
    {
      MutexLock lock(mutex_);
      const CondVar::Deadline deadline = CondVar::DeadlineIn(kLastUseInterval);
      while (!stop_ && changed_.WaitUntil(mutex_, deadline)) {
      }
      if (stop_) return;
    }
    const absl::Status written = WriteLastUses();
    if (!written.ok()) {
      RH_LOG(kWarning) << "when tokens were last used is not stored: "
                       << written.message();
    }
  }
}

absl::Status Tokens::Read() {
  Entries entries;
  RETURN_IF_ERROR(store_->ReadWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement select,
        db->Prepare(absl::StrCat("SELECT id, user, name, sha256, scope, "
                                 "create_us, expire_us, last_use_us, "
                                 "revoke_us, ",
                                 RowIsWhole("tokens"), " FROM tokens")));
    while (true) {
      ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) return absl::OkStatus();
      const int64_t scope = select.Int(4);
      if (select.Int(9) == 0 || scope < static_cast<int64_t>(Role::kViewer) ||
          scope > static_cast<int64_t>(Role::kAdmin)) {
        return DamagedRow("tokens", select.Text(0));
      }
      Entry entry{.hash = select.Text(3)};
      entry.record = {.id = select.Text(0),
                      .user = select.Text(1),
                      .name = select.Text(2),
                      .scope = static_cast<Role>(scope),
                      .create_time = absl::FromUnixMicros(select.Int(5)),
                      .last_use_time = TimeOr0(select.Int(7)),
                      .revoke_time = TimeOr0(select.Int(8))};
      entry.record.expire_time =
          TimeOr0(select.Int(6)).value_or(absl::InfiniteFuture());
      entries.emplace(entry.record.id, std::move(entry));
    }
  }));
  MutexLock lock(mutex_);
  entries_ = std::move(entries);
  for (const auto& [id, entry] : entries_) by_hash_[entry.hash] = id;
  FindNextExpiry();
  return absl::OkStatus();
}

void Tokens::FindNextExpiry() const {
  const absl::Time now = clock_.WallTime();
  next_expiry_ = absl::InfiniteFuture();
  for (const auto& [id, entry] : entries_) {
    if (!entry.record.WorksAt(now)) continue;
    next_expiry_ = std::min(next_expiry_, entry.record.expire_time);
  }
}

uint64_t Tokens::generation() const {
  MutexLock lock(mutex_);
  if (clock_.WallTime() >= next_expiry_) {
    ++generation_;
    FindNextExpiry();
  }
  return generation_;
}

absl::Status Tokens::CheckNew(const TokenRecord& record) const {
  RETURN_IF_ERROR(CheckAccountName("name", record.name));
  if (record.scope == Role::kNone) {
    return FieldError(FieldReason::kInvalidValue, "scope",
                      "is read, submit or admin");
  }
  const absl::Time now = record.create_time;
  if (record.expire_time != absl::InfiniteFuture() &&
      (record.expire_time <= now ||
       record.expire_time > now + kLongestTokenLife)) {
    return FieldError(FieldReason::kInvalidValue, "expire_time",
                      "is past, or further away than ten years; without one "
                      "the token works until it is revoked");
  }
  size_t work = 0;
  for (const auto& [id, entry] : entries_) {
    const TokenRecord& other = entry.record;
    if (other.user != record.user || !other.WorksAt(now)) continue;
    ++work;
    if (other.name != record.name) continue;
    return FieldError(
        FieldReason::kInvalidValue, "name",
        absl::StrCat(record.user, " has a token ", record.name,
                     "; choose another name, or roundhouse token remove ",
                     record.name, " first"));
  }
  if (work < kMaxTokensEach && entries_.size() < kMaxTokens) {
    return absl::OkStatus();
  }
  return FieldError(
      absl::StatusCode::kResourceExhausted, FieldReason::kQuota, "name",
      work < kMaxTokensEach
          ? absl::StrCat(kMaxTokens, " tokens at most on a server")
          : absl::StrCat(kMaxTokensEach,
                         " tokens at most of a user; remove "
                         "one with: roundhouse token remove"));
}

absl::StatusOr<NewToken> Tokens::Create(const std::string& user,
                                        const std::string& name, Role scope,
                                        absl::Time expire_time) {
  MutexLock change(change_mutex_);
  NewToken made{.text = MakeTokenText()};
  const std::string hash = HashOfToken(made.text);
  // Microseconds are what the store has.
  const absl::Time now =
      absl::FromUnixMicros(absl::ToUnixMicros(clock_.WallTime()));
  made.record = {.id = absl::StrCat("token-", hash.substr(0, kIdHashLetters)),
                 .user = user,
                 .name = name,
                 .scope = scope,
                 .create_time = now,
                 .expire_time = expire_time};
  std::vector<std::string> forgotten;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (DiedAt(entry.record) + kDeadTokensKept < now) forgotten.push_back(id);
    }
    for (const std::string& id : forgotten) {
      by_hash_.erase(entries_.at(id).hash);
      entries_.erase(id);
    }
    RETURN_IF_ERROR(CheckNew(made.record));
  }
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    RETURN_IF_ERROR(DeleteTokens(db, forgotten));
    return InsertToken(db, made.record, hash);
  }));
  MutexLock lock(mutex_);
  entries_[made.record.id] = {.record = made.record, .hash = hash};
  by_hash_[hash] = made.record.id;
  FindNextExpiry();
  return made;
}

std::vector<TokenRecord> Tokens::List(const std::string& user) const {
  std::vector<TokenRecord> records;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (user.empty() || entry.record.user == user) {
        records.push_back(entry.record);
      }
    }
  }
  const absl::Time now = clock_.WallTime();
  const auto key = [now](const TokenRecord& record) {
    return std::make_tuple(!record.WorksAt(now), record.user, record.name,
                           record.create_time);
  };
  std::sort(records.begin(), records.end(),
            [&](const TokenRecord& a, const TokenRecord& b) {
              return key(a) < key(b);
            });
  return records;
}

absl::StatusOr<TokenRecord> Tokens::Get(const std::string& user,
                                        const std::string& token) const {
  const absl::Time now = clock_.WallTime();
  MutexLock lock(mutex_);
  const auto found = entries_.find(token);
  if (found != entries_.end() &&
      (user.empty() || found->second.record.user == user)) {
    return found->second.record;
  }
  for (const auto& [id, entry] : entries_) {
    const TokenRecord& record = entry.record;
    if (record.user == user && record.name == token && record.WorksAt(now)) {
      return record;
    }
  }
  return NoSuchToken(token);
}

absl::Status Tokens::StoreRevoked(const std::vector<std::string>& ids,
                                  absl::Time now) {
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    for (const std::string& id : ids) {
      ASSIGN_OR_RETURN(
          Statement revoke,
          db->Prepare("UPDATE tokens SET revoke_us = ? WHERE id = ?"));
      RETURN_IF_ERROR(revoke.Bind(ToMicros(now)).Bind(id).Run());
    }
    return absl::OkStatus();
  }));
  MutexLock lock(mutex_);
  for (const std::string& id : ids) entries_.at(id).record.revoke_time = now;
  ++generation_;
  return absl::OkStatus();
}

absl::StatusOr<TokenRecord> Tokens::Revoke(const std::string& id) {
  MutexLock change(change_mutex_);
  {
    MutexLock lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return NoSuchToken(id);
    if (found->second.record.revoke_time.has_value()) {
      return found->second.record;
    }
  }
  RETURN_IF_ERROR(StoreRevoked({id}, clock_.WallTime()));
  MutexLock lock(mutex_);
  return entries_.at(id).record;
}

absl::Status Tokens::RevokeAllOf(const std::string& user) {
  MutexLock change(change_mutex_);
  std::vector<std::string> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (entry.record.user == user && !entry.record.revoke_time.has_value()) {
        ids.push_back(id);
      }
    }
  }
  return ids.empty() ? absl::OkStatus() : StoreRevoked(ids, clock_.WallTime());
}

absl::StatusOr<TokenRecord> Tokens::Find(absl::string_view text) {
  if (!IsTokenText(text)) return Refused();
  const std::string hash = HashOfToken(text);
  const absl::Time now = clock_.WallTime();
  MutexLock lock(mutex_);
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return Refused();
  Entry& entry = entries_.at(found->second);
  if (!entry.record.WorksAt(now)) return Refused();
  entry.record.last_use_time = now;
  entry.unsaved = true;
  return entry.record;
}

std::optional<TokenRecord> Tokens::Known(absl::string_view text) const {
  if (!IsTokenText(text)) return std::nullopt;
  const std::string hash = HashOfToken(text);
  MutexLock lock(mutex_);
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  return entries_.at(found->second).record;
}

absl::StatusOr<TokenRecord> Tokens::Working(const std::string& id) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() ||
      !found->second.record.WorksAt(clock_.WallTime())) {
    return Refused();
  }
  return found->second.record;
}

absl::Status Tokens::WriteLastUses() {
  MutexLock change(change_mutex_);
  std::vector<std::pair<std::string, int64_t>> uses;
  {
    MutexLock lock(mutex_);
    for (auto& [id, entry] : entries_) {
      if (!std::exchange(entry.unsaved, false)) continue;
      uses.emplace_back(id, MicrosOr0(entry.record.last_use_time));
    }
  }
  if (uses.empty()) return absl::OkStatus();
  return store_->WriteWith([&](Database* db) -> absl::Status {
    for (const auto& [id, use] : uses) {
      ASSIGN_OR_RETURN(
          Statement update,
          db->Prepare("UPDATE tokens SET last_use_us = ? WHERE id = ?"));
      RETURN_IF_ERROR(update.Bind(use).Bind(id).Run());
    }
    return absl::OkStatus();
  });
}

}  // namespace roundhouse
