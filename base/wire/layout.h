// What lies where in the host arena: plain structs at offsets, read by every
// worker, written by the daemon only (words, journal, ledger and tensors
// excepted).  Offsets are bytes from the arena's start; 0 means "none".
//
//   ArenaHeader              at offset 0
//   JobLayout                per job, followed by its units and parameters
//   tensors, words, buffers  wherever the daemon put them
//
// Versioned by kWireVersion: daemon and workers are one build, and a worker
// that finds another version refuses to start.
#ifndef ROUNDHOUSE_BASE_WIRE_LAYOUT_H_
#define ROUNDHOUSE_BASE_WIRE_LAYOUT_H_

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/limits.h"
#include "base/reduction.h"
#include "base/wire/words.h"

namespace roundhouse::wire {

inline constexpr uint32_t kWireVersion = 2;
inline constexpr uint64_t kArenaMagic = 0x31414e4552414852;  // "RHARENA1"
inline constexpr uint32_t kLayoutMagic = 0x544c4852;         // "RHLT"

// Host operations work in chunks of this many elements, counted from each
// parameter's start (docs/design/wire.md: ends depend on the parameter only).
// Part of the bits: norm partials are per chunk.
inline constexpr uint64_t kChunkElements = kReduceChunkElements;

struct BufferRef {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// To wait until the word at `offset` reaches `value`, or to raise it to it.
struct WordRef {
  uint64_t offset = 0;
  uint64_t value = 0;
};

struct ArenaHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t worker_count;
  uint64_t size_bytes;
  // Pages whose memory is there and stays until the daemon ends, whoever has
  // them, are the first kept_bytes: a device worker may pin them, piece by
  // piece (of piece_bytes; the arena's last may be shorter).  The daemon sets
  // piece_bytes before there is a worker, 0: none is kept; kept_bytes only
  // rises, by whole pieces.
  uint64_t piece_bytes;
  std::atomic<uint64_t> kept_bytes;
  uint64_t pad[3];
  DoorbellTable doorbells;
};

// A LayerSet: bit l % 64 of word l / 64 for decoder layer l.
inline constexpr int kLayerSetWords =
    static_cast<int>(kMaxModelLayers + 63) / 64;

// The model's dimensions as base/model/config.h has them.
struct ModelDims {
  uint32_t architecture;
  uint32_t tie_word_embeddings;
  int64_t hidden_size;
  int64_t layer_count;
  int64_t head_count;
  int64_t kv_head_count;
  int64_t head_dim;
  int64_t intermediate_size;
  int64_t vocab_size;
  int64_t max_position_tokens;
  double rope_theta;
  double rms_norm_eps;
  uint32_t rope_type;  // RopeType
  uint32_t query_key_value_bias;
  uint32_t output_bias;
  uint32_t mlp_bias;
  double rope_factor;
  double rope_low_freq_factor;
  double rope_high_freq_factor;
  int64_t rope_original_max_position_tokens;
  int64_t sliding_window;
  uint64_t sliding_layers[kLayerSetWords];
  uint64_t expert_layers[kLayerSetWords];
  int64_t expert_count;  // 0: none, as the next two
  int64_t experts_per_token;
  int64_t expert_size;
  int64_t shared_size;
  uint64_t renormalize;
};

// What trains where not everything does (base/model/parameters.h).
struct AdapterDims {
  int64_t rank;  // 0: none
  double alpha;
  double dropout;
  uint32_t targets;
  uint32_t pad;
};

struct JobLayout {
  uint32_t magic;
  uint32_t version;
  uint64_t job;
  ModelDims model;
  AdapterDims adapter;
  DType dtype;  // of the model's weights and of activations
  uint32_t head_token_chunk;
  uint64_t seed;
  uint32_t unit_count;
  uint32_t parameter_count;
  uint64_t units_offset;       // UnitLayout[unit_count]
  uint64_t parameters_offset;  // ParameterLayout[parameter_count]
  // Scratch slots of the host worker's journal.
  uint64_t scratch_offset;
  uint64_t scratch_slot_bytes;
  uint32_t scratch_slot_count;
  uint32_t ledger_entries;
  // The commit ledger: std::atomic<uint64_t>[ledger_entries].  Entry
  // slot % ledger_entries holds the number of the last committed slot there;
  // the daemon stores it before it acts on a slot-done.
  uint64_t ledger_offset;
};

// A unit's tensors.  Parameters lie at the same element offset in each.  A
// frozen unit has compute weights and a version word only; the rest is 0.
struct UnitLayout {
  uint32_t first_parameter;
  uint32_t parameter_count;
  uint64_t element_count;         // padded
  uint64_t compute_offset;        // `dtype`
  uint64_t master_offset;         // fp32
  uint64_t exp_avg_offset;        // fp32
  uint64_t exp_avg_sq_offset;     // fp32
  uint64_t grad_sum_offset;       // fp32; 0: none is kept
  uint64_t version_word_offset;   // Word
  uint64_t journal_offset;        // std::atomic<uint64_t>[chunk_count]
  uint64_t norm_partials_offset;  // double[chunk_count]
  uint32_t chunk_count;
  DType dtype;  // of the compute weights: the job's, adapters fp32
};

struct ParameterLayout {
  uint32_t unit;
  uint32_t role;  // ParamRole
  uint64_t unit_offset_elements;
  uint64_t element_count;
  uint32_t first_chunk;  // of the unit's chunks
  uint32_t weight_decay;
};

constexpr uint64_t ChunkCount(uint64_t element_count) {
  return (element_count + kChunkElements - 1) / kChunkElements;
}

// The journal word of one chunk (docs/design/wire.md, "Journal").
// `operation` numbers host operations per job and only rises.
enum class ChunkState : uint64_t { kNone = 0, kReady = 1, kDone = 2 };

struct JournalEntry {
  uint64_t operation = 0;
  uint32_t scratch_slot = 0;
  ChunkState state = ChunkState::kNone;
};

constexpr uint64_t PackJournal(const JournalEntry& entry) {
  return entry.operation << 16 | (uint64_t{entry.scratch_slot} & 0x3fff) << 2 |
         static_cast<uint64_t>(entry.state);
}

constexpr JournalEntry UnpackJournal(uint64_t word) {
  return {word >> 16, static_cast<uint32_t>(word >> 2 & 0x3fff),
          static_cast<ChunkState>(word & 3)};
}

static_assert(std::is_standard_layout_v<JobLayout> &&
              std::is_trivially_copyable_v<JobLayout>);
static_assert(std::is_trivially_copyable_v<UnitLayout>);
static_assert(std::is_trivially_copyable_v<ParameterLayout>);

// --- tables of the files worker, in arena memory lent for one operation ---

enum class TensorInit : uint32_t {
  kNone = 0,
  kNormal = 1,
  kOnes = 2,
  kZeros = 3,
  kUniform = 4
};

// One tensor between a file and the arena.
//   load  file -> `first` (compute copy) and, where set, `second` (master)
//   init  generator -> the same
//   save  `first` -> file
// Conversion goes through fp32, rounding to nearest even.
struct FileTensor {
  uint64_t file_offset;
  uint64_t element_count;
  uint64_t first_offset;
  uint64_t second_offset;
  DType file_dtype;
  DType first_dtype;
  DType second_dtype;
  TensorInit init;
  double init_std;       // kUniform: all lie within this of zero
  uint64_t init_stream;  // with the job's seed: the key of the generator
};

struct FileShard {
  uint64_t path_offset;  // UTF-8, not terminated
  uint32_t path_bytes;
  uint32_t first_tensor;
  uint32_t tensor_count;
  uint32_t root_bytes;
  uint64_t root_offset;  // load: as the path, CheckedFile::root
  // Load: the file's identity (base/files/checked_file.h), beside file_bytes.
  uint64_t device;
  uint64_t inode;
  int64_t mtime_ns;
  uint64_t prefix_offset;  // save: header bytes written first
  uint64_t prefix_bytes;
  uint64_t file_bytes;  // whole file; a load checks it, a save must end there
  uint8_t sha256[32];   // save: written by the worker before it answers
};

static_assert(std::is_trivially_copyable_v<FileTensor>);
static_assert(std::is_trivially_copyable_v<FileShard>);

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_LAYOUT_H_
