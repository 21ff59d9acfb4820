#include "worker/model/sequential.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>

#include "base/convert.h"
#include "base/reduction.h"
#include "gtest/gtest.h"
#include "worker/model/test_model.h"

namespace roundhouse::worker {
namespace {

constexpr int kHidden = 40;
constexpr uint64_t kSeed = 4711;

SequentialBatch Borrow(const TestBatch& batch) {
  return {batch.rows, batch.row_tokens, batch.tokens.data(),
          batch.labels.data(),
          batch.positions.empty() ? nullptr : batch.positions.data()};
}

std::vector<SequentialBatch> Borrow(const std::vector<TestBatch>& batches) {
  std::vector<SequentialBatch> borrowed;
  for (const TestBatch& batch : batches) borrowed.push_back(Borrow(batch));
  return borrowed;
}

std::vector<TestBatch> MakeBatches(const ModelConfig& config, int count) {
  std::vector<TestBatch> batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back(MakeBatch(config, 2, 6 + i % 3, 100 + i));
  }
  return batches;
}

std::unique_ptr<SequentialTrainer> MakeTrainer(
    const TestModel& model, const SequentialOptions& options) {
  auto trainer = SequentialTrainer::Create(options);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  for (size_t unit = 0; unit < model.units.size(); ++unit) {
    EXPECT_TRUE((*trainer)
                    ->SetUnit(static_cast<int>(unit), model.master[unit].data())
                    .ok());
  }
  return *std::move(trainer);
}

// The gradient of one vocabulary row or parameter; nothing where there is no
// addend.
using Sum = std::optional<std::vector<float>>;

Sum Plus(const Sum& left, const Sum& right) {
  if (!left) return right;
  if (!right) return left;
  Sum sum = left;
  for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += (*right)[i];
  return sum;
}

// The tree of docs/design/numerics.md, word by word.
Sum TreeSum(const std::vector<Sum>& leaves, size_t begin, size_t end) {
  if (end - begin == 1) return leaves[begin];
  size_t left = 1;
  while (left * 2 < end - begin) left *= 2;
  return Plus(TreeSum(leaves, begin, begin + left),
              TreeSum(leaves, begin + left, end));
}

// `addends[m]` are micro-batch m's, in order.
Sum RoundSum(const std::vector<std::vector<Sum>>& addends, size_t begin,
             size_t end, size_t group_limit) {
  const size_t count = end - begin;
  const size_t group_count = std::min(count, group_limit);
  std::vector<Sum> groups;
  size_t next = begin;
  for (size_t g = 0; g < group_count; ++g) {
    const size_t size = count / group_count + (g < count % group_count ? 1 : 0);
    Sum group;
    for (size_t m = next; m < next + size; ++m) {
      for (const Sum& addend : addends[m]) group = Plus(group, addend);
    }
    groups.push_back(group);
    next += size;
  }
  return TreeSum(groups, 0, groups.size());
}

// One micro-batch's gradients, straight from a StageRun.
struct MicroBatchGradients {
  GradientMap sink;
  std::vector<float> input;  // [tokens, hidden]
};

MicroBatchGradients RunOne(const TestModel& model, const TestBatch& batch,
                           double loss_scale, uint64_t micro_batch = 0) {
  MicroBatchGradients result;
  const int64_t layers = model.config.layer_count;
  auto run = *StageRun::Create({.config = model.config,
                                .adapter = model.adapter,
                                .dtype = model.dtype,
                                .rows = batch.rows,
                                .row_tokens = batch.row_tokens,
                                .keep = Keep::kStage,
                                .train = true,
                                .seed = kSeed,
                                .step = 1,
                                .micro_batch = micro_batch});
  const auto input = model.Embed(batch.tokens);
  EXPECT_TRUE(run->SetInput(input.data()).ok());
  if (!batch.positions.empty()) {
    EXPECT_TRUE(run->SetPositions(batch.positions.data()).ok());
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    EXPECT_TRUE(run->ForwardLayer(layer, model.Weights(layer)).ok());
  }
  EXPECT_TRUE(run->Head(model.Weights(layers), batch.labels.data(),
                        HeadMode::kLossAndGradient, loss_scale, &result.sink)
                  .ok());
  for (int64_t layer = layers - 1; layer >= 0; --layer) {
    EXPECT_TRUE(run->BackwardLayer(layer, &result.sink).ok());
  }
  AlignedVector<std::byte> gradient(input.size());
  EXPECT_TRUE(run->CopyInputGradient(gradient.data()).ok());
  result.input.resize(batch.tokens.size() * kHidden);
  ToF32(model.dtype, gradient.data(), result.input.data(), result.input.size());
  return result;
}

double LossScale(const std::vector<TestBatch>& batches) {
  int64_t targets = 0;
  for (const TestBatch& batch : batches) {
    for (int32_t label : batch.labels) targets += label != -100;
  }
  return 1.0 / static_cast<double>(targets);
}

class OrderTest : public testing::TestWithParam<
                      std::tuple<DType, bool, std::pair<int, int>>> {};

TEST_P(OrderTest, GradientsAddInTheJobsOrder) {
  const auto [dtype, tied, limits] = GetParam();
  const auto [round_limit, group_limit] = limits;
  const TestModel model(TinyConfig(2, tied), dtype, 9);
  const std::vector<TestBatch> batches = MakeBatches(model.config, 7);
  auto trainer = MakeTrainer(model, {.config = model.config,
                                     .dtype = dtype,
                                     .round_limit = round_limit,
                                     .group_limit = group_limit});
  ASSERT_TRUE(trainer->Step(Borrow(batches), 1e-3).ok());

  std::vector<MicroBatchGradients> ones;
  for (const TestBatch& batch : batches) {
    ones.push_back(RunOne(model, batch, LossScale(batches)));
  }
  const auto step_sum = [&](const auto& addends_of) {
    std::vector<std::vector<Sum>> addends;
    for (size_t m = 0; m < ones.size(); ++m) {
      addends.push_back(addends_of(m));
    }
    std::vector<Sum> rounds;
    for (size_t begin = 0; begin < ones.size(); begin += round_limit) {
      rounds.push_back(RoundSum(addends, begin,
                                std::min(ones.size(), begin + round_limit),
                                static_cast<size_t>(group_limit)));
    }
    return rounds;
  };
  const auto dense_rounds = [&](int64_t layer, ParamRole role) {
    return step_sum([&](size_t m) {
      return std::vector<Sum>{ones[m].sink.gradients.at({layer, role})};
    });
  };
  const auto add_rounds = [](const std::vector<Sum>& rounds) {
    Sum total;
    for (const Sum& round : rounds) total = Plus(total, round);
    return total;
  };

  for (size_t unit = 1; unit < model.units.size(); ++unit) {
    for (const ParameterSpec& parameter : model.units[unit].parameters) {
      const Sum expected = add_rounds(
          dense_rounds(static_cast<int64_t>(unit) - 1, parameter.role));
      EXPECT_EQ(std::memcmp(trainer->gradient(static_cast<int>(unit)) +
                                parameter.unit_offset_elements,
                            expected->data(), expected->size() * sizeof(float)),
                0)
          << parameter.name;
    }
  }
  std::vector<Sum> head;
  if (tied) head = dense_rounds(2, ParamRole::kLmHead);
  for (int32_t token = 0; token < model.config.vocab_size; ++token) {
    const std::vector<Sum> rounds = step_sum([&](size_t m) {
      std::vector<Sum> addends;
      for (size_t i = 0; i < batches[m].tokens.size(); ++i) {
        if (batches[m].tokens[i] != token) continue;
        const float* row = ones[m].input.data() + i * kHidden;
        addends.emplace_back(std::vector<float>(row, row + kHidden));
      }
      return addends;
    });
    std::vector<Sum> uses;  // of each round the head's, then the rows'
    for (size_t r = 0; r < rounds.size(); ++r) {
      if (tied) {
        const float* row = head[r]->data() + token * kHidden;
        uses.emplace_back(std::vector<float>(row, row + kHidden));
      }
      uses.push_back(rounds[r]);
    }
    const std::vector<float> expected =
        add_rounds(uses).value_or(std::vector<float>(kHidden, 0.0f));
    EXPECT_EQ(std::memcmp(trainer->gradient(0) + token * kHidden,
                          expected.data(), kHidden * sizeof(float)),
              0)
        << "row " << token;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, OrderTest,
    testing::Combine(testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                     testing::Bool(),
                     testing::Values(std::pair(7, 1), std::pair(7, 7),
                                     std::pair(7, 3), std::pair(3, 2),
                                     std::pair(1, 1))));

Sum RoundedTo(DType dtype, Sum sum) {
  std::vector<std::byte> rounded(sum->size() * DTypeBytes(dtype));
  FromF32(dtype, sum->data(), rounded.data(), sum->size());
  ToF32(dtype, rounded.data(), sum->data(), sum->size());
  return sum;
}

// Four groups: layer 0's leave in halves, layer 1's as a whole, the head's one
// and one and two.
std::vector<IndexRange> Contributed(int64_t layer, int64_t groups) {
  EXPECT_EQ(groups, 4);
  if (layer == 0) return {{0, 2}, {2, 4}};
  if (layer == 1) return {{0, 4}};
  return {{0, 1}, {1, 2}, {2, 4}};
}

class RoundedTest : public testing::TestWithParam<std::tuple<DType, bool>> {};

TEST_P(RoundedTest, SumsAreRoundedWhereTheyLeaveADevice) {
  const auto [dtype, tied] = GetParam();
  const TestModel model(TinyConfig(2, tied), dtype, 9);
  const std::vector<TestBatch> batches = MakeBatches(model.config, 4);
  auto trainer = MakeTrainer(model, {.config = model.config,
                                     .dtype = dtype,
                                     .round_limit = 4,
                                     .group_limit = 4,
                                     .contribution_dtype = dtype,
                                     .contributed_groups = Contributed});
  ASSERT_TRUE(trainer->Step(Borrow(batches), 1e-3).ok());
  std::vector<MicroBatchGradients> ones;
  for (const TestBatch& batch : batches) {
    ones.push_back(RunOne(model, batch, LossScale(batches)));
  }
  for (int64_t layer = 0; layer <= 2; ++layer) {
    const int unit = 1 + static_cast<int>(layer);
    for (const ParameterSpec& parameter :
         model.units[static_cast<size_t>(unit)].parameters) {
      std::vector<Sum> g;
      for (MicroBatchGradients& one : ones) {
        g.push_back(one.sink.gradients.at({layer, parameter.role}));
      }
      const auto r = [&](const Sum& sum) { return RoundedTo(dtype, sum); };
      Sum expected = r(Plus(Plus(g[0], g[1]), Plus(g[2], g[3])));
      if (layer == 0) {
        expected = Plus(r(Plus(g[0], g[1])), r(Plus(g[2], g[3])));
      } else if (layer == 2) {
        expected = Plus(Plus(r(g[0]), r(g[1])), r(Plus(g[2], g[3])));
      }
      EXPECT_EQ(
          std::memcmp(trainer->gradient(unit) + parameter.unit_offset_elements,
                      expected->data(), expected->size() * sizeof(float)),
          0)
          << parameter.name;
    }
  }
  // Rows that no token has: what the head's share is, and nothing else.
  std::vector<Sum> head;
  for (MicroBatchGradients& one : ones) {
    if (tied) head.push_back(one.sink.gradients.at({2, ParamRole::kLmHead}));
  }
  for (int32_t token = 0; token < model.config.vocab_size; ++token) {
    const bool used = std::any_of(
        batches.begin(), batches.end(), [&](const TestBatch& batch) {
          return std::count(batch.tokens.begin(), batch.tokens.end(), token);
        });
    if (used) continue;
    Sum row = std::vector<float>(kHidden, 0.0f);
    if (tied) {
      const Sum sum =
          Plus(Plus(RoundedTo(dtype, head[0]), RoundedTo(dtype, head[1])),
               RoundedTo(dtype, Plus(head[2], head[3])));
      row->assign(sum->data() + token * kHidden,
                  sum->data() + (token + 1) * kHidden);
    }
    EXPECT_EQ(std::memcmp(trainer->gradient(0) + token * kHidden, row->data(),
                          kHidden * sizeof(float)),
              0)
        << "row " << token;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RoundedTest,
                         testing::Combine(testing::Values(DType::kBF16,
                                                          DType::kF16),
                                          testing::Bool()));

// The order matters in bits and in nothing else.
TEST(SequentialTest, OrdersAgreeClosely) {
  const TestModel model(TinyConfig(2, true), DType::kF32, 9);
  const std::vector<TestBatch> batches = MakeBatches(model.config, 8);
  std::vector<double> norms, losses;
  for (const auto& [rounds, groups] :
       {std::pair(8, 1), std::pair(8, 8), std::pair(2, 2)}) {
    auto trainer = MakeTrainer(
        model,
        {.config = model.config, .round_limit = rounds, .group_limit = groups});
    const auto step = trainer->Step(Borrow(batches), 1e-3);
    ASSERT_TRUE(step.ok()) << step.status();
    norms.push_back(step->gradient_norm);
    losses.push_back(step->loss.mean());
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);
  EXPECT_NEAR(norms[1] / norms[0], 1.0, 1e-6);
  EXPECT_NEAR(norms[2] / norms[0], 1.0, 1e-6);
}

TEST(SequentialTest, ClippingScalesTheGradientOnce) {
  const TestModel model(TinyConfig(1, false), DType::kF32, 9);
  const std::vector<TestBatch> batches = MakeBatches(model.config, 2);
  auto trainer =
      MakeTrainer(model, {.config = model.config, .max_gradient_norm = 0.01});
  const auto step = trainer->Step(Borrow(batches), 1e-3);
  ASSERT_TRUE(step.ok()) << step.status();
  ASSERT_GT(step->gradient_norm, 0.1);
  const float factor = ClipFactor(step->gradient_norm, 0.01);
  for (int i = 0; i < kHidden; ++i) {
    // The first moment after one step is (1 - beta1) * gradient.
    const float clipped = trainer->gradient(1)[i] * factor;
    EXPECT_NEAR(trainer->exp_avg(1)[i], 0.1f * clipped,
                1e-6f * std::abs(clipped));
  }
}

// Step t has the gradients of the weights after update t - 2.
TEST(SequentialTest, StaleStepsReadTheWeightsBeforeTheLastUpdate) {
  const TestModel model(TinyConfig(2, true), DType::kF32, 9);
  const SequentialOptions options{.config = model.config,
                                  .max_gradient_norm = 0.5};
  SequentialOptions behind = options;
  behind.stale = true;
  auto stale = MakeTrainer(model, behind);
  std::vector<std::vector<std::vector<float>>> after(1);
  for (const auto& master : model.master) {
    after[0].emplace_back(master.begin(), master.end());
  }
  for (int t = 1; t <= 4; ++t) {
    const auto batches = MakeBatches(model.config, 1 + t % 2);
    const auto step = stale->Step(Borrow(batches), 1e-2);
    ASSERT_TRUE(step.ok()) << step.status();
    auto plain = MakeTrainer(model, options);
    for (size_t unit = 0; unit < model.units.size(); ++unit) {
      ASSERT_TRUE(plain
                      ->SetUnit(static_cast<int>(unit),
                                after[std::max(0, t - 2)][unit].data())
                      .ok());
    }
    const auto same = plain->Step(Borrow(batches), 1e-2);
    EXPECT_EQ(step->loss.loss_sum, same->loss.loss_sum) << t;
    EXPECT_EQ(step->gradient_norm, same->gradient_norm) << t;
    auto& masters = after.emplace_back();
    for (size_t unit = 0; unit < model.units.size(); ++unit) {
      const int number = static_cast<int>(unit);
      const size_t count = model.master[unit].size();
      EXPECT_EQ(std::memcmp(stale->gradient(number), plain->gradient(number),
                            count * sizeof(float)),
                0)
          << "step " << t << " unit " << unit;
      EXPECT_EQ(std::memcmp(stale->stale(number),
                            after[static_cast<size_t>(t) - 1][unit].data(),
                            count * sizeof(float)),
                0);
      masters.emplace_back(stale->master(number),
                           stale->master(number) + count);
    }
    // An evaluation reads the newest.
    auto newest = MakeTrainer(model, options);
    for (size_t unit = 0; unit < model.units.size(); ++unit) {
      ASSERT_TRUE(
          newest->SetUnit(static_cast<int>(unit), masters[unit].data()).ok());
    }
    EXPECT_EQ(stale->Evaluate(Borrow(batches))->loss_sum,
              newest->Evaluate(Borrow(batches))->loss_sum);
  }
}

TEST(SequentialTest, LearnsABatchByHeart) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const TestModel model(TinyConfig(2, true), dtype, 9);
    const std::vector<TestBatch> batches = MakeBatches(model.config, 2);
    auto trainer = MakeTrainer(model, {.config = model.config,
                                       .dtype = dtype,
                                       .round_limit = 2,
                                       .max_gradient_norm = 1.0});
    const double before = trainer->Evaluate(Borrow(batches))->mean();
    for (int step = 0; step < 60; ++step) {
      ASSERT_TRUE(trainer->Step(Borrow(batches), 1e-2)->updated);
    }
    EXPECT_LT(trainer->Evaluate(Borrow(batches))->mean(), 0.1 * before);
    // The compute copy is the rounded master.
    std::vector<std::byte> copy(kHidden * DTypeBytes(dtype));
    FromF32(dtype, trainer->master(1), copy.data(), kHidden);
    EXPECT_EQ(std::memcmp(copy.data(), trainer->compute(1), copy.size()), 0);
  }
}

bool SameState(const SequentialTrainer& a, const SequentialTrainer& b) {
  for (size_t unit = 0; unit < a.units().size(); ++unit) {
    const int u = static_cast<int>(unit);
    const auto count = static_cast<size_t>(a.units()[unit].element_count);
    const auto same = [&](const float* left, const float* right) {
      return std::memcmp(left, right, count * sizeof(float)) == 0;
    };
    if (!same(a.master(u), b.master(u)) || !same(a.exp_avg(u), b.exp_avg(u)) ||
        !same(a.exp_avg_sq(u), b.exp_avg_sq(u))) {
      return false;
    }
  }
  return true;
}

// Scales are powers of two, and fp32 has the room.
TEST(SequentialTest, ScalingTheLossChangesNoBitInFp32) {
  const TestModel model(TinyConfig(2, true), DType::kF32, 9);
  for (const double max_norm : {0.0, 0.01}) {
    SequentialOptions options{.config = model.config,
                              .round_limit = 2,
                              .adamw = {.weight_decay = 0.1},
                              .max_gradient_norm = max_norm};
    auto plain = MakeTrainer(model, options);
    options.scale_loss = true;
    auto scaled = MakeTrainer(model, options);
    for (int i = 0; i < 3; ++i) {
      const std::vector<TestBatch> batches = MakeBatches(model.config, 2 + i);
      const auto expected = plain->Step(Borrow(batches), 1e-2);
      const auto step = scaled->Step(Borrow(batches), 1e-2);
      ASSERT_TRUE(step.ok()) << step.status();
      EXPECT_TRUE(step->updated);
      EXPECT_EQ(step->loss.loss_sum, expected->loss.loss_sum);
      EXPECT_EQ(step->gradient_norm, expected->gradient_norm);
      EXPECT_TRUE(SameState(*plain, *scaled)) << i;
    }
    EXPECT_EQ(scaled->loss_scaler().state().growth_tracker, 3);
  }
}

TEST(SequentialTest, LearnsInFp16) {
  const TestModel model(TinyConfig(2, true), DType::kF16, 9);
  const std::vector<TestBatch> batches = MakeBatches(model.config, 2);
  auto trainer = MakeTrainer(model, {.config = model.config,
                                     .dtype = DType::kF16,
                                     .round_limit = 2,
                                     .max_gradient_norm = 1.0,
                                     .scale_loss = true});
  const double before = trainer->Evaluate(Borrow(batches))->mean();
  int skipped = 0;
  for (int i = 0; i < 70; ++i) {
    const auto step = trainer->Step(Borrow(batches), 1e-2);
    ASSERT_TRUE(step.ok()) << step.status();
    ASSERT_TRUE(step->loss.finite);
    skipped += step->updated ? 0 : 1;
  }
  EXPECT_EQ(trainer->loss_scaler().state().skipped_steps, skipped);
  EXPECT_LT(skipped, 10);
  EXPECT_LT(trainer->Evaluate(Borrow(batches))->mean(), 0.1 * before);
  std::vector<std::byte> copy(kHidden * sizeof(uint16_t));
  FromF32(DType::kF16, trainer->master(1), copy.data(), kHidden);
  EXPECT_EQ(std::memcmp(copy.data(), trainer->compute(1), copy.size()), 0);
}

// Until the scale is low enough nothing changes; then the first update is that
// of a job that began with this scale.
TEST(SequentialTest, StepsWhoseGradientsOverflowAreSkipped) {
  const TestModel model(TinyConfig(2, false), DType::kF16, 9);
  const SequentialOptions options{.config = model.config,
                                  .dtype = DType::kF16,
                                  .adamw = {.weight_decay = 0.1},
                                  .max_gradient_norm = 0.5,
                                  .scale_loss = true};
  const std::vector<TestBatch> batches = MakeBatches(model.config, 2);
  const auto untouched = MakeTrainer(model, options);
  auto trainer = MakeTrainer(model, options);
  trainer->SetLossScaler(LossScaler({.scale = 0x1p30f}));
  int skipped = 0;
  for (;; ++skipped) {
    const float scale = trainer->loss_scaler().scale();
    const auto step = trainer->Step(Borrow(batches), 1e-2);
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_TRUE(step->loss.finite);
    if (step->updated) break;
    EXPECT_FALSE(std::isfinite(step->gradient_norm));
    EXPECT_TRUE(SameState(*trainer, *untouched));
    EXPECT_EQ(trainer->loss_scaler().scale(), scale / 2);
    ASSERT_FALSE(trainer->loss_scaler().exhausted());
  }
  EXPECT_GT(skipped, 8);
  auto fresh = MakeTrainer(model, options);
  fresh->SetLossScaler(LossScaler({.scale = trainer->loss_scaler().scale()}));
  ASSERT_TRUE(fresh->Step(Borrow(batches), 1e-2)->updated);
  EXPECT_TRUE(SameState(*trainer, *fresh));
  EXPECT_FALSE(SameState(*trainer, *untouched));
}

TEST(SequentialTest, ResumesToTheSameBits) {
  const TestModel model(TinyConfig(1, false), DType::kBF16, 9);
  const SequentialOptions options{.config = model.config,
                                  .dtype = DType::kBF16,
                                  .adamw = {.weight_decay = 0.1}};
  const std::vector<TestBatch> batches = MakeBatches(model.config, 3);
  auto straight = MakeTrainer(model, options);
  ASSERT_TRUE(straight->Step(Borrow(batches), 1e-2).ok());
  auto resumed = MakeTrainer(model, options);
  for (size_t unit = 0; unit < model.units.size(); ++unit) {
    const int u = static_cast<int>(unit);
    ASSERT_TRUE(resumed
                    ->SetUnit(u, straight->master(u), straight->exp_avg(u),
                              straight->exp_avg_sq(u))
                    .ok());
  }
  resumed->SetCompletedSteps(1);
  ASSERT_TRUE(straight->Step(Borrow(batches), 1e-2).ok());
  ASSERT_TRUE(resumed->Step(Borrow(batches), 1e-2).ok());
  for (size_t unit = 0; unit < model.units.size(); ++unit) {
    const int u = static_cast<int>(unit);
    EXPECT_EQ(std::memcmp(straight->master(u), resumed->master(u),
                          model.master[unit].size() * sizeof(float)),
              0);
  }
}

TEST(SequentialTest, NonFiniteLossUpdatesNothing) {
  TestModel model(TinyConfig(1, false), DType::kF32, 9);
  model.master[2][0] = std::numeric_limits<float>::infinity();
  auto trainer = MakeTrainer(model, {.config = model.config});
  const std::vector<TestBatch> batches = MakeBatches(model.config, 1);
  const auto step = trainer->Step(Borrow(batches), 1e-2);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_FALSE(step->loss.finite);
  EXPECT_FALSE(step->updated);
  EXPECT_EQ(std::memcmp(trainer->master(0), model.master[0].data(),
                        model.master[0].size() * sizeof(float)),
            0);
}

TEST(SequentialTest, RefusesBadInput) {
  const TestModel model(TinyConfig(1, false), DType::kF32, 9);
  EXPECT_FALSE(
      SequentialTrainer::Create({.config = model.config, .round_limit = 0})
          .ok());
  auto trainer = MakeTrainer(model, {.config = model.config});
  EXPECT_FALSE(trainer->Step({}, 1e-3).ok());
  std::vector<TestBatch> batches = MakeBatches(model.config, 1);
  batches[0].tokens[3] = 61;
  const auto step = trainer->Step(Borrow(batches), 1e-3);
  EXPECT_NE(step.status().message().find("token 61 at position 3"),
            std::string::npos)
      << step.status();
}

AdapterConfig Adapter() {
  return {.rank = 3, .alpha = 6, .dropout = 0.3, .targets = 0b1001010};
}

SequentialOptions AdapterOptions(const TestModel& model) {
  return {.config = model.config,
          .adapter = model.adapter,
          .seed = kSeed,
          .dtype = model.dtype,
          .round_limit = 4,
          .group_limit = 2,
          .adamw = {.weight_decay = 0.1}};
}

// Rows of two sequences each.
std::vector<TestBatch> MakePackedBatches(const ModelConfig& config, int count) {
  std::vector<TestBatch> batches = MakeBatches(config, count);
  for (TestBatch& batch : batches) {
    for (int64_t i = 0; i < batch.rows * batch.row_tokens; ++i) {
      const int64_t token = i % batch.row_tokens;
      batch.positions.push_back(
          static_cast<int32_t>(token < 4 ? token : token - 4));
    }
  }
  return batches;
}

class AdapterTest : public testing::TestWithParam<bool> {};

TEST_P(AdapterTest, OnlyAdaptersHaveSumsAndTheNormIsTheirs) {
  const TestModel model(TinyConfig(2, GetParam()), DType::kBF16, 9, Adapter());
  const auto batches = MakePackedBatches(model.config, 7);
  auto trainer = MakeTrainer(model, AdapterOptions(model));
  const auto step = trainer->Step(Borrow(batches), 1e-3);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_TRUE(step->updated);

  std::vector<MicroBatchGradients> ones;
  for (size_t m = 0; m < batches.size(); ++m) {
    ones.push_back(RunOne(model, batches[m], LossScale(batches), m));
  }
  double squares = 0;
  for (int unit : {4, 5}) {
    for (const ParameterSpec& parameter :
         model.units[static_cast<size_t>(unit)].parameters) {
      std::vector<std::vector<Sum>> addends;
      for (const MicroBatchGradients& one : ones) {
        addends.push_back({one.sink.gradients.at({unit - 4, parameter.role})});
      }
      const Sum expected =
          Plus(RoundSum(addends, 0, 4, 2), RoundSum(addends, 4, 7, 2));
      EXPECT_EQ(
          std::memcmp(trainer->gradient(unit) + parameter.unit_offset_elements,
                      expected->data(), expected->size() * sizeof(float)),
          0)
          << parameter.name;
      for (float value : *expected) {
        squares += static_cast<double>(value) * value;
      }
    }
  }
  EXPECT_NEAR(step->gradient_norm, std::sqrt(squares), 1e-9);
}

TEST_P(AdapterTest, LearnsWhileTheModelStays) {
  const TestModel model(TinyConfig(2, GetParam()), DType::kBF16, 9, Adapter());
  const auto batches = MakePackedBatches(model.config, 2);
  auto trainer = MakeTrainer(model, AdapterOptions(model));
  const double before = trainer->Evaluate(Borrow(batches))->mean();
  EXPECT_EQ(trainer->Evaluate(Borrow(batches))->mean(), before);
  for (int step = 0; step < 60; ++step) {
    ASSERT_TRUE(trainer->Step(Borrow(batches), 2e-2)->updated);
  }
  EXPECT_LT(trainer->Evaluate(Borrow(batches))->mean(), 0.7 * before);
  for (int unit = 0; unit < 6; ++unit) {
    const auto& start = model.compute[static_cast<size_t>(unit)];
    EXPECT_EQ(trainer->trainable(unit), unit > 3);
    EXPECT_EQ(
        std::memcmp(trainer->compute(unit), start.data(), start.size()) == 0,
        unit <= 3)
        << unit;
  }
  // Adapters have no second rounding.
  EXPECT_EQ(std::memcmp(trainer->compute(4), trainer->master(4),
                        model.master[4].size() * sizeof(float)),
            0);
}

TEST_P(AdapterTest, ResumesToTheSameBits) {
  const TestModel model(TinyConfig(2, GetParam()), DType::kBF16, 9, Adapter());
  const auto batches = MakePackedBatches(model.config, 5);
  auto straight = MakeTrainer(model, AdapterOptions(model));
  ASSERT_TRUE(straight->Step(Borrow(batches), 1e-2).ok());
  auto resumed = MakeTrainer(model, AdapterOptions(model));
  for (int unit : {4, 5}) {
    ASSERT_TRUE(resumed
                    ->SetUnit(unit, straight->master(unit),
                              straight->exp_avg(unit),
                              straight->exp_avg_sq(unit))
                    .ok());
  }
  resumed->SetCompletedSteps(1);
  ASSERT_TRUE(straight->Step(Borrow(batches), 1e-2).ok());
  ASSERT_TRUE(resumed->Step(Borrow(batches), 1e-2).ok());
  for (int unit : {4, 5}) {
    EXPECT_EQ(std::memcmp(straight->master(unit), resumed->master(unit),
                          model.master[static_cast<size_t>(unit)].size() *
                              sizeof(float)),
              0);
  }
  const float* const moments = straight->exp_avg(4);
  EXPECT_EQ(
      resumed->SetUnit(1, model.master[1].data(), moments, moments).code(),
      absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Tied, AdapterTest, testing::Bool());

}  // namespace
}  // namespace roundhouse::worker
