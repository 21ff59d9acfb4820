#include "server/spec/spec_error.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(SpecErrorTest, FieldErrorWritesTheFieldItself) {
  const absl::Status status =
      FieldError(absl::StatusCode::kAlreadyExists, FieldReason::kInvalidValue,
                 "output", "/x: is there already");
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(status.message(), "output: /x: is there already");
  EXPECT_EQ(ErrorField(status), "output");
  EXPECT_EQ(ErrorReason(status), FieldReason::kInvalidValue);
  EXPECT_EQ(FieldError(FieldReason::kQuota, "", "too many").message(),
            "too many");
}

TEST(SpecErrorTest, RequestErrorKeepsItsMessage) {
  const absl::Status status =
      RequestError(FieldReason::kInvalidValue, "plan", "line 3: plan: is odd");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "line 3: plan: is odd");
  EXPECT_EQ(ErrorField(status), "plan");
}

TEST(SpecErrorTest, AStatusMayHaveNoReason) {
  EXPECT_EQ(ErrorReason(absl::NotFoundError("no")), FieldReason::kNone);
  const absl::Status none = FieldError(FieldReason::kNone, "", "what");
  EXPECT_EQ(ErrorReason(none), FieldReason::kNone);
  EXPECT_EQ(none, absl::InvalidArgumentError("what"));
}

// API clients compare them.
TEST(SpecErrorTest, EveryReasonHasANameOfItsOwn) {
  std::set<std::string> names;
  const int last = static_cast<int>(FieldReason::kInternal);
  for (int i = 1; i <= last; ++i) {
    const auto reason = static_cast<FieldReason>(i);
    names.insert(FieldReasonName(reason));
    EXPECT_EQ(ErrorReason(FieldError(reason, "", "")), reason);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(last));
  EXPECT_STREQ(FieldReasonName(FieldReason::kNone), "");
  EXPECT_STREQ(FieldReasonName(FieldReason::kUnknownField), "UNKNOWN_FIELD");
  EXPECT_STREQ(FieldReasonName(FieldReason::kOtherToolsField),
               "OTHER_TOOLS_FIELD");
  EXPECT_STREQ(FieldReasonName(FieldReason::kRequestIdReused),
               "REQUEST_ID_REUSED");
  EXPECT_STREQ(FieldReasonName(FieldReason::kUnauthenticated),
               "UNAUTHENTICATED");
  EXPECT_STREQ(FieldReasonName(FieldReason::kPathOutsideDataRoots),
               "PATH_OUTSIDE_DATA_ROOTS");
  EXPECT_STREQ(FieldReasonName(FieldReason::kInternal), "INTERNAL");
}

}  // namespace
}  // namespace roundhouse
