#include "server/uploads/upload_folders.h"

#include <errno.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/files/remove_tree.h"
#include "base/kill_point.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr mode_t kPrivateFolder = 0700;
constexpr const char* kFolders[] = {"parts", "building", "versions"};

// It may be there.
absl::Status MakePrivate(const std::string& path) {
  if (file_calls::MakeFolder(kUploadFolder, path, kPrivateFolder) == 0 ||
      errno == EEXIST) {
    return absl::OkStatus();
  }
  return FileError("creating", path, errno);
}

// The folders above the files, those above first.
std::set<std::string> FoldersOf(const UploadedFiles& files) {
  std::set<std::string> folders;
  for (const UploadedFile& file : files) {
    for (size_t slash = file.name.find('/'); slash != std::string::npos;
         slash = file.name.find('/', slash + 1)) {
      folders.insert(file.name.substr(0, slash));
    }
  }
  return folders;
}

absl::Status Link(const std::string& from, const std::string& to) {
  if (file_calls::Link(kUploadLink, from, to) == 0) return absl::OkStatus();
  const int error = errno;
  const absl::Status status = FileError("linking", to, error);
  if (error == ENOENT) return absl::NotFoundError(status.message());
  if (error == EMLINK) return absl::ResourceExhaustedError(status.message());
  return status;
}

}  // namespace

std::string UploadFolders::Version(const std::string& id) const {
  return absl::StrCat(root_, "/versions/", id);
}

std::string UploadFolders::Building(const std::string& id) const {
  return absl::StrCat(root_, "/building/", id);
}

std::string UploadFolders::Parts(const std::string& id) const {
  return absl::StrCat(root_, "/parts/", id);
}

std::string UploadFolders::Part(const std::string& id, size_t index) const {
  return absl::StrCat(Parts(id), "/", index);
}

absl::Status UploadFolders::Make() const {
  RETURN_IF_ERROR(MakePrivate(root_));
  for (const char* folder : kFolders) {
    RETURN_IF_ERROR(MakePrivate(absl::StrCat(root_, "/", folder)));
  }
  RETURN_IF_ERROR(SyncFolder(kUploadFolder, root_));
  return SyncFolder(kUploadFolder,
                    std::filesystem::path(root_).parent_path().string());
}

absl::Status UploadFolders::MakeParts(const std::string& id) const {
  return MakePrivate(Parts(id));
}

absl::Status UploadFolders::LinkPart(const std::string& from,
                                     const std::string& id,
                                     size_t index) const {
  return Link(from, Part(id, index));
}

absl::Status UploadFolders::Build(const std::string& id,
                                  const UploadedFiles& files) const {
  const std::string folder = Building(id);
  RETURN_IF_ERROR(RemoveTree(kUploadRemove, folder));
  RETURN_IF_ERROR(MakePrivate(folder));
  const std::set<std::string> below = FoldersOf(files);
  for (const std::string& name : below) {
    RETURN_IF_ERROR(MakePrivate(absl::StrCat(folder, "/", name)));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    RETURN_IF_ERROR(
        Link(Part(id, i), absl::StrCat(folder, "/", files[i].name)));
  }
  for (const std::string& name : below) {
    RETURN_IF_ERROR(SyncFolder(kUploadFolder, absl::StrCat(folder, "/", name)));
  }
  return SyncFolder(kUploadFolder, folder);
}

absl::Status UploadFolders::Publish(const std::string& id,
                                    const UploadedFiles& files) const {
  RETURN_IF_ERROR(Build(id, files));
  KillPoint("upload.built");
  // What a finish of before left: its row was never written.
  RETURN_IF_ERROR(RemoveTree(kUploadRemove, Version(id)));
  RETURN_IF_ERROR(RenameDurably(kUploadRename, Building(id), Version(id),
                                RenameMode::kKeep));
  KillPoint("upload.published");
  return absl::OkStatus();
}

absl::Status UploadFolders::RemoveUnfinished(const std::string& id) const {
  RETURN_IF_ERROR(RemoveTree(kUploadRemove, Building(id)));
  return RemoveTree(kUploadRemove, Version(id));
}

absl::Status UploadFolders::RemoveParts(const std::string& id) const {
  return RemoveTree(kUploadRemove, Parts(id));
}

absl::Status UploadFolders::RemoveAll(const std::string& id) const {
  RETURN_IF_ERROR(RemoveUnfinished(id));
  return RemoveParts(id);
}

std::shared_ptr<const std::vector<uint64_t>> UploadFolders::Inodes(
    const std::string& id, const UploadedFiles& files) const {
  auto inodes = std::make_shared<std::vector<uint64_t>>();
  for (const UploadedFile& file : files) {
    struct stat info;
    const std::string path = absl::StrCat(Version(id), "/", file.name);
    inodes->push_back(lstat(path.c_str(), &info) == 0 ? info.st_ino : 0);
  }
  return inodes;
}

absl::StatusOr<std::vector<std::string>> UploadFolders::List() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root_, error)) {
    const std::string name = entry.path().filename().string();
    bool ours = false;
    for (const char* folder : kFolders) ours = ours || name == folder;
    if (!ours) names.push_back(name);
  }
  for (const char* folder : kFolders) {
    if (error) break;
    for (const auto& entry : std::filesystem::directory_iterator(
             absl::StrCat(root_, "/", folder), error)) {
      names.push_back(
          absl::StrCat(folder, "/", entry.path().filename().string()));
    }
  }
  if (!error) return names;
  return FileError("reading", root_, error.value());
}

}  // namespace roundhouse
