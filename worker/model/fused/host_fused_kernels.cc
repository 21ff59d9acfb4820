#include "worker/model/fused/host_fused_kernels.h"

#include <barrier>
#include <numeric>
#include <thread>
#include <vector>

#include "base/convert.h"
#include "worker/model/fused/fused_rows.h"
#include "worker/model/fused/fused_widths.h"

namespace roundhouse::worker {
namespace {

struct Elements {
  struct Fp32 {
    using Stored = float;
    static float Widen(float value) { return value; }
    static float Narrow(float value) { return value; }
  };

  struct Bf16 {
    using Stored = uint16_t;
    static float Widen(uint16_t value) { return BF16ToF32(value); }
    static uint16_t Narrow(float value) { return F32ToBF16(value); }
  };

  struct Fp16 {
    using Stored = uint16_t;
    static float Widen(uint16_t value) { return F16ToF32(value); }
    static uint16_t Narrow(float value) { return F32ToF16(value); }
  };
};

// One of the threads that share a row.
class Lane {
 public:
  // Among all of a row.
  struct Shared {
    explicit Shared(int count) : values(count), everyone(count) {}
    std::vector<float> values;
    std::barrier<> everyone;
  };

  Lane(int index, Shared& shared) : index_(index), shared_(shared) {}
  int64_t first() const { return index_; }
  int64_t count() const { return static_cast<int64_t>(shared_.values.size()); }
  float Sum(float value) const {
    shared_.values[index_] = value;
    shared_.everyone.arrive_and_wait();
    return std::accumulate(shared_.values.begin(), shared_.values.end(), 0.0f);
  }

 private:
  const size_t index_;
  Shared& shared_;
};

// Calls `body` with each lane of a row, at once.
template <class Body>
void WithLanes(int count, Body body) {
  Lane::Shared shared(count);
  std::vector<std::thread> others;
  for (int index = 1; index < count; ++index) {
    others.emplace_back([&, index] { body(Lane(index, shared)); });
  }
  body(Lane(0, shared));
  for (std::thread& other : others) other.join();
}

}  // namespace

void HostFusedKernels::Run(const RmsNormWork& work) const {
  WithElement<Elements>(
      work.dtype, HasPacks(work), [&]<class Element, int kWidth>() {
        for (int64_t row = 0; row < work.rows; ++row) {
          WithLanes(lanes_, [&](const Lane& lane) {
            const float scale = NormRow<Element, kWidth>(lane, work, row);
            if (lane.first() == 0) work.scales[row] = scale;
          });
        }
      });
}

void HostFusedKernels::Run(const RmsNormGradientWork& work) const {
  WithElement<Elements>(
      work.dtype, HasPacks(work), [&]<class Element, int kWidth>() {
        for (int64_t row = 0; row < work.rows; ++row) {
          WithLanes(lanes_, [&](const Lane& lane) {
            NormRowGradient<Element, kWidth>(lane, work, row);
          });
        }
        if (work.weight_sums == nullptr) return;
        for (int64_t chunk = 0; chunk * work.chunk_rows < work.rows; ++chunk) {
          for (int64_t column = 0; column < work.columns; ++column) {
            NormColumnGradient<Element>(work, chunk, column);
          }
        }
      });
}

void HostFusedKernels::Run(const RopeWork& work) const {
  WithElement<Elements>(
      work.dtype, HasPacks(work), [&]<class Element, int kWidth>() {
        for (int64_t pack = 0; pack < RopePacks<kWidth>(work); ++pack) {
          TurnPairs<Element, kWidth>(work, pack);
        }
      });
}

void HostFusedKernels::Run(const SwiGluWork& work) const {
  WithElement<Elements>(
      work.dtype, HasPacks(work), [&]<class Element, int kWidth>() {
        for (int64_t pack = 0; pack < work.count / kWidth; ++pack) {
          SwiGluPack<Element, kWidth>(work, pack);
        }
      });
}

void HostFusedKernels::Run(const SwiGluGradientWork& work) const {
  WithElement<Elements>(
      work.dtype, HasPacks(work), [&]<class Element, int kWidth>() {
        for (int64_t pack = 0; pack < work.count / kWidth; ++pack) {
          SwiGluPackGradient<Element, kWidth>(work, pack);
        }
      });
}

void HostFusedKernels::Run(const SplitWork& work) const {
  for (int64_t i = 0; i < work.rows * work.columns; ++i) {
    SplitElement<Elements::Bf16>(work, i);
  }
}

}  // namespace roundhouse::worker
