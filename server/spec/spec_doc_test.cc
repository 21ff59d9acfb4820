// docs/job-spec.md has the vocabulary of job files, row by row.
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "server/spec/spec.h"

namespace roundhouse {
namespace {

std::string FieldRow(const SpecField& f) {
  std::vector<std::string> aliases;
  for (const std::string& a : f.aliases) {
    aliases.push_back(absl::StrCat("`", a, "`"));
  }
  return absl::StrCat(
      "| `", f.name, "` | ", f.type, " | ", f.unit, " | ", f.default_text,
      " | ", aliases.empty() ? "-" : absl::StrJoin(aliases, ", "), " |");
}

TEST(SpecDocTest, TheTableIsTheVocabularyRowByRow) {
  std::ifstream file("docs/job-spec.md");
  std::stringstream text;
  text << file.rdbuf();
  std::vector<std::string> rows;
  for (absl::string_view line : absl::StrSplit(text.str(), '\n')) {
    if (absl::StartsWith(line, "| `")) rows.push_back(std::string(line));
  }
  const auto& fields = JobSpecVocabulary();
  ASSERT_EQ(rows.size(), fields.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(absl::StartsWith(rows[i], FieldRow(fields[i])))
        << rows[i] << "\n"
        << FieldRow(fields[i]);
    EXPECT_GT(rows[i].size(), FieldRow(fields[i]).size() + 5) << "no meaning";
  }
}

TEST(SpecDocTest, NoNameOrAliasIsThereTwice) {
  std::set<std::string> names;
  for (const SpecField& field : JobSpecVocabulary()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    for (const std::string& alias : field.aliases) {
      EXPECT_TRUE(names.insert(alias).second) << alias;
    }
  }
}

}  // namespace
}  // namespace roundhouse
