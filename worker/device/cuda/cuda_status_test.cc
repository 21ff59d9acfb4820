#include "worker/device/cuda/cuda_status.h"

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

TEST(CudaStatusTest, SuccessIsOk) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "cudaFree").ok());
}

TEST(CudaStatusTest, SaysTheCallAndCudasNameNumberAndText) {
  EXPECT_EQ(CudaStatus(cudaErrorInvalidValue, "cudaMemcpyAsync").message(),
            "cudaMemcpyAsync: cudaErrorInvalidValue (1): invalid argument");
  EXPECT_EQ(CudaStatus(cudaErrorIllegalAddress, "cudaEventSynchronize"),
            absl::AbortedError(
                "device is lost: cudaEventSynchronize: cudaErrorIllegalAddress "
                "(700): an illegal memory access was encountered"));
}

TEST(CudaStatusTest, WhatNeedsANewProcessIsALostDevice) {
  for (const cudaError_t error : {cudaErrorContained,
                                  cudaErrorIllegalAddress,
                                  cudaErrorLaunchTimeout,
                                  cudaErrorAssert,
                                  cudaErrorHardwareStackError,
                                  cudaErrorIllegalInstruction,
                                  cudaErrorMisalignedAddress,
                                  cudaErrorInvalidAddressSpace,
                                  cudaErrorInvalidPc,
                                  cudaErrorLaunchFailure,
                                  cudaErrorTensorMemoryLeak,
                                  cudaErrorMpsClientTerminated,
                                  cudaErrorExternalDevice,
                                  cudaErrorECCUncorrectable,
                                  cudaErrorNvlinkUncorrectable,
                                  cudaErrorUnknown,
                                  cudaErrorNoDevice,
                                  cudaErrorInvalidDevice,
                                  cudaErrorDevicesUnavailable,
                                  cudaErrorOperatingSystem}) {
    const absl::Status status = CudaStatus(error, "call");
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_EQ(status.message().find("device is lost: call: cudaError"), 0u)
        << status;
  }
}

TEST(CudaStatusTest, WhatLeavesTheDeviceUsableIsNotALostOne) {
  using absl::StatusCode;
  const std::vector<std::pair<cudaError_t, StatusCode>> expected = {
      {cudaErrorMemoryAllocation, StatusCode::kResourceExhausted},
      {cudaErrorInsufficientDriver, StatusCode::kFailedPrecondition},
      {cudaErrorNoKernelImageForDevice, StatusCode::kFailedPrecondition},
      {cudaErrorInvalidPtx, StatusCode::kFailedPrecondition},
      {cudaErrorUnsupportedPtxVersion, StatusCode::kFailedPrecondition},
      {cudaErrorJitCompilerNotFound, StatusCode::kFailedPrecondition},
      {cudaErrorJitCompilationDisabled, StatusCode::kFailedPrecondition},
      {cudaErrorInvalidValue, StatusCode::kInternal},
      {cudaErrorInvalidResourceHandle, StatusCode::kInternal},
      {cudaErrorNotReady, StatusCode::kInternal},
  };
  for (const auto& [error, code] : expected) {
    const absl::Status status = CudaStatus(error, "call");
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(status.message().find("lost"), status.message().npos) << status;
  }
}

TEST(CudaStatusTest, ADeviceThatIsNotThereIsNotOpened) {
  for (const cudaError_t error :
       {cudaErrorNoDevice, cudaErrorInvalidDevice, cudaErrorDevicesUnavailable,
        cudaErrorOperatingSystem, cudaErrorInsufficientDriver,
        cudaErrorNoKernelImageForDevice}) {
    const absl::Status status = CudaOpenStatus(error, "cudaSetDevice");
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(status.message().find("cudaSetDevice: cudaError"), 0u) << status;
  }
  EXPECT_TRUE(CudaOpenStatus(cudaSuccess, "cudaSetDevice").ok());
  EXPECT_TRUE(
      absl::IsAborted(CudaOpenStatus(cudaErrorLaunchFailure, "loading")));
}

TEST(CudaStatusTest, ClearsTheThreadsError) {
  int value = 0;
  if (cudaGetDeviceCount(&value) != cudaSuccess) {
    GTEST_SKIP() << "without a driver every call leaves its error anew";
  }
  const cudaError_t error =
      cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, -1);
  ASSERT_NE(error, cudaSuccess);
  ASSERT_EQ(cudaPeekAtLastError(), error);
  EXPECT_FALSE(CudaStatus(error, "cudaDeviceGetAttribute").ok());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace roundhouse::worker
