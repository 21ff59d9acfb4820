#include "server/api/system/device_convert.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/visible_text.h"
#include "server/api/convert.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr int kMostIndex = 9999;
// 9999-12-31, the last day that a Timestamp has.
constexpr int64_t kLastSecond = 253402300799;

absl::Status Invalid(const std::string& field, const std::string& what) {
  return FieldError(FieldReason::kInvalidValue, field, what);
}

}  // namespace

absl::StatusOr<int> DeviceNamed(const std::string& name) {
  int index = 0;
  const absl::string_view number = absl::StripPrefix(name, "devices/");
  if (absl::SimpleAtoi(number, &index) && index >= 0 && index <= kMostIndex) {
    return index;
  }
  return Invalid("name", absl::StrCat("\"", VisibleLine(name.substr(0, 80)),
                                      "\" is no device; devices are named "
                                      "devices/0, devices/1, ..."));
}

absl::StatusOr<absl::Time> EndOf(const v1::LendDeviceRequest& request,
                                 absl::Time now) {
  if (request.has_until_time() && request.has_duration()) {
    return Invalid("until_time", "duration says it already; give one of them");
  }
  if (request.has_duration()) {
    const int64_t seconds = request.duration().seconds();
    if (seconds <= 0 || seconds > kLastSecond - absl::ToUnixSeconds(now)) {
      return Invalid("duration", "must be from a second to the year 9999");
    }
    return now + absl::Seconds(seconds);
  }
  if (!request.has_until_time()) return absl::InfiniteFuture();
  const int64_t seconds = request.until_time().seconds();
  if (seconds < 0 || seconds > kLastSecond) {
    return Invalid("until_time", "is no time between 1970 and 9999");
  }
  return absl::FromUnixSeconds(seconds);
}

void SetLoan(const std::optional<DeviceLoan>& loan, v1::Device* device) {
  const bool out = device->state() == v1::FENCED;
  if (!loan.has_value()) {
    if (out) device->set_state(v1::STARTING);  // its worker is to start
    return;
  }
  v1::DeviceLoan* const shown = device->mutable_loan();
  shown->set_owner(loan->owner);
  shown->set_note(loan->note);
  *shown->mutable_since_time() = ToProto(loan->since);
  if (loan->until != absl::InfiniteFuture()) {
    *shown->mutable_until_time() = ToProto(loan->until);
  }
  if (loan->kind == DeviceLoan::Kind::kYielded) {
    shown->mutable_process()->set_pid(loan->process.pid);
    shown->mutable_process()->set_command(loan->process.name);
  }
  if (!out) {
    device->set_state(v1::LEAVING);
  } else if (loan->kind == DeviceLoan::Kind::kLent) {
    device->set_state(v1::LENT);
  } else if (loan->kind == DeviceLoan::Kind::kYielded) {
    device->set_state(v1::YIELDED);
  }
}

}  // namespace roundhouse
