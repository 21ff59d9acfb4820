// Reads datasets for people who have no job yet: server/prepare/prepare.py with
// --validate or --preview, one supervised child for each question.
//
// Few children run at once, previews and small datasets in slots of their own
// (helper_lanes.h), and some wait for a slot; what they answer is bounded, and
// one that nobody waits for any more is killed.
#ifndef ROUNDHOUSE_SERVER_DATASET_DATASET_INSPECTOR_H_
#define ROUNDHOUSE_SERVER_DATASET_DATASET_INSPECTOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/caller.h"
#include "server/access/names_of.h"
#include "server/dataset/dataset_helper.h"
#include "server/dataset/given_files.h"
#include "server/dataset/helper_lanes.h"
#include "server/loop/event_loop.h"
#include "server/spec/data_files.h"
#include "server/spec/paths.h"
#include "server/spec/spec.h"

namespace roundhouse {

// The size of the helper's answer. What it becomes must fit a gRPC message of 4
// MiB.
inline constexpr size_t kMaxInspectionBytes = 3 << 20;
inline constexpr int kMaxPreviewSamples = 100;

// As in a job file.
struct DatasetQuestion {
  std::vector<std::string> dataset;  // files, folders, patterns
  std::string model_name_or_path;
  int64_t max_length = 0;            // tokens; 0: a job's default
  std::string truncation = "right";  // or left, drop, split
  bool packing = false;
  int64_t seed = JobSpec().seed;  // of packing
  std::string template_date;      // YYYY-MM-DD
  std::string format;             // a DatasetFormatName; "": auto
  DatasetColumns columns;
  int64_t max_samples = 0;      // rows, the first; 0: all
  double validation_split = 0;  // share held out; 0: none
  // Read behind `dataset` and checked alike where with_validation says so;
  // empty: what validation_split holds out.
  std::vector<std::string> validation_dataset;
  bool with_validation = false;
  int samples = 0;  // to show; 0: read all and count
  Caller caller;    // who asks
  // As Check found it.
  uint64_t dataset_bytes = 0;
  std::vector<GivenFile> given;
  std::vector<GivenFile> validation_given;
};

class DatasetInspector {
 public:
  using InspectionId = uint64_t;
  // The JSON object that prepare.py ends with ({"report"} or {"samples"}), as
  // text; with_validation a second line of the same for those rows.
  // INVALID_ARGUMENT with file and line, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED
  // (silence, or longer than a short one may take), CANCELLED, UNAVAILABLE (the
  // daemon stops, or no child can be started now) or INTERNAL.
  using Done = std::function<void(absl::StatusOr<std::string>)>;

  // `loop` and `files`, which opens what `names` finds, outlive the
  // inspector.
  DatasetInspector(EventLoop& loop, const HelperProgram& program,
                   const FileOpener& files, NamesOf names);
  // REQUIRES: the loop has ended.  Stop().
  ~DatasetInspector();
  DatasetInspector(const DatasetInspector&) = delete;
  DatasetInspector& operator=(const DatasetInspector&) = delete;

  // Any thread.  The question with the files' real names and every default.
  // kInvalidArgument naming the field.
  absl::StatusOr<DatasetQuestion> Check(DatasetQuestion question) const;

  // Any thread; for Start and Cancel.
  InspectionId NewId() { return next_id_++; }
  // Any thread.  Calls `done` once, on the loop's thread, or on this one when
  // the loop has ended.  Waits for a slot; RESOURCE_EXHAUSTED when too many
  // wait.  Nothing is started when `cancelled` says so then.
  // REQUIRES: `question` comes from Check.
  void Start(InspectionId id, const DatasetQuestion& question,
             std::function<bool()> cancelled, Done done);
  // Any thread.  Kills the child; `done` gets CANCELLED once it is gone.  No
  // effect before Start or after the end.
  void Cancel(InspectionId id);
  // After the loop's end, on its thread: kills every child; each `done` gets
  // UNAVAILABLE.
  void Stop();

 private:
  struct Inspection;

  void Admit(InspectionId id, std::unique_ptr<Inspection> inspection);
  void StartThoseNext();
  void StartNow(InspectionId id, Inspection* inspection);
  // The child for `dataset`, or the one for the validation data, has ended.
  void OnEnded(InspectionId id, const absl::Status& status);
  void StartValidation(InspectionId id);
  void Finish(InspectionId id, const absl::Status& status);

  EventLoop& loop_;
  const HelperProgram program_;
  const FileOpener& files_;
  const NamesOf names_;
  std::atomic<InspectionId> next_id_ = 1;
  HelperLanes lanes_;
  std::map<InspectionId, std::unique_ptr<Inspection>> inspections_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_DATASET_INSPECTOR_H_
