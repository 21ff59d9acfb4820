#include "server/store/store_migrations.h"

#include "server/store/store_schema.h"

namespace roundhouse {
namespace {

// Entry i brings version i to i + 1.  Never edit an entry that was released.
constexpr const char* kMigrations[kStoreSchemaVersion] = {
    R"sql(
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  uid TEXT NOT NULL UNIQUE,
  state INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  message TEXT NOT NULL,
  create_us INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  text TEXT NOT NULL,
  resolved TEXT NOT NULL,
  output_name TEXT NOT NULL,
  output_path TEXT NOT NULL,
  last_checkpoint TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  progress TEXT NOT NULL
);
CREATE INDEX jobs_by_state ON jobs(state, number);
CREATE TABLE attempts (
  job INTEGER NOT NULL REFERENCES jobs(number),
  attempt INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  end_state INTEGER NOT NULL,
  PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
CREATE TABLE events (
  revision INTEGER PRIMARY KEY AUTOINCREMENT,
  job INTEGER NOT NULL REFERENCES jobs(number),
  time_us INTEGER NOT NULL,
  type TEXT NOT NULL,
  state INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  message TEXT NOT NULL,
  step INTEGER NOT NULL
);
CREATE INDEX events_by_job ON events(job, revision);
CREATE TABLE requests (
  principal TEXT NOT NULL,
  request_id TEXT NOT NULL,
  payload_sha256 TEXT NOT NULL,
  job INTEGER NOT NULL REFERENCES jobs(number),
  create_us INTEGER NOT NULL,
  PRIMARY KEY (principal, request_id)
) WITHOUT ROWID;
CREATE INDEX requests_by_time ON requests(create_us);
CREATE TABLE checkpoints (
  job INTEGER NOT NULL REFERENCES jobs(number),
  step INTEGER NOT NULL,
  path TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  PRIMARY KEY (job, step)
) WITHOUT ROWID;
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO meta VALUES ('compaction_floor', 0);
)sql",
    R"sql(
CREATE INDEX jobs_by_output_name ON jobs(output_name, number)
  WHERE output_name <> '';
)sql",
    // Checksums of all rows, and who a job belongs to.  Tables are made anew: a
    // stored column can't be added.
    R"sql(
CREATE TABLE new_jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  uid TEXT NOT NULL UNIQUE,
  state INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  message TEXT NOT NULL,
  create_us INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  output_name TEXT NOT NULL,
  output_path TEXT NOT NULL,
  last_checkpoint TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  progress TEXT NOT NULL,
  owner TEXT NOT NULL,
  project TEXT NOT NULL,
  principal TEXT NOT NULL,
  text_checksum INTEGER NOT NULL
    GENERATED ALWAYS AS (row_checksum(text, resolved, files)) STORED,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    number, uid, state, reason, message, create_us, start_us, end_us,
    output_name, output_path, last_checkpoint, attempts, revision, dataset,
    progress, owner, project, principal, text_checksum)) STORED,
  text TEXT NOT NULL,
  resolved TEXT NOT NULL,
  files TEXT NOT NULL
);
INSERT INTO new_jobs
  SELECT number, uid, state, reason, message, create_us, start_us, end_us,
    output_name, output_path, last_checkpoint, attempts, revision, dataset,
    progress, who, 'default', who, text, resolved, ''
  FROM (SELECT *, coalesce((SELECT principal FROM requests
                            WHERE job = number LIMIT 1), 'local') AS who
        FROM jobs) ORDER BY number;
CREATE TABLE new_attempts (
  job INTEGER NOT NULL REFERENCES jobs(number),
  attempt INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  end_state INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    job, attempt, start_us, end_us, end_state)) STORED,
  PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
INSERT INTO new_attempts SELECT * FROM attempts;
CREATE TABLE new_events (
  revision INTEGER PRIMARY KEY AUTOINCREMENT,
  job INTEGER NOT NULL REFERENCES jobs(number),
  time_us INTEGER NOT NULL,
  type TEXT NOT NULL,
  state INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  message TEXT NOT NULL,
  step INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    revision, job, time_us, type, state, reason, message, step)) STORED
);
INSERT INTO new_events SELECT * FROM events ORDER BY revision;
CREATE TABLE new_requests (
  principal TEXT NOT NULL,
  request_id TEXT NOT NULL,
  payload_sha256 TEXT NOT NULL,
  job INTEGER NOT NULL REFERENCES jobs(number),
  create_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    principal, request_id, payload_sha256, job, create_us)) STORED,
  PRIMARY KEY (principal, request_id)
) WITHOUT ROWID;
INSERT INTO new_requests SELECT * FROM requests;
CREATE TABLE new_checkpoints (
  job INTEGER NOT NULL REFERENCES jobs(number),
  step INTEGER NOT NULL,
  path TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    job, step, path, size_bytes, create_us)) STORED,
  PRIMARY KEY (job, step)
) WITHOUT ROWID;
INSERT INTO new_checkpoints SELECT * FROM checkpoints;
CREATE TABLE new_meta (
  key TEXT PRIMARY KEY,
  value INTEGER NOT NULL,
  checksum INTEGER NOT NULL
    GENERATED ALWAYS AS (row_checksum(key, value)) STORED
) WITHOUT ROWID;
INSERT INTO new_meta SELECT * FROM meta;
DELETE FROM sqlite_sequence WHERE name IN ('new_jobs', 'new_events');
INSERT INTO sqlite_sequence VALUES
  ('new_jobs', coalesce((SELECT seq FROM sqlite_sequence
                         WHERE name = 'jobs'), 0)),
  ('new_events', coalesce((SELECT seq FROM sqlite_sequence
                           WHERE name = 'events'), 0));
INSERT INTO new_meta VALUES
  ('commit_number', 1),
  ('last_job', (SELECT seq FROM sqlite_sequence WHERE name = 'new_jobs')),
  ('last_revision',
   (SELECT seq FROM sqlite_sequence WHERE name = 'new_events'));
DROP TABLE attempts;
DROP TABLE requests;
DROP TABLE checkpoints;
DROP TABLE events;
DROP TABLE jobs;
DROP TABLE meta;
ALTER TABLE new_jobs RENAME TO jobs;
ALTER TABLE new_attempts RENAME TO attempts;
ALTER TABLE new_events RENAME TO events;
ALTER TABLE new_requests RENAME TO requests;
ALTER TABLE new_checkpoints RENAME TO checkpoints;
ALTER TABLE new_meta RENAME TO meta;
CREATE INDEX jobs_by_state ON jobs(state, number);
CREATE INDEX jobs_by_output_name ON jobs(output_name, number)
  WHERE output_name <> '';
CREATE INDEX events_by_job ON events(job, revision);
CREATE INDEX requests_by_time ON requests(create_us);
CREATE TRIGGER jobs_are_whole BEFORE UPDATE ON jobs
WHEN old.text_checksum IS NOT row_checksum(old.text, old.resolved,
    old.files)
  OR old.checksum IS NOT row_checksum(
    old.number, old.uid, old.state, old.reason, old.message, old.create_us,
    old.start_us, old.end_us, old.output_name, old.output_path,
    old.last_checkpoint, old.attempts, old.revision, old.dataset, old.progress,
    old.owner, old.project, old.principal, old.text_checksum)
BEGIN
  SELECT RAISE(ABORT, 'a row of jobs differs from its checksum');
END;
CREATE TRIGGER attempts_are_whole BEFORE UPDATE ON attempts
WHEN old.checksum IS NOT row_checksum(
  old.job, old.attempt, old.start_us, old.end_us, old.end_state)
BEGIN
  SELECT RAISE(ABORT, 'a row of attempts differs from its checksum');
END;
CREATE TRIGGER meta_is_whole BEFORE UPDATE ON meta
WHEN old.checksum IS NOT row_checksum(old.key, old.value)
BEGIN
  SELECT RAISE(ABORT, 'a row of meta differs from its checksum');
END;
)sql",
    // Accounts (server/access/accounts.h).  uid -1: none; remove_us 0: there.
    R"sql(
CREATE TABLE users (
  name TEXT PRIMARY KEY,
  uid INTEGER NOT NULL,
  admin INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  remove_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    name, uid, admin, create_us, remove_us)) STORED
) WITHOUT ROWID;
CREATE UNIQUE INDEX users_by_uid ON users(uid)
  WHERE uid >= 0 AND remove_us = 0;
CREATE TABLE projects (
  name TEXT PRIMARY KEY,
  create_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    name, create_us)) STORED
) WITHOUT ROWID;
INSERT INTO projects VALUES ('default', 0);
CREATE TABLE members (
  project TEXT NOT NULL REFERENCES projects(name),
  user TEXT NOT NULL REFERENCES users(name),
  role INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    project, user, role)) STORED,
  PRIMARY KEY (project, user)
) WITHOUT ROWID;
CREATE INDEX jobs_by_project ON jobs(project, number)
  WHERE project <> 'default';
CREATE TRIGGER users_are_whole BEFORE UPDATE ON users
WHEN old.checksum IS NOT row_checksum(
  old.name, old.uid, old.admin, old.create_us, old.remove_us)
BEGIN
  SELECT RAISE(ABORT, 'a row of users differs from its checksum');
END;
CREATE TRIGGER members_are_whole BEFORE UPDATE ON members
WHEN old.checksum IS NOT row_checksum(old.project, old.user, old.role)
BEGIN
  SELECT RAISE(ABORT, 'a row of members differs from its checksum');
END;
)sql",
    // accounts 1: there were users once, also where the store has lost them.
    R"sql(
INSERT INTO meta VALUES ('accounts', EXISTS (SELECT 1 FROM users));
)sql"
    // What was done by whom (server/audit/audit_log.h): rows are added, and the
    // oldest go once there are 200000 newer ones.  REPLACE fires no trigger of
    // DELETE, so a number that is there is not given again.
    R"sql(
CREATE TABLE audit (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  time_us INTEGER NOT NULL,
  principal TEXT NOT NULL,
  user TEXT NOT NULL,
  token TEXT NOT NULL,
  peer TEXT NOT NULL,
  rpc TEXT NOT NULL,
  part INTEGER NOT NULL,
  resource TEXT NOT NULL,
  code INTEGER NOT NULL,
  reason TEXT NOT NULL,
  message TEXT NOT NULL,
  count INTEGER NOT NULL,
  duration_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    number, time_us, principal, user, token, peer, rpc, part, resource, code,
    reason, message, count, duration_us)) STORED
);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN
  SELECT RAISE(ABORT, 'rows of audit are not changed');
END;
CREATE TRIGGER audit_is_not_replaced BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE number = new.number)
BEGIN
  SELECT RAISE(ABORT, 'rows of audit are not replaced');
END;
CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit
WHEN old.number > (SELECT max(number) FROM audit) - 200000
BEGIN
  SELECT RAISE(ABORT, 'the newest 200000 rows of audit are kept');
END;
)sql"
    // What users and projects may take (server/limits/limit_table.h).
    R"sql(
CREATE TABLE limits (
  subject TEXT NOT NULL,
  name TEXT NOT NULL,
  value INTEGER NOT NULL,
  change_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    subject, name, value, change_us)) STORED,
  PRIMARY KEY (subject, name)
) WITHOUT ROWID;
CREATE TRIGGER limits_are_whole BEFORE UPDATE ON limits
WHEN old.checksum IS NOT row_checksum(
  old.subject, old.name, old.value, old.change_us)
BEGIN
  SELECT RAISE(ABORT, 'a row of limits differs from its checksum');
END;
)sql"
    // What people uploaded (server/uploads/upload_table.h).
    R"sql(
CREATE TABLE uploads (
  id TEXT PRIMARY KEY,
  kind INTEGER NOT NULL,
  project TEXT NOT NULL REFERENCES projects(name),
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  state INTEGER NOT NULL,
  owner TEXT NOT NULL,
  create_us INTEGER NOT NULL,
  finish_us INTEGER NOT NULL,
  manifest TEXT NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    id, kind, project, name, version, state, owner, create_us, finish_us,
    manifest)) STORED
) WITHOUT ROWID;
CREATE TRIGGER uploads_are_whole BEFORE UPDATE ON uploads
WHEN old.checksum IS NOT row_checksum(
  old.id, old.kind, old.project, old.name, old.version, old.state, old.owner,
  old.create_us, old.finish_us, old.manifest)
BEGIN
  SELECT RAISE(ABORT, 'a row of uploads differs from its checksum');
END;
)sql"
    // Tokens (server/access/tokens.h).  sha256: of the text, which nobody has
    // but its owner; a time of 0: none.
    R"sql(
CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  user TEXT NOT NULL REFERENCES users(name),
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL UNIQUE,
  scope INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  expire_us INTEGER NOT NULL,
  last_use_us INTEGER NOT NULL,
  revoke_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    id, user, name, sha256, scope, create_us, expire_us, last_use_us,
    revoke_us)) STORED
) WITHOUT ROWID;
CREATE TRIGGER tokens_are_whole BEFORE UPDATE ON tokens
WHEN old.checksum IS NOT row_checksum(
  old.id, old.user, old.name, old.sha256, old.scope, old.create_us,
  old.expire_us, old.last_use_us, old.revoke_us)
BEGIN
  SELECT RAISE(ABORT, 'a row of tokens differs from its checksum');
END;
)sql",
    // Devices that are lent or fenced (server/devices/device_loans.h); an end
    // of 0: none.
    R"sql(
CREATE TABLE device_loans (
  device TEXT PRIMARY KEY,
  kind INTEGER NOT NULL,
  owner TEXT NOT NULL,
  note TEXT NOT NULL,
  since_us INTEGER NOT NULL,
  until_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    device, kind, owner, note, since_us, until_us)) STORED
) WITHOUT ROWID;
CREATE TRIGGER device_loans_are_whole BEFORE UPDATE ON device_loans
WHEN old.checksum IS NOT row_checksum(
  old.device, old.kind, old.owner, old.note, old.since_us, old.until_us)
BEGIN
  SELECT RAISE(ABORT, 'a row of device_loans differs from its checksum');
END;
)sql"
    // What was used (server/usage/usage_table.h).  Its rows outlive their jobs.
    R"sql(
CREATE TABLE usage (
  hour INTEGER NOT NULL,
  job INTEGER NOT NULL,
  project TEXT NOT NULL,
  user TEXT NOT NULL,
  part INTEGER NOT NULL,
  device_ns INTEGER NOT NULL,
  host_mib_seconds INTEGER NOT NULL,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    hour, job, project, user, part, device_ns, host_mib_seconds)) STORED,
  PRIMARY KEY (hour, job, project, user, part)
) WITHOUT ROWID;
CREATE TRIGGER usage_is_whole BEFORE UPDATE ON usage
WHEN old.checksum IS NOT row_checksum(
  old.hour, old.job, old.project, old.user, old.part, old.device_ns,
  old.host_mib_seconds)
BEGIN
  SELECT RAISE(ABORT, 'a row of usage differs from its checksum');
END;
)sql"
    // How urgent a job is now, whatever its file said.  The update is what
    // notices damaged rows (jobs_are_whole), which new checksums would hide.
    R"sql(
UPDATE jobs SET revision = revision;
CREATE TABLE new_jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  uid TEXT NOT NULL UNIQUE,
  state INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  message TEXT NOT NULL,
  create_us INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  output_name TEXT NOT NULL,
  output_path TEXT NOT NULL,
  last_checkpoint TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  progress TEXT NOT NULL,
  owner TEXT NOT NULL,
  project TEXT NOT NULL,
  principal TEXT NOT NULL,
  priority INTEGER NOT NULL,
  text_checksum INTEGER NOT NULL
    GENERATED ALWAYS AS (row_checksum(text, resolved, files)) STORED,
  checksum INTEGER NOT NULL GENERATED ALWAYS AS (row_checksum(
    number, uid, state, reason, message, create_us, start_us, end_us,
    output_name, output_path, last_checkpoint, attempts, revision, dataset,
    progress, owner, project, principal, priority, text_checksum)) STORED,
  text TEXT NOT NULL,
  resolved TEXT NOT NULL,
  files TEXT NOT NULL
);
INSERT INTO new_jobs
  SELECT number, uid, state, reason, message, create_us, start_us, end_us,
    output_name, output_path, last_checkpoint, attempts, revision, dataset,
    progress, owner, project, principal,
    coalesce(CASE WHEN json_valid(resolved)
             THEN json_extract(resolved, '$.priority') END = 'urgent', 0),
    text, resolved, files
  FROM jobs ORDER BY number;
DELETE FROM sqlite_sequence WHERE name = 'new_jobs';
INSERT INTO sqlite_sequence VALUES
  ('new_jobs', coalesce((SELECT seq FROM sqlite_sequence
                         WHERE name = 'jobs'), 0));
DROP TABLE jobs;
ALTER TABLE new_jobs RENAME TO jobs;
CREATE INDEX jobs_by_state ON jobs(state, number);
CREATE INDEX jobs_by_output_name ON jobs(output_name, number)
  WHERE output_name <> '';
CREATE INDEX jobs_by_project ON jobs(project, number)
  WHERE project <> 'default';
CREATE TRIGGER jobs_are_whole BEFORE UPDATE ON jobs
WHEN old.text_checksum IS NOT row_checksum(old.text, old.resolved,
    old.files)
  OR old.checksum IS NOT row_checksum(
    old.number, old.uid, old.state, old.reason, old.message, old.create_us,
    old.start_us, old.end_us, old.output_name, old.output_path,
    old.last_checkpoint, old.attempts, old.revision, old.dataset, old.progress,
    old.owner, old.project, old.principal, old.priority, old.text_checksum)
BEGIN
  SELECT RAISE(ABORT, 'a row of jobs differs from its checksum');
END;
)sql"};

}  // namespace

const char* Migration(int from) { return kMigrations[from]; }

}  // namespace roundhouse
