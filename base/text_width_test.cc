#include "base/text_width.h"

#include <gtest/gtest.h>

namespace roundhouse {
namespace {

constexpr char kIdeographs[] = "\xe6\xbc\xa2\xe5\xad\x97";  // U+6F22, U+5B57
constexpr char kAccent[] = "e\xcc\x81";                     // e, U+0301
constexpr char kFace[] = "\xf0\x9f\x98\x80";                // U+1F600

TEST(TextWidthTest, ColumnsAreNeitherBytesNorCharacters) {
  EXPECT_EQ(TextWidth(""), 0u);
  EXPECT_EQ(TextWidth("abc"), 3u);
  EXPECT_EQ(TextWidth("\xc3\xa9t\xc3\xa9"), 3u);
  EXPECT_EQ(TextWidth(kIdeographs), 4u);
  EXPECT_EQ(TextWidth(kAccent), 1u);
  EXPECT_EQ(TextWidth(kFace), 2u);
}

TEST(TextWidthTest, ABeginningHasWholeCharacters) {
  const std::string text = std::string("a") + kIdeographs + "b";
  EXPECT_EQ(FitWidth(text, 0), "");
  EXPECT_EQ(FitWidth(text, 2), "a");
  EXPECT_EQ(FitWidth(text, 3), text.substr(0, 4));
  EXPECT_EQ(FitWidth(text, 6), text);
  EXPECT_EQ(FitWidth(text, 100), text);
  // A mark stays with its letter.
  EXPECT_EQ(FitWidth(kAccent, 1), kAccent);
}

TEST(TextWidthTest, Pads) {
  EXPECT_EQ(PadWidth("ab", 4), "ab  ");
  EXPECT_EQ(PadWidth(kIdeographs, 5), std::string(kIdeographs) + " ");
  EXPECT_EQ(PadWidth("abc", 2), "abc");
}

TEST(TextWidthTest, WrapsBetweenWords) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(WrapText("", 10), Lines{""});
  EXPECT_EQ(WrapText("one two\nthree", 9), (Lines{"one two", "three"}));
  EXPECT_EQ(WrapText("Two.  Sentences.", 20), Lines{"Two.  Sentences."});
  EXPECT_EQ(WrapText("Two.  Sentences.", 10), (Lines{"Two.", "Sentences."}));
  EXPECT_EQ(WrapText("a longword b", 4), (Lines{"a", "longword", "b"}));
}

// What is not UTF-8 ends no loop and reads nothing behind the end.
TEST(TextWidthTest, OtherBytes) {
  EXPECT_EQ(TextWidth("\xff\xe6\xbc"), 6u);
  EXPECT_EQ(FitWidth("\xe6", 1), "");
}

}  // namespace
}  // namespace roundhouse
