// The job file: its text in the one vocabulary -> a validated JobSpec -> a
// ResolvedSpec with every default filled in, and back to JSON.
//
// docs/job-spec.md says what each field means; a test holds it and
// JobSpecVocabulary() together.  Nothing here opens a file or looks at a model:
// paths are checked in server/spec/paths.h, the plan against the model's layers
// by scheduler/plan.
//
// Pure functions and values; thread-safe.
#ifndef ROUNDHOUSE_SERVER_SPEC_SPEC_H_
#define ROUNDHOUSE_SERVER_SPEC_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/priority.h"

namespace roundhouse {

// Limits of eval_prompts; the model's positions bound each of them too. Written
// as JSON, where a byte may take six, they leave room in a job file.
inline constexpr size_t kMaxEvalPrompts = 16;
inline constexpr size_t kMaxEvalPromptBytes = 8 << 10;
inline constexpr int64_t kEvalNewTokens = 64;  // of each completion, at most

// For a job that says nothing of it, where its model allows as much.
inline constexpr int64_t kUsualMaxLength = 1024;  // tokens

enum class LrSchedulerType { kLinear, kCosine, kConstant, kConstantWithWarmup };
// Recomputation: kAuto leaves it to the planner.
enum class GradientCheckpointing { kAuto, kStage, kLayer };

enum class DatasetFormat {
  kAuto,
  kText,
  kPromptCompletion,
  kMessages,
  kShareGpt,
  kAlpaca
};
// "auto", "text", "prompt_completion", "messages", "sharegpt", "alpaca".
const char* DatasetFormatName(DatasetFormat format);
std::optional<DatasetFormat> FindDatasetFormat(const std::string& name);
// A field of the format, and what the data calls it.
using DatasetColumns = std::vector<std::pair<std::string, std::string>>;
// The fields of all formats: what DatasetColumns may name first.
const std::vector<std::string>& DatasetColumnNames();
inline constexpr size_t kMaxColumnBytes = 256;  // of what the data calls it

// What becomes of a sequence longer than max_length: one end is cut off,
// it is left out, or it becomes several, cut at line ends (text alone).
enum class Truncation { kRight, kLeft, kDrop, kSplit };
// "right", "left", "drop", "split".
const char* TruncationName(Truncation truncation);
std::optional<Truncation> FindTruncation(const std::string& name);

// YYYY-MM-DD, a day of the Gregorian calendar.
bool IsTemplateDate(const std::string& text);
// The day in UTC.
std::string TemplateDateAt(absl::Time time);

// First and last layer of a stage; layers 0..L-1 are decoder blocks, L is the
// head (final norm, LM head, loss).
struct StageRange {
  int first = 0;
  int last = 0;
  bool operator==(const StageRange&) const = default;
};

// How many devices run a stage: `width`, with shares of the groups as equal as
// can be, or a device for each of `groups`, which says how many it runs.
struct StageWidth {
  int64_t width = 1;
  std::vector<int64_t> groups = {};  // empty: by width

  int64_t devices() const {
    return groups.empty() ? width : static_cast<int64_t>(groups.size());
  }
  bool operator==(const StageWidth&) const = default;
};

// backward[0] is the fused stage and ends with the head; the other backward
// stages go down to layer 0; forward covers 0 .. backward[0].first - 1.
struct ExplicitPlan {
  std::vector<StageRange> forward;
  std::vector<StageRange> backward;
  // One for each stage; both empty where every stage is one device wide.
  std::vector<StageWidth> forward_width;
  std::vector<StageWidth> backward_width;
  bool operator==(const ExplicitPlan&) const = default;
};

// Saving::every: 0 for "auto", which leaves it to the planner, 1 for "all",
// N for "every N".  Nothing for other texts.
std::optional<int> FindSavedInputs(const std::string& text);
std::string SavedInputsText(int every);
inline constexpr char kSavedInputsWords[] = "auto, all, every 2 to every 64";

// kAsync: a step reads the weights that the update before the last one left, so
// that updates run under the next step.
enum class OptimizerMode { kSync, kAsync };

// kBitwise: gradient sums leave the devices in fp32, and the same resolved spec
// gives the same bits whatever the devices and the plan.  kFast: they leave in
// the model's dtype, and the bits are those of the plan.
enum class Determinism { kBitwise, kFast };

inline constexpr int64_t kMaxBatchSize = 1000000;
// The least validation_split, where there is one: a row in a million.
inline constexpr double kMinValidationSplit = 1e-6;
inline constexpr double kMaxValidationSplit = 0.5;
inline constexpr int64_t kMostSamples = int64_t{1} << 40;  // of max_samples

// What the job file says, with the defaults of docs/job-spec.md.  An empty
// optional is "auto".
struct JobSpec {
  std::string model_name_or_path;
  ModelInit model_init = ModelInit::kPretrained;
  // Each a file, or, before its files are looked up, a folder or a pattern.
  std::vector<std::string> dataset;
  std::vector<std::string> validation_dataset;  // empty: none
  // What rows are, where their fields leave it open.
  DatasetFormat dataset_format = DatasetFormat::kAuto;
  DatasetColumns dataset_columns;
  double validation_split = 0;         // share of `dataset` held out; 0: none
  int64_t max_samples = 0;             // rows, the first; 0: all
  std::string resume_from_checkpoint;  // "": none
  TrainingMethod method = TrainingMethod::kFull;
  // An adapter to go on from; "": new ones.  Only with kLora, as the four
  // below, which are empty where the file says nothing: the adapter's or the
  // default.
  std::string adapter_name_or_path;
  std::optional<int64_t> lora_r;
  std::optional<double> lora_alpha;
  std::optional<double> lora_dropout;
  // As AdapterConfig::targets, or kAllLinear.
  std::optional<uint32_t> target_modules;
  double num_train_epochs = 3;  // 0 where max_steps says it
  int64_t max_steps = 0;        // 0 where num_train_epochs says it
  // 1 to kMaxBatchSize
  int64_t batch_size = 8;                   // sequences per optimizer step
  std::optional<int64_t> micro_batch_size;  // sequences
  std::optional<int64_t> micro_batches_per_round;  // M
  std::optional<int64_t> gradient_groups;          // G
  int64_t head_token_chunk = 1024;
  std::optional<int64_t> max_length;  // tokens
  Truncation truncation = Truncation::kRight;
  bool packing = false;       // several sequences a row
  std::string template_date;  // YYYY-MM-DD; "": the day of submission
  double learning_rate = 5e-5;
  LrSchedulerType lr_scheduler_type = LrSchedulerType::kLinear;
  double warmup_ratio = 0;  // share of all steps; 0 where warmup_steps says it
  int64_t warmup_steps = 0;
  double weight_decay = 0;
  double max_grad_norm = 1;  // 0: no clipping
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  OptimizerMode optimizer_mode = OptimizerMode::kSync;
  std::optional<DType> dtype;
  int64_t seed = 42;
  int64_t logging_steps = 1;
  int64_t save_steps = 500;      // 0: only at pauses and stops
  int64_t save_total_limit = 0;  // 0: keep all
  // 0: only before the first step and after the last.
  int64_t eval_steps = 0;
  std::vector<std::string> eval_prompts;  // empty: none
  bool load_best_model_at_end = false;
  int64_t early_stopping_patience = 0;  // evaluations; 0: off
  GradientCheckpointing gradient_checkpointing = GradientCheckpointing::kAuto;
  int saved_inputs = 0;                    // FindSavedInputs'
  std::optional<Determinism> determinism;  // empty: as the devices have it
  Priority priority = Priority::kNormal;
  std::string output_name;  // "": the job's id
  std::vector<std::pair<std::string, std::string>> metadata;
  std::optional<ExplicitPlan> plan;

  bool operator==(const JobSpec&) const = default;
};

// Whether the job has rows to evaluate.
inline bool HasValidation(const JobSpec& spec) {
  return !spec.validation_dataset.empty() || spec.validation_split > 0;
}

// As the dataset helper has them; "": by the rows' fields, no other names.
std::string DatasetFormatArgument(DatasetFormat format);
std::string DatasetColumnsArgument(const DatasetColumns& columns);

// No update of a step can begin before all its gradients are known: they are
// clipped, or scaled and may overflow.
inline bool WaitsForNorm(const JobSpec& spec) {
  return spec.max_grad_norm > 0 || spec.dtype == DType::kF16;
}

// PEFT's values where a job says nothing: rank and alpha 8, no dropout, the
// query and value projections (its choice for each family of base/model).
AdapterConfig DefaultAdapter();

// One row of docs/job-spec.md.
struct SpecField {
  std::string name;
  std::string type;
  std::string unit;
  std::string default_text;
  std::vector<std::string> aliases;
  // Not empty: values other than the default come with this later part.
  std::string later;
};
const std::vector<SpecField>& JobSpecVocabulary();

// The spec of a job file without faults, or all of them (job_file.h).
// kUnimplemented: only values that a later part brings.  The message of a
// single one starts with "file_name:line: field: "; spec_error.h gives fields
// and reasons.
absl::StatusOr<JobSpec> ParseJobSpec(const std::string& text,
                                     const std::string& file_name);

// What a job gets where it says nothing of it: from its model and the devices.
struct SpecDefaults {
  Determinism determinism = Determinism::kBitwise;
  int64_t max_length = kUsualMaxLength;  // tokens
  DType dtype = DType::kF32;
};

// A JobSpec without "auto" in its batch fields, with its length, its dtype, its
// determinism and all fields of its adapters.  Immutable.
class ResolvedSpec {
 public:
  // Fills in micro_batch_size (the largest power of two that is at most 8 and
  // gives two micro-batches per device, at least 1), micro_batches_per_round
  // (all of a step's, at most 32), gradient_groups (one a device, so that slots
  // can be as wide; at most one a micro-batch of a round; 1 with an own plan)
  // and, with adapters, DefaultAdapter(); `defaults` where the job says
  // nothing. REQUIRES: device_count >= 1 and a spec from ParseJobSpec.
  static ResolvedSpec Resolve(const JobSpec& spec, int device_count,
                              const SpecDefaults& defaults = {});
  // What ToJson() wrote; kInvalidArgument for anything else.
  static absl::StatusOr<ResolvedSpec> FromJson(const std::string& json);

  const JobSpec& spec() const { return spec_; }
  int64_t micro_batch_size() const { return *spec_.micro_batch_size; }
  int64_t micro_batches_per_round() const {
    return *spec_.micro_batches_per_round;
  }
  int64_t gradient_groups() const { return *spec_.gradient_groups; }
  Determinism determinism() const { return *spec_.determinism; }
  int64_t max_length() const { return *spec_.max_length; }  // tokens
  DType dtype() const { return *spec_.dtype; }
  // What trains; not present() with full fine-tuning.
  AdapterConfig adapter() const;

  // A job file in the same vocabulary; submitted again it gives the same bits.
  std::string ToJson() const;

 private:
  explicit ResolvedSpec(JobSpec spec) : spec_(std::move(spec)) {}
  JobSpec spec_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_SPEC_H_
