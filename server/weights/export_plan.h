// What an export reads and writes, before a byte of a tensor is looked at.
//
//   adapter  adapter_config.json, adapter_model.safetensors, tokenizer files,
//            trainer_state.json: as they are
//   full     config.json, model.safetensors or shards and their index, the
//            tokenizer's files, generation_config.json, trainer_state.json
//   merged   the same of the base, each adapted matrix W replaced by
//            W + (lora_alpha / r) B A, computed in fp32 and rounded once to the
//            output's dtype (base/wire: MergeRows); tokenizer files of the
//            adapter's directory where it has its own
//
// Thread-safe.  Blocks on file reads.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_EXPORT_PLAN_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_EXPORT_PLAN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/messages.h"
#include "server/weights/checkpoint.h"
#include "server/weights/export_task.h"

namespace roundhouse {

// Written by one command, at most: what cancelling waits for, and what is done
// again when the files worker dies.
inline constexpr uint64_t kExportPieceBytes = uint64_t{32} << 20;

// Begins the name of the directory in which an export is made, beside its
// output; 16 random digits end it, so that it is nobody else's.
inline constexpr char kExportTemporaryPrefix[] = ".roundhouse-export-";

struct ExportPiece {
  std::string tensor;  // as the output names it
  wire::MergeRows rows;
  uint64_t bytes = 0;  // of the output
};

struct ExportPlan {
  ExportKind kind = ExportKind::kFull;  // never kAsIs
  // Parts have no tensors: `pieces` fill the files behind their prefixes.
  DirectoryPlan directory;
  std::vector<ExportPiece> pieces;
  uint64_t bytes = 0;  // of all pieces
};

struct ExportPlanOptions {
  // The directory of a base that an adapter_config.json names.
  std::function<absl::StatusOr<std::string>(const std::string& name)> find_base;
  uint64_t max_shard_bytes = kMaxShardBytes;
  uint64_t max_piece_bytes = kExportPieceBytes;
};

// `request` with source and output as absolute directories; the output is not
// there.  INVALID_ARGUMENT or UNIMPLEMENTED with the field: a kind or dtype
// that the source does not go with, a base that is not named, not there or of
// other shapes, files that are not what they should be.
absl::StatusOr<ExportPlan> PlanExport(const ExportRequest& request,
                                      const ExportPlanOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_EXPORT_PLAN_H_
