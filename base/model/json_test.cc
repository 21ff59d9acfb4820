#include "base/model/json.h"

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(QuoteForErrorTest, TextOfPeopleIsKept) {
  EXPECT_EQ(QuoteForError("it's \xc3\xbc"), "'it's \xc3\xbc'");
  EXPECT_EQ(QuoteForError("a\nb\x1b\xff"), "'a\\nb\\x1b\\xff'");
}

TEST(QuoteForErrorTest, NoCharacterIsCut) {
  const std::string text = std::string(159, 'a') + "\xc3\xbc";
  EXPECT_EQ(QuoteForError(text), "'" + std::string(159, 'a') + "...'");
}

TEST(CheckJsonTest, AKeyIsShownAsItIs) {
  const absl::Status status =
      CheckJson("{\"\xc3\xbc\": 1, \"\xc3\xbc\": 2}", "f",
                {.max_bytes = 100, .max_depth = 4, .max_keys = 4});
  EXPECT_EQ(status,
            absl::InvalidArgumentError("f: key '\xc3\xbc' appears twice"));
}

}  // namespace
}  // namespace roundhouse
