#include "server/store/store_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/status.h"
#include "openssl/sha.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr int kSlots = 2;

absl::Status FileError(const std::string& path, const char* doing) {
  const std::string text =
      absl::StrCat("job store: ", doing, " ", path, ": ", std::strerror(errno));
  if (errno != ENOSPC && errno != EDQUOT) return absl::InternalError(text);
  return FieldError(absl::StatusCode::kResourceExhausted,
                    FieldReason::kStorageFull, "", text);
}

std::string Render(const StoreMark& mark) {
  const std::string text = absl::StrCat(
      "roundhouse mark: commit ", mark.commit, " job ", mark.job, " revision ",
      mark.revision,
      mark.accounts == 0 ? "" : absl::StrCat(" accounts ", mark.accounts));
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         digest);
  std::string slot =
      absl::StrCat(text, " sha256 ",
                   absl::BytesToHexString(absl::string_view(
                       reinterpret_cast<const char*>(digest), sizeof(digest))),
                   "\n");
  slot.resize(kMarkSlotBytes, '\0');
  return slot;
}

// What Render does not give back byte for byte is not a mark.
std::optional<StoreMark> Parse(const std::string& slot) {
  StoreMark mark;
  if (std::sscanf(slot.c_str(),
                  "roundhouse mark: commit %" SCNd64 " job %" SCNd64
                  " revision %" SCNd64 " accounts %" SCNd64,
                  &mark.commit, &mark.job, &mark.revision,
                  &mark.accounts) < 3) {
    return std::nullopt;
  }
  if (Render(mark) != slot) return std::nullopt;
  return mark;
}

// So that the file's name is on disk, too.
absl::Status SyncFolderOf(const std::string& path) {
  const std::string folder =
      std::filesystem::absolute(path).parent_path().string();
  const Descriptor opened(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return FileError(folder, "opening");
  if (file_calls::Sync(kStoreMark, opened.get()) == 0) return absl::OkStatus();
  return FileError(folder, "syncing");
}

}  // namespace

absl::StatusOr<std::unique_ptr<MarkFile>> MarkFile::Open(
    const std::string& path) {
  Descriptor opened(
      file_calls::Open(kStoreMark, path, O_RDWR | O_CREAT | O_CLOEXEC, 0640));
  if (opened.get() < 0) return FileError(path, "opening");
  std::unique_ptr<MarkFile> file(new MarkFile(path, std::move(opened)));
  RETURN_IF_ERROR(file->Read());
  RETURN_IF_ERROR(SyncFolderOf(path));
  return file;
}

absl::Status MarkFile::Read() {
  for (int i = 0; i < kSlots; ++i) {
    std::string slot(kMarkSlotBytes, '\0');
    const ssize_t got =
        pread(file_.get(), slot.data(), slot.size(), i * kMarkSlotBytes);
    if (got < 0) return FileError(path_, "reading");
    if (got == 0) continue;
    const auto mark = Parse(slot);
    if (!mark.has_value()) {
      damaged_ = true;
    } else if (!found_.has_value() || mark->commit > found_->commit) {
      found_ = mark;
    }
  }
  return absl::OkStatus();
}

absl::Status MarkFile::WriteSlot(int slot, const StoreMark& mark) {
  const std::string text = Render(mark);
  const ssize_t put =
      file_calls::WriteAt(kStoreMark, file_.get(), text.data(), text.size(),
                          int64_t{slot} * kMarkSlotBytes);
  if (put >= 0 && put < kMarkSlotBytes) errno = ENOSPC;
  if (put != kMarkSlotBytes) return FileError(path_, "writing");
  if (file_calls::SyncData(kStoreMark, file_.get()) != 0)
    return FileError(path_, "syncing");
  return absl::OkStatus();
}

absl::Status MarkFile::Write(const StoreMark& mark) {
  return WriteSlot(static_cast<int>(mark.commit % kSlots), mark);
}

absl::Status MarkFile::Reset(const StoreMark& mark) {
  for (int slot = 0; slot < kSlots; ++slot) {
    RETURN_IF_ERROR(WriteSlot(slot, mark));
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
