#include "server/access/accounts.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/store/store_check.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

absl::Status NoSuch(const std::string& field, const std::string& name,
                    const std::vector<std::string>& names) {
  return FieldError(absl::StatusCode::kNotFound, FieldReason::kNotFound, field,
                    absl::StrCat("there is no ", field, " \"",
                                 absl::CHexEscape(name.substr(0, 80)), "\"",
                                 DidYouMean(name, names)));
}

template <typename Records>
std::vector<std::string> NamesOf(const Records& records) {
  std::vector<std::string> names;
  for (const auto& [name, record] : records) names.push_back(name);
  return names;
}

absl::Status TooMany(const std::string& field, size_t most,
                     const std::string& what) {
  return FieldError(absl::StatusCode::kResourceExhausted, FieldReason::kQuota,
                    field, absl::StrCat(most, " ", what, " at most"));
}

absl::Status ReadUsers(Database* db, AccountList* list) {
  ASSIGN_OR_RETURN(Statement select,
                   db->Prepare(absl::StrCat(
                       "SELECT name, uid, admin, create_us, remove_us, ",
                       RowIsWhole("users"), " FROM users")));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::OkStatus();
    if (select.Int(5) == 0) return DamagedRow("users", select.Text(0));
    UserRecord user;
    user.name = select.Text(0);
    if (select.Int(1) >= 0) user.uid = static_cast<uid_t>(select.Int(1));
    user.admin = select.Int(2) != 0;
    user.create_time = absl::FromUnixMicros(select.Int(3));
    if (select.Int(4) != 0) {
      user.remove_time = absl::FromUnixMicros(select.Int(4));
    }
    list->users.emplace(user.name, std::move(user));
  }
}

absl::Status ReadProjects(Database* db, AccountList* list) {
  ASSIGN_OR_RETURN(
      Statement select,
      db->Prepare(absl::StrCat("SELECT name, create_us, ",
                               RowIsWhole("projects"), " FROM projects")));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::OkStatus();
    if (select.Int(2) == 0) return DamagedRow("projects", select.Text(0));
    list->projects.emplace(
        select.Text(0),
        ProjectRecord{.name = select.Text(0),
                      .create_time = absl::FromUnixMicros(select.Int(1))});
  }
}

absl::Status ReadMembers(Database* db, AccountList* list) {
  ASSIGN_OR_RETURN(
      Statement select,
      db->Prepare(absl::StrCat("SELECT project, user, role, ",
                               RowIsWhole("members"), " FROM members")));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::OkStatus();
    const std::string project = select.Text(0), user = select.Text(1);
    const int64_t role = select.Int(2);
    if (select.Int(3) == 0 || !list->projects.contains(project) ||
        !list->users.contains(user) ||
        role < static_cast<int64_t>(Role::kViewer) ||
        role > static_cast<int64_t>(Role::kMember)) {
      return DamagedRow("members", absl::StrCat(project, " ", user));
    }
    list->users.at(user).projects[project] = static_cast<Role>(role);
  }
}

// A row of users, written whole: one that is there is changed.
absl::Status PutUser(Database* db, const UserRecord& user) {
  ASSIGN_OR_RETURN(
      Statement put,
      db->Prepare("INSERT INTO users VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) "
                  "DO UPDATE SET uid = excluded.uid, admin = excluded.admin, "
                  "remove_us = excluded.remove_us"));
  put.Bind(user.name);
  put.Bind(user.uid.has_value() ? static_cast<int64_t>(*user.uid)
                                : int64_t{-1});
  put.Bind(int64_t{user.admin}).Bind(ToMicros(user.create_time));
  put.Bind(user.remove_time.has_value() ? ToMicros(*user.remove_time)
                                        : int64_t{0});
  return put.Run();
}

absl::Status PutMember(Database* db, const std::string& project,
                       const std::string& user, Role role) {
  ASSIGN_OR_RETURN(
      Statement put,
      db->Prepare("INSERT INTO members VALUES (?, ?, ?) ON CONFLICT "
                  "(project, user) DO UPDATE SET role = excluded.role"));
  return put.Bind(project).Bind(user).Bind(static_cast<int64_t>(role)).Run();
}

// Jobs and uploads of before say their owner by uid, which may be another
// user's later.
absl::Status GiveJobs(Database* db, const UserRecord& user) {
  for (const char* sql : {"UPDATE jobs SET owner = ? WHERE owner = ?",
                          "UPDATE uploads SET owner = ? WHERE owner = ?"}) {
    ASSIGN_OR_RETURN(Statement give, db->Prepare(sql));
    give.Bind(user.name).Bind(absl::StrCat("uid:", *user.uid));
    RETURN_IF_ERROR(give.Run());
  }
  return absl::OkStatus();
}

// `project` "": from all.
absl::Status DropMember(Database* db, const std::string& project,
                        const std::string& user) {
  ASSIGN_OR_RETURN(Statement drop,
                   db->Prepare("DELETE FROM members WHERE user = ?1 AND "
                               "(?2 = '' OR project = ?2)"));
  return drop.Bind(user).Bind(project).Run();
}

}  // namespace

absl::Status CheckAccountName(const std::string& field,
                              const std::string& name) {
  if (name.empty()) {
    return FieldError(FieldReason::kMissingField, field, "is missing");
  }
  const bool fits = name.size() <= kMaxAccountNameBytes &&
                    absl::ascii_islower(name[0]) &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return absl::ascii_islower(c) || absl::ascii_isdigit(c) ||
                             c == '-' || c == '_' || c == '.';
                    });
  if (name == "local") {
    return FieldError(FieldReason::kInvalidValue, field,
                      "local is kept for jobs whose makers nobody knows");
  }
  if (fits) return absl::OkStatus();
  return FieldError(
      FieldReason::kInvalidValue, field,
      absl::StrCat("\"", absl::CHexEscape(name.substr(0, 80)),
                   "\" is no name: small letters, digits, '-', '_' and '.', a "
                   "letter first, ",
                   kMaxAccountNameBytes, " at most"));
}

const UserRecord* AccountList::User(const std::string& name) const {
  const auto found = users.find(name);
  if (found == users.end() || found->second.remove_time.has_value()) {
    return nullptr;
  }
  return &found->second;
}

const UserRecord* AccountList::UserOf(uid_t uid) const {
  for (const auto& [name, user] : users) {
    if (user.uid == uid && !user.remove_time.has_value()) return &user;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Accounts>> Accounts::Load(JobStore* store,
                                                         const Clock& clock) {
  std::unique_ptr<Accounts> accounts(new Accounts(store, clock));
  MutexLock change(accounts->change_mutex_);
  auto list = std::make_shared<AccountList>();
  RETURN_IF_ERROR(store->ReadWith([&list](Database* db) -> absl::Status {
    RETURN_IF_ERROR(ReadUsers(db, list.get()));
    RETURN_IF_ERROR(ReadProjects(db, list.get()));
    RETURN_IF_ERROR(ReadMembers(db, list.get()));
    ASSIGN_OR_RETURN(
        const int64_t had_users,
        db->QueryInt("SELECT value FROM meta WHERE key = 'accounts'"));
    list->had_users = had_users != 0;
    return absl::OkStatus();
  }));
  accounts->Publish(std::move(list));
  return accounts;
}

void Accounts::Publish(std::shared_ptr<const AccountList> list) {
  MutexLock lock(mutex_);
  list_ = std::move(list);
  ++generation_;
}

std::shared_ptr<const AccountList> Accounts::list() const {
  MutexLock lock(mutex_);
  return list_;
}

absl::Status Accounts::CheckChange(const AccountList& list,
                                   const UserChange& change) const {
  RETURN_IF_ERROR(CheckAccountName("user", change.name));
  if (change.role == Role::kNone) {
    return FieldError(FieldReason::kInvalidValue, "role",
                      "is viewer, member or admin");
  }
  if (change.role != Role::kAdmin && !list.projects.contains(change.project)) {
    return NoSuch("project", change.project, NamesOf(list.projects));
  }
  const auto found = list.users.find(change.name);
  std::optional<uid_t> uid = change.uid;
  if (!uid.has_value() && found != list.users.end()) uid = found->second.uid;
  if (uid.has_value()) {
    const UserRecord* const other = list.UserOf(*uid);
    if (other != nullptr && other->name != change.name) {
      return FieldError(FieldReason::kInvalidValue, "uid",
                        absl::StrCat(*uid, " is user ", other->name));
    }
  }
  if (found == list.users.end()) {
    if (list.users.size() < kMaxUsers) return absl::OkStatus();
    return TooMany("user", kMaxUsers, "users, with those removed,");
  }
  const UserRecord& user = found->second;
  if (user.remove_time.has_value() && !change.restore) {
    return FieldError(
        FieldReason::kInvalidValue, "user",
        absl::StrCat(user.name, " was removed on ",
                     absl::FormatTime("%Y-%m-%d", *user.remove_time,
                                      absl::UTCTimeZone()),
                     "; whoever has the name has the jobs. Take another name, "
                     "or --restore the user"));
  }
  if (user.projects.size() >= kMaxMembershipsEach &&
      !user.projects.contains(change.project)) {
    return TooMany("project", kMaxMembershipsEach, "projects of a user");
  }
  return absl::OkStatus();
}

absl::StatusOr<UserRecord> Accounts::SetUser(const UserChange& change,
                                             const MayChange& may) {
  MutexLock lock(change_mutex_);
  auto list = std::make_shared<AccountList>(*this->list());
  RETURN_IF_ERROR(may(*list));
  RETURN_IF_ERROR(CheckChange(*list, change));
  UserRecord& user =
      list->users
          .try_emplace(
              change.name,
              UserRecord{.name = change.name, .create_time = clock_.WallTime()})
          .first->second;
  user.remove_time.reset();
  user.admin = change.role == Role::kAdmin;
  if (change.uid.has_value()) user.uid = change.uid;
  if (change.role != Role::kAdmin) {
    user.projects[change.project] = change.role;
  }
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    RETURN_IF_ERROR(PutUser(db, user));
    if (user.uid.has_value()) RETURN_IF_ERROR(GiveJobs(db, user));
    if (change.role == Role::kAdmin) return absl::OkStatus();
    return PutMember(db, change.project, change.name, change.role);
  }));
  Publish(list);
  return user;
}

absl::StatusOr<UserRecord> Accounts::RemoveUser(const std::string& name,
                                                const std::string& project,
                                                const MayChange& may) {
  MutexLock lock(change_mutex_);
  auto list = std::make_shared<AccountList>(*this->list());
  RETURN_IF_ERROR(may(*list));
  if (list->User(name) == nullptr) {
    return NoSuch("user", name, NamesOf(list->users));
  }
  UserRecord& user = list->users.at(name);
  if (!project.empty() && !user.projects.contains(project)) {
    return NoSuch("project", project, NamesOf(user.projects));
  }
  std::erase_if(user.projects, [&](const auto& entry) {
    return project.empty() || entry.first == project;
  });
  if (project.empty()) {
    user.remove_time = clock_.WallTime();
    user.admin = false;
  }
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    RETURN_IF_ERROR(DropMember(db, project, name));
    return PutUser(db, user);
  }));
  Publish(list);
  return user;
}

absl::StatusOr<ProjectRecord> Accounts::AddProject(const std::string& name,
                                                   const MayChange& may) {
  MutexLock lock(change_mutex_);
  auto list = std::make_shared<AccountList>(*this->list());
  RETURN_IF_ERROR(may(*list));
  RETURN_IF_ERROR(CheckAccountName("project", name));
  const auto found = list->projects.find(name);
  if (found != list->projects.end()) return found->second;
  if (list->projects.size() >= kMaxProjects) {
    return TooMany("project", kMaxProjects, "projects");
  }
  const ProjectRecord project{.name = name, .create_time = clock_.WallTime()};
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(Statement insert,
                     db->Prepare("INSERT INTO projects VALUES (?, ?)"));
    return insert.Bind(name).Bind(ToMicros(project.create_time)).Run();
  }));
  list->projects.emplace(name, project);
  Publish(list);
  return project;
}

absl::Status Accounts::RemoveProject(const std::string& name,
                                     const MayChange& may) {
  MutexLock lock(change_mutex_);
  auto list = std::make_shared<AccountList>(*this->list());
  RETURN_IF_ERROR(may(*list));
  if (!list->projects.contains(name)) {
    return NoSuch("project", name, NamesOf(list->projects));
  }
  if (name == kDefaultProject) {
    return absl::FailedPreconditionError(
        "project: default stays; jobs of before accounts are in it");
  }
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement jobs,
        db->Prepare(absl::StrCat("SELECT number FROM jobs WHERE project = ? "
                                 "AND ",
                                 kJobIsThere, " LIMIT 1")));
    ASSIGN_OR_RETURN(const bool has_jobs, jobs.Bind(name).Step());
    if (has_jobs) {
      return absl::FailedPreconditionError(
          absl::StrCat("project: ", name, " has jobs, ", NameOfJob(jobs.Int(0)),
                       " for one"));
    }
    ASSIGN_OR_RETURN(
        Statement uploads,
        db->Prepare("SELECT name FROM uploads WHERE project = ? LIMIT 1"));
    ASSIGN_OR_RETURN(const bool has_uploads, uploads.Bind(name).Step());
    if (has_uploads) {
      return absl::FailedPreconditionError(absl::StrCat(
          "project: ", name, " has uploads, ", uploads.Text(0), " for one"));
    }
    for (const char* sql : {"DELETE FROM members WHERE project = ?",
                            "DELETE FROM projects WHERE name = ?"}) {
      ASSIGN_OR_RETURN(Statement drop, db->Prepare(sql));
      RETURN_IF_ERROR(drop.Bind(name).Run());
    }
    return absl::OkStatus();
  }));
  list->projects.erase(name);
  for (auto& [user, record] : list->users) record.projects.erase(name);
  Publish(list);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ProjectMeant(const Caller& caller,
                                         const std::string& project) {
  if (!project.empty()) {
    RETURN_IF_ERROR(CheckAccountName("project", project));
    return project;
  }
  if (caller.projects.size() <= 1 ||
      caller.RoleIn(kDefaultProject) != Role::kNone) {
    const bool only = !caller.admin && caller.everywhere == Role::kNone &&
                      caller.projects.size() == 1;
    return only ? caller.projects.begin()->first : std::string(kDefaultProject);
  }
  return FieldError(
      FieldReason::kMissingField, "project",
      absl::StrCat("you are in several, say which: ",
                   absl::StrJoin(NamesOf(caller.projects), ", ")));
}

}  // namespace roundhouse
