#include "server/observe/status_page.h"

#include <regex>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

std::string Page() { return std::string(StatusPageHtml()); }

int Count(const std::string& pattern) {
  const std::string page = Page();
  const std::regex regex(pattern);
  return static_cast<int>(
      std::distance(std::sregex_iterator(page.begin(), page.end(), regex),
                    std::sregex_iterator()));
}

TEST(StatusPageTest, IsOneWholeFile) {
  EXPECT_TRUE(absl::StartsWith(Page(), "<!doctype html>"));
  EXPECT_TRUE(absl::EndsWith(Page(), "</html>\n"));
  // The policy has one hash of each.
  EXPECT_EQ(Count("<script"), 1);
  EXPECT_EQ(Count("<style"), 1);
  EXPECT_EQ(Count(" style="), 0);
  EXPECT_EQ(Count(" on[a-z]+="), 0);
}

TEST(StatusPageTest, LoadsNothingFromElsewhere) {
  // The one name is SVG's.
  EXPECT_EQ(Count("//"), Count("\n *//|  //|\"http://www.w3.org/2000/svg\""));
  EXPECT_EQ(Count("https?:"), 1);
  EXPECT_EQ(Count("src=|@import|url\\("), 0);
}

TEST(StatusPageTest, NoTextBecomesMarkup) {
  EXPECT_EQ(Count("innerHTML|outerHTML|insertAdjacentHTML|document\\.write|"
                  "eval\\(|new Function|DOMParser"),
            0);
  const std::string& policy = StatusPagePolicy();
  for (const char* part :
       {"default-src 'none'", "script-src 'sha256-", "style-src 'sha256-",
        "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
        "form-action 'none'", "require-trusted-types-for 'script'"}) {
    EXPECT_TRUE(absl::StrContains(policy, part)) << part << "\n" << policy;
  }
  EXPECT_FALSE(absl::StrContains(policy, "unsafe"));
}

}  // namespace
}  // namespace roundhouse
