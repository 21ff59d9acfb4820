// Every place that makes, writes, renames, removes or verifies a file below the
// state directory and the data roots, by name.
//
// Whoever goes through durable_file.h says which of these it is, so that a test
// can have the disk fail at one of them (file_fault.h) and a list of sites x
// faults can be complete.  A new place gets a new name here;
// tests/integration/file_sites_test.py fails at what the processes do to files
// without one.  SQLite's own files are one site more, which has no faults here.
//
// The sites of the dataset helper are those of server/prepare/common/disk.py;
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
inline constexpr FileSite kOutputRemove{"output.remove"};
// What people export.
inline constexpr FileSite kExportNote{"export.note"};
inline constexpr FileSite kExportFolder{"export.folder"};
inline constexpr FileSite kExportHeader{"export.header"};
inline constexpr FileSite kExportText{"export.text"};
inline constexpr FileSite kExportRename{"export.rename"};
inline constexpr FileSite kExportRemove{"export.remove"};
// Other files of a job: its folder, what people read while it runs (appended,
// never synced; a full disk costs lines), and what it must find again.
inline constexpr FileSite kJobFolder{"job.folder"};
inline constexpr FileSite kJobLog{"job.log"};
inline constexpr FileSite kJobLines{"job.lines"};
inline constexpr FileSite kFinishMark{"job.finish_mark"};
inline constexpr FileSite kJobMetrics{"job.metrics"};
inline constexpr FileSite kJobSamples{"job.samples"};
inline constexpr FileSite kJobTokenizer{"job.tokenizer"};
inline constexpr FileSite kPreparedVerify{"prepared.verify"};
// This removes what a death has left in folders of jobs and results.
inline constexpr FileSite kLeftoverRemove{"leftover.remove"};
// What people delete: marks of results that stay, and what goes.
inline constexpr FileSite kRemovalMark{"removal.mark"};
inline constexpr FileSite kRemovalRename{"removal.rename"};
inline constexpr FileSite kRemovalRemove{"removal.remove"};
// The state directory itself, and what lies beside the job store.
inline constexpr FileSite kStateFolder{"state.folder"};
inline constexpr FileSite kStateLock{"state.lock"};
inline constexpr FileSite kStateReserve{"state.reserve"};
inline constexpr FileSite kStoreMark{"store.mark"};
inline constexpr FileSite kStoreBackup{"store.backup"};
// What people upload: chunks as they come, and folders of whole versions.
inline constexpr FileSite kUploadFolder{"upload.folder"};
inline constexpr FileSite kUploadPart{"upload.part"};
inline constexpr FileSite kUploadVerify{"upload.verify"};
inline constexpr FileSite kUploadLink{"upload.link"};
inline constexpr FileSite kUploadRename{"upload.rename"};
inline constexpr FileSite kUploadRemove{"upload.remove"};
// The daemon's own key and certificate for --listen-tls.
inline constexpr FileSite kTlsFolder{"tls.folder"};
inline constexpr FileSite kTlsFile{"tls.file"};
// The socket that --listen names.
inline constexpr FileSite kListenSocket{"listen.socket"};
// The files worker: tensors of saves, and of exports.
inline constexpr FileSite kShardWrite{"shard.write"};
inline constexpr FileSite kShardSync{"shard.sync"};
inline constexpr FileSite kShardRemove{"shard.remove"};
inline constexpr FileSite kMergeWrite{"merge.write"};
inline constexpr FileSite kMergeSync{"merge.sync"};
// The dataset helper.
inline constexpr FileSite kPreparedArray{"prepared.array"};
inline constexpr FileSite kPreparedManifest{"prepared.manifest"};
inline constexpr FileSite kPreparedLink{"prepared.link"};
inline constexpr FileSite kPreparedCache{"prepared.cache"};
inline constexpr FileSite kPreparedLock{"prepared.lock"};
inline constexpr FileSite kPreparedRemove{"prepared.remove"};

inline constexpr FileSite kFileSites[] = {
    kCheckpointFolder, kCheckpointText,   kCheckpointManifest,
    kCheckpointRename, kCheckpointRead,   kCheckpointQuarantine,
    kCheckpointRemove, kOutputFolder,     kOutputText,
    kOutputRename,     kOutputRemove,     kExportNote,
    kExportFolder,     kExportHeader,     kExportText,
    kExportRename,     kExportRemove,     kJobFolder,
    kJobLog,           kJobLines,         kFinishMark,
    kJobMetrics,       kJobSamples,       kJobTokenizer,
    kPreparedVerify,   kLeftoverRemove,   kStateFolder,
    kStateLock,        kStateReserve,     kStoreMark,
    kUploadFolder,     kUploadPart,       kUploadVerify,
    kUploadLink,       kUploadRename,     kUploadRemove,
    kStoreBackup,      kTlsFolder,        kTlsFile,
    kListenSocket,     kShardWrite,       kShardSync,
    kShardRemove,      kMergeWrite,       kMergeSync,
    kPreparedArray,    kPreparedManifest, kPreparedLink,
    kPreparedCache,    kPreparedLock,     kPreparedRemove,
    kRemovalMark,      kRemovalRename,    kRemovalRemove,
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_FILE_SITE_H_
