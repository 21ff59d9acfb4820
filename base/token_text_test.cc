#include "base/token_text.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(TokenTextTest, EachIsAnotherAndIsOne) {
  std::set<std::string> texts;
  for (int i = 0; i < 100; ++i) {
    const std::string text = MakeTokenText();
    EXPECT_EQ(text.size(), kTokenTextBytes);
    EXPECT_EQ(text.substr(0, 3), "rh_");
    EXPECT_TRUE(IsTokenText(text)) << text;
    EXPECT_TRUE(texts.insert(text).second);
  }
}

TEST(TokenTextTest, AnyOtherCharacterIsFound) {
  const std::string text = MakeTokenText();
  for (size_t at = 0; at < text.size(); ++at) {
    for (const char c : {'A', 'b', '7', '-', '_', '=', ' ', '\0'}) {
      std::string other = text;
      if (other[at] == c) continue;
      other[at] = c;
      EXPECT_FALSE(IsTokenText(other)) << at << " " << c;
    }
  }
}

TEST(TokenTextTest, WhatIsNone) {
  const std::string text = MakeTokenText();
  for (const std::string& bad :
       {std::string(), std::string("rh_"), text + "A", text.substr(1),
        text.substr(0, text.size() - 1), " " + text, text + "\n"}) {
    EXPECT_FALSE(IsTokenText(bad)) << bad;
  }
}

TEST(TokenTextTest, ItsHashIsTheTexts) {
  EXPECT_EQ(HashOfToken("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace roundhouse
