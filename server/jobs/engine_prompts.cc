// Engine: a job's eval_prompts, which are tokenized once before it is queued,
// so that a bad one fails it there.
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "server/dataset/helper_limits.h"
#include "server/jobs/engine.h"

namespace roundhouse {

TextHelperOptions Engine::TextOptions(const JobSpec& spec, bool chat_template,
                                      GivenFiles given) const {
  const std::filesystem::path scripts =
      std::filesystem::path(options_.prepare_script).parent_path();
  return {.program = {options_.python, scripts / "prepare_sample.py"},
          .tokenizer_directory = spec.model_name_or_path,
          .model_directory = spec.model_name_or_path,
          .raw = !chat_template,
          .template_date = spec.template_date,
          .given = std::move(given)};
}

void Engine::OnPrepared(const std::string& id, const absl::Status& status) {
  const absl::StatusOr<bool> started =
      status.ok() ? StartPromptCheck(id) : status;
  if (status.ok() && !started.ok() && !HasDescriptors()) {
    return OnPromptsChecked(id, absl::UnavailableError("no descriptors"));
  }
  if (!started.ok() || !*started) OnValidated(id, started.status());
}

absl::StatusOr<bool> Engine::StartPromptCheck(const std::string& id) {
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  ASSIGN_OR_RETURN(const AdmittedJobs::Job admitted, admitted_->Get(job));
  const JobSpec& spec = admitted->spec.spec();
  if (spec.eval_prompts.empty()) return false;
  // As the rows are that the job trains on.
  ASSIGN_OR_RETURN(const bool chat_template,
                   UsesChatTemplate(paths_.Directory(job) + "/data/train"));
  std::unique_ptr<PromptRun>& check = validations_.at(id).prompt_check;
  check = std::make_unique<PromptRun>(
      loop_, arena_, pool_,
      EvalPromptOptions({.model = admitted->model.config,
                         .prompts = spec.eval_prompts,
                         .text = TextOptions(spec, chat_template,
                                             [this, id, spec] {
                                               return FilesOfData(id, spec);
                                             })}),
      PromptRunCalls{
          .tokenized = [run = &check] { (*run)->End(absl::OkStatus()); },
          .piece = [](const SamplePiece&) {},
          .over =
              [this, id](absl::Status checked) {
                // Not from within the check's own callback.
                loop_.After(absl::ZeroDuration(), [this, id, checked] {
                  if (validations_.contains(id)) OnPromptsChecked(id, checked);
                });
              }});
  check->Start();
  return true;
}

void Engine::OnPromptsChecked(const std::string& id,
                              const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return OnValidated(id, status);
  // Its helper could not be started: there is too little of something.
  loop_.After(kHelperRetryDelay, [this, id] {
    if (validations_.contains(id)) OnPrepared(id, absl::OkStatus());
  });
}

}  // namespace roundhouse
