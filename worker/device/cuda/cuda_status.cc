#include "worker/device/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace roundhouse::worker {
namespace {

// By a device that is not there; by an open one: that it no longer is.
bool IsNotThere(cudaError_t error) {
  return error == cudaErrorNoDevice || error == cudaErrorInvalidDevice ||
         error == cudaErrorDevicesUnavailable ||
         error == cudaErrorOperatingSystem;
}

absl::StatusCode CodeOf(cudaError_t error) {
  if (IsNotThere(error)) return absl::StatusCode::kAborted;
  switch (error) {
    // "The process must be terminated and relaunched" (driver_types.h) ...
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    // ... and what a device that fails or falls off the bus leaves.
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDeviceUninitialized:
    case cudaErrorMpsRpcFailure:
    case cudaErrorUnknown:
      return absl::StatusCode::kAborted;

    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;

    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorDeviceNotLicensed:
    case cudaErrorStartupFailure:
    case cudaErrorInvalidKernelImage:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
      return absl::StatusCode::kFailedPrecondition;

    default:
      return absl::StatusCode::kInternal;
  }
}

std::string Text(cudaError_t error, const std::string& what) {
  return absl::StrCat(what, ": ", cudaGetErrorName(error), " (",
                      static_cast<int>(error),
                      "): ", cudaGetErrorString(error));
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const absl::StatusCode code = CodeOf(error);
  return absl::Status(
      code,
      absl::StrCat(code == absl::StatusCode::kAborted ? "device is lost: " : "",
                   Text(error, what)));
}

absl::Status CudaOpenStatus(cudaError_t error, const std::string& what) {
  if (!IsNotThere(error)) return CudaStatus(error, what);
  cudaGetLastError();
  return absl::FailedPreconditionError(Text(error, what));
}

}  // namespace roundhouse::worker
