#include "server/uploads/upload_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/store/store_check.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

absl::StatusOr<UploadRecord> ReadUpload(const Statement& row) {
  UploadRecord record;
  record.id = row.Text(0);
  const int64_t kind = row.Int(1), state = row.Int(5);
  auto files = ParseManifest(row.Text(9));
  if (row.Int(10) == 0 || !files.ok() ||
      (kind != static_cast<int64_t>(UploadKind::kDataset) &&
       kind != static_cast<int64_t>(UploadKind::kModel)) ||
      state < static_cast<int64_t>(UploadState::kArriving) ||
      state > static_cast<int64_t>(UploadState::kRemoving)) {
    return DamagedRow("uploads", record.id);
  }
  record.kind = static_cast<UploadKind>(kind);
  record.project = row.Text(2);
  record.name = row.Text(3);
  record.version = row.Int(4);
  record.state = static_cast<UploadState>(state);
  record.owner = row.Text(6);
  record.create_time = absl::FromUnixMicros(row.Int(7));
  record.finish_time = absl::FromUnixMicros(row.Int(8));
  record.files = std::make_shared<const UploadedFiles>(*std::move(files));
  return record;
}

}  // namespace

absl::StatusOr<std::vector<UploadRecord>> ReadUploads(Database* db) {
  ASSIGN_OR_RETURN(
      Statement select,
      db->Prepare(absl::StrCat(
          "SELECT id, kind, project, name, version, state, owner, create_us, "
          "finish_us, manifest, ",
          RowIsWhole("uploads"), " FROM uploads")));
  std::vector<UploadRecord> records;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return records;
    ASSIGN_OR_RETURN(UploadRecord record, ReadUpload(select));
    records.push_back(std::move(record));
  }
}

absl::StatusOr<std::map<std::string, std::string>> ReadUploadOwners(
    Database* db) {
  ASSIGN_OR_RETURN(Statement select,
                   db->Prepare("SELECT id, owner FROM uploads"));
  std::map<std::string, std::string> owners;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return owners;
    owners.emplace(select.Text(0), select.Text(1));
  }
}

absl::Status PutUpload(Database* db, const UploadRecord& record) {
  ASSIGN_OR_RETURN(
      Statement put,
      db->Prepare("INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                  "ON CONFLICT (id) DO UPDATE SET version = excluded.version, "
                  "state = excluded.state, finish_us = excluded.finish_us, "
                  "manifest = excluded.manifest"));
  put.Bind(record.id).Bind(static_cast<int64_t>(record.kind));
  put.Bind(record.project).Bind(record.name).Bind(record.version);
  put.Bind(static_cast<int64_t>(record.state)).Bind(record.owner);
  put.Bind(ToMicros(record.create_time)).Bind(ToMicros(record.finish_time));
  return put.Bind(ManifestText(*record.files)).Run();
}

absl::Status DropUpload(Database* db, const std::string& id) {
  ASSIGN_OR_RETURN(Statement drop,
                   db->Prepare("DELETE FROM uploads WHERE id = ?"));
  return drop.Bind(id).Run();
}

}  // namespace roundhouse
