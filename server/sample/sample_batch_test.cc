#include "server/sample/sample_batch.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "server/arena/host_arena.h"

namespace roundhouse {
namespace {

using Tokens = std::vector<int32_t>;

class SampleBatchTest : public testing::Test {
 protected:
  SampleBatchTest() : arena_(*HostArena::Create(1 << 20, 1)) {
    options_.job = 7;
    options_.sample = 8;
    options_.max_new_tokens = 20;
    options_.max_position_tokens = 64;
    options_.vocab_size = 50;
    options_.temperature = 0.5;
    options_.seed = 3;
    options_.end_tokens = {0, 9};
  }
  void Make(const std::vector<SamplePrompt>& prompts) {
    batch_ = *SampleBatch::Create(*arena_, options_, prompts);
  }
  Tokens TokensOf(const wire::SampleSequence& sequence) const {
    const uint64_t count = sequence.tokens.bytes / sizeof(int32_t);
    const int32_t* first =
        arena_->arena().At<int32_t>(sequence.tokens.offset, count);
    return {first, first + count};
  }
  static wire::SampleDone Done(std::vector<uint32_t> counts, Tokens tokens) {
    wire::SampleDone done;
    done.counts = std::move(counts);
    done.tokens = std::move(tokens);
    return done;
  }

  std::unique_ptr<HostArena> arena_;
  SampleBatchOptions options_;
  std::unique_ptr<SampleBatch> batch_;
};

TEST_F(SampleBatchTest, ACommandCarriesAllTokensSoFar) {
  Make({{4, {1, 2, 3}}, {5, {6}}});
  wire::RunSample command = batch_->Command();
  EXPECT_EQ(command.job, 7u);
  EXPECT_EQ(command.sample, 8u);
  EXPECT_EQ(command.new_tokens, kSampleCommandTokens);
  EXPECT_EQ(command.temperature, 0.5);
  EXPECT_EQ(command.seed, 3u);
  EXPECT_EQ(command.end_tokens, (Tokens{0, 9}));
  ASSERT_EQ(command.sequences.size(), 2u);
  EXPECT_EQ(command.sequences[0].number, 4u);
  EXPECT_EQ(command.sequences[0].prompt_tokens, 3u);
  EXPECT_EQ(TokensOf(command.sequences[0]), (Tokens{1, 2, 3}));
  EXPECT_EQ(command.sequences[0].tokens.offset % 64, 0u);
  EXPECT_TRUE(batch_->fresh());

  const auto pieces = batch_->Accept(Done({2, 1}, {7, 8, 9}));
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  EXPECT_FALSE(batch_->fresh());
  ASSERT_EQ(pieces->size(), 2u);
  EXPECT_EQ((*pieces)[0].prompt, 4);
  EXPECT_EQ((*pieces)[0].tokens, (Tokens{7, 8}));
  EXPECT_EQ((*pieces)[0].end, SampleEnd::kNone);
  EXPECT_EQ((*pieces)[1].end, SampleEnd::kEndToken);

  command = batch_->Command();
  ASSERT_EQ(command.sequences.size(), 1u);
  EXPECT_EQ(TokensOf(command.sequences[0]), (Tokens{1, 2, 3, 7, 8}));
  EXPECT_EQ(command.sequences[0].prompt_tokens, 3u);
}

TEST_F(SampleBatchTest, NoMoreTokensThanWanted) {
  Make({{0, {1}}});
  ASSERT_TRUE(batch_->Accept(Done({16}, Tokens(16, 5))).ok());
  EXPECT_EQ(batch_->Command().new_tokens, 4u);
  const auto pieces = batch_->Accept(Done({4}, Tokens(4, 5)));
  EXPECT_EQ((*pieces)[0].end, SampleEnd::kMaxNewTokens);
  EXPECT_TRUE(batch_->done());
}

TEST_F(SampleBatchTest, NoMoreTokensThanTheModelTakes) {
  Make({{0, Tokens(60, 1)}, {1, {1}}});
  EXPECT_EQ(batch_->Command().new_tokens, 4u);
  const auto pieces = batch_->Accept(Done({4, 4}, Tokens(8, 5)));
  EXPECT_EQ((*pieces)[0].end, SampleEnd::kContextFull);
  EXPECT_EQ((*pieces)[1].end, SampleEnd::kNone);
  EXPECT_EQ(batch_->Command().new_tokens, 16u);
}

TEST_F(SampleBatchTest, NonsenseIsNotAccepted) {
  Make({{0, {1}}, {1, {2}}});
  for (const auto& done : {Done({1}, {5}), Done({1, 1}, {5}), Done({1, 0}, {5}),
                           Done({17, 1}, Tokens(18, 5)), Done({1, 1}, {5, 50}),
                           Done({1, 1}, {-1, 5})}) {
    EXPECT_TRUE(absl::IsInternal(batch_->Accept(done).status()));
  }
  EXPECT_TRUE(batch_->fresh());
  EXPECT_EQ(TokensOf(batch_->Command().sequences[0]), (Tokens{1}));
}

TEST_F(SampleBatchTest, ItsMemoryComesBack) {
  const uint64_t before = arena_->used_bytes();
  Make({{0, {1}}});
  EXPECT_GT(arena_->used_bytes(), before);
  batch_.reset();
  EXPECT_EQ(arena_->used_bytes(), before);
  options_.max_new_tokens = 1 << 20;
  EXPECT_TRUE(absl::IsResourceExhausted(
      SampleBatch::Create(*arena_, options_, {{0, {1}}}).status()));
}

}  // namespace
}  // namespace roundhouse
