#include "worker/host/test_job.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <variant>

#include "base/convert.h"
#include "base/model/parameters.h"
#include "base/status.h"
#include "worker/host/job_view.h"

namespace roundhouse::worker {
namespace {

constexpr uint64_t kAlignBytes = 64;

}  // namespace

TestJob::TestJob(const TestJobOptions& options)
    : options_(options),
      arena_(std::move(*wire::Arena::Create(kArenaBytes, 2))),
      next_((sizeof(wire::ArenaHeader) + 63) / 64 * 64),
      random_(options.seed) {
  layout_offset_ = Allocate(sizeof(wire::JobLayout)).offset;
  wire::JobLayout& l = layout();
  l.magic = wire::kLayoutMagic;
  l.version = wire::kWireVersion;
  l.job = kJob;
  l.model.vocab_size = options.vocab;
  l.model.hidden_size = options.hidden;
  l.dtype = options.dtype;
  l.unit_count = 2;
  l.parameter_count = 4;
  l.units_offset = Allocate(2 * sizeof(wire::UnitLayout)).offset;
  l.parameters_offset = Allocate(4 * sizeof(wire::ParameterLayout)).offset;
  l.scratch_slot_count = options.scratch_slots;
  l.scratch_slot_bytes = kScratchSlotBytes;
  l.scratch_offset = Allocate(options.scratch_slots * kScratchSlotBytes).offset;
  LayOutUnit(0, {static_cast<uint64_t>(options.vocab * options.hidden)});
  LayOutUnit(1, {70000, 120, 33000});
  parameter(0).role = static_cast<uint32_t>(ParamRole::kEmbedding);
  parameter(1).role = static_cast<uint32_t>(ParamRole::kQ);
  parameter(2).role = static_cast<uint32_t>(ParamRole::kInputNorm);
  parameter(2).weight_decay = 0;
  parameter(3).role = static_cast<uint32_t>(ParamRole::kK);
}

void TestJob::LayOutUnit(uint32_t index,
                         const std::vector<uint64_t>& parameters) {
  wire::UnitLayout& u = unit(index);
  u.first_parameter = index;  // unit 0 has one parameter
  u.parameter_count = static_cast<uint32_t>(parameters.size());
  for (uint32_t p = 0; p < parameters.size(); ++p) {
    parameter(index + p) = {index,         0, u.element_count, parameters[p],
                            u.chunk_count, 1};
    u.element_count += (parameters[p] + 63) / 64 * 64;
    u.chunk_count += static_cast<uint32_t>(wire::ChunkCount(parameters[p]));
  }
  const DType dtype =
      options_.adapters && index == 1 ? DType::kF32 : options_.dtype;
  u.dtype = dtype;
  const uint64_t master = RandomValues(DType::kF32, u.element_count).offset;
  u.compute_offset = Allocate(u.element_count * DTypeBytes(dtype)).offset;
  FromF32(dtype, Fp32(master, u.element_count),
          arena_->At<std::byte>(u.compute_offset), u.element_count);
  u.version_word_offset = AllocateWord();
  if (options_.adapters && index == 0) return;
  u.master_offset = master;
  const uint64_t bytes = u.element_count * sizeof(float);
  u.exp_avg_offset = Allocate(bytes).offset;
  u.exp_avg_sq_offset = Allocate(bytes).offset;
  u.grad_sum_offset = Allocate(bytes).offset;
  u.journal_offset = Allocate(u.chunk_count * sizeof(uint64_t)).offset;
  u.norm_partials_offset = Allocate(u.chunk_count * sizeof(double)).offset;
}

wire::BufferRef TestJob::Allocate(uint64_t bytes) {
  const wire::BufferRef buffer = {next_, bytes};
  next_ += (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  ROUNDHOUSE_CHECK(next_ <= arena_->size_bytes()) << "test arena too small";
  return buffer;
}

uint64_t TestJob::Random() {
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  return random_ >> 33;
}

float TestJob::RandomValue() {
  const double unit = static_cast<double>(Random() % 20001) / 10000.0 - 1.0;
  return static_cast<float>(std::ldexp(unit, -static_cast<int>(Random() % 9)));
}

wire::BufferRef TestJob::RandomValues(DType dtype, uint64_t count) {
  const wire::BufferRef buffer = Allocate(count * DTypeBytes(dtype));
  for (uint64_t i = 0; i < count; ++i) {
    const float value = RandomValue();
    FromF32(dtype, &value, arena_->Bytes(buffer) + i * DTypeBytes(dtype), 1);
  }
  return buffer;
}

wire::BufferRef TestJob::RandomTokens(uint64_t count, int64_t end) {
  if (end == 0) end = options_.vocab;
  const wire::BufferRef buffer = Allocate(count * sizeof(int32_t));
  for (uint64_t i = 0; i < count; ++i) {
    const auto token = static_cast<int32_t>(Random() % (end / 3) * 3);
    arena_->At<int32_t>(buffer.offset, count)[i] =
        Random() % 5 == 0 ? -1 : token;
  }
  return buffer;
}

std::string TestJob::Bytes(const wire::BufferRef& buffer) const {
  return std::string(reinterpret_cast<const char*>(arena_->Bytes(buffer)),
                     buffer.bytes);
}

void TestJob::Save() { saved_ = Bytes({0, next_}); }

void TestJob::RestoreFrom(const TestJob& saved) {
  // Headers differ where a worker sleeps; everything behind them is alike.
  constexpr uint64_t kHeader = sizeof(wire::ArenaHeader);
  std::memcpy(arena_->base() + kHeader, saved.saved_.data() + kHeader,
              saved.saved_.size() - kHeader);
}

std::string TestJob::State() {
  std::string state;
  for (uint32_t index = 0; index < 2; ++index) {
    const wire::UnitLayout& u = unit(index);
    const uint64_t bytes = u.element_count * sizeof(float);
    state += Bytes({u.compute_offset, u.element_count * DTypeBytes(u.dtype)});
    for (uint64_t offset : {u.master_offset, u.exp_avg_offset,
                            u.exp_avg_sq_offset, u.grad_sum_offset}) {
      if (offset != 0) state += Bytes({offset, bytes});
    }
    if (u.norm_partials_offset != 0) {
      state += Bytes({u.norm_partials_offset, u.chunk_count * sizeof(double)});
    }
    state += Bytes({u.version_word_offset, sizeof(wire::Word)});
  }
  return state;
}

absl::StatusOr<uint64_t> TestDaemon::Send(wire::Body body) {
  RETURN_IF_ERROR(channel_.Send({++attempt_, std::move(body)}));
  wire::Ring(arena_.doorbells().bell[index_]);
  return attempt_;
}

absl::StatusOr<wire::Body> TestDaemon::Answer(uint64_t attempt) {
  while (true) {
    ASSIGN_OR_RETURN(wire::Message message, channel_.Receive());
    if (message.attempt == attempt &&
        !std::holds_alternative<wire::Heartbeat>(message.body)) {
      return std::move(message.body);
    }
  }
}

absl::StatusOr<wire::Body> TestDaemon::Call(wire::Body body) {
  ASSIGN_OR_RETURN(const uint64_t attempt, Send(std::move(body)));
  ASSIGN_OR_RETURN(wire::Body answer, Answer(attempt));
  if (const auto* failed = std::get_if<wire::Failed>(&answer)) {
    return absl::Status(static_cast<absl::StatusCode>(failed->code),
                        failed->text);
  }
  return answer;
}

}  // namespace roundhouse::worker
