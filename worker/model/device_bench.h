// One micro-batch through a whole model on any kind of device, from host memory
// and back, for tests: what a worker does with transfers, words and slots left
// out.  Every error is a failure of the test that runs.  Thread-compatible.
#ifndef ROUNDHOUSE_WORKER_MODEL_DEVICE_BENCH_H_
#define ROUNDHOUSE_WORKER_MODEL_DEVICE_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/device.h"
#include "worker/model/stage_run.h"

namespace roundhouse::worker {

// The device, one stream of it, and memory that lives as long.  Runs end
// before it does.
class DeviceBench {
 public:
  explicit DeviceBench(std::unique_ptr<Device> device);

  // Copies weights to the device; LayerWeights that point into these bytes of
  // host memory mean the copy from then on.
  void AddWeights(const std::byte* host, uint64_t bytes);

  // What a run computes with, in host memory.
  struct Inputs {
    const std::byte* states = nullptr;   // [rows, row_tokens, hidden]
    const int32_t* positions = nullptr;  // as SetPositions has them, or null
    // As SetPicks has them, of one layer with experts after the other, or null.
    const ExpertPick* picks = nullptr;
  };
  // Through all decoder layers.  `options.stream` is set here; states are in
  // options.dtype, weights(layer) is what was added.
  std::unique_ptr<StageRun> Forward(
      StageRunOptions options, const Inputs& inputs,
      const std::function<LayerWeights(int64_t)>& weights);
  // The head on it, its gradient and those of all layers; `sink` sees host
  // memory.
  HeadResult Backward(StageRun& run, const LayerWeights& head,
                      const int32_t* labels, double loss_scale,
                      GradientSink* sink);
  // With the addresses of the device's copies.
  LayerWeights OnDevice(LayerWeights weights) const;

  // [rows, row_tokens, hidden] of the run that was last begun, widened.
  std::vector<float> Output(StageRun& run);
  std::vector<float> InputGradient(StageRun& run);

 private:
  class Gradients;

  void Check(const absl::Status& status);
  void Wait();
  std::byte* Make(uint64_t bytes);
  std::byte* Upload(const std::byte* host, uint64_t bytes);
  std::vector<float> Floats(const std::byte* from, DType dtype, size_t count);
  size_t StateCount() const;

  struct Copy {
    uint64_t bytes = 0;
    std::byte* data = nullptr;
  };

  const std::unique_ptr<Device> device_;
  const std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::map<const std::byte*, Copy> weights_;  // by where they lie on the host
  StageRunOptions options_;                   // of the run last begun
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_DEVICE_BENCH_H_
