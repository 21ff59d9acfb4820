#include "worker/model/fused/split_products.h"

#include <algorithm>
#include <array>

namespace roundhouse::worker {
namespace {

using Order = std::array<int, SplitWork::kSlots>;

// All that an fp32 number has.
constexpr Order kWhole = {0, 1, 2};
// Slot by slot the parts of two factors: the products of the largest parts, and
// of each largest part with the other factor's second.
constexpr Order kLeft = {0, 0, 1}, kRight = {0, 1, 0};

enum class Along { kRows, kColumns };

// [3 p, q] or [p, 3 q] of x [p, q].
at::Tensor Split(const FusedKernels& kernels, const at::Tensor& x, Along along,
                 const Order& order, double scale) {
  if (!x.is_contiguous() && x.t().is_contiguous()) {
    return Split(kernels, x.t(),
                 along == Along::kRows ? Along::kColumns : Along::kRows, order,
                 scale)
        .t();
  }
  TORCH_CHECK(x.dim() == 2 && x.scalar_type() == at::kFloat, "a split of ",
              x.scalar_type(), " ", x.sizes());
  const at::Tensor dense = x.contiguous();
  const int64_t rows = x.size(0), columns = x.size(1);
  const bool stacked = along == Along::kRows;
  const at::Tensor y = at::empty({rows * (stacked ? SplitWork::kSlots : 1),
                                  columns * (stacked ? 1 : SplitWork::kSlots)},
                                 x.options().dtype(at::kBFloat16));
  SplitWork work;
  work.rows = rows;
  work.columns = columns;
  work.x = dense.const_data_ptr<float>();
  work.scale = static_cast<float>(scale);
  work.y = y.mutable_data_ptr();
  work.row_stride = y.size(1);
  work.slot_stride = stacked ? rows * columns : columns;
  std::copy(order.begin(), order.end(), work.order);
  kernels.Run(work);
  return y;
}

// a b, of bf16 matrices in the dtype of `to`, added to it or in its place.  The
// host's library has no such product, so rows are widened, a few at a time.
enum class Mode { kAdd, kReplace };
void MultiplyOnHost(const at::Tensor& a, const at::Tensor& b, Mode mode,
                    const at::Tensor& to) {
  constexpr int64_t kHostRows = 64;
  const at::Tensor wide = b.to(at::kFloat);
  for (int64_t row = 0; row < a.size(0); row += kHostRows) {
    const at::Tensor rows = to.slice(0, row, row + kHostRows);
    const at::Tensor product =
        a.slice(0, row, row + kHostRows).to(at::kFloat).mm(wide);
    rows.copy_(mode == Mode::kAdd ? rows.to(at::kFloat) + product : product);
  }
}

at::Tensor MultiplyTo(at::ScalarType dtype, const at::Tensor& a,
                      const at::Tensor& b) {
  if (a.is_cuda()) {
    return dtype == at::kFloat ? at::mm(a, b, at::kFloat) : a.mm(b);
  }
  const at::Tensor product =
      at::empty({a.size(0), b.size(1)}, a.options().dtype(dtype));
  MultiplyOnHost(a, b, Mode::kReplace, product);
  return product;
}

}  // namespace

at::Tensor WideProduct(const FusedKernels& kernels, const at::Tensor& x,
                       const at::Tensor& small, double scale) {
  TORCH_CHECK(x.scalar_type() == at::kBFloat16, "a split product of ",
              x.scalar_type());
  return MultiplyTo(at::kFloat, x,
                    Split(kernels, small, Along::kColumns, kWhole, scale))
      .view({x.size(0), SplitWork::kSlots, small.size(1)})
      .sum(1);
}

at::Tensor NarrowProduct(const FusedKernels& kernels, const at::Tensor& left,
                         const at::Tensor& right) {
  const at::Tensor lefts = Split(kernels, left, Along::kColumns, kLeft, 1);
  const at::Tensor rights = Split(kernels, right, Along::kRows, kRight, 1);
  return MultiplyTo(at::kBFloat16, lefts, rights);
}

void AddNarrowProduct(const FusedKernels& kernels, const at::Tensor& left,
                      const at::Tensor& right, double scale, at::Tensor& base) {
  TORCH_CHECK(base.scalar_type() == at::kBFloat16, "a split product added to ",
              base.scalar_type());
  const at::Tensor lefts = Split(kernels, left, Along::kColumns, kLeft, scale);
  const at::Tensor rights = Split(kernels, right, Along::kRows, kRight, 1);
  if (base.is_cuda()) {
    base.addmm_(lefts, rights);
  } else {
    MultiplyOnHost(lefts, rights, Mode::kAdd, base);
  }
}

}  // namespace roundhouse::worker
