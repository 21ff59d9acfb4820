// A place for a job store that is empty when a test begins.
#ifndef ROUNDHOUSE_SERVER_TESTING_FRESH_STORE_H_
#define ROUNDHOUSE_SERVER_TESTING_FRESH_STORE_H_

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {

// The running test's own; what an earlier run left there is gone.
inline std::string FreshStorePath() {
  const testing::TestInfo& test =
      *testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = absl::StrCat(
      testing::TempDir(), "/", test.test_suite_name(), "_", test.name(), ".db");
  for (const char* end : {"", "-wal", "-shm", ".backup"}) {
    std::filesystem::remove(path + end);
  }
  std::filesystem::remove(
      std::filesystem::path(path).replace_extension(".mark"));
  return path;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_TESTING_FRESH_STORE_H_
