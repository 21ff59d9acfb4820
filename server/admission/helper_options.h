// What the dataset helper and the text helper are started with for a job.
//
// Thread-safe.  What it makes, GivenFiles, blocks on the disk when it is
// called: the helpers do so beside the event loop.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_HELPER_OPTIONS_H_
#define ROUNDHOUSE_SERVER_ADMISSION_HELPER_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/admission/job_paths.h"
#include "server/dataset/given_files.h"
#include "server/dataset/preparer.h"
#include "server/dataset/text_helper.h"
#include "server/spec/paths.h"
#include "server/spec/spec.h"
#include "server/store/store.h"

namespace roundhouse {

class HelperOptions {
 public:
  // `dataset` is prepare.py's program; the text helper's lies beside it.
  // References outlive it, and the helpers.
  HelperOptions(const HelperProgram& dataset, const DataRoots& roots,
                const JobStore& store, const JobPaths& paths)
      : dataset_(dataset), roots_(roots), store_(store), paths_(paths) {}

  // The text helper without options of a job.
  HelperProgram TextProgram() const;

  // To prepare the job's data.  The spec is the job's, resolved.
  PreparerOptions Data(const JobRecord& job, const JobSpec& spec) const;
  // To tokenize its eval_prompts, with a chat template or without; `given` is
  // what is read.
  TextHelperOptions Text(const JobSpec& spec, bool chat_template,
                         GivenFiles given) const;
  // Tokenizer and data of the job, as they were submitted, or an error:
  // INVALID_ARGUMENT, or UNAVAILABLE where descriptors are short.
  GivenFiles Submitted(const std::string& id, const JobSpec& spec) const;

 private:
  absl::StatusOr<std::vector<GivenFile>> FilesOf(const std::string& id,
                                                 const JobSpec& spec) const;

  const HelperProgram dataset_;
  const DataRoots& roots_;
  const JobStore& store_;
  const JobPaths& paths_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_HELPER_OPTIONS_H_
