#include "client/tables/upload_output.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/upload_names.h"
#include "base/visible_text.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

UploadReference ReferenceTo(const v1::Upload& upload) {
  return {.kind = upload.kind() == v1::UPLOAD_KIND_MODEL ? UploadKind::kModel
                                                         : UploadKind::kDataset,
          .name = upload.name()};
}

std::string VersionCell(const v1::Upload& upload) {
  return upload.version() == 0 ? "unfinished" : absl::StrCat(upload.version());
}

std::string MinuteText(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d %H:%M", TimeOf(time), absl::UTCTimeZone());
}

}  // namespace

std::string UploadReferenceText(const v1::Upload& upload) {
  return ToText(ReferenceTo(upload));
}

std::string UploadVersionText(const v1::Upload& upload) {
  UploadReference reference = ReferenceTo(upload);
  reference.project = upload.project();
  reference.version = upload.version();
  return ToText(reference);
}

std::string UploadTable(const std::vector<v1::Upload>& uploads) {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "VERSION", "FILES", "SIZE", "PROJECT", "OWNER", "SINCE"}};
  for (const v1::Upload& upload : uploads) {
    rows.push_back({UploadReferenceText(upload), VersionCell(upload),
                    absl::StrCat(upload.file_count()),
                    FormatBytes(upload.size_bytes()), upload.project(),
                    upload.owner(), MinuteText(upload.create_time())});
  }
  return FormatTable(rows);
}

std::string UploadText(const v1::Upload& upload) {
  std::string text = absl::StrCat(
      "name: ", VisibleLine(UploadReferenceText(upload)),
      "\nversion: ", VersionCell(upload),
      "\nproject: ", VisibleLine(upload.project()),
      "\nowner: ", VisibleLine(upload.owner()),
      "\nsize: ", FormatBytes(upload.size_bytes()),
      "\nsince: ", MinuteText(upload.create_time()), " UTC\nfiles:\n");
  for (const v1::UploadedFile& file : upload.files()) {
    absl::StrAppend(&text, "  ", VisibleLine(file.name()), "  ",
                    FormatBytes(file.size_bytes()), "  ",
                    VisibleLine(file.sha256()), "\n");
  }
  return text;
}

}  // namespace roundhouse::client
