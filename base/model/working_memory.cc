#include "base/model/working_memory.h"

#include <algorithm>
#include <map>

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

// A place in a list of picks or tokens, as LibTorch counts.
constexpr uint64_t kIndexBytes = sizeof(int64_t);

// For one kind of layer: with experts, or without.  Everything in bytes; widths
// in elements of one token.
class Estimate {
 public:
  // As `layer` is.
  Estimate(const ModelConfig& config, const AdapterConfig& adapter,
           const WorkingShape& shape, int64_t layer)
      : config_(config),
        adapter_(adapter),
        shape_(shape),
        tokens_(static_cast<uint64_t>(shape.batch.sequences) *
                static_cast<uint64_t>(shape.batch.tokens)),
        element_(DTypeBytes(shape.dtype)),
        hidden_(static_cast<uint64_t>(config.hidden_size)),
        layer_(layer),
        has_experts_(config.HasExperts(layer)),
        inner_(static_cast<uint64_t>(config.MlpSize(layer))),
        query_(static_cast<uint64_t>(config.head_count * config.head_dim)),
        key_(static_cast<uint64_t>(config.kv_head_count * config.head_dim)),
        vocab_(static_cast<uint64_t>(config.vocab_size)) {}

  // While the layer runs forward, without a graph; the graph that it keeps; and
  // while it runs backward, that included.
  uint64_t Passing() const {
    return 5 * Hidden() +
           std::max(Of(std::max(3 * inner_, 6 * query_ + 4 * key_), element_),
                    ExpertsPassing()) +
           BesideExperts() + AdapterCopies();
  }
  uint64_t Graph() const { return AttentionGraph() + MlpGraph(); }
  uint64_t Backward() const;
  // The same for every layer.
  uint64_t Head() const;
  uint64_t Rotary() const;
  uint64_t Hidden() const { return Of(hidden_, element_); }

  // What says where a micro-batch's picks are.
  uint64_t PickBytes() const {
    return has_experts_ ? Of(Picks(), 4 * kIndexBytes + sizeof(ExpertPick)) : 0;
  }

 private:
  uint64_t Of(uint64_t width, uint64_t bytes) const {
    return tokens_ * width * bytes;
  }
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
           Of(3 * Rank(), kWide) + ExpertsGraph() + BesideExperts();
  }
  // What an MLP beside experts gives, which is multiplied by its gate.
  uint64_t BesideExperts() const {
    return has_experts_ && inner_ > 0 ? Hidden() + Of(3, element_) : 0;
  }

  // A layer's experts: E of inner width I, k a token.
  uint64_t Experts() const {
    return static_cast<uint64_t>(config_.mixture.expert_count);
  }
  uint64_t ExpertInner() const {
    return static_cast<uint64_t>(config_.mixture.expert_size);
  }
  uint64_t Picks() const {
    return static_cast<uint64_t>(config_.mixture.experts_per_token);
  }
  // They keep the router's probabilities, of each pick its weight and place,
  // and gate and up.
  uint64_t ExpertsGraph() const {
    if (!has_experts_) return 0;
    return Of(Experts(), kWide) + PickBytes() + Of(3 * Picks(), kWide) +
           Of(Picks() * 2 * ExpertInner(), element_);
  }
  // Forward: logits are sorted.  Then there is a sum of all experts in fp32
  // and, of one expert at a time, which may get every token, its gates and ups:
  // in one matrix, densely, and multiplied; or its output, weighted and added
  // up.
  uint64_t ExpertsPassing() const {
    if (!has_experts_) return 0;
    const uint64_t inner = ExpertInner();
    const uint64_t router =
        Of(Experts(), element_ + 2 * kWide + 3 * kIndexBytes);
    const uint64_t row =
        std::max(5 * inner * element_,
                 hidden_ * kWide + 2 * (hidden_ + inner) * element_);
    return std::max(router, Of(hidden_, kWide) + Of(1, row)) + PickBytes();
  }
  // Backward, beside what was kept: the sum of the inputs' gradients and, of
  // one expert at a time, what its weights' gradients in the rows are, the
  // gradients of its gates and ups beside these, or that of its input, added
  // up.
  uint64_t ExpertsBackward() const {
    if (!has_experts_) return 0;
    const uint64_t inner = ExpertInner();
    const uint64_t row =
        std::max({hidden_ * element_ + 2 * inner * (element_ + kWide),
                  5 * inner * element_,
                  hidden_ * (kWide + element_) + 2 * inner * element_});
    return Of(hidden_, kWide) + Of(1, row) + Of(2 * Experts(), kWide) +
           Of(2 * Picks(), kWide);
  }
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

  const ModelConfig& config_;
  const AdapterConfig& adapter_;
  const WorkingShape& shape_;
  const uint64_t tokens_;
  const uint64_t element_;
  const uint64_t hidden_;
  const int64_t layer_;
  const bool has_experts_;
  const uint64_t inner_;  // of its MLP; 0: it has experts only
  const uint64_t query_;
  const uint64_t key_;
  const uint64_t vocab_;
};

// cos and sin, also of each token where rows are packed, and their making.
uint64_t Estimate::Rotary() const {
  const auto width = static_cast<uint64_t>(config_.head_dim);
  const auto row = static_cast<uint64_t>(shape_.batch.tokens);
  return 2 * row * width * (element_ + 2 * kWide) + 2 * Of(width, element_);
}

// A layer backward, its own graph included.  What it kept goes as gradients
// of weights come, which stay until all are there; then one after the other
// has a copy in fp32.
uint64_t Estimate::Backward() const {
  const bool adapters = adapter_.present();
  const UnitSpec unit = adapters ? AdapterUnit(config_, adapter_, layer_)
                                 : ModelUnit(config_, layer_ + 1);
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
      std::max({Of(std::max(3 * inner_, 4 * query_), element_),
                ExpertsBackward(),
                AdapterCopies() + (adapters ? Of(inner_, element_) : 0)});
  // Gradients of experts come together.
  const uint64_t first =
      has_experts_ && !adapters ? weights : largest * element;
  return states +
         std::max({Graph() + first,
                   AttentionGraph() + AttentionSums() + weights,
                   weights + (element == kWide ? 0 : largest * kWide)});
}

uint64_t Estimate::Head() const {
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

// For one kind of layer.
struct LayerBytes {
  uint64_t running = 0;
  uint64_t kept = 0;  // from its forward pass to its backward
};

LayerBytes BytesOf(const ModelConfig& config, const AdapterConfig& adapter,
                   const WorkingShape& shape, int64_t layer) {
  const Estimate own(config, adapter, shape, layer);
  if (!shape.backward) return {own.Passing(), 0};
  if (!shape.layer_recompute) return {own.Backward(), own.Graph()};
  // With a layer's input its picks stay.
  const uint64_t kept = own.Hidden() + own.PickBytes();
  return {kept + own.Backward(), kept};
}

}  // namespace

uint64_t WorkingBytes(const ModelConfig& config, const AdapterConfig& adapter,
                      const WorkingShape& shape, int64_t first, int64_t last) {
  ROUNDHOUSE_CHECK(0 <= first && first <= last && last <= config.layer_count)
      << first << " " << last;
  const Estimate any(config, adapter, shape, 0);
  const uint64_t head = last == config.layer_count ? any.Head() : 0;
  std::map<bool, LayerBytes> kinds;  // by whether they have experts
  uint64_t most = head;
  uint64_t kept = 0;  // of the layers before, while one runs backward
  for (int64_t layer = first; layer <= last; ++layer) {
    if (layer == config.layer_count) break;
    const auto [kind, is_new] = kinds.try_emplace(config.HasExperts(layer));
    if (is_new) kind->second = BytesOf(config, adapter, shape, layer);
    const LayerBytes& bytes = kind->second;
    most = std::max(most, kept + bytes.running);
    kept += bytes.kept;
  }
  return any.Rotary() + std::max(most, kept + head);
}

}  // namespace roundhouse
