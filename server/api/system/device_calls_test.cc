// Calls that take devices out of use and back, over a socket.
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"
#include "server/api/system/device_convert.h"

namespace roundhouse {
namespace {

class DeviceCallsTest : public ApiTestFixture {
 protected:
  // The code of what `call` answers for a request.
  template <typename Request>
  grpc::Status Ask(grpc::Status (v1::SystemService::Stub::*call)(
                       grpc::ClientContext*, const Request&, v1::Device*),
                   const Request& request) {
    grpc::ClientContext context;
    Limit(&context);
    device_.Clear();
    return (system_.get()->*call)(&context, request, &device_);
  }
  grpc::Status Lend(const v1::LendDeviceRequest& request) {
    return Ask(&v1::SystemService::Stub::LendDevice, request);
  }
  template <typename Request>
  static Request Named(const std::string& name) {
    Request request;
    request.set_name(name);
    return request;
  }
  v1::Device Listed(int index) {
    grpc::ClientContext context;
    Limit(&context);
    v1::ListDevicesResponse response;
    EXPECT_TRUE(system_->ListDevices(&context, {}, &response).ok());
    return response.devices(index);
  }

  v1::Device device_;  // the last answer
};

TEST_F(DeviceCallsTest, ADeviceIsLentAndReturned) {
  auto request = Named<v1::LendDeviceRequest>("devices/0");
  request.mutable_duration()->set_seconds(3600);
  request.set_note("plots");
  ASSERT_TRUE(Lend(request).ok());
  EXPECT_EQ(device_.state(), v1::LENT);
  EXPECT_EQ(device_.loan().note(), "plots");
  EXPECT_EQ(device_.loan().until_time().seconds() -
                device_.loan().since_time().seconds(),
            3600);
  EXPECT_EQ(Listed(0).loan().owner(), device_.loan().owner());
  EXPECT_FALSE(Listed(1).has_loan());
  ASSERT_TRUE(Ask(&v1::SystemService::Stub::ReturnDevice,
                  Named<v1::ReturnDeviceRequest>("0"))
                  .ok());
  EXPECT_EQ(device_.state(), v1::UP);
  EXPECT_FALSE(device_.has_loan());
  EXPECT_EQ(Ask(&v1::SystemService::Stub::ReturnDevice,
                Named<v1::ReturnDeviceRequest>("0"))
                .error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(DeviceCallsTest, ADeviceIsFencedAndALostOneRevived) {
  ASSERT_TRUE(Ask(&v1::SystemService::Stub::FenceDevice,
                  Named<v1::FenceDeviceRequest>("devices/0"))
                  .ok());
  EXPECT_EQ(device_.state(), v1::FENCED);
  const auto unfence = [this](const std::string& name) {
    return Ask(&v1::SystemService::Stub::UnfenceDevice,
               Named<v1::UnfenceDeviceRequest>(name));
  };
  ASSERT_TRUE(unfence("devices/0").ok());
  EXPECT_EQ(device_.state(), v1::UP);
  EXPECT_EQ(unfence("devices/0").error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  ASSERT_EQ(Listed(1).state(), v1::LOST);
  const grpc::Status lost = Lend(Named<v1::LendDeviceRequest>("1"));
  EXPECT_EQ(lost.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(absl::StrContains(lost.error_message(), "device unfence 1"));
  ASSERT_TRUE(unfence("devices/1").ok());
  EXPECT_EQ(device_.state(), v1::STARTING);
}

TEST_F(DeviceCallsTest, WhoseProcessHasADeviceIsShown) {
  DeviceLoanList yields(2);
  yields[0] = {.kind = DeviceLoan::Kind::kYielded,
               .owner = "uid:1000",
               .process = {.pid = 4711, .name = "python3"}};
  loans_->SetYields(yields);
  // The fake engine's worker is still there.
  EXPECT_EQ(Listed(0).state(), v1::LEAVING);
  EXPECT_EQ(Listed(0).loan().owner(), "uid:1000");
  EXPECT_EQ(Listed(0).loan().process().pid(), 4711);
  EXPECT_EQ(Listed(0).loan().process().command(), "python3");
  ASSERT_TRUE(Ask(&v1::SystemService::Stub::ReturnDevice,
                  Named<v1::ReturnDeviceRequest>("0"))
                  .ok());
  EXPECT_FALSE(device_.has_loan());
  v1::Device gone;
  gone.set_state(v1::FENCED);
  SetLoan(yields[0], &gone);
  EXPECT_EQ(gone.state(), v1::YIELDED);
}

TEST_F(DeviceCallsTest, WhatIsAskedIsNamedWhereItIsWrong) {
  for (const char* name : {"", "devices/", "devices/x", "-1", "99999999999"}) {
    const grpc::Status status = Lend(Named<v1::LendDeviceRequest>(name));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << name;
    EXPECT_TRUE(absl::StrContains(status.error_message(), "name")) << name;
  }
  EXPECT_EQ(Lend(Named<v1::LendDeviceRequest>("devices/2")).error_code(),
            grpc::StatusCode::NOT_FOUND);
  auto both = Named<v1::LendDeviceRequest>("0");
  both.mutable_duration()->set_seconds(1);
  both.mutable_until_time()->set_seconds(4'000'000'000);
  auto past = Named<v1::LendDeviceRequest>("0");
  past.mutable_until_time()->set_seconds(1);
  auto nothing = Named<v1::LendDeviceRequest>("0");
  nothing.mutable_duration()->set_seconds(0);
  auto centuries = Named<v1::LendDeviceRequest>("0");
  centuries.mutable_duration()->set_seconds(253'402'300'799);
  auto far = Named<v1::LendDeviceRequest>("0");
  far.mutable_until_time()->set_seconds(int64_t{1} << 62);
  auto wordy = Named<v1::LendDeviceRequest>("0");
  wordy.set_note(std::string(kMaxLoanNoteBytes + 1, 'x'));
  for (const auto& request : {both, past, nothing, centuries, far, wordy}) {
    EXPECT_EQ(Lend(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << request.ShortDebugString();
  }
  EXPECT_FALSE(Listed(0).has_loan());
}

}  // namespace
}  // namespace roundhouse
