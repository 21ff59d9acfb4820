#include "client/flags.h"

#include <gtest/gtest.h>

namespace roundhouse::client {
namespace {

class FlagsTest : public testing::Test {
 protected:
  FlagsTest() {
    flags_.AddString("file", 'f', "FILE", &file_, "a file");
    flags_.AddBool("wait", 0, &wait_, "wait");
    flags_.AddInt("tail", 'n', "N", 0, &tail_, "lines");
  }
  std::string ErrorOf(const std::vector<std::string>& args) {
    const auto rest = flags_.Parse(args);
    EXPECT_EQ(rest.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(rest.status().message());
  }

  FlagSet flags_;
  std::string file_ = "default";
  bool wait_ = false;
  int64_t tail_ = 7;
};

using Strings = std::vector<std::string>;

TEST_F(FlagsTest, NothingGivenKeepsTheDefaults) {
  EXPECT_EQ(*flags_.Parse({}), Strings());
  EXPECT_EQ(file_, "default");
  EXPECT_FALSE(wait_);
  EXPECT_EQ(tail_, 7);
}

TEST_F(FlagsTest, EveryFormOfAValue) {
  for (const Strings& args :
       {Strings{"--file=x"}, Strings{"--file", "x"}, Strings{"-f", "x"},
        Strings{"-fx"}, Strings{"--file=y", "-f", "x"}}) {
    file_ = "";
    EXPECT_EQ(*flags_.Parse(args), Strings());
    EXPECT_EQ(file_, "x");
  }
  ASSERT_TRUE(flags_.Parse({"--file="}).ok());
  EXPECT_EQ(file_, "");
}

TEST_F(FlagsTest, MixesFlagsAndArguments) {
  EXPECT_EQ(*flags_.Parse({"a", "--wait", "b", "-n3", "-"}),
            (Strings{"a", "b", "-"}));
  EXPECT_TRUE(wait_);
  EXPECT_EQ(tail_, 3);
}

TEST_F(FlagsTest, TwoDashesEndTheFlags) {
  EXPECT_EQ(*flags_.Parse({"--", "--wait"}), Strings{"--wait"});
  EXPECT_FALSE(wait_);
}

TEST_F(FlagsTest, FlagsFirstLeavesTheRestAlone) {
  EXPECT_EQ(
      *flags_.Parse({"--wait", "get", "--bogus"}, FlagSet::Order::kFlagsFirst),
      (Strings{"get", "--bogus"}));
  EXPECT_TRUE(wait_);
}

TEST_F(FlagsTest, ErrorsNameTheFlag) {
  EXPECT_EQ(ErrorOf({"--fil=x"}), "unknown flag --fil; did you mean --file?");
  EXPECT_EQ(ErrorOf({"--bogus"}), "unknown flag --bogus");
  EXPECT_EQ(ErrorOf({"-x"}), "unknown flag -x");
  EXPECT_EQ(ErrorOf({"--file"}), "flag --file needs a value, FILE");
  EXPECT_EQ(ErrorOf({"--wait=yes"}), "flag --wait takes no value");
  EXPECT_EQ(ErrorOf({"--tail=-1"}),
            "flag --tail: \"-1\" is not a number from 0 on");
  EXPECT_EQ(ErrorOf({"-n", "1x"}), "flag -n: \"1x\" is not a number from 0 on");
}

TEST_F(FlagsTest, HelpAlignsTheTexts) {
  EXPECT_EQ(flags_.Help(),
            "  -f, --file=FILE  a file\n"
            "      --wait       wait\n"
            "  -n, --tail=N     lines\n");
}

TEST(FlagSetTest, AListTakesEveryValue) {
  FlagSet flags;
  std::vector<std::string> given;
  flags.AddStrings("prompt", 'p', "TEXT", &given, "what to say");
  const auto rest = flags.Parse({"--prompt", "a", "-pb", "x", "--prompt="});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(given, (std::vector<std::string>{"a", "b", ""}));
  EXPECT_EQ(*rest, (std::vector<std::string>{"x"}));
  EXPECT_FALSE(flags.Parse({"--prompt"}).ok());
}

}  // namespace
}  // namespace roundhouse::client
