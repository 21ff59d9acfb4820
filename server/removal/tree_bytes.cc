#include "server/removal/tree_bytes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <memory>

#include "base/files/descriptor.h"

namespace roundhouse {
namespace {

class TreeCount {
 public:
  void Add(int folder, const char* name, int depth) {
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      // Whoever removes it meanwhile is in no one's way.
      if (errno != ENOENT) bytes_.partial = true;
      return;
    }
    if (S_ISDIR(info.st_mode)) return AddFolder(folder, name, depth);
    if (!S_ISREG(info.st_mode)) return;
    const int64_t names = info.st_nlink < 1 ? 1 : info.st_nlink;
    bytes_.shared += info.st_size / names;
    bytes_.whole += info.st_size;
    if (names == 1) bytes_.own += info.st_size;
  }
  const TreeBytes& bytes() const { return bytes_; }

 private:
  void AddFolder(int parent, const char* name, int depth) {
    Descriptor opened(
        openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    const std::unique_ptr<DIR, int (*)(DIR*)> list(
        opened.get() < 0 || depth == kMaxCountedDepth ? nullptr
                                                      : fdopendir(opened.get()),
        closedir);
    if (list == nullptr) {
      bytes_.partial = true;
      return;
    }
    const int folder = opened.Release();  // the list's now
    while (const dirent* const entry = readdir(list.get())) {
      const std::string part = entry->d_name;
      if (part == "." || part == "..") continue;
      if (++names_ > kMaxCountedNames) {
        bytes_.partial = true;
        return;
      }
      Add(folder, part.c_str(), depth + 1);
    }
  }

  TreeBytes bytes_;
  size_t names_ = 0;
};

}  // namespace

TreeBytes& TreeBytes::operator+=(const TreeBytes& other) {
  shared += other.shared;
  whole += other.whole;
  own += other.own;
  partial = partial || other.partial;
  return *this;
}

TreeBytes CountTree(const std::string& path) {
  TreeCount count;
  count.Add(AT_FDCWD, path.c_str(), 0);
  return count.bytes();
}

}  // namespace roundhouse
