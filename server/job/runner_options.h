// What a JobRunner runs.
#ifndef ROUNDHOUSE_SERVER_JOB_RUNNER_OPTIONS_H_
#define ROUNDHOUSE_SERVER_JOB_RUNNER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model/directory.h"
#include "scheduler/share/fair_shares.h"
#include "server/dataset/dataset.h"
#include "server/dataset/text_helper.h"
#include "server/planning/device_room.h"
#include "server/spec/hub_cache.h"
#include "server/spec/spec.h"
#include "server/weights/adapter_files.h"
#include "server/weights/base_weights.h"
#include "server/workers/files_line.h"

namespace roundhouse {

struct RunnerOptions {
  uint64_t job = 0;
  JobOwner owner;                         // whose share of the devices it takes
  Priority priority = Priority::kNormal;  // when it starts
  std::string uid;                        // the job's; its result says it
  std::string directory;                  // the job's; checkpoints lie in it
  std::string output_path;                // the exported model's
  ResolvedSpec spec;
  const FileOpener* files = nullptr;  // what it reads; outlives the runner
  // Not OK: model or adapter are not what was submitted, and why; the job goes
  // on only with what it has of its own.
  absl::Status sources;
  ModelDirectory model;
  // What adapters name as their base: the model as the hub has it, or its
  // directory here, without a revision.
  HubName base;
  std::optional<AdapterDirectory> adapter;  // its spec names it
  // The engine's; outlives the runner.  Null: the job shares no base, and has
  // no adapters.
  BaseCache* bases = nullptr;
  // BaseKey of the model as it was opened; of a job that shares a base.
  absl::StatusOr<std::string> base_key = std::string();
  FilesLine* files_line = nullptr;  // outlives the runner
  const Dataset* train = nullptr;
  // The hash of the training tokens when the job was submitted; "": not known.
  std::string dataset_sha256;
  const Dataset* validation = nullptr;  // null: none
  TextHelperOptions text;               // for the spec's eval_prompts
  DeviceRoom device;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOB_RUNNER_OPTIONS_H_
