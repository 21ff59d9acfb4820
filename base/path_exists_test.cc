#include "base/path_exists.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(PathExistsTest, FilesFoldersAndWhatIsNot) {
  const std::string folder = testing::TempDir() + "/path_exists";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/file") << "x";
  std::filesystem::create_symlink("file", folder + "/link");
  std::filesystem::create_symlink("loop", folder + "/loop");
  EXPECT_TRUE(PathExists(folder) && IsDirectory(folder));
  for (const char* name : {"/file", "/link"}) {
    EXPECT_TRUE(PathExists(folder + name));
    EXPECT_FALSE(IsDirectory(folder + name));
  }
  // std::filesystem::exists throws at the last three.
  for (const std::string& path :
       {folder + "/none", folder + "/loop", folder + "/loop/file",
        folder + "/" + std::string(300, 'x')}) {
    EXPECT_FALSE(PathExists(path) || IsDirectory(path)) << path;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace roundhouse
