#include "base/wire/messages.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/wire/channel.h"
#include "gtest/gtest.h"

namespace roundhouse::wire {
namespace {

RunSlot ExampleSlot() {
  RunSlot slot;
  slot.job = 7;
  slot.slot = 99;
  slot.pass = 12;
  slot.step = 5;
  slot.mode = StepMode::kTrain;
  slot.kind = SlotKind::kFused;
  slot.first_layer = 3;
  slot.last_layer = 4;
  slot.total_groups = 2;
  slot.contribution_dtype = DType::kF16;
  slot.loss_scale = 0.125;
  slot.turn = 6;
  slot.enabled_ns = 123;
  slot.enabled_by = WaitCause::kOptimizer;
  slot.pick_use = PickUse::kRead;
  slot.gather_begun = {320, 4};
  slot.units = {{4, 3, {4096, 128}, {64, 5}}, {5, 4, {8192, 64}, {128, 5}}};
  slot.micro_batches.resize(2);
  slot.micro_batches[1].rows = 4;
  slot.micro_batches[1].step_index = 17;
  slot.micro_batches[1].positions = {1 << 19, 96};
  slot.micro_batches[1].input = {1 << 20, 2048};
  slot.micro_batches[1].picks = {1 << 18, 768};
  slot.micro_batches[1].picked = {448, 12};
  slot.outputs = {{1, 3, OutputKind::kGradient, 0, {1 << 21, 2048}, {192, 12}}};
  slot.contributions = {{4, 0, 2, 0, {1 << 22, 4096}}};
  return slot;
}

TEST(MessagesTest, RunSlotComesBackWhole) {
  const auto datagram = Encode({41, ExampleSlot()});
  ASSERT_TRUE(datagram.ok());
  const auto message = Decode(*datagram);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->attempt, 41u);
  const RunSlot& slot = std::get<RunSlot>(message->body);
  EXPECT_EQ(slot.slot, 99u);
  EXPECT_EQ(slot.step, 5u);
  EXPECT_EQ(slot.mode, StepMode::kTrain);
  EXPECT_EQ(slot.kind, SlotKind::kFused);
  EXPECT_EQ(slot.units[1].weights.offset, 8192u);
  EXPECT_EQ(slot.micro_batches[1].step_index, 17u);
  EXPECT_EQ(slot.micro_batches[1].positions.bytes, 96u);
  EXPECT_EQ(slot.micro_batches[1].input.bytes, 2048u);
  EXPECT_EQ(slot.outputs[0].raise.value, 12u);
  EXPECT_EQ(slot.contributions[0].group_count, 2u);
  EXPECT_EQ(slot.contribution_dtype, DType::kF16);
  EXPECT_EQ(slot.loss_scale, 0.125);
  EXPECT_EQ(slot.turn, 6u);
  EXPECT_EQ(slot.enabled_ns, 123);
  EXPECT_EQ(slot.enabled_by, WaitCause::kOptimizer);
  EXPECT_EQ(slot.pick_use, PickUse::kRead);
  EXPECT_EQ(slot.micro_batches[1].picks.bytes, 768u);
  EXPECT_EQ(slot.micro_batches[1].picked.offset, 448u);
  EXPECT_EQ(slot.gather_begun.offset, 320u);
}

TEST(MessagesTest, WaitsComeBackWhole) {
  SlotStarted started{.slot = 3, .received_ns = 5, .time_ns = 9};
  started.fills_bubble = true;
  started.waits = {1, 2, 3, 4, 5, 6, 7};
  const auto first = Decode(*Encode({6, started}));
  ASSERT_TRUE(first.ok()) << first.status();
  const SlotStarted& back = std::get<SlotStarted>(first->body);
  EXPECT_EQ(back.received_ns, 5);
  EXPECT_EQ(back.time_ns, 9);
  EXPECT_TRUE(back.fills_bubble);
  EXPECT_EQ(back.waits, started.waits);
  MicroBatchDone done{.slot = 3, .index = 2, .last = true, .time_ns = 11};
  done.waits = {7, 6, 5, 4, 3, 2, 1};
  const auto second = Decode(*Encode({6, done}));
  ASSERT_TRUE(second.ok()) << second.status();
  const MicroBatchDone& also = std::get<MicroBatchDone>(second->body);
  EXPECT_EQ(also.index, 2u);
  EXPECT_TRUE(also.last);
  EXPECT_EQ(also.waits, done.waits);
}

TEST(MessagesTest, WhatWasComputedOfABackfillSlotComesBackWhole) {
  SlotStarted started{.slot = 3};
  EXPECT_FALSE(
      std::get<SlotStarted>(Decode(*Encode({6, started}))->body).backfill);
  started.backfill = true;
  EXPECT_TRUE(
      std::get<SlotStarted>(Decode(*Encode({6, started}))->body).backfill);
  const auto sent = Decode(*Encode({6, BackfillComputed{1, 2, 3, 4, true}}));
  ASSERT_TRUE(sent.ok()) << sent.status();
  const auto& back = std::get<BackfillComputed>(sent->body);
  EXPECT_EQ(back.slot, 1u);
  EXPECT_EQ(back.index, 2u);
  EXPECT_EQ(back.started_ns, 3);
  EXPECT_EQ(back.ended_ns, 4);
  EXPECT_TRUE(back.fills_bubble);
}

TEST(MessagesTest, CopiesComeBackWhole) {
  RunSlot slot = ExampleSlot();
  slot.trace = true;
  EXPECT_TRUE(std::get<RunSlot>(Decode(*Encode({6, slot}))->body).trace);
  SlotDone done;
  done.copies_left_out = 9;
  done.copies = {{1, 2, 3, Direction::kD2H, Purpose::kGradients, 4, 5}};
  const auto message = Decode(*Encode({6, done}));
  ASSERT_TRUE(message.ok()) << message.status();
  const SlotDone& back = std::get<SlotDone>(message->body);
  EXPECT_EQ(back.copies_left_out, 9u);
  ASSERT_EQ(back.copies.size(), 1u);
  const CopyInterval& copy = back.copies[0];
  EXPECT_EQ(copy.started_ns, 1);
  EXPECT_EQ(copy.ended_ns, 2);
  EXPECT_EQ(copy.bytes, 3u);
  EXPECT_EQ(copy.direction, Direction::kD2H);
  EXPECT_EQ(copy.purpose, Purpose::kGradients);
  EXPECT_EQ(copy.layer, 4u);
  EXPECT_EQ(copy.micro_batch, 5);
}

// With results of as many micro-batches as a command can name.
TEST(MessagesTest, TheMostCopiesFitIntoOneMessage) {
  SlotDone done;
  done.copies.resize(kDirections * kMaxTracedCopies);
  done.results.resize(kMaxMessageBytes / sizeof(SlotMicroBatch));
  done.layers.resize(1000);
  EXPECT_TRUE(Encode({6, done}).ok());
}

TEST(MessagesTest, ASampleComesBackWhole) {
  RunSample command{.job = 7, .sample = 3, .new_tokens = 16};
  command.temperature = 0.5;
  command.seed = 11;
  command.units = {{4, 3, {4096, 128}, {64, 5}}};
  command.sequences = {{1, 5, {8192, 28}}};
  command.end_tokens = {2, 9};
  const auto sent = Decode(*Encode({6, command}));
  ASSERT_TRUE(sent.ok()) << sent.status();
  const RunSample& got = std::get<RunSample>(sent->body);
  EXPECT_EQ(got.sample, 3u);
  EXPECT_EQ(got.new_tokens, 16u);
  EXPECT_EQ(got.temperature, 0.5);
  EXPECT_EQ(got.seed, 11u);
  EXPECT_EQ(got.units[0].weights.offset, 4096u);
  EXPECT_EQ(got.sequences[0].prompt_tokens, 5u);
  EXPECT_EQ(got.sequences[0].tokens.bytes, 28u);
  EXPECT_EQ(got.end_tokens, (std::vector<int32_t>{2, 9}));
  const SampleDone done{3, 10, 20, 4096, {2, 0}, {17, 2}};
  const auto answer = Decode(*Encode({6, done}));
  ASSERT_TRUE(answer.ok()) << answer.status();
  const SampleDone& back = std::get<SampleDone>(answer->body);
  EXPECT_EQ(back.weight_bytes, 4096u);
  EXPECT_EQ(back.counts, (std::vector<uint32_t>{2, 0}));
  EXPECT_EQ(back.tokens, (std::vector<int32_t>{17, 2}));
}

TEST(MessagesTest, RowsToMergeComeBackWhole) {
  MergeRows command{.operation = 5,
                    .first_row = 2,
                    .row_count = 3,
                    .columns = 7,
                    .rank = 4,
                    .scale = 0.5};
  command.base = {{"/", "/base", {1, 2, 100, 3}}, 8, DType::kBF16};
  command.lora_a = {{"", "/adapter", {4, 5, 90, -6}}, 16, DType::kF32};
  command.lora_b = {{"", "/adapter", {4, 5, 90, -6}}, 24, DType::kF16};
  command.output = {"/", "/out", {.device = 5, .inode = 6}};
  command.output_offset = 64;
  command.output_dtype = DType::kF16;
  command.sync = false;
  const auto datagram = Encode({6, command});
  ASSERT_TRUE(datagram.ok()) << datagram.status();
  const auto sent = Decode(*datagram);
  ASSERT_TRUE(sent.ok()) << sent.status();
  const MergeRows& got = std::get<MergeRows>(sent->body);
  EXPECT_EQ(got.operation, 5);
  EXPECT_EQ(got.first_row, 2u);
  EXPECT_EQ(got.row_count, 3u);
  EXPECT_EQ(got.columns, 7u);
  EXPECT_EQ(got.rank, 4u);
  EXPECT_EQ(got.scale, 0.5);
  EXPECT_EQ(got.base.file, command.base.file);
  EXPECT_EQ(got.base.dtype, DType::kBF16);
  EXPECT_EQ(got.lora_a.file, command.lora_a.file);
  EXPECT_EQ(got.lora_a.offset, 16u);
  EXPECT_EQ(got.lora_b.offset, 24u);
  EXPECT_EQ(got.lora_b.dtype, DType::kF16);
  EXPECT_EQ(got.output, command.output);
  EXPECT_EQ(got.output_offset, 64u);
  EXPECT_EQ(got.output_dtype, DType::kF16);
  EXPECT_FALSE(got.sync);

  command.output_dtype = static_cast<DType>(4);
  EXPECT_FALSE(Decode(*Encode({6, command})).ok());
}

TEST(MessagesTest, AnExchangeOfSumsComesBackWhole) {
  JoinPeers join{.group = 3, .rank = 1, .size = 4};
  join.id[127] = 'x';
  const auto joined = Decode(*Encode({6, join}));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(std::get<JoinPeers>(joined->body).rank, 1u);
  EXPECT_EQ(std::get<JoinPeers>(joined->body).size, 4u);
  EXPECT_EQ(std::get<JoinPeers>(joined->body).id, join.id);

  PeerSums sums{.target_attempt = 9, .slot = 8, .group = 3, .unit = 5};
  sums.verb = PeerVerb::kExchange;
  sums.dtype = DType::kBF16;
  sums.self = 1;
  sums.chunk_elements = 1 << 20;
  sums.slice = {4096, 128};
  sums.members = {{2, 0, 0, 16}, {0, 0, 16, 32}};
  sums.sums = {{0, 2}, {1, 1}};
  const auto message = Decode(*Encode({6, sums}));
  ASSERT_TRUE(message.ok()) << message.status();
  const PeerSums& back = std::get<PeerSums>(message->body);
  EXPECT_EQ(back.target_attempt, 9u);
  EXPECT_EQ(back.verb, PeerVerb::kExchange);
  EXPECT_EQ(back.dtype, DType::kBF16);
  EXPECT_EQ(back.self, 1u);
  EXPECT_EQ(back.chunk_elements, uint64_t{1} << 20);
  EXPECT_EQ(back.slice.offset, 4096u);
  EXPECT_EQ(back.members[1].first_element, 16u);
  EXPECT_EQ(back.members[1].elements, 32u);
  EXPECT_EQ(back.sums[0].group_count, 2u);
  sums.verb = static_cast<PeerVerb>(4);
  EXPECT_EQ(Decode(*Encode({1, sums})).status().message(),
            "message: field verb has no meaning: 4");
}

TEST(MessagesTest, EveryTypeKeepsItsTag) {
  const Body bodies[] = {ConfigureJob{1, 2},
                         ReleaseJob{3},
                         Stop{},
                         Withdraw{4},
                         ExampleSlot(),
                         HostOp{},
                         FileOp{},
                         Hello{},
                         JobConfigured{1},
                         SlotStarted{1, 2, 3},
                         MicroBatchDone{1, 2, false, 3},
                         SlotDone{},
                         Withdrawn{5},
                         HostOpDone{6, 0.5, 1, 2},
                         FileOpDone{7, 8},
                         Failed{9, 3, "why"},
                         Heartbeat{10, 11},
                         RunSample{},
                         SampleDone{},
                         MergeRows{},
                         SumsDown{1, 2, {3, 4}},
                         JoinPeers{},
                         LeavePeers{12},
                         PeerSums{},
                         PeersInvited{},
                         PeersJoined{13},
                         PeersLeft{14, "why"},
                         SumsHeld{1, {3, 4}},
                         SliceDown{1, 2, 3, true, 4},
                         SetTurn{15, 16},
                         BackfillComputed{17, 18, 19, 20, true}};
  static_assert(std::size(bodies) == std::variant_size_v<Body>);
  for (const Body& body : bodies) {
    const auto datagram = Encode({1, body});
    ASSERT_TRUE(datagram.ok());
    const auto message = Decode(*datagram);
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(message->body.index(), body.index());
  }
}

TEST(MessagesTest, AHeartbeatSaysWhatIsPinned) {
  const auto message = Decode(*Encode({0, Heartbeat{10, uint64_t{1} << 40}}));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(std::get<Heartbeat>(message->body).time_ns, 10);
  EXPECT_EQ(std::get<Heartbeat>(message->body).pinned_bytes, uint64_t{1} << 40);
}

TEST(MessagesTest, TruncationAtEveryByteIsAnError) {
  const std::string datagram = *Encode({1, ExampleSlot()});
  for (size_t bytes = 0; bytes < datagram.size(); ++bytes) {
    std::string cut = datagram.substr(0, bytes);
    EXPECT_FALSE(Decode(cut).ok()) << bytes;
    if (bytes < 24) continue;
    const uint32_t says = static_cast<uint32_t>(bytes);
    std::memcpy(cut.data() + 8, &says, sizeof(says));
    EXPECT_FALSE(Decode(cut).ok()) << bytes << " with a matching length";
  }
}

TEST(MessagesTest, OtherVersionIsNamed) {
  std::string datagram = *Encode({1, Stop{}});
  datagram[4] = 9;
  EXPECT_EQ(Decode(datagram).status().message(),
            "message: wire version 9, this build speaks 2");
}

TEST(MessagesTest, UnknownEnumValueIsAnError) {
  HostOp op;
  op.kind = static_cast<HostOpKind>(9);
  EXPECT_EQ(Decode(*Encode({1, op})).status().message(),
            "message: field kind has no meaning: 9");
}

// A choice between two in a message, four bytes at `offset`.
struct Choice {
  const char* name;
  Body off;
  Body on;
  size_t offset;
};

template <typename T, typename Set>
Choice ChoiceOf(const char* name, size_t offset, T body, Set set) {
  Choice choice{name, body, body, offset};
  set(std::get<T>(choice.on));
  return choice;
}

std::vector<Choice> Choices() {
  RunSlot slot = ExampleSlot();
  slot.mode = StepMode::kEvaluate;
  slot.outputs[0].kind = OutputKind::kActivation;
  const size_t outputs =
      24 + 120 + 8 + 2 * sizeof(SlotUnit) + 8 + 2 * sizeof(SlotMicroBatch) + 8;
  SlotDone done;
  done.results = {{0.5, 3, Finite::kNo, 0}};
  const size_t results = 24 + 8 * 8 + 8 * 8 + 2 * 8 + 8;
  SlotDone copied;
  copied.copies = {{1, 2, 3, Direction::kH2D, Purpose::kWeights, 4, 5}};
  const size_t copies = results + 8 + 8;
  return {
      ChoiceOf("mode", 56, slot, [](RunSlot& m) { m.mode = StepMode::kTrain; }),
      ChoiceOf("sums", 84, slot,
               [](RunSlot& m) { m.sums = SumPlace::kDevice; }),
      ChoiceOf("trace", 116, slot, [](RunSlot& m) { m.trace = true; }),
      ChoiceOf("again", 120, slot, [](RunSlot& m) { m.again = true; }),
      ChoiceOf("outputs.kind", outputs + 8, slot,
               [](RunSlot& m) { m.outputs[0].kind = OutputKind::kGradient; }),
      ChoiceOf("sum_write", 52, HostOp{},
               [](HostOp& m) { m.sum_write = SumWrite::kAdd; }),
      ChoiceOf("want_norm", 56, HostOp{},
               [](HostOp& m) { m.want_norm = true; }),
      ChoiceOf("keep_partials", 60, HostOp{},
               [](HostOp& m) { m.keep_partials = true; }),
      ChoiceOf("fills_bubble", 48, SlotStarted{},
               [](SlotStarted& m) { m.fills_bubble = true; }),
      ChoiceOf("last", 36, MicroBatchDone{},
               [](MicroBatchDone& m) { m.last = true; }),
      ChoiceOf("whole", 44, SliceDown{}, [](SliceDown& m) { m.whole = true; }),
      ChoiceOf("results.finite", results + 16, done,
               [](SlotDone& m) { m.results[0].finite = Finite::kYes; }),
      ChoiceOf("copies.direction", copies + 24, copied,
               [](SlotDone& m) { m.copies[0].direction = Direction::kD2H; }),
      ChoiceOf("copies.purpose", copies + 28, copied,
               [](SlotDone& m) { m.copies[0].purpose = Purpose::kGradients; }),
  };
}

uint32_t NumberAt(const std::string& datagram, size_t offset) {
  uint32_t number = 0;
  std::memcpy(&number, datagram.data() + offset, sizeof(number));
  return number;
}

TEST(MessagesTest, AChoiceIsFourBytesAndNothingElse) {
  for (const Choice& choice : Choices()) {
    SCOPED_TRACE(choice.name);
    std::string off = *Encode({1, choice.off});
    const std::string on = *Encode({1, choice.on});
    EXPECT_EQ(NumberAt(off, choice.offset), 0u);
    EXPECT_EQ(NumberAt(on, choice.offset), 1u);
    off[choice.offset] = 1;
    EXPECT_EQ(off, on);
    EXPECT_EQ(*Encode(*Decode(on)), on);
  }
}

TEST(MessagesTest, AChoiceOfAnotherValueIsAnError) {
  for (const Choice& choice : Choices()) {
    std::string datagram = *Encode({1, choice.on});
    const uint32_t other = 9;
    std::memcpy(datagram.data() + choice.offset, &other, sizeof(other));
    EXPECT_EQ(
        Decode(datagram).status().message(),
        absl::StrCat("message: field ", choice.name, " has no meaning: 9"));
  }
}

TEST(MessagesTest, TheDTypeOfContributionsComesBackAndIsChecked) {
  HostOp op;
  op.contribution_dtype = DType::kBF16;
  EXPECT_EQ(std::get<HostOp>(Decode(*Encode({1, op}))->body).contribution_dtype,
            DType::kBF16);
  op.contribution_dtype = static_cast<DType>(4);
  RunSlot slot = ExampleSlot();
  slot.contribution_dtype = static_cast<DType>(0);
  EXPECT_EQ(Decode(*Encode({1, op})).status().message(),
            "message: field contribution_dtype has no meaning: 4");
  EXPECT_EQ(Decode(*Encode({1, slot})).status().message(),
            "message: field contribution_dtype has no meaning: 0");
}

TEST(MessagesTest, LimitsAreRefusedByEncode) {
  RunSlot slot;
  slot.micro_batches.resize(kMaxArray + 1);
  EXPECT_EQ(Encode({1, slot}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Encode({1, Failed{1, 2, std::string(kMaxTextBytes + 1, 'x')}})
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(MessagesTest, MutatedDatagramsNeverCrash) {
  std::mt19937_64 random(20260427);
  const std::string whole = *Encode({1, ExampleSlot()});
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string datagram = whole;
    for (int flip = 0; flip <= static_cast<int>(random() % 4); ++flip) {
      datagram[random() % datagram.size()] = static_cast<char>(random());
    }
    const auto message = Decode(datagram);
    if (!message.ok()) continue;
    ++accepted;
    // What is accepted encodes to the same bytes.
    EXPECT_EQ(Encode(*message)->size(), datagram.size());
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 20000);
}

TEST(ChannelTest, CarriesMessagesAndReportsTheEnd) {
  auto pair = Channel::Pair();
  ASSERT_TRUE(pair.ok());
  auto [daemon, worker] = *std::move(pair);
  EXPECT_FALSE((*worker->TryReceive()).has_value());
  ASSERT_TRUE(daemon->Send({3, ExampleSlot()}).ok());
  ASSERT_TRUE(daemon->Send({4, Stop{}}).ok());
  daemon.reset();
  EXPECT_EQ(worker->Receive()->attempt, 3u);
  EXPECT_EQ(worker->Receive()->attempt, 4u);  // sent before the end: counts
  EXPECT_EQ(worker->Receive().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(worker->Send({5, Heartbeat{}}).code(),
            absl::StatusCode::kUnavailable);
}

TEST(ChannelTest, TrySendRefusesWhenFull) {
  auto [daemon, worker] = *Channel::Pair();
  absl::Status status;
  for (int i = 0; i < 100000 && status.ok(); ++i) {
    status = daemon->TrySend({1, ExampleSlot()});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(ChannelTest, FullSizedMessageFits) {
  auto [daemon, worker] = *Channel::Pair();
  RunSlot slot;
  slot.outputs.resize(kMaxArray);
  ASSERT_GT(Encode({1, slot})->size(), kMaxMessageBytes * 9 / 10);
  ASSERT_TRUE(daemon->Send({1, slot}).ok());
  EXPECT_EQ(std::get<RunSlot>(worker->Receive()->body).outputs.size(),
            slot.outputs.size());
}

// A peer that dies with unread mail resets the connection; what it had sent
// before counts all the same.
TEST(ChannelTest, MailOfAPeerThatDiedUnreadIsDelivered) {
  auto [daemon, worker] = *Channel::Pair();
  ASSERT_TRUE(daemon->Send({1, Stop{}}).ok());  // never read
  ASSERT_TRUE(worker->Send({2, Heartbeat{}}).ok());
  ASSERT_TRUE(worker->Send({3, Heartbeat{}}).ok());
  worker.reset();
  for (uint64_t attempt : {2u, 3u}) {
    const auto message = daemon->TryReceive();
    ASSERT_TRUE(message.ok()) << message.status();
    ASSERT_TRUE(message->has_value());
    EXPECT_EQ((*message)->attempt, attempt);
  }
  EXPECT_EQ(daemon->TryReceive().status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(MessagesTest, AFailureOfAnyLengthIsEncoded) {
  const Failed failed =
      FailedWith(7, absl::NotFoundError(std::string(kMaxTextBytes + 9, 'x')));
  EXPECT_EQ(failed.id, 7u);
  EXPECT_EQ(failed.code, static_cast<uint32_t>(absl::StatusCode::kNotFound));
  EXPECT_EQ(failed.text, std::string(kMaxTextBytes, 'x'));
  EXPECT_TRUE(Encode({1, failed}).ok());
  EXPECT_EQ(FailedWith(7, absl::NotFoundError("it")).text, "it");
}

}  // namespace
}  // namespace roundhouse::wire
