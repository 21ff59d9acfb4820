#include "base/model/safetensors_index.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

void ExpectRefused(const std::string& json, const std::string& text) {
  const absl::Status status = ParseSafetensorsIndex(json, "i.json").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
  EXPECT_TRUE(absl::StartsWith(status.message(), "i.json: ")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
}

TEST(SafetensorsIndexTest, RoundTrip) {
  const std::map<std::string, std::string> files = {{"a", ShardFileName(0, 2)},
                                                    {"b", ShardFileName(1, 2)}};
  EXPECT_EQ(files.at("b"), "model-00002-of-00002.safetensors");
  const std::string json = SafetensorsIndexJson(files, 123);
  EXPECT_TRUE(absl::StrContains(json, "\"total_size\": 123"));
  const auto again = ParseSafetensorsIndex(json, "i.json");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, files);
}

TEST(SafetensorsIndexTest, FilesOutsideTheDirectory) {
  for (const char* file :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors",
        "..\\u002fx.safetensors", "x\\u0000/y.safetensors"}) {
    ExpectRefused(absl::StrCat(R"({"weight_map":{"t":")", file, "\"}}"),
                  "is not a file of this directory");
  }
  for (const char* file : {"..", ".", "", "passwd"}) {
    ExpectRefused(absl::StrCat(R"({"weight_map":{"t":")", file, "\"}}"),
                  "is no .safetensors file");
  }
}

TEST(SafetensorsIndexTest, Malformed) {
  ExpectRefused("[]", "weight_map");
  ExpectRefused("3", "weight_map");
  ExpectRefused("{}", "weight_map");
  ExpectRefused(R"({"weight_map":{}})", "weight_map");
  ExpectRefused(R"({"weight_map":{"t":3}})", "'t': expected a file name");
  ExpectRefused(R"({"weight_map":{"t":"a.safetensors","t":"b.safetensors"}})",
                "'t' appears twice");
  ExpectRefused("{", "line 1");
}

}  // namespace
}  // namespace roundhouse
