#include "worker/model/attention.h"

#include <algorithm>
#include <optional>

#include "worker/model/flash_attention.h"

namespace roundhouse::worker {
namespace {

// Queries of a block share one mask, and blocks bound its size.
constexpr int64_t kMinWindowBlockTokens = 256;

// Which keys a query sees where no mask says it.
enum class Sees { kItselfAndEarlier, kAll };

// [b, heads, n, d], [b, kv_heads, m, d] -> [b, heads, n, d].
at::Tensor Sdpa(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const std::optional<at::Tensor>& mask,
                Sees sees = Sees::kItselfAndEarlier) {
  const bool causal = !mask.has_value() && sees == Sees::kItselfAndEarlier;
  bool shared = q.size(1) != k.size(1);
  // A GPU's kernel for fp32 and for masks may refuse heads that share keys;
  // LibTorch would then hold all scores.
  const bool expands = shared && q.is_cuda() &&
                       (mask.has_value() || q.scalar_type() == at::kFloat);
  if (expands) shared = false;
  const auto of = [&](const at::Tensor& x) {
    return expands ? ForEachHead(x, q.size(1)) : x;
  };
  return at::scaled_dot_product_attention(
      q, of(k), of(v), mask, /*dropout_p=*/0.0, causal, /*scale=*/std::nullopt,
      /*enable_gqa=*/shared);
}

// [queries, keys]; query i stands at key i + keys - queries.
at::Tensor WindowMask(int64_t queries, int64_t keys, int64_t window,
                      const at::TensorOptions& options) {
  const at::Tensor query =
      at::arange(keys - queries, keys, options).unsqueeze(1);
  const at::Tensor key = at::arange(0, keys, options).unsqueeze(0);
  return at::logical_and(key <= query, key > query - window);
}

// Blocks of queries, at least `window` each: a block needs its own keys and the
// window - 1 before them, which the block before it has.
at::Tensor WindowAttention(const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, int64_t window) {
  const int64_t block = std::max(window, kMinWindowBlockTokens);
  const auto queries = q.split(block, 2);
  const auto keys = k.split(block, 2);
  const auto values = v.split(block, 2);
  std::vector<at::Tensor> mixed;
  for (size_t i = 0; i < queries.size(); ++i) {
    const auto with_earlier = [&](const std::vector<at::Tensor>& blocks) {
      if (i == 0) return blocks[i];
      return at::cat({blocks[i - 1].slice(2, block - (window - 1)), blocks[i]},
                     2);
    };
    const at::Tensor key = with_earlier(keys);
    const at::Tensor mask =
        WindowMask(queries[i].size(2), key.size(2), window,
                   at::TensorOptions().dtype(at::kLong).device(q.device()));
    mixed.push_back(Sdpa(queries[i], key, with_earlier(values), mask));
  }
  return at::cat(mixed, 2);
}

at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  int64_t window) {
  if (window == 0 || q.size(2) <= window) return Sdpa(q, k, v, std::nullopt);
  return WindowAttention(q, k, v, window);
}

// Query i stands at key i + m - n of [1, kv_heads, m, d].
at::Tensor AttendFurther(const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, int64_t window) {
  const int64_t queries = q.size(2), keys = k.size(2);
  if (queries == keys) return Attend(q, k, v, window);
  const int64_t reach = window == 0 ? keys : window;
  // The keys that any of the queries sees.
  const int64_t first = std::max<int64_t>(0, keys - (reach - 1) - queries);
  const at::Tensor seen_keys = k.slice(2, first);
  const at::Tensor seen_values = v.slice(2, first);
  if (queries == 1) {
    return Sdpa(q, seen_keys, seen_values, std::nullopt, Sees::kAll);
  }
  return Sdpa(
      q, seen_keys, seen_values,
      WindowMask(queries, keys - first, reach,
                 at::TensorOptions().dtype(at::kLong).device(q.device())));
}

// [b, heads, n, d] -> [b * n, heads * d].
at::Tensor TokenRows(const at::Tensor& mixed) {
  return mixed.transpose(1, 2).reshape(
      {mixed.size(0) * mixed.size(2), mixed.size(1) * mixed.size(3)});
}

// [rows, heads, row_tokens, d] -> per sequence [1, heads, tokens, d].  Splits
// all tokens at once: its backward is one concatenation.
std::vector<at::Tensor> Sequences(const at::Tensor& x, const Packing& packing) {
  const at::Tensor tokens =
      x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1), x.size(3)});
  std::vector<at::Tensor> sequences =
      tokens.split_with_sizes(packing.sequence_tokens, 0);
  for (at::Tensor& sequence : sequences) {
    sequence = sequence.transpose(0, 1).unsqueeze(0);
  }
  return sequences;
}

}  // namespace

at::Tensor ForEachHead(const at::Tensor& x, int64_t heads) {
  const int64_t sharing = heads / x.size(1);
  return x.unsqueeze(2)
      .expand({-1, -1, sharing, -1, -1})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, const Packing& packing,
                           int64_t window) {
  const bool windows = window > 0 && window < q.size(2);
  if ((packing.packs() || windows) && HasFlashAttention(q, packing)) {
    return FlashAttention(q, k, v, packing, window);
  }
  if (!packing.packs()) {
    return TokenRows(Attend(q, k, v, window));
  }
  const std::vector<at::Tensor> queries = Sequences(q, packing);
  const std::vector<at::Tensor> keys = Sequences(k, packing);
  const std::vector<at::Tensor> values = Sequences(v, packing);
  std::vector<at::Tensor> mixed;
  for (size_t i = 0; i < queries.size(); ++i) {
    mixed.push_back(TokenRows(Attend(queries[i], keys[i], values[i], window)));
  }
  return at::cat(mixed);
}

at::Tensor CachedAttention(const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, const KeyValueCache& cache,
                           int64_t window) {
  std::vector<int64_t> counts;
  for (const auto& one : cache.sequences) counts.push_back(one.new_tokens);
  const std::vector<at::Tensor> queries = Sequences(q, {counts});
  const std::vector<at::Tensor> keys = Sequences(k, {counts});
  const std::vector<at::Tensor> values = Sequences(v, {counts});
  std::vector<at::Tensor> mixed;
  for (size_t i = 0; i < queries.size(); ++i) {
    const KeyValueCache::Sequence& one = cache.sequences[i];
    const int64_t end = one.cached_tokens + one.new_tokens;
    // [1, kv_heads, tokens, d] -> the cached ones and these, tokens first.
    const auto extend = [&](const at::Tensor& memory, const at::Tensor& added) {
      memory.slice(0, one.cached_tokens, end)
          .copy_(added.squeeze(0).transpose(0, 1));
      return one.cached_tokens == 0
                 ? added
                 : memory.slice(0, 0, end).transpose(0, 1).unsqueeze(0);
    };
    const at::Tensor all_keys = extend(one.keys, keys[i]);
    const at::Tensor all_values = extend(one.values, values[i]);
    mixed.push_back(
        TokenRows(AttendFurther(queries[i], all_keys, all_values, window)));
  }
  return at::cat(mixed);
}

}  // namespace roundhouse::worker
