#include "base/model/working_memory.h"

#include <algorithm>

#include "base/log.h"
#include "base/model/family.h"

namespace roundhouse {
namespace {

constexpr uint64_t kWide = sizeof(float);

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
  // The fp32 copy of a tensor; an fp32 tensor is its own.
  uint64_t WideCopy(uint64_t width) const {
    return element_ == kWide ? 0 : Of(width, kWide);
  }
  // What a norm keeps: its input in fp32, the normed input, and its output,
  // which the matrices behind it keep.
  uint64_t Norm(uint64_t width) const {
    return WideCopy(width) + 2 * Of(width, element_);
  }

  // cos and sin, also of each token where rows are packed, and their making.
  uint64_t Rotary() const {
    const auto width = static_cast<uint64_t>(config_.head_dim);
    const auto row = static_cast<uint64_t>(shape_.batch.tokens);
    return 2 * row * width * (element_ + 2 * kWide) + 2 * Of(width, element_);
  }

  // What a decoder layer keeps for its backward: in its attention, q and k
  // turned, v, and what comes out, with a number for each head; in its MLP the
  // gate, its activation, up, and their product.
  uint64_t AttentionGraph() const {
    uint64_t bytes = Norm(hidden_) + Hidden() +
                     Of(2 * query_ + 2 * key_, element_) +
                     Of(static_cast<uint64_t>(config_.head_count), kWide) +
                     Of(4 * Rank(), kWide);
    if (FamilyOf(config_.architecture).query_key_norm) {
      bytes += Norm(query_) + Norm(key_);
    }
    return bytes;
  }
  uint64_t MlpGraph() const {
    return Norm(hidden_) + Hidden() + Of(4 * inner_, element_) +
           Of(3 * Rank(), kWide);
  }
  uint64_t Graph() const { return AttentionGraph() + MlpGraph(); }
  uint64_t Rank() const { return static_cast<uint64_t>(adapter_.rank); }

  // Of a matrix with an adapter: its masked input and what is added up, in
  // fp32.
  uint64_t AdapterCopies() const {
    if (!adapter_.present()) return 0;
    const uint64_t widest = std::max({hidden_, inner_, query_});
    return (element_ == kWide ? 3 : 5) * Of(widest, kWide);
  }

  // A layer forward, without a graph.
  uint64_t Passing() const {
    return 5 * Hidden() + 2 * WideCopy(hidden_) + WideCopy(query_) +
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
        4 * Hidden() + 2 * WideCopy(hidden_) +
        std::max(Of(std::max(3 * inner_, 4 * query_), element_),
                 AdapterCopies() + (adapters ? Of(inner_, element_) : 0));
    return states +
           std::max({Graph() + largest * element, AttentionGraph() + weights,
                     weights + (element == kWide ? 0 : largest * kWide)});
  }

  uint64_t Head() const {
    const uint64_t rows =
        std::min(tokens_, static_cast<uint64_t>(shape_.head_token_chunk));
    const uint64_t logits = rows * vocab_;
    // In the dtype and in fp32, their log-probabilities, the latter's gradient
    // in the dtype.
    uint64_t bytes =
        logits * (kWide + (element_ == kWide ? kWide : element_ + kWide));
    bytes += Hidden() + Norm(hidden_);
    if (!shape_.backward) return bytes;
    bytes += logits * element_;
    // Of the normed states, chunk by chunk and whole, and what follows.
    bytes += 4 * Hidden() + 3 * Of(hidden_, kWide);
    if (!adapter_.present()) {
      // The matrix's gradient, and one chunk's.
      bytes += vocab_ * hidden_ *
               (kWide + (element_ == kWide ? kWide : element_ + kWide));
    }
    return bytes;
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
