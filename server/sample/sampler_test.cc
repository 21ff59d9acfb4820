// Samples over workers that compute nothing (tests/fakes): a token's successor
// is the next number.  A shell script stands in for the text helper.
#include "server/sample/sampler.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gtest/gtest.h"
#include "server/dataset/helper_limits.h"
#include "server/spec/spec_error.h"
#include "server/testing/test_model.h"
#include "server/weights/base_weights.h"
#include "server/workers/process_pool.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;
constexpr int kDevices = 2;

class FakeSink final : public SampleSink {
 public:
  explicit FakeSink(std::function<void()> changed)
      : changed_(std::move(changed)) {}
  void OnSource(const std::string& path) override { source = path; }
  void OnPiece(SamplePiece piece) override {
    text[piece.prompt] += piece.text;
    Tokens& all = tokens[piece.prompt];
    all.insert(all.end(), piece.tokens.begin(), piece.tokens.end());
    end[piece.prompt] = piece.end;
    ++pieces;
    if (on_piece) on_piece();
  }
  void OnEnd(absl::Status ended) override {
    ASSERT_FALSE(status.has_value()) << "ended twice";
    status = std::move(ended);
    changed_();
  }
  bool cancelled() const override { return left; }

  std::string source;
  std::map<int, std::string> text;
  std::map<int, Tokens> tokens;
  std::map<int, SampleEnd> end;
  int pieces = 0;
  std::function<void()> on_piece;
  std::optional<absl::Status> status;
  bool left = false;

 private:
  const std::function<void()> changed_;
};

class SamplerTest : public testing::Test, public WorkerPool::Listener {
 protected:
  SamplerTest()
      : root_(testing::TempDir() + "/sampler_test"),
        loop_(*EventLoop::Create()) {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/model");
    WriteTestFile(root_ + "/model/weights", "w");
    WriteTestFile(root_ + "/model/adapter", "a");
    Helper("[[10]]");
    pool_options_.worker_program = "tests/fakes/wire_worker";
    pool_options_.device_count = kDevices;
    pool_options_.restart_delay = absl::Milliseconds(1);
    source_.project = "vision";
    source_.path = root_ + "/model";
    source_.model.path = root_ + "/model";
    source_.model.config = TestModel(false);
    source_.model.sources =
        Sources(ModelUnits(TestModel(false)), root_ + "/model/weights");
    source_.tokenizer_directory = root_ + "/model";
    source_.given = {{root_ + "/model/weights",
                      AnyFiles().Open(root_ + "/model/weights")->checked()}};
  }
  ~SamplerTest() override {
    sampler_.reset();
    fs::remove_all(root_);
  }

  static std::vector<std::vector<ParameterSource>> Sources(
      const std::vector<UnitSpec>& units, const std::string& file) {
    std::vector<std::vector<ParameterSource>> sources;
    for (const UnitSpec& unit : units) {
      sources.emplace_back();
      for (const ParameterSpec& spec : unit.parameters) {
        sources.back().push_back({{"", file, {.size_bytes = 1}},
                                  0,
                                  static_cast<uint64_t>(spec.element_count) * 4,
                                  DType::kF32});
      }
    }
    return sources;
  }
  void UseAdapter() {
    AdapterDirectory adapter;
    adapter.config = TestAdapter();
    std::vector<UnitSpec> units;
    for (int layer = 0; layer < 3; ++layer) {
      units.push_back(AdapterUnit(TestModel(false), TestAdapter(), layer));
    }
    adapter.sources = Sources(units, root_ + "/model/adapter");
    source_.adapter = adapter;
  }
  void Helper(const std::string& prompts) {
    WriteTestFile(root_ + "/helper", TextHelperScript(prompts));
  }
  void Misbehave(int worker, const std::string& way, int times = 1) {
    pool_options_.kill_at[static_cast<WorkerId>(worker)].assign(times, way);
  }

  void StartAll(uint64_t arena_bytes = 64 << 20) {
    arena_ = *HostArena::Create(arena_bytes, kDevices + 2);
    bases_ = std::make_unique<BaseCache>(*arena_);
    pool_ = *ProcessPool::Create(*loop_, *arena_, pool_options_);
    free_bytes_ = arena_->used_bytes();
    files_line_ = std::make_unique<FilesLine>(*pool_);
    sampler_ = std::make_unique<Sampler>(
        *loop_, *arena_, *pool_, *bases_,
        SamplerOptions{
            .program = {.python = "/bin/bash", .script = root_ + "/helper"},
            .files_line = files_line_.get(),
            .open = [this](const SampleQuestion& question)
                -> absl::StatusOr<SampleSource> {
              if (question.model != "job-7") {
                return absl::NotFoundError("no such model");
              }
              SampleSource source = source_;
              ASSIGN_OR_RETURN(source.base_key,
                               BaseKey(source.model, source.dtype));
              return source;
            },
            .computed =
                [this](const JobOwner& owner, int64_t ns) {
                  EXPECT_GE(ns, 0);
                  ++computed_[owner.project + "/" + owner.user];
                },
            .reserved_bytes = [this] { return reserved_bytes_; }});
    ASSERT_TRUE(pool_->Start(this).ok());
  }
  FakeSink& Ask(size_t prompts = 1, int64_t max_new_tokens = 20,
                const std::string& model = "job-7") {
    SampleQuestion question;
    question.caller.user = "ann";
    question.model = model;
    question.prompts.assign(prompts, "one");
    question.max_new_tokens = max_new_tokens;
    sinks_.push_back(std::make_shared<FakeSink>([this] { OnChange(); }));
    sampler_->Start(question, sinks_.back());
    return *sinks_.back();
  }
  // Until every sink has its end and the workers are gone.
  void Run() {
    OnChange();
    loop_->Run();
    sampler_->Stop();
  }
  uint64_t BaseBytesKept() const {
    uint64_t kept = arena_->used_bytes();
    bases_->DropUnused();
    kept -= arena_->used_bytes();
    EXPECT_EQ(arena_->used_bytes(), free_bytes_) << "memory was kept";
    return kept;
  }
  static Tokens Count(int32_t first, int count) {
    Tokens tokens;
    for (int i = 0; i < count; ++i) tokens.push_back((first + i) % 50);
    return tokens;
  }

  const std::string root_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<BaseCache> bases_;
  ProcessPoolOptions pool_options_;
  std::unique_ptr<ProcessPool> pool_;
  std::unique_ptr<FilesLine> files_line_;
  std::unique_ptr<Sampler> sampler_;
  SampleSource source_;
  uint64_t reserved_bytes_ = 0;
  std::map<std::string, int> computed_;  // commands, by owner
  uint64_t free_bytes_ = 0;
  std::vector<std::shared_ptr<FakeSink>> sinks_;
  bool stopping_ = false;

 private:
  void OnChange() {
    for (const auto& sink : sinks_) {
      if (!sink->status.has_value()) return;
    }
    if (std::exchange(stopping_, true)) return;
    // After what the last one gives back.
    loop_->After(absl::ZeroDuration(), [this] {
      loop_->After(absl::ZeroDuration(), [this] {
        pool_->Stop(absl::Minutes(5), [this] { loop_->Quit(); });
      });
    });
  }
  void OnWorkerUp(WorkerId worker) override {
    if (worker == pool_->FilesWorker()) files_line_->OnWorkerUp();
    sampler_->OnWorkerUp(worker);
  }
  void OnMessage(WorkerId, const wire::Message&) override {}
  void OnWorkerDown(WorkerId worker, const std::string&) override {
    sampler_->OnWorkerDown(worker);
  }
  void OnDeviceLost(DeviceId, const std::string&) override {
    sampler_->OnDeviceLost();
  }
};

TEST_F(SamplerTest, CompletionsComePieceByPiece) {
  Helper("[[10], [11, 12], [5, 6]]");
  StartAll();
  const FakeSink& sink = Ask(3);
  Run();
  ASSERT_TRUE(sink.status->ok()) << *sink.status;
  EXPECT_EQ(sink.source, source_.path);
  EXPECT_EQ(sink.tokens.at(0), Count(11, 20));
  EXPECT_EQ(sink.tokens.at(1), Count(13, 20));
  EXPECT_EQ(sink.tokens.at(2), (Tokens{7, 8, 9}));
  EXPECT_EQ(sink.end.at(0), SampleEnd::kMaxNewTokens);
  EXPECT_EQ(sink.end.at(2), SampleEnd::kEndToken);
  EXPECT_EQ(sink.text.at(0), "tt");
  EXPECT_EQ(sink.text.at(2), "t");
  EXPECT_EQ(computed_, (std::map<std::string, int>{{"vision/ann", 2}}));
  EXPECT_GE(BaseBytesKept(), BaseWeightsBytes(TestModel(false), DType::kF32));
}

TEST_F(SamplerTest, ManySequencesGoInGroups) {
  constexpr int kPrompts = 2 * kSampleGroup + 1;
  std::string prompts;
  for (int i = 0; i < kPrompts; ++i) {
    absl::StrAppend(&prompts, i == 0 ? "[" : ",", "[", 10 + i % 30, "]");
  }
  Helper(prompts + "]");
  StartAll();
  const FakeSink& sink = Ask(kPrompts, 3);
  Run();
  ASSERT_TRUE(sink.status->ok()) << *sink.status;
  ASSERT_EQ(sink.tokens.size(), static_cast<size_t>(kPrompts));
  for (int i = 0; i < kPrompts; ++i) {
    EXPECT_EQ(sink.tokens.at(i), Count(11 + i % 30, 3));
  }
}

TEST_F(SamplerTest, AnAdapterIsLoadedBehindItsBase) {
  UseAdapter();
  StartAll();
  const FakeSink& first = Ask();
  const FakeSink& second = Ask();
  Run();
  EXPECT_TRUE(first.status->ok()) << *first.status;
  EXPECT_TRUE(second.status->ok()) << *second.status;
  EXPECT_EQ(bases_->count(), 1);
  BaseBytesKept();
}

TEST_F(SamplerTest, ADeadDevicesCommandGoesToAnother) {
  for (const char* way : {"die", "answer-and-die"}) {
    stopping_ = false;
    sinks_.clear();
    Misbehave(0, way);
    Misbehave(1, way);
    StartAll();
    const FakeSink& sink = Ask(1, 40);
    Run();
    ASSERT_TRUE(sink.status->ok()) << *sink.status;
    EXPECT_EQ(sink.tokens.at(0), Count(11, 40));
    EXPECT_EQ(sink.pieces, 3);
    BaseBytesKept();
    sampler_.reset();
    files_line_.reset();
    pool_.reset();
    loop_ = *EventLoop::Create();
  }
}

TEST_F(SamplerTest, ACommandThatKillsDevicesIsGivenUp) {
  Misbehave(0, "die", 3);
  Misbehave(1, "die", 3);
  StartAll();
  const FakeSink& sink = Ask();
  Run();
  EXPECT_TRUE(absl::IsInternal(*sink.status)) << *sink.status;
  EXPECT_TRUE(absl::StrContains(sink.status->message(), "died 3 times"));
  for (int i = 0; i < kDevices; ++i) {
    EXPECT_FALSE(pool_->info(static_cast<WorkerId>(i)).lost);
  }
  BaseBytesKept();
}

TEST_F(SamplerTest, WithoutDevicesThereAreNoSamples) {
  Misbehave(0, "die-at-start", kMaxFruitlessDeaths);
  Misbehave(1, "die-at-start", kMaxFruitlessDeaths);
  StartAll();
  const FakeSink& sink = Ask();
  Run();
  EXPECT_TRUE(absl::IsFailedPrecondition(*sink.status)) << *sink.status;
  EXPECT_EQ(ErrorReason(*sink.status), FieldReason::kNoHealthyDevice);
  BaseBytesKept();
}

TEST_F(SamplerTest, AFilesWorkerThatDiesIsAskedAgain) {
  Misbehave(kDevices + 1, "die");
  StartAll();
  const FakeSink& sink = Ask();
  Run();
  EXPECT_TRUE(sink.status->ok()) << *sink.status;
}

TEST_F(SamplerTest, ABaseThatCannotBeReadIsNotKept) {
  Misbehave(kDevices + 1, "fail");
  StartAll();
  const FakeSink& sink = Ask();
  Run();
  EXPECT_TRUE(absl::IsFailedPrecondition(*sink.status)) << *sink.status;
  EXPECT_EQ(ErrorField(*sink.status), "model");
  EXPECT_EQ(bases_->count(), 0);
  BaseBytesKept();
}

TEST_F(SamplerTest, ShortOfDeviceMemoryItTriesSmallerGroups) {
  Helper("[[1], [2]]");
  Misbehave(0, "fail");
  Misbehave(1, "fail");
  StartAll();
  const FakeSink& sink = Ask(2);
  Run();
  EXPECT_TRUE(absl::IsResourceExhausted(*sink.status)) << *sink.status;
  EXPECT_EQ(ErrorReason(*sink.status), FieldReason::kDeviceMemory);
  EXPECT_TRUE(absl::StrContains(sink.status->message(), "out of memory"));
  BaseBytesKept();
}

TEST_F(SamplerTest, ADeviceShortOfMemoryForTwoMayHaveItForOne) {
  Helper("[[1], [2]]");
  Misbehave(0, "fail-two");
  Misbehave(1, "fail-two");
  StartAll();
  const FakeSink& sink = Ask(2, 3);
  Run();
  ASSERT_TRUE(sink.status->ok()) << *sink.status;
  EXPECT_EQ(sink.tokens.at(0), Count(2, 3));
  EXPECT_EQ(sink.tokens.at(1), Count(3, 3));
}

TEST_F(SamplerTest, WhatDoesNotFitIsRefused) {
  StartAll(64 << 10);
  const FakeSink& sink = Ask();
  Run();
  EXPECT_TRUE(absl::IsResourceExhausted(*sink.status)) << *sink.status;
  EXPECT_EQ(ErrorReason(*sink.status), FieldReason::kHostMemory);
  EXPECT_EQ(BaseBytesKept(), 0u);
}

TEST_F(SamplerTest, WhatTheRunningJobNeedsStaysFree) {
  reserved_bytes_ = (64 << 20) - (64 << 10);
  StartAll();
  const FakeSink& sink = Ask();
  Run();
  EXPECT_TRUE(absl::IsResourceExhausted(*sink.status)) << *sink.status;
  EXPECT_TRUE(absl::StrContains(sink.status->message(), "the running job"));
  EXPECT_EQ(BaseBytesKept(), 0u);
}

TEST_F(SamplerTest, BadPromptsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[[1, 50]]", "prompts[0]: has token 50"},
      {"[[-1]]", "prompts[0]: has token -1"},
      {"[[1], [2]]", "lost prompts"}};
  for (const auto& [prompts, text] : cases) {
    stopping_ = false;
    sinks_.clear();
    Helper(prompts);
    StartAll();
    const FakeSink& sink = Ask();
    Run();
    EXPECT_TRUE(absl::StrContains(sink.status->message(), text))
        << *sink.status;
    EXPECT_EQ(BaseBytesKept(), 0u);
    sampler_.reset();
    files_line_.reset();
    pool_.reset();
    loop_ = *EventLoop::Create();
  }
}

TEST_F(SamplerTest, APromptAsLongAsTheModelTakesIsRefused) {
  std::string prompt = "[[1";
  for (int i = 1; i < 64; ++i) absl::StrAppend(&prompt, ",1");
  Helper(prompt + "]]");
  StartAll();
  const FakeSink& sink = Ask();
  Run();
  EXPECT_TRUE(absl::IsInvalidArgument(*sink.status)) << *sink.status;
  EXPECT_EQ(ErrorField(*sink.status), "prompts");
}

TEST_F(SamplerTest, WhatTheHelperRefusesIsTold) {
  const std::pair<const char*, const char*> cases[] = {
      {"prompts[0]: has no tokens", "prompts"}, {"unreadable", "model"}};
  for (const auto& [text, field] : cases) {
    stopping_ = false;
    sinks_.clear();
    WriteTestFile(root_ + "/helper", absl::StrCat("echo '{\"error\": \"", text,
                                                  "\"}' >&2; exit 3\n"));
    StartAll();
    const FakeSink& sink = Ask();
    Run();
    EXPECT_TRUE(absl::IsInvalidArgument(*sink.status)) << *sink.status;
    EXPECT_EQ(ErrorField(*sink.status), field);
    sampler_.reset();
    files_line_.reset();
    pool_.reset();
    loop_ = *EventLoop::Create();
  }
}

TEST_F(SamplerTest, AHelperThatLeavesOrBabblesEndsIt) {
  for (const char* script : {"exit 0\n", "echo babble; cat <&4\n"}) {
    stopping_ = false;
    sinks_.clear();
    WriteTestFile(root_ + "/helper", script);
    StartAll();
    const FakeSink& sink = Ask();
    Run();
    EXPECT_TRUE(absl::IsInternal(*sink.status)) << *sink.status;
    sampler_.reset();
    files_line_.reset();
    pool_.reset();
    loop_ = *EventLoop::Create();
  }
}

TEST_F(SamplerTest, AHelperThatIsKilledIsStartedAgainAFewTimes) {
  const std::string lives = root_ + "/lives";
  for (const int deaths : {kMaxHelperDeaths, kMaxHelperDeaths - 1}) {
    stopping_ = false;
    sinks_.clear();
    WriteTestFile(lives, "");
    WriteTestFile(
        root_ + "/helper",
        absl::StrCat("echo >>", lives, "; [ $(wc -l <", lives, ") -le ", deaths,
                     " ] && kill -KILL $$\n", TextHelperScript("[[1]]")));
    StartAll();
    const FakeSink& sink = Ask();
    Run();
    EXPECT_EQ(sink.status->ok(), deaths < kMaxHelperDeaths) << *sink.status;
    sampler_.reset();
    files_line_.reset();
    pool_.reset();
    loop_ = *EventLoop::Create();
  }
}

TEST_F(SamplerTest, TheQueueIsBounded) {
  StartAll();
  for (size_t i = 0; i < kMaxWaitingSamples + 2; ++i) Ask(1, 1);
  Run();
  for (size_t i = 0; i < kMaxWaitingSamples + 1; ++i) {
    EXPECT_TRUE(sinks_[i]->status->ok()) << i << *sinks_[i]->status;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(*sinks_.back()->status));
  EXPECT_EQ(ErrorReason(*sinks_.back()->status), FieldReason::kQuota);
}

TEST_F(SamplerTest, WhoLeavesIsServedNoMore) {
  StartAll();
  FakeSink& running = Ask(1, 1000);
  FakeSink& waiting = Ask();
  FakeSink& gone = Ask();
  const FakeSink& last = Ask(1, 2);
  gone.left = true;
  running.on_piece = [&] {
    waiting.left = true;
    sampler_->Cancel(&waiting);
    running.left = true;
    sampler_->Cancel(&running);
  };
  Run();
  for (const FakeSink* sink : {&running, &waiting, &gone}) {
    EXPECT_TRUE(absl::IsCancelled(*sink->status)) << *sink->status;
  }
  EXPECT_LT(running.pieces, 4);
  EXPECT_TRUE(last.status->ok()) << *last.status;
  BaseBytesKept();
}

TEST_F(SamplerTest, ATrainingJobGetsTheBytesBeforeTheNextSample) {
  StartAll();
  FakeSink& first = Ask(1, 1000);
  const FakeSink& second = Ask(1, 2);
  bool gone = false;
  first.on_piece = [&] {
    if (first.pieces != 1) return;
    ASSERT_TRUE(sampler_->holds_memory());
    sampler_->GiveWay([&] {
      gone = true;
      EXPECT_FALSE(sampler_->holds_memory());
      EXPECT_FALSE(second.status.has_value());
      bases_->DropUnused();
      EXPECT_EQ(arena_->used_bytes(), free_bytes_);
    });
  };
  Run();
  EXPECT_TRUE(gone);
  EXPECT_EQ(ErrorReason(*first.status), FieldReason::kHostMemory)
      << *first.status;
  EXPECT_TRUE(second.status->ok()) << *second.status;
}

TEST_F(SamplerTest, AStoppingDaemonEndsThemAll) {
  StartAll();
  FakeSink& first = Ask(1, 1000);
  Ask();
  first.on_piece = [&] {
    if (first.pieces != 1) return;
    sampler_->Stop();
    Ask();
  };
  Run();
  for (const auto& sink : sinks_) {
    EXPECT_TRUE(absl::IsUnavailable(*sink->status)) << *sink->status;
  }
  // What was with a worker comes back when the workers are gone.
  sampler_.reset();
  BaseBytesKept();
}

TEST_F(SamplerTest, WhatCannotBeOpenedIsToldAtOnce) {
  StartAll();
  const FakeSink& sink = Ask(1, 1, "job-8");
  EXPECT_TRUE(absl::IsNotFound(*sink.status));
  EXPECT_EQ(sink.source, "");
  Run();
}

TEST(SplitPartsTest, PartsHoldWholeTensorsUpToTheLimit) {
  FilePart part;
  part.ReadAs({"/", "/f", {.inode = 7, .size_bytes = 100}});
  for (uint64_t elements : {10, 10, 30, 1}) {
    wire::FileTensor tensor = {};
    tensor.element_count = elements;
    tensor.file_dtype = DType::kF32;
    part.tensors.push_back(tensor);
  }
  const auto split = SplitParts({part, part}, 80);
  ASSERT_EQ(split.size(), 6u);
  EXPECT_EQ(split[0].tensors.size(), 2u);
  EXPECT_EQ(split[1].tensors.size(), 1u);
  EXPECT_EQ(split[2].tensors.size(), 1u);
  EXPECT_EQ(split[5].path, "/f");
  EXPECT_EQ(split[5].root, "/");
  EXPECT_EQ(split[5].identity.inode, 7u);
  EXPECT_EQ(split[5].file_bytes, 100u);
}

}  // namespace
}  // namespace roundhouse
