// Runs an event loop under the guard: what it opens ends the test.
#include "server/admission/validations.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/admission/admission_test_fixture.h"
#include "server/workers/process_pool.h"

namespace roundhouse {
namespace {

class ValidationsTest : public AdmissionTest {
 protected:
  // Validates what was added, until `ends` jobs have ended.
  void Run(size_t ends) {
    ends_ = ends;
    loop_->After(absl::ZeroDuration(), [this] { validations_.Start(); });
    loop_->Run();
  }
  JobRecord Submit() {
    std::string text = kJob;
    text.replace(text.find("out\n"), 3, absl::StrCat("out", ++outputs_));
    return Store(*Check(text));
  }

  size_t ends_ = 0;
  int outputs_ = 0;
  std::vector<std::string> failed_;
  absl::Status why_;
  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  const std::unique_ptr<HostArena> arena_ = *HostArena::Create(1 << 20, 4);
  const std::unique_ptr<ProcessPool> pool_ =
      *ProcessPool::Create(*loop_, *arena_, {.device_count = 2});
  Validations validations_{
      {.loop = *loop_,
       .arena = *arena_,
       .pool = *pool_,
       .store = *store_,
       .admitted = admission_->admitted(),
       .helpers = admission_->helpers(),
       .roots = admission_->roots(),
       .paths = admission_->paths()},
      {.queue = [](const std::string&) { ADD_FAILURE() << "none is good"; },
       .fail =
           [this](const std::string& id, const absl::Status& status) {
             failed_.push_back(id);
             why_ = status;
           },
       .counted = [](const std::string&, const DatasetCounts&) {},
       .warn = [](const JobRecord&, const std::string&) {},
       .again =
           [this] {
             if (failed_.size() >= ends_) return loop_->Quit();
             validations_.Start();
           }}};
};

TEST_F(ValidationsTest, BadDataFailTheJob) {
  WriteTestFile(root_ + "/helper",
                "echo '{\"error\": \"it is bad\"}' >&2; exit 3\n");
  const JobRecord job = Submit();
  validations_.Add(job.id);
  validations_.Add(job.id);  // once is enough
  EXPECT_EQ(validations_.count(), 1u);
  Run(1);
  EXPECT_EQ(failed_, std::vector<std::string>{job.id});
  EXPECT_TRUE(absl::IsInvalidArgument(why_)) << why_;
  EXPECT_TRUE(absl::StrContains(std::string(why_.message()), "it is bad"));
  EXPECT_EQ(validations_.count(), 0u);
}

TEST_F(ValidationsTest, AHelperThatMakesNothingIsFoundWhereItsDataAreCounted) {
  WriteTestFile(root_ + "/helper", "exit 0\n");
  validations_.Add(Submit().id);
  Run(1);
  EXPECT_TRUE(absl::StrContains(std::string(why_.message()), "/data/train"))
      << why_;
}

TEST_F(ValidationsTest, FilesThatChangedSinceTheSubmitFailIt) {
  WriteTestFile(root_ + "/helper", "exit 0\n");
  const JobRecord job = Submit();
  WriteTestFile(root_ + "/data/d.jsonl", "{\"text\": \"another\"}\n");
  validations_.Add(job.id);
  Run(1);
  EXPECT_TRUE(absl::StrContains(std::string(why_.message()),
                                "changed since the job was submitted"))
      << why_;
}

TEST_F(ValidationsTest, NothingIsSaidOfOneThatIsForgotten) {
  WriteTestFile(root_ + "/helper", "exit 3\n");
  const JobRecord first = Submit(), second = Submit();
  validations_.Add(first.id);
  validations_.Add(second.id);
  loop_->After(absl::ZeroDuration(),
               [this, id = first.id] { validations_.Forget(id); });
  Run(1);
  EXPECT_EQ(failed_, std::vector<std::string>{second.id});
}

}  // namespace
}  // namespace roundhouse
