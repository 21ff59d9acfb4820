// A job's own copy of its model's tokenizer files, chat template,
// generation_config.json, and, beside them, config.json.  Checkpoints and
// results get theirs from it, so that a model's folder may change, or go, while
// the job runs.  tokenizer-manifest.json has their hashes; copies that jobs of
// older versions made have none, and are taken as they are.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_TOKENIZER_COPY_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_TOKENIZER_COPY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/model/directory.h"
#include "server/dataset/given_files.h"

namespace roundhouse {

// Where it lies; `directory` is the job's.
std::string TokenizerCopy(const std::string& directory);

// Whether an earlier life of the job has made it.
bool HasTokenizerCopy(const std::string& directory);

// Makes it, whole or not at all, unless it is there from an earlier life of the
// job; the names of its files.  `turn_ends` are added to what the copy's
// generation_config.json says ends an answer (eos_token_id).  What is there is
// verified, and what is damaged is made again if the model still has the same.
// FAILED_PRECONDITION names a file that changed since `model` was opened, or
// since the damaged copy was made; RESOURCE_EXHAUSTED; INTERNAL.  Blocks on the
// disk; any thread.
absl::StatusOr<std::vector<std::string>> KeepTokenizer(
    const ModelDirectory& model, const std::string& directory,
    const std::vector<int64_t>& turn_ends);

// `json`, a generation_config.json or "", with these beside its eos_token_id,
// or that of `config_json` where it has none.  What is no JSON object stays.
std::string WithTurnEnds(const std::string& json,
                         const std::string& config_json,
                         const std::vector<int64_t>& turn_ends);

// The copy's files, and the configuration, under the names that they have in
// the model's folder `model`.  Errors as AnyFiles()'s.  REQUIRES:
// KeepTokenizer.
absl::StatusOr<std::vector<GivenFile>> GiveTokenizerCopy(
    const std::string& directory, const std::string& model);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_TOKENIZER_COPY_H_
