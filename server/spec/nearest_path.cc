#include "server/spec/nearest_path.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/model/input_file.h"
#include "base/nearest_name.h"

namespace roundhouse {
namespace {

bool IsThere(const DataRoots& roots, const std::string& path,
             const MayUseRoot& may) {
  for (const PathKind kind : {PathKind::kFile, PathKind::kDirectory}) {
    if (roots.Resolve("", path, kind, may).ok()) return true;
  }
  return false;
}

// The first names of a folder; none where it can't be listed now.
std::vector<std::string> SomeNames(const DataRoots& roots,
                                   const std::string& folder) {
  const auto found = roots.OpenDirectory(folder);
  if (!found.ok()) return {};
  auto names = NamesIn(*found);
  if (!names.ok()) return {};
  names->resize(std::min(names->size(), kComparedNames));
  return *std::move(names);
}

// The folders that names beside `parent` + "/" may lie in; "": of the roots.
std::vector<std::string> FoldersOf(const DataRoots& roots,
                                   const std::string& parent,
                                   const MayUseRoot& may) {
  if (parent.empty()) return roots.roots(may);
  const auto folder = roots.Resolve("", parent, PathKind::kDirectory, may);
  if (!folder.ok()) return {};
  return {*folder};
}

}  // namespace

std::string NearestPath(const DataRoots& roots, const std::string& path,
                        const MayUseRoot& may) {
  // The first part that is not there.
  size_t begin = 0;
  for (const std::string& root : roots.roots(may)) {
    if (absl::StartsWith(path, root + "/")) begin = root.size() + 1;
  }
  if (begin == 0 && absl::StartsWith(path, "/")) return "";
  size_t end = path.find('/', begin);
  while (
      end != std::string::npos &&
      roots.Resolve("", path.substr(0, end), PathKind::kDirectory, may).ok()) {
    begin = end + 1;
    end = path.find('/', begin);
  }
  const std::string part = path.substr(begin, end - begin);
  const std::string rest = end == std::string::npos ? "" : path.substr(end);
  const std::string before = path.substr(0, begin);
  const std::string parent = before.substr(0, before.empty() ? 0 : begin - 1);
  if (part.empty()) return "";
  for (const std::string& folder : FoldersOf(roots, parent, may)) {
    const std::string nearest = NearestName(part, SomeNames(roots, folder));
    std::string found = absl::StrCat(before, nearest, rest);
    if (!nearest.empty() && IsThere(roots, found, may)) return found;
  }
  return "";
}

}  // namespace roundhouse
