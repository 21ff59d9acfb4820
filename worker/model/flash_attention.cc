#include "worker/model/flash_attention.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace roundhouse::worker {
namespace {

constexpr int64_t kMaxHeadDim = 192;
constexpr int64_t kLeastMeanTokens = 64;

// Tokens before heads, as the kernel takes them: [rows, row_tokens, heads, d],
// or [rows * row_tokens, heads, d] of packed rows.
at::Tensor TokensFirst(const at::Tensor& x, const Packing& packing) {
  const at::Tensor tokens = x.transpose(1, 2);
  return packing.packs() ? tokens.flatten(0, 1) : tokens;
}

}  // namespace

bool HasFlashAttention(const at::Tensor& q, const Packing& packing) {
  const auto sequences = static_cast<int64_t>(packing.sequence_tokens.size());
  return q.is_cuda() && q.size(0) * q.size(2) >= sequences * kLeastMeanTokens &&
         (q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf) &&
         q.size(3) % 8 == 0 && q.size(3) <= kMaxHeadDim;
}

at::Tensor FlashAttention(const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const Packing& packing,
                          int64_t window) {
  const int64_t tokens = q.size(0) * q.size(2);
  std::optional<at::Tensor> starts;
  int64_t longest = q.size(2);
  if (packing.packs()) {
    TORCH_CHECK(packing.starts.defined(), "packed rows without their starts");
    starts = packing.starts;
    longest = *std::max_element(packing.sequence_tokens.begin(),
                                packing.sequence_tokens.end());
  }
  // It counts the keys before the query's own.
  const std::optional<int64_t> earlier =
      window > 0 ? std::make_optional(window - 1) : std::nullopt;
  const at::Tensor mixed = std::get<0>(at::_flash_attention_forward(
      TokensFirst(q, packing), TokensFirst(k, packing), TokensFirst(v, packing),
      starts, starts, longest, longest, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false, /*scale=*/std::nullopt, earlier,
      /*window_size_right=*/0));
  return mixed.reshape({tokens, q.size(1) * q.size(3)});
}

}  // namespace roundhouse::worker
