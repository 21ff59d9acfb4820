#include "base/model/working_memory.h"

#include <algorithm>

#include "base/log.h"
#include "base/model/family.h"

namespace roundhouse {
namespace {

constexpr uint64_t kWide = sizeof(float);
// The multiprocessors of the largest GPU there is (GB202). Where heads are few,
// flash attention's backward has a split for each.
constexpr uint64_t kMostMultiprocessors = 192;
// Its blocks of queries; and, of packed sequences with the 64 tokens in the
// mean that worker/model/flash_attention asks for, what a block a sequence
// adds.
constexpr uint64_t kQueryBlock = 128;
constexpr uint64_t kPackedSplits = 3;
// How many low-rank matrices in fp32 an adapter takes: a split product with one
// and their sum take four, and parts of two factors three.
constexpr uint64_t kSplitCopies = 7;
constexpr uint64_t kSplitProducts = 3;

// Everything in bytes; widths in elements of one token.
class Estimate {
 public:
  Estimate(const ModelConfig& config, const AdapterConfig& adapter,
           const WorkingShape& shape)
      : config_(config),
        adapter_(adapter),
        shape_(shape),
        tokens_(static_cast<uint64_t>(shape.batch.sequences) *
                static_cast<uint64_t>(shape.batch.tokens)),
        element_(DTypeBytes(shape.dtype)),
        hidden_(static_cast<uint64_t>(config.hidden_size)),
        inner_(static_cast<uint64_t>(config.intermediate_size)),
        query_(static_cast<uint64_t>(config.head_count * config.head_dim)),
        key_(static_cast<uint64_t>(config.kv_head_count * config.head_dim)),
        vocab_(static_cast<uint64_t>(config.vocab_size)) {}

  uint64_t Stage(int64_t first, int64_t last) const {
    const bool head = last == config_.layer_count;
    const auto layers = static_cast<uint64_t>((head ? last : last + 1) - first);
    const uint64_t of_head = head ? Head() : 0;
    if (layers == 0) return Rotary() + of_head;
    if (!shape_.backward) return Rotary() + std::max(Passing(), of_head);
    // The last layer's backward is the first: all that is kept is still there.
    const uint64_t others =
        shape_.layer_recompute ? layers * Hidden() : (layers - 1) * Graph();
    const uint64_t own = shape_.layer_recompute ? 0 : Graph();
    return Rotary() + others + std::max(Backward(), own + of_head);
  }

 private:
  uint64_t Of(uint64_t width, uint64_t bytes) const {
    return tokens_ * width * bytes;
  }
  uint64_t Hidden() const { return Of(hidden_, element_); }
  // What a norm of `width` in `parts` keeps beside an input that others keep,
  // too, or an output that they do: a number for each part.
  uint64_t Norm(uint64_t width, uint64_t parts) const {
    return Of(width, element_) + Of(parts, kWide);
  }

  // Partial sums of the gradient of a norm's weight: at most one row for 64
  // tokens.
  uint64_t NormSums() const {
    return Of(std::max(hidden_, query_), kWide) / 64;
  }

  // cos and sin, also of each token where rows are packed, and their making.
  uint64_t Rotary() const {
    const auto width = static_cast<uint64_t>(config_.head_dim);
    const auto row = static_cast<uint64_t>(shape_.batch.tokens);
    return 2 * row * width * (element_ + 2 * kWide) + 2 * Of(width, element_);
  }

  // What a decoder layer keeps for its backward: in its attention, q and k
  // turned, v, and what comes out, with a number for each head; in its MLP the
  // gate, up, and what comes of both.
  uint64_t AttentionGraph() const {
    const auto heads = static_cast<uint64_t>(config_.head_count);
    uint64_t bytes = Norm(hidden_, 1) + Hidden() +
                     Of(2 * query_ + 2 * key_, element_) + Of(heads, kWide) +
                     Of(4 * Rank(), kWide);
    // In fp32 a GPU's kernel takes keys and values for each head.
    if (element_ == kWide && query_ != key_) bytes += Of(2 * query_, kWide);
    if (FamilyOf(config_.architecture).query_key_norm) {
      bytes += Norm(query_, heads) +
               Norm(key_, static_cast<uint64_t>(config_.kv_head_count));
    }
    return bytes;
  }
  // What attention's backward takes of its own in two byte types: sums of the
  // queries' gradient in fp32, one for each split, a number for each head, and
  // gradients of keys and values for each of the heads that share them.
  uint64_t AttentionSums() const {
    if (element_ == kWide) return 0;
    const auto heads = static_cast<uint64_t>(config_.head_count);
    const auto rows = static_cast<uint64_t>(shape_.batch.sequences);
    const auto row_tokens = static_cast<uint64_t>(shape_.batch.tokens);
    // Each row has at most ceil(multiprocessors / (rows * heads)) splits, so
    // their number grows with the rows.
    const uint64_t splits = (kMostMultiprocessors + heads - 1) / heads +
                            rows * (shape_.packed ? 1 + kPackedSplits : 1);
    const uint64_t queries =
        (row_tokens + kQueryBlock - 1) / kQueryBlock * kQueryBlock;
    const uint64_t shared = query_ == key_ ? 0 : Of(2 * query_, element_);
    return queries * (splits * query_ + rows * heads) * kWide + shared;
  }
  uint64_t MlpGraph() const {
    return Norm(hidden_, 1) + Hidden() + Of(3 * inner_, element_) +
           Of(3 * Rank(), kWide);
  }
  uint64_t Graph() const { return AttentionGraph() + MlpGraph(); }
  uint64_t Rank() const { return static_cast<uint64_t>(adapter_.rank); }

  // What a matrix with an adapter takes beside what it takes without one: its
  // masked input and what is added up, in fp32.  Without a mask bf16 needs none
  // of these (worker/model/fused/split_products.h), but the input's gradient,
  // the low-rank matrices of all tokens with their parts, and the three
  // products that a weight's gradient is the sum of.
  uint64_t AdapterCopies() const {
    if (!adapter_.present()) return 0;
    const uint64_t widest = std::max({hidden_, inner_, query_});
    if (shape_.dtype == DType::kBF16 && adapter_.dropout == 0) {
      return Of(widest, element_) + Of(kSplitCopies * Rank(), kWide) +
             kSplitProducts * Rank() * widest * kWide;
    }
    return (element_ == kWide ? 3 : 5) * Of(widest, kWide);
  }

  // A layer forward, without a graph.
  uint64_t Passing() const {
    return 5 * Hidden() +
           Of(std::max(3 * inner_, 6 * query_ + 4 * key_), element_) +
           AdapterCopies();
  }

  // A layer backward, its own graph included.  What it kept goes as gradients
  // of weights come, which stay until all are there; then one after the other
  // has a copy in fp32.
  uint64_t Backward() const {
    const bool adapters = adapter_.present();
    const UnitSpec unit =
        adapters ? AdapterUnit(config_, adapter_, 0) : ModelUnit(config_, 1);
    const uint64_t element = adapters ? kWide : element_;
    uint64_t weights = 0;
    uint64_t largest = 0;
    for (const ParameterSpec& one : unit.parameters) {
      const auto elements = static_cast<uint64_t>(one.element_count);
      weights += elements * element;
      largest = std::max(largest, elements);
    }
    const uint64_t states =
        4 * Hidden() + NormSums() +
        std::max(Of(std::max(3 * inner_, 4 * query_), element_),
                 AdapterCopies() + (adapters ? Of(inner_, element_) : 0));
    return states +
           std::max({Graph() + largest * element,
                     AttentionGraph() + AttentionSums() + weights,
                     weights + (element == kWide ? 0 : largest * kWide)});
  }

  uint64_t Head() const {
    const uint64_t rows =
        std::min(tokens_, static_cast<uint64_t>(shape_.head_token_chunk));
    const uint64_t logits = rows * vocab_;
    // What is added up in the dtype and in fp32.
    const uint64_t both = element_ == kWide ? kWide : element_ + kWide;
    // In the dtype and in fp32, and their log-probabilities.
    uint64_t chunk = logits * (kWide + both);
    const uint64_t states = 2 * Hidden() + Norm(hidden_, 1);
    if (!shape_.backward) return states + chunk;
    // The latter's gradient in the dtype, and of that the matrix's, one chunk's
    // beside the sum.
    chunk += logits * element_;
    if (!adapter_.present()) {
      const uint64_t matrix = vocab_ * hidden_;
      chunk = std::max(chunk + (rows < tokens_ ? matrix * kWide : 0),
                       logits * element_ + matrix * (kWide + both));
    }
    // The gradient of the normed states is there chunk by chunk and whole, and
    // so is that of what follows.
    return states + 3 * Hidden() + Of(hidden_, kWide) + chunk;
  }

  const ModelConfig& config_;
  const AdapterConfig& adapter_;
  const WorkingShape& shape_;
  const uint64_t tokens_;
  const uint64_t element_;
  const uint64_t hidden_;
  const uint64_t inner_;
  const uint64_t query_;
  const uint64_t key_;
  const uint64_t vocab_;
};

}  // namespace

uint64_t WorkingBytes(const ModelConfig& config, const AdapterConfig& adapter,
                      const WorkingShape& shape, int64_t first, int64_t last) {
  ROUNDHOUSE_CHECK(0 <= first && first <= last && last <= config.layer_count)
      << first << " " << last;
  return Estimate(config, adapter, shape).Stage(first, last);
}

}  // namespace roundhouse
