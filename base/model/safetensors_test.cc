#include "base/model/safetensors.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr char kTwo[] =
    R"({"__metadata__":{"format":"pt","who":"me"},)"
    R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("a":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

uint64_t FileSize(const std::string& json, uint64_t data_bytes) {
  return 8 + json.size() + data_bytes;
}

void ExpectRefused(const std::string& json, uint64_t data_bytes,
                   const std::string& text) {
  const absl::Status status =
      ParseSafetensorsHeader(json, FileSize(json, data_bytes), "w.safetensors")
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
  EXPECT_TRUE(absl::StartsWith(status.message(), "w.safetensors: ")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
}

// One tensor 'a' with these three values.
std::string One(const std::string& dtype, const std::string& shape,
                const std::string& offsets) {
  return absl::StrCat(R"({"a":{"dtype":)", dtype, R"(,"shape":)", shape,
                      R"(,"data_offsets":)", offsets, "}}");
}

TEST(SafetensorsTest, OffsetsAreAbsolute) {
  const std::string json = kTwo;
  const auto header = ParseSafetensorsHeader(json, FileSize(json, 32), "w");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->data_begin, 8 + json.size());
  ASSERT_EQ(header->tensors.size(), 2u);
  const SafetensorsTensor& b = header->tensors.at("b");
  EXPECT_EQ(b.dtype, FileDType::kF32);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b.begin, 8 + json.size());
  EXPECT_EQ(b.end, 8 + json.size() + 24);
  EXPECT_EQ(header->tensors.at("a").begin, b.end);
  EXPECT_EQ(header->metadata.at("who"), "me");
}

TEST(SafetensorsTest, EveryDTypeRoundTrips) {
  const char* names[] = {"BOOL", "U8",  "I8",  "F8_E4M3", "F8_E5M2", "F8_E8M0",
                         "U16",  "I16", "F16", "BF16",    "U32",     "I32",
                         "F32",  "U64", "I64", "F64"};
  for (const char* name : names) {
    const auto dtype = FindFileDType(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_STREQ(FileDTypeName(*dtype), name);
    const auto prefix = BuildSafetensorsHeader({{"a", *dtype, {3, 5}}});
    ASSERT_TRUE(prefix.ok());
    EXPECT_EQ(prefix->file_size,
              prefix->bytes.size() + 15 * FileDTypeBytes(*dtype));
    const auto again = ParseSafetensorsHeader(prefix->bytes.substr(8),
                                              prefix->file_size, name);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->tensors.at("a").dtype, *dtype);
  }
  EXPECT_FALSE(FindFileDType("F4").has_value());
  EXPECT_FALSE(ToDType(FileDType::kF64).has_value());
  EXPECT_EQ(ToDType(FileDType::kBF16), DType::kBF16);
}

TEST(SafetensorsTest, ScalarsAndEmptyTensors) {
  const std::string json = One("\"F32\"", "[]", "[0,4]");
  EXPECT_TRUE(ParseSafetensorsHeader(json, FileSize(json, 4), "w").ok());
  const std::string empty = One("\"F32\"", "[0,9223372036854775807]", "[0,0]");
  EXPECT_TRUE(ParseSafetensorsHeader(empty, FileSize(empty, 0), "w").ok());
  EXPECT_TRUE(ParseSafetensorsHeader("{}", 10, "w").ok());
}

TEST(SafetensorsTest, HolesAndOverlaps) {
  ExpectRefused(One("\"F32\"", "[1]", "[4,8]"), 8,
                "tensor 'a': hole before it: begins at data byte 4, 0");
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                12, "tensor 'b': overlaps another: begins at data byte 4, 8");
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                8, "overlaps another");
}

TEST(SafetensorsTest, SizesMustMatch) {
  ExpectRefused(One("\"F32\"", "[2,3]", "[0,20]"), 20,
                "F32 [2, 3] takes 24 bytes, data_offsets give 20");
  ExpectRefused(One("\"F32\"", "[2]", "[8,0]"), 8, "run backwards: 8, 0");
  ExpectRefused(One("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0,
                "is too large");
  ExpectRefused(One("\"U8\"", "[9223372036854775808]", "[0,0]"), 0,
                "9223372036854775808 is too large");
}

TEST(SafetensorsTest, FileLengthIsExact) {
  const std::string json = kTwo;
  const uint64_t whole = FileSize(json, 32);
  ExpectRefused(json, 31,
                absl::StrCat("truncated: ", whole - 1, " bytes found, ", whole,
                             " expected"));
  ExpectRefused(json, 33,
                absl::StrCat("bytes after the data: ", whole + 1,
                             " bytes found, ", whole, " expected"));
}

TEST(SafetensorsTest, DuplicateKeys) {
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                0, "tensor 'a': appears twice");
  ExpectRefused(R"({"__metadata__":{},"__metadata__":{}})", 0, "appears twice");
  ExpectRefused(R"({"__metadata__":{"k":"1","k":"2"}})", 0, "'k' twice");
  ExpectRefused(R"({"a":{"dtype":"U8","dtype":"U8"}})", 0, "dtype twice");
}

TEST(SafetensorsTest, MalformedHeaders) {
  ExpectRefused("", 0, "does not begin with '{'");
  ExpectRefused(" {}", 0, "does not begin with '{'");
  ExpectRefused("{\"a\":", 0, "byte ");
  ExpectRefused("{} x", 0, "parse error");
  ExpectRefused("{\"a\":3}", 0, "tensor 'a': unexpected number 3");
  ExpectRefused("{\"a\":{}}", 0, "tensor 'a': dtype is missing");
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[0]}})", 0,
                "data_offsets is missing");
  ExpectRefused(R"({"a":{"device":1}})", 0, "unknown field 'device'");
  ExpectRefused(R"({"__metadata__":{"k":1}})", 0, "unexpected number 1");
  ExpectRefused(One("\"F4\"", "[1]", "[0,1]"), 1, "unknown dtype 'F4'");
  ExpectRefused(One("7", "[1]", "[0,1]"), 1, "unexpected number 7");
  ExpectRefused(One("\"U8\"", "[-1]", "[0,1]"), 1, "unexpected number -1");
  ExpectRefused(One("\"U8\"", "[1.0]", "[0,1]"), 1, "unexpected number 1.0");
  ExpectRefused(One("\"U8\"", "[[1]]", "[0,1]"), 1, "unexpected a list");
  ExpectRefused(One("\"U8\"", "{}", "[0,1]"), 1, "unexpected an object");
  ExpectRefused(One("\"U8\"", "[1]", "[0]"), 1, "has 1 numbers, 2 expected");
  ExpectRefused(One("\"U8\"", "[1]", "[0,1,2]"), 1, "over 2 numbers");
  ExpectRefused(One("\"U8\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"),
                1, "more than 16 dimensions");
}

TEST(SafetensorsTest, BuiltHeaderKeepsOrderAndPadding) {
  const auto prefix = BuildSafetensorsHeader({{"z", FileDType::kF32, {2, 2}},
                                              {"a\"\n", FileDType::kBF16, {3}},
                                              {"s", FileDType::kBF16, {}}},
                                             {{"step", "7"}});
  ASSERT_TRUE(prefix.ok()) << prefix.status();
  const uint64_t begin = prefix->bytes.size();
  EXPECT_EQ(begin % 8, 0u);
  EXPECT_EQ(prefix->offsets,
            (std::vector<uint64_t>{begin, begin + 16, begin + 22}));
  EXPECT_EQ(prefix->file_size, begin + 24);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = length << 8 | static_cast<unsigned char>(prefix->bytes[i]);
  }
  EXPECT_EQ(length, begin - 8);
  const auto header =
      ParseSafetensorsHeader(prefix->bytes.substr(8), prefix->file_size, "w");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->metadata.at("step"), "7");
  EXPECT_EQ(header->tensors.at("a\"\n").begin, begin + 16);
}

TEST(SafetensorsTest, WhatCannotBeWritten) {
  const auto refused = [](const std::vector<SafetensorsEntry>& entries) {
    return BuildSafetensorsHeader(entries).status();
  };
  const FileDType f32 = FileDType::kF32;
  EXPECT_TRUE(absl::StrContains(
      refused({{"a", f32, {1}}, {"a", f32, {1}}}).message(), "'a'"));
  EXPECT_FALSE(refused({{"__metadata__", f32, {1}}}).ok());
  EXPECT_FALSE(refused({{"a", f32, {-1}}}).ok());
  EXPECT_FALSE(refused({{"a\xff", f32, {1}}}).ok());
  EXPECT_FALSE(
      refused({{"a", f32, {int64_t{1} << 60}}, {"b", f32, {int64_t{1} << 60}}})
          .ok());
  EXPECT_FALSE(BuildSafetensorsHeader({}, {{"k", "\xff"}}).ok());
}

class SafetensorsFileTest : public testing::Test {
 protected:
  std::string Write(const std::string& bytes) {
    const std::string path = absl::StrCat(
        testing::TempDir(), "/",
        testing::UnitTest::GetInstance()->current_test_info()->name(),
        ".safetensors");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  void ExpectRefused(const std::string& bytes, const std::string& text) {
    const std::string path = Write(bytes);
    const absl::Status status =
        ReadSafetensorsHeader(AnyFiles(), path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }
};

TEST_F(SafetensorsFileTest, ReadsWhatWasBuilt) {
  const auto prefix = BuildSafetensorsHeader({{"w", FileDType::kF16, {5}}});
  ASSERT_TRUE(prefix.ok());
  const auto header = ReadSafetensorsHeader(
      AnyFiles(), Write(prefix->bytes + std::string(10, 'x')));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->tensors.at("w").begin, prefix->offsets[0]);
  EXPECT_EQ(header->file_size, prefix->file_size);
}

TEST_F(SafetensorsFileTest, TruncatedAnywhereIsNamed) {
  const auto prefix = BuildSafetensorsHeader({{"w", FileDType::kF16, {5}}});
  ASSERT_TRUE(prefix.ok());
  const std::string whole = prefix->bytes + std::string(10, 'x');
  for (size_t size = 0; size < whole.size(); ++size) {
    ExpectRefused(whole.substr(0, size),
                  absl::StrCat("truncated: ", size, " bytes found"));
  }
  ExpectRefused(whole + "x", "bytes after the data");
}

TEST_F(SafetensorsFileTest, HeaderLengthIsBounded) {
  // 100,000,001 bytes promised.
  ExpectRefused(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10),
                "header of 100000001 bytes, at most 100000000");
  ExpectRefused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
                "header of 18446744073709551615 bytes");
}

TEST_F(SafetensorsFileTest, NoFile) {
  EXPECT_TRUE(absl::IsNotFound(
      ReadSafetensorsHeader(AnyFiles(), testing::TempDir() + "/absent")
          .status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadSafetensorsHeader(AnyFiles(), testing::TempDir()).status()));
}

}  // namespace
}  // namespace roundhouse
