// A prepared split as it lies on disk: its manifest, and whether its files are
// those that were written.
//
// Blocking file access; thread-safe.
#ifndef ROUNDHOUSE_SERVER_DATASET_PREPARED_SPLIT_H_
#define ROUNDHOUSE_SERVER_DATASET_PREPARED_SPLIT_H_

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace roundhouse {

// <path>/manifest.json.  Version 2 is sealed (base/files/sealed_json.h);
// version 1, which earlier helpers wrote, is not.  INVALID_ARGUMENT names the
// file and what is wrong with it; DATA_LOSS: it can't be read; UNAVAILABLE: it
// can't be read just now.
absl::StatusOr<nlohmann::json> ReadPreparedManifest(const std::string& path);

// Hashes every file of the split, piece by piece.  DATA_LOSS names the file and
// what is wrong with it; INTERNAL: the disk does not give it; UNAVAILABLE as
// above; CANCELLED once `stop` is true.
absl::Status VerifyPreparedSplit(const std::string& path,
                                 const std::atomic<bool>* stop = nullptr);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_PREPARED_SPLIT_H_
