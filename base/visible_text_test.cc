#include "base/visible_text.h"

#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// What a member may name a file: a cleared screen, a title, a forged line.
constexpr char kHostileName[] =
    "data\x1b[2J\x1b]0;owned\a\r\n"
    "I 2026-01-01T00:00:00.000Z roundhoused all well.jsonl";

TEST(VisibleTextTest, PrintableTextIsKept) {
  for (const char* text :
       {"", "a b\n\tc", "\xc3\xa4 \xe6\x97\xa5 \xf0\x9f\x9a\x82", "\xc2\xa0",
        "[[x]]", "a\\nb"}) {
    EXPECT_EQ(VisibleText(text), text);
  }
}

TEST(VisibleTextTest, ControlCharactersAreSpelledOut) {
  EXPECT_EQ(VisibleText("a\x1b[31mb\r\x7f\a"), "a\\x1b[31mb\\x0d\\x7f\\x07");
  EXPECT_EQ(VisibleText(std::string("a\0b", 3)), "a\\x00b");
  // CSI and NEL as one character each.
  EXPECT_EQ(VisibleText("\xc2\x9b\xc2\x85"), "\\u009b\\u0085");
}

TEST(VisibleTextTest, WhatTurnsTheDirectionIsSpelledOut) {
  EXPECT_EQ(VisibleText("\xe2\x80\xae\xe2\x81\xa6\xd8\x9c\xe2\x80\xa8"),
            "\\u202e\\u2066\\u061c\\u2028");
}

TEST(VisibleTextTest, BytesThatAreNotUtf8AreSpelledOut) {
  EXPECT_EQ(VisibleText("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(VisibleText("\xc3("), "\\xc3(");
  EXPECT_EQ(VisibleText("\x9b"), "\\x9b");
  // ESC in two bytes, a surrogate, and a code beyond the last.
  EXPECT_EQ(VisibleText("\xc0\x9b"), "\\xc0\\x9b");
  EXPECT_EQ(VisibleText("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(VisibleText("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(VisibleTextTest, ValidUtf8KeepsEverythingElse) {
  EXPECT_EQ(ValidUtf8("a\x1b\n\xe2\x80\xae\xc3\xa4"),
            "a\x1b\n\xe2\x80\xae\xc3\xa4");
  EXPECT_EQ(ValidUtf8("a\xff\xc3"), "a\\xff\\xc3");
  EXPECT_EQ(ValidUtf8("\xed\xa0\x80"), "\\xed\\xa0\\x80");
}

TEST(VisibleTextTest, ALineStaysOne) {
  EXPECT_EQ(VisibleLine(kHostileName),
            "data\\x1b[2J\\x1b]0;owned\\x07\\x0d\\n"
            "I 2026-01-01T00:00:00.000Z roundhoused all well.jsonl");
  EXPECT_EQ(VisibleLine("a\tb\xe2\x80\xa8"
                        "c"),
            "a\\tb\\u2028c");
}

TEST(VisibleTextTest, TwiceChangesNothing) {
  const std::string once = VisibleLine(kHostileName);
  EXPECT_EQ(VisibleLine(once), once);
  EXPECT_EQ(VisibleText(once), once);
}

TEST(VisibleTextTest, EveryByteAloneIsHarmless) {
  for (int byte = 0; byte < 256; ++byte) {
    for (const char c : VisibleLine(std::string(1, static_cast<char>(byte)))) {
      EXPECT_GE(c, 0x20) << byte;
      EXPECT_LT(c, 0x7f) << byte;
    }
  }
}

TEST(VisibleTextTest, JsonStaysJson) {
  EXPECT_EQ(VisibleJson("{\n  \"a\": \"\x7f\xc2\x9b\xe2\x80\xae\xc3\xa4\"\n}"),
            "{\n  \"a\": \"\\u007f\\u009b\\u202e\xc3\xa4\"\n}");
}

TEST(VisibleTextTest, PiecesAreCutBetweenCharacters) {
  const std::string train = "\xf0\x9f\x9a\x82";
  EXPECT_EQ(UnfinishedBytes(""), 0u);
  EXPECT_EQ(UnfinishedBytes("ab"), 0u);
  EXPECT_EQ(UnfinishedBytes("a" + train), 0u);
  for (size_t bytes = 1; bytes < train.size(); ++bytes) {
    EXPECT_EQ(UnfinishedBytes("a" + train.substr(0, bytes)), bytes);
    EXPECT_EQ(UnfinishedBytes(train.substr(0, bytes)), bytes);
  }
  EXPECT_EQ(UnfinishedBytes("\xc3\xa4\xc3"), 1u);
  // These never become one.
  EXPECT_EQ(UnfinishedBytes("\x80\x80\x80\x80"), 0u);
  EXPECT_EQ(UnfinishedBytes("\xff"), 0u);
}

}  // namespace
}  // namespace roundhouse
