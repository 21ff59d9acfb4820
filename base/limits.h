// Limits on what comes in from outside, each with its unit.  Whatever exceeds
// one is refused with the field, the value and the limit.
//
// They are far above any published model and low enough that no product of
// sizes that the code forms overflows int64_t.
#ifndef ROUNDHOUSE_BASE_LIMITS_H_
#define ROUNDHOUSE_BASE_LIMITS_H_

#include <cstdint>

namespace roundhouse {

// A model's dimensions, in elements unless the name says otherwise.
// Decoder layers; with the head, which a plan counts as one more, they are the
// most that a plan can have (scheduler/plan/plan.h).
inline constexpr int64_t kMaxModelLayers = 511;
inline constexpr int64_t kMaxHiddenSize = 65536;
inline constexpr int64_t kMaxIntermediateSize = 1 << 20;
inline constexpr int64_t kMaxVocabSize = 1 << 21;  // token ids
inline constexpr int64_t kMaxAttentionHeads = 1024;
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kMaxExperts = 1024;  // of a layer
// The inner widths of a layer's experts together.
inline constexpr int64_t kMaxExpertInnerSize = 1 << 22;
inline constexpr int64_t kMaxPositionTokens = 1 << 24;
inline constexpr int64_t kMaxAdapterRank = 4096;
inline constexpr double kMaxAdapterAlpha = 1e6;

// Tokens of one micro-batch, padding included.
inline constexpr int64_t kMaxMicroBatchTokens = int64_t{1} << 31;

// The dataset helper is killed when it has told no progress for this long.
inline constexpr int64_t kMaxHelperSilenceSeconds = 600;

// JSON files of a model directory.
inline constexpr uint64_t kMaxConfigBytes = 1 << 20;
inline constexpr uint64_t kMaxIndexBytes = 128 << 20;
// Each file of its tokenizer; the largest published ones have 35 MB.
inline constexpr uint64_t kMaxTokenizerFileBytes = 256 << 20;
inline constexpr int kMaxJsonDepth = 64;           // nested objects and arrays
inline constexpr int64_t kMaxJsonKeys = 4096;      // of one object
inline constexpr int64_t kMaxIndexKeys = 1 << 20;  // tensors of one index

// safetensors files.  The header's limit is the format's own.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
inline constexpr int64_t kMaxSafetensorsTensors = 1 << 20;  // of one file
inline constexpr int64_t kMaxTensorRank = 16;               // dimensions
inline constexpr int64_t kMaxModelShards = 10'000;          // files

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_LIMITS_H_
