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
#include <map>
#include <memory>
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

// A file that is copied, and its name in the output.
struct CopiedFile {
  std::string name;
  CheckedFile file;
};

struct ExportPiece {
  std::string tensor;    // as the output names it
  size_t part = 0;       // index of the file that it goes to
  wire::MergeRows rows;  // without its output
  uint64_t bytes = 0;    // of the output
};

struct ExportPlan {
  ExportKind kind = ExportKind::kFull;  // never kAsIs
  std::string output;                   // path of the directory to be
  // Files to be made, by their names in it; `pieces` fill them behind their
  // prefixes.
  std::vector<FilePart> parts;
  std::map<std::string, std::string> texts;  // name -> content
  std::vector<CopiedFile> copied_files;
  std::vector<ExportPiece> pieces;
  uint64_t bytes = 0;       // of all pieces
  uint64_t disk_bytes = 0;  // of all parts
  // Nobody deletes the sources as long as it is there (removal/readings.h).
  // Shared, for a plan is copied on its way to who carries it out.
  std::shared_ptr<const void> reading;
};

struct ExportPlanOptions {
  // Opens the source's and the base's files; outlives the call.
  const FileOpener* files = nullptr;
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
