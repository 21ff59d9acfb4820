#include "tests/parity/device_goldens.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/parity/figures.h"
#include "tests/parity/step_checks.h"
#include "tests/parity/subject.h"
#include "worker/model/device_bench.h"
#include "worker/model/sequential_gradient.h"

namespace roundhouse::parity {
namespace {

using worker::AlignedVector;
using worker::DeviceBench;
using worker::DeviceFactory;
using worker::LayerWeights;
using worker::SequentialBatch;
using worker::SequentialGradient;

constexpr uint64_t kMemoryBytes = 256 << 20;
// A GPU multiplies and adds in an order of its own, so it draws the noise of
// rounding anew.
constexpr HalfRatios kRatios{.bf16 = 2, .fp16 = 1};
constexpr float kFirstScale = 65536;

struct Found {
  std::vector<float> token_losses;
  double loss = 0;  // the mean
  SequentialGradient gradient;
};

int64_t CountTargets(const SequentialBatch& batch) {
  const int64_t tokens = batch.rows * batch.row_tokens;
  return tokens - std::count(batch.labels, batch.labels + tokens, -100);
}

// The gradient is the mean loss's times `scale`.
Found Compute(const DeviceFactory& open, const Subject& subject, DType dtype,
              const SequentialBatch& batch, float scale) {
  const auto weights = subject.MakeTrainer({.dtype = dtype});
  DeviceBench bench(*open(kMemoryBytes));
  for (size_t unit = 0; unit < subject.units().size(); ++unit) {
    const int number = static_cast<int>(unit);
    bench.AddWeights(
        weights->compute(number),
        static_cast<uint64_t>(subject.units()[unit].element_count) *
            DTypeBytes(UnitDType(subject.config(), dtype, number)));
  }
  const auto of_layer = [&](int64_t layer) {
    return subject.WeightsOf(*weights, dtype, layer);
  };
  const AlignedVector<std::byte> input = subject.Embed(*weights, dtype, batch);
  const auto run = bench.Forward({.config = subject.config(),
                                  .adapter = subject.adapter(),
                                  .dtype = dtype,
                                  .rows = batch.rows,
                                  .row_tokens = batch.row_tokens,
                                  .keep = worker::Keep::kLayer,
                                  .train = true},
                                 {.states = input.data(),
                                  .positions = batch.positions,
                                  .picks = batch.picks},
                                 of_layer);
  const LayerWeights head = of_layer(subject.config().layer_count);
  Found found{
      TokenLosses(*run, bench.OnDevice(head), batch), 0,
      SequentialGradient(subject.config(), subject.adapter(), subject.units())};
  const auto targets = static_cast<double>(CountTargets(batch));
  found.gradient.BeginMicroBatch();
  found.loss =
      bench.Backward(*run, head, batch.labels, scale / targets, &found.gradient)
          .loss_sum /
      targets;
  if (IsTrainable(subject.config(), subject.adapter(), 0)) {
    found.gradient.AddEmbeddingTokens(batch.tokens,
                                      batch.rows * batch.row_tokens,
                                      bench.InputGradient(*run).data());
    found.gradient.AddTiedRows();
    found.gradient.DensifyEmbedding();
  }
  return found;
}

bool AllFinite(const Subject& subject, const SequentialGradient& gradient) {
  bool finite = true;
  subject.ForEachTrained([&](int unit, const ParameterSpec&) {
    for (const float value : gradient.dense(unit)) {
      finite = finite && std::isfinite(value);
    }
  });
  return finite;
}

void CheckLossAndGradients(const Subject& subject, const Found& found,
                           DType dtype, float scale) {
  const Goldens& goldens = subject.goldens();
  Check("step loss, relative",
        std::abs(found.loss / goldens.Floats("step_loss")[0] - 1),
        dtype == DType::kF32
            ? kTolerance
            : kRatios.Of(dtype) * goldens.Scalar("bf16.token_loss"));
  CheckGradients(
      subject, [&](int unit) { return found.gradient.dense(unit).data(); },
      dtype, scale, kRatios);
}

// As rows of one sequence each, and packed.
void CheckRows(const DeviceFactory& open, const Subject& subject, DType dtype) {
  const Found found =
      Compute(open, subject, dtype, subject.batches().First(dtype), 1);
  CheckTokenLosses(subject.goldens(), found.token_losses, dtype, kRatios);
  CheckLossAndGradients(subject, found, dtype, 1);
}

void CheckPacked(const DeviceFactory& open, const Subject& subject,
                 DType dtype) {
  const PackedBatch packed(subject.batches(), 0);
  const Found found = Compute(open, subject, dtype, packed.Borrow(dtype), 1);
  CheckTokenLosses(subject.goldens(), packed.Unpack(found.token_losses), dtype,
                   kRatios);
  CheckLossAndGradients(subject, found, dtype, 1);
}

// At the first loss scale at which nothing overflows, as a job finds it.
void CheckScaled(const DeviceFactory& open, const Subject& subject) {
  const SequentialBatch rows = subject.batches().First(DType::kF16);
  std::optional<Found> found;
  float scale = kFirstScale;
  for (; scale >= 1; scale /= 2) {
    found = Compute(open, subject, DType::kF16, rows, scale);
    if (AllFinite(subject, found->gradient)) break;
  }
  ASSERT_GE(scale, 1);
  CheckTokenLosses(subject.goldens(), found->token_losses, DType::kF16,
                   kRatios);
  CheckLossAndGradients(subject, *found, DType::kF16, scale);
}

template <typename Body>
void ForEachSubject(Body body) {
  std::vector<Case> all(std::begin(kFamilies), std::end(kFamilies));
  all.insert(all.end(), std::begin(kAdapters), std::end(kAdapters));
  for (const Case& which : all) {
    SCOPED_TRACE(NameOf(which));
    body(Subject(which));
  }
}

TEST_P(DeviceGoldens, Fp32) {
  ForEachSubject([](const Subject& subject) {
    CheckRows(GetParam(), subject, DType::kF32);
  });
}

TEST_P(DeviceGoldens, Bf16) {
  ForEachSubject([](const Subject& subject) {
    CheckRows(GetParam(), subject, DType::kBF16);
  });
}

TEST_P(DeviceGoldens, PackedFp32) {
  ForEachSubject([](const Subject& subject) {
    CheckPacked(GetParam(), subject, DType::kF32);
  });
}

TEST_P(DeviceGoldens, PackedBf16) {
  ForEachSubject([](const Subject& subject) {
    CheckPacked(GetParam(), subject, DType::kBF16);
  });
}

TEST_P(DeviceGoldens, Fp16WithALossScale) {
  ForEachSubject(
      [](const Subject& subject) { CheckScaled(GetParam(), subject); });
}

}  // namespace
}  // namespace roundhouse::parity
