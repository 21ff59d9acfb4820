// Every place that writes or verifies a file that matters, by name.
//
// Whoever goes through durable_file.h says which of these it is, so that a test
// can have the disk fail at one of them (file_fault.h) and a list of sites x
// faults can be complete.  A new place gets a new name here.
//
// The sites of the dataset helper are those of server/dataset/prepare_disk.py;
// a test compares the two lists.
#ifndef ROUNDHOUSE_BASE_FILES_FILE_SITE_H_
#define ROUNDHOUSE_BASE_FILES_FILE_SITE_H_

namespace roundhouse {

struct FileSite {
  const char* name;
};

// The daemon: checkpoints.
inline constexpr FileSite kCheckpointFolder{"checkpoint.folder"};
inline constexpr FileSite kCheckpointText{"checkpoint.text"};
inline constexpr FileSite kCheckpointManifest{"checkpoint.manifest"};
inline constexpr FileSite kCheckpointRename{"checkpoint.rename"};
inline constexpr FileSite kCheckpointRead{"checkpoint.read"};
inline constexpr FileSite kCheckpointQuarantine{"checkpoint.quarantine"};
inline constexpr FileSite kCheckpointRemove{"checkpoint.remove"};
// Results of jobs.
inline constexpr FileSite kOutputFolder{"output.folder"};
inline constexpr FileSite kOutputText{"output.text"};
inline constexpr FileSite kOutputRename{"output.rename"};
// What people export.
inline constexpr FileSite kExportNote{"export.note"};
inline constexpr FileSite kExportFolder{"export.folder"};
inline constexpr FileSite kExportHeader{"export.header"};
inline constexpr FileSite kExportText{"export.text"};
inline constexpr FileSite kExportRename{"export.rename"};
// Other files of a job.
inline constexpr FileSite kFinishMark{"job.finish_mark"};
inline constexpr FileSite kJobMetrics{"job.metrics"};
inline constexpr FileSite kJobSamples{"job.samples"};
inline constexpr FileSite kJobTokenizer{"job.tokenizer"};
inline constexpr FileSite kPreparedVerify{"prepared.verify"};
// The files worker: tensors of saves, and of exports.
inline constexpr FileSite kShardWrite{"shard.write"};
inline constexpr FileSite kShardSync{"shard.sync"};
inline constexpr FileSite kMergeWrite{"merge.write"};
inline constexpr FileSite kMergeSync{"merge.sync"};
// The dataset helper.
inline constexpr FileSite kPreparedArray{"prepared.array"};
inline constexpr FileSite kPreparedManifest{"prepared.manifest"};
inline constexpr FileSite kPreparedLink{"prepared.link"};
inline constexpr FileSite kPreparedCache{"prepared.cache"};

inline constexpr FileSite kFileSites[] = {
    kCheckpointFolder, kCheckpointText,   kCheckpointManifest,
    kCheckpointRename, kCheckpointRead,   kCheckpointQuarantine,
    kCheckpointRemove, kOutputFolder,     kOutputText,
    kOutputRename,     kExportNote,       kExportFolder,
    kExportHeader,     kExportText,       kExportRename,
    kFinishMark,       kJobMetrics,       kJobSamples,
    kJobTokenizer,     kPreparedVerify,   kShardWrite,
    kShardSync,        kMergeWrite,       kMergeSync,
    kPreparedArray,    kPreparedManifest, kPreparedLink,
    kPreparedCache,
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_FILE_SITE_H_
