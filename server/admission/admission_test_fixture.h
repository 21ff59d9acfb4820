// A folder with a tiny model, data and a state directory, and what admits jobs
// over it, for tests.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_ADMISSION_TEST_FIXTURE_H_
#define ROUNDHOUSE_SERVER_ADMISSION_ADMISSION_TEST_FIXTURE_H_

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/admission/admission.h"
#include "server/admission/source_files.h"
#include "server/store/store.h"
#include "server/testing/test_model.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

class AdmissionTest : public testing::Test {
 protected:
  static constexpr char kConfig[] =
      R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",)"
      R"( "head_dim": 16, "hidden_size": 48, "intermediate_size": 96,)"
      R"( "max_position_embeddings": 128, "num_attention_heads": 4,)"
      R"( "num_hidden_layers": 3, "num_key_value_heads": 2,)"
      R"( "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,)"
      R"( "tie_word_embeddings": true, "vocab_size": 211})";
  static constexpr char kJob[] =
      "model_name_or_path: m\nmodel_init: random\ndataset: d.jsonl\n"
      "max_length: 64\nbatch_size: 4\nmax_steps: 10\nsave_steps: 5\n"
      "output_name: out\n";

  // As without accounts.
  static inline const Caller kAnyone = {.admin = true};

  AdmissionTest() : root_(NewRoot()) {
    for (const char* folder : {"/data/m", "/state"}) {
      std::filesystem::create_directories(root_ + folder);
    }
    WriteTestFile(root_ + "/data/m/config.json", kConfig);
    WriteTestFile(root_ + "/data/m/tokenizer.json", "{}");
    WriteTestFile(root_ + "/data/d.jsonl", "{\"text\": \"a\"}\n");
    store_ = *JobStore::Open({.path = root_ + "/state/jobs.db"});
    uploads_ = *Uploads::Open({.state_dir = root_ + "/state"}, store_.get());
    admission_ = *Admission::Create(
        {.room = {.device_count = 2,
                  .device = {uint64_t{256} << 20},
                  .host_bytes = uint64_t{1} << 30,
                  .state_dir = root_ + "/state"},
         .data_roots = {root_ + "/data"},
         .dataset_helper = {.python = "/bin/bash", .script = root_ + "/helper"},
         .uploads = uploads_.get()},
        *store_);
  }
  ~AdmissionTest() override {
    admission_.reset();
    uploads_.reset();
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  // As the daemon sees it, without links.
  static std::string NewRoot() {
    const std::string name = absl::StrCat(
        testing::TempDir(), "/admission_",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(name);
    std::filesystem::create_directories(name);
    return std::filesystem::canonical(name);
  }

  absl::StatusOr<AdmittedJob> Check(const std::string& text) {
    return admission_->checker().Check(
        {.text = text, .file_name = "job.yaml", .caller = kAnyone});
  }
  // As a submit does; its AdmittedJob is not kept.
  JobRecord Store(const AdmittedJob& job) {
    bool created = false;
    return *store_->Create({.text = "text",
                            .resolved = job.spec.ToJson(),
                            .files = SourceFilesToJson(job.files),
                            .output_name = job.spec.spec().output_name},
                           &created);
  }

  const std::string root_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Uploads> uploads_;
  std::unique_ptr<Admission> admission_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_ADMISSION_TEST_FIXTURE_H_
