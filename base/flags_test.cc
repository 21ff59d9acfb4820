#include "base/flags.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
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

TEST_F(FlagsTest, ErrorsNameTheFlagAsItWasGiven) {
  EXPECT_EQ(ErrorOf({"-n"}), "flag -n needs a value, N");
  EXPECT_EQ(ErrorOf({"-n", "1", "--tail"}), "flag --tail needs a value, N");
  EXPECT_EQ(ErrorOf({"-n5", "--tail=x"}),
            "flag --tail: \"x\" is not a number from 0 on");
  EXPECT_EQ(ErrorOf({"--wait="}), "flag --wait takes no value");
  EXPECT_EQ(ErrorOf({"--wait=true"}), "flag --wait takes no value");
  EXPECT_EQ(ErrorOf({"--wait={}"}), "flag --wait takes no value");
  EXPECT_EQ(ErrorOf({"--=x"}), "unknown flag --");
  EXPECT_EQ(ErrorOf({"---wait"}), "unknown flag ---wait; did you mean --wait?");
  EXPECT_EQ(ErrorOf({"-5"}), "unknown flag -5");
}

// One dash before a word is letters, whatever the word is.
TEST_F(FlagsTest, AWordBehindOneDashIsNamed) {
  EXPECT_EQ(ErrorOf({"-wait"}),
            "unknown flag -w in -wait; did you mean --wait?");
  EXPECT_EQ(ErrorOf({"-wiat=3"}),
            "unknown flag -w in -wiat; did you mean --wait?");
  EXPECT_EQ(ErrorOf({"-15"}), "unknown flag -1 in -15");
}

TEST_F(FlagsTest, LettersMayShareADash) {
  bool quiet = false;
  flags_.AddBool("quiet", 'q', &quiet, "say nothing");
  EXPECT_EQ(*flags_.Parse({"-qn3", "-qf", "x"}), Strings());
  EXPECT_TRUE(quiet);
  EXPECT_EQ(tail_, 3);
  EXPECT_EQ(file_, "x");
  EXPECT_EQ(ErrorOf({"-qf"}), "flag -f needs a value, FILE");
  EXPECT_EQ(ErrorOf({"-quiet"}),
            "unknown flag -u in -quiet; did you mean --quiet?");
}

// What CLI11 by itself would split, evaluate or read as the next flag.
TEST_F(FlagsTest, AValueIsTakenAsItIs) {
  const std::string values[] = {
      "",     " ",    "[a,b]",        "{}",
      "a,b",  "--",   "--wait",       "--file=",
      "-n",   "true", "line\nline",   "\"quoted\"",
      "a=b=", "%%",   "++",           "\\n",
      "=",    "#",    "\xff\x1b[31m", std::string(100'000, 'x')};
  for (const std::string& value : values) {
    for (const Strings& args :
         {Strings{"--file", value}, Strings{"--file=" + value},
          Strings{"-f", value},
          Strings{value.empty() ? "--file=" : "-f" + value},
          Strings{"a", "--file=" + value, "b"}}) {
      file_ = "default";
      const auto rest = flags_.Parse(args);
      ASSERT_TRUE(rest.ok()) << rest.status();
      EXPECT_EQ(file_, value);
      EXPECT_EQ(rest->size(), args.size() == 3 ? 2u : 0u);
      EXPECT_FALSE(wait_);
    }
  }
}

TEST_F(FlagsTest, AnEmptyValueLeavesTheNextWordAlone) {
  EXPECT_EQ(*flags_.Parse({"--file=", "job", "--wait"}), Strings{"job"});
  EXPECT_EQ(file_, "");
  EXPECT_TRUE(wait_);
  EXPECT_EQ(ErrorOf({"--tail=", "5"}),
            "flag --tail: \"\" is not a number from 0 on");
}

TEST_F(FlagsTest, ArgumentsAreTakenAsTheyAre) {
  EXPECT_EQ(
      *flags_.Parse({"", "[a,b]", "++", "a=", "--", "--file=", "--", "-x"}),
      (Strings{"", "[a,b]", "++", "a=", "--file=", "--", "-x"}));
  EXPECT_EQ(file_, "default");
  EXPECT_EQ(
      *flags_.Parse({"get", "--", "--wait="}, FlagSet::Order::kFlagsFirst),
      (Strings{"get", "--", "--wait="}));
  EXPECT_EQ(*flags_.Parse({"--", "get", "--x"}, FlagSet::Order::kFlagsFirst),
            (Strings{"get", "--x"}));
}

TEST_F(FlagsTest, NumbersAreDecimal) {
  ASSERT_TRUE(flags_.Parse({"--tail=010"}).ok());
  EXPECT_EQ(tail_, 10);
  ASSERT_TRUE(flags_.Parse({"--tail=9223372036854775807"}).ok());
  EXPECT_EQ(tail_, INT64_MAX);
  for (const char* wrong :
       {"0x10", "1.5", "1e3", "9223372036854775808", "-9223372036854775809",
        "true", "", "5 6", "\xd9\xa5"}) {
    EXPECT_EQ(ErrorOf({"--tail", wrong}), std::string("flag --tail: \"") +
                                              wrong +
                                              "\" is not a number from 0 on");
  }
}

TEST_F(FlagsTest, TheLastValueCountsAndAllAreChecked) {
  ASSERT_TRUE(flags_.Parse({"--tail=1", "-n2", "--wait", "--wait"}).ok());
  EXPECT_EQ(tail_, 2);
  EXPECT_EQ(ErrorOf({"--tail=x", "--tail=2"}),
            "flag --tail: \"x\" is not a number from 0 on");
}

TEST_F(FlagsTest, AMessageIsOneShortLine) {
  EXPECT_EQ(ErrorOf({"--tail=1\n2\x1b[31m"}),
            "flag --tail: \"1\\n2\\x1b[31m\" is not a number from 0 on");
  EXPECT_EQ(ErrorOf({"--bo\ngus"}), "unknown flag --bo\\ngus");
  for (const std::string& word :
       {"--tail=" + std::string(100'000, '7'), std::string(100'000, '-'),
        "--" + std::string(100'000, 'y'), "-" + std::string(100'000, 'z')}) {
    EXPECT_LT(ErrorOf({word}).size(), 200u);
  }
}

TEST(FlagSetTest, AFlagThatMayBeGivenOnce) {
  FlagSet flags;
  std::optional<std::string> memory;
  std::optional<std::string> other;
  flags.AddOnce("host-memory-limit", "BYTES", &memory, "how much");
  flags.AddOnce("other", "FILE", &other, "a file");
  for (const char* name :
       {"--host-memory-limit", "--host_memory_limit", "--host-memory_limit"}) {
    memory.reset();
    const auto rest = flags.Parse({name, "8GiB"});
    ASSERT_TRUE(rest.ok()) << rest.status();
    EXPECT_EQ(memory, "8GiB");
    EXPECT_FALSE(other.has_value());
  }
  ASSERT_TRUE(flags.Parse({"--other="}).ok());
  EXPECT_EQ(other, "");
  EXPECT_EQ(flags.Parse({"--host_memory_limit=1", "--host-memory-limit=1"})
                .status()
                .message(),
            "flag --host-memory-limit is given twice; keep one of them");
  EXPECT_EQ(flags.Parse({"--host_memory_limit"}).status().message(),
            "flag --host_memory_limit needs a value, BYTES");
  EXPECT_EQ(flags.Parse({"--host_memory_limt=1"}).status().message(),
            "unknown flag --host_memory_limt; did you mean "
            "--host-memory-limit?");
  EXPECT_EQ(flags.Help(),
            "  --host-memory-limit=BYTES  how much\n"
            "  --other=FILE               a file\n");
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
}  // namespace roundhouse
