// roundhouse-gpu-calibrate: what one GPU and its link can do, measured, as one
// JSON object on stdout.  For deploy/gpu-check, and for people.
//
// Exit status: 0, 1 failed, kUnableExit when this machine has no such GPU.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/wire/exit_status.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/link_rates.h"
#include "worker/model/cuda/fused_times.h"
#include "worker/model/library_choices.h"
#include "worker/model/on_stream.h"
#include "worker/model/prepare_library.h"

ABSL_FLAG(int, device, 0, "CUDA's number of the GPU");
ABSL_FLAG(int, matmul, 8192, "rows and columns of the matrices");
ABSL_FLAG(int, tokens, 8192,
          "of the micro-batch that fused kernels are timed on");
ABSL_FLAG(uint64_t, register_mib, 4096, "host memory to register");

namespace roundhouse::worker {
namespace {

constexpr int kWarmUps = 5;
constexpr int kProducts = 30;
constexpr uint64_t kMib = 1 << 20;

// Milliseconds of kProducts products on the current stream.
absl::StatusOr<double> TimeProducts(const at::Tensor& a, const at::Tensor& b,
                                    at::Tensor& c) {
  cudaEvent_t begin = nullptr, end = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&begin), "cudaEventCreate"));
  RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&end), "cudaEventCreate"));
  for (int i = 0; i < kWarmUps; ++i) at::mm_out(c, a, b);
  RETURN_IF_ERROR(CudaStatus(cudaEventRecord(begin), "cudaEventRecord"));
  for (int i = 0; i < kProducts; ++i) at::mm_out(c, a, b);
  RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end), "cudaEventRecord"));
  RETURN_IF_ERROR(
      CudaStatus(cudaEventSynchronize(end), "cudaEventSynchronize"));
  float milliseconds = 0;
  RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, begin, end),
                             "cudaEventElapsedTime"));
  return milliseconds;  // the events end with the process
}

// bf16 in and out, added up in fp32: LibTorch on the default stream.
absl::StatusOr<double> MatmulTflops(int device, int size) {
  double milliseconds = 0;
  RETURN_IF_ERROR(GuardTorch("bf16 products", [&]() -> absl::Status {
    const auto options =
        at::TensorOptions()
            .dtype(at::kBFloat16)
            .device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    const at::Tensor a = at::randn({size, size}, options);
    const at::Tensor b = at::randn({size, size}, options);
    at::Tensor c = at::empty({size, size}, options);
    ASSIGN_OR_RETURN(milliseconds, TimeProducts(a, b, c));
    return absl::OkStatus();
  }));
  const double n = size;
  return kProducts * 2 * n * n * n / (milliseconds / 1e3) / 1e12;
}

absl::Status Run() {
  const int device = absl::GetFlag(FLAGS_device);
  const int size = absl::GetFlag(FLAGS_matmul);
  const uint64_t bytes = absl::GetFlag(FLAGS_register_mib) * kMib;
  LinkOptions options{.device = device, .register_bytes = bytes};
  const int tokens = absl::GetFlag(FLAGS_tokens);
  if (size < 1 || tokens < 1 || bytes < options.copy_bytes) {
    return absl::InvalidArgumentError(
        "--matmul, --tokens: at least 1; --register_mib: at least 256");
  }
  RETURN_IF_ERROR(CudaOpenStatus(cudaSetDevice(device), "cudaSetDevice"));
  ASSIGN_OR_RETURN(const LinkRates link, MeasureLink(options));
  // As a worker computes; the stream is the default one.
  RETURN_IF_ERROR(PrepareLibrary({device, nullptr}));
  ASSIGN_OR_RETURN(const double tflops, MatmulTflops(device, size));
  ASSIGN_OR_RETURN(const std::vector<FusedTimes> fused,
                   TimeFusedKernels(device, tokens));
  absl::PrintF(
      "{\"h2d_pageable_gbps\": %.6g, \"d2h_pageable_gbps\": %.6g,\n"
      " \"h2d_registered_gbps\": %.6g, \"d2h_registered_gbps\": %.6g,\n"
      " \"both_ways_registered_gbps\": %.6g,\n"
      " \"register_gib_per_second\": %.6g,\n"
      " \"unregister_gib_per_second\": %.6g,\n"
      " \"register_device_bytes\": %d,\n"
      " \"matmul_bf16_tflops\": %.6g, \"matmul_size\": %d,\n"
      " \"registered_bytes\": %d,\n",
      link.h2d_pageable_gbps, link.d2h_pageable_gbps, link.h2d_registered_gbps,
      link.d2h_registered_gbps, link.both_ways_registered_gbps,
      link.register_gib_per_second, link.unregister_gib_per_second,
      link.register_device_bytes, tflops, size, bytes);
  for (const FusedTimes& times : fused) {
    absl::PrintF(" \"%s_fused_ms\": %.6g, \"%s_operators_ms\": %.6g,\n",
                 times.name, times.fused_ms, times.name, times.operators_ms);
  }
  absl::PrintF(" \"fused_tokens\": %d}\n", tokens);
  return absl::OkStatus();
}

}  // namespace
}  // namespace roundhouse::worker

int main(int argc, char** argv) {
  absl::Status status = roundhouse::worker::FixLibraryChoices(argv);
  absl::ParseCommandLine(argc, argv);
  if (status.ok()) status = roundhouse::worker::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "roundhouse-gpu-calibrate: %s\n",
               std::string(status.message()).c_str());
  return absl::IsFailedPrecondition(status) ? roundhouse::wire::kUnableExit : 1;
}
