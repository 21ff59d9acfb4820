#include "base/wire/messages.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/wire/message_fields.h"

namespace roundhouse::wire {
namespace {

constexpr uint32_t kMessageMagic = 0x314d4852;  // "RHM1"

struct Header {
  uint32_t magic = kMessageMagic;
  uint16_t version = kWireVersion;
  uint16_t type = 0;
  uint32_t bytes = 0;  // of the whole datagram
  uint32_t pad = 0;
  uint64_t attempt = 0;
};
static_assert(sizeof(Header) == 24);

template <typename C>
void Walk(C& c, ConfigureJob& m) {
  c.Plain("job", m.job);
  c.Plain("layout_offset", m.layout_offset);
}

template <typename C>
void Walk(C& c, ReleaseJob& m) {
  c.Plain("job", m.job);
}

template <typename C>
void Walk(C&, Stop&) {}

template <typename C>
void Walk(C& c, Withdraw& m) {
  c.Plain("target_attempt", m.target_attempt);
}

template <typename C>
void Walk(C& c, SetTurn& m) {
  c.Plain("target_attempt", m.target_attempt);
  c.Plain("turn", m.turn);
}

template <typename C>
void Walk(C& c, RunSlot& m) {
  c.Plain("job", m.job);
  c.Plain("slot", m.slot);
  c.Plain("pass", m.pass);
  c.Plain("step", m.step);
  c.Enum("mode", m.mode, StepMode::kEvaluate, StepMode::kTrain);
  c.Enum("kind", m.kind, SlotKind::kForward, SlotKind::kEvaluate);
  c.Enum("recompute", m.recompute, Recompute::kStage, Recompute::kLayer);
  c.Plain("first_layer", m.first_layer);
  c.Plain("last_layer", m.last_layer);
  c.Plain("total_groups", m.total_groups);
  c.Enum("contribution_dtype", m.contribution_dtype, DType::kF32, DType::kF16);
  c.Enum("sums", m.sums, SumPlace::kHost, SumPlace::kDevice);
  c.Plain("loss_scale", m.loss_scale);
  c.Plain("turn", m.turn);
  c.Plain("enabled_ns", m.enabled_ns);
  c.Enum("enabled_by", m.enabled_by, WaitCause::kH2D, WaitCause::kMemory);
  c.Flag("trace", m.trace);
  c.Flag("again", m.again);
  c.Enum("pick_use", m.pick_use, PickUse::kNone, PickUse::kRead);
  c.Plain("gather_begun", m.gather_begun);
  c.Array("units", m.units);
  c.Array("micro_batches", m.micro_batches);
  c.Array("outputs", m.outputs);
  c.EnumOfEach("outputs.kind", m.outputs, &SlotOutput::kind,
               OutputKind::kActivation, OutputKind::kGradient);
  c.Array("contributions", m.contributions);
}

template <typename C>
void Walk(C& c, JoinPeers& m) {
  c.Plain("group", m.group);
  c.Plain("rank", m.rank);
  c.Plain("size", m.size);
  c.Plain("id", m.id);
}

template <typename C>
void Walk(C& c, LeavePeers& m) {
  c.Plain("group", m.group);
}

template <typename C>
void Walk(C& c, PeerSums& m) {
  c.Plain("target_attempt", m.target_attempt);
  c.Plain("slot", m.slot);
  c.Plain("group", m.group);
  c.Plain("unit", m.unit);
  c.Enum("verb", m.verb, PeerVerb::kExchange, PeerVerb::kRelease);
  c.Enum("dtype", m.dtype, DType::kF32, DType::kF16);
  c.Plain("self", m.self);
  c.Plain("chunk_elements", m.chunk_elements);
  c.Plain("slice", m.slice);
  c.Array("members", m.members);
  c.Array("sums", m.sums);
}

template <typename C>
void Walk(C& c, RunSample& m) {
  c.Plain("job", m.job);
  c.Plain("sample", m.sample);
  c.Plain("new_tokens", m.new_tokens);
  c.Plain("temperature", m.temperature);
  c.Plain("seed", m.seed);
  c.Array("units", m.units);
  c.Array("sequences", m.sequences);
  c.Array("end_tokens", m.end_tokens);
}

template <typename C>
void Walk(C& c, HostOp& m) {
  c.Plain("job", m.job);
  c.Plain("operation", m.operation);
  c.Enum("kind", m.kind, HostOpKind::kGather, HostOpKind::kUpdate);
  c.Plain("unit", m.unit);
  c.Plain("total_groups", m.total_groups);
  c.Enum("sum_write", m.sum_write, SumWrite::kReplace, SumWrite::kAdd);
  c.Flag("want_norm", m.want_norm);
  c.Flag("keep_partials", m.keep_partials);
  c.Enum("contribution_dtype", m.contribution_dtype, DType::kF32, DType::kF16);
  c.Plain("weights", m.weights);
  c.Plain("version", m.version);
  c.Plain("begun", m.begun);
  c.Plain("step", m.step);
  c.Plain("learning_rate", m.learning_rate);
  c.Plain("beta1", m.beta1);
  c.Plain("beta2", m.beta2);
  c.Plain("epsilon", m.epsilon);
  c.Plain("weight_decay", m.weight_decay);
  c.Plain("gradient_scale", m.gradient_scale);
  c.Array("micro_batches", m.micro_batches);
  c.Array("contributions", m.contributions);
}

template <typename C>
void Walk(C& c, FileOp& m) {
  c.Plain("job", m.job);
  c.Plain("operation", m.operation);
  c.Enum("kind", m.kind, FileOpKind::kLoad, FileOpKind::kSave);
  c.Plain("shard_count", m.shard_count);
  c.Plain("tensor_count", m.tensor_count);
  c.Plain("shards_offset", m.shards_offset);
  c.Plain("tensors_offset", m.tensors_offset);
  c.Plain("seed", m.seed);
}

template <typename C>
void Walk(C& c, FileMatrix& m) {
  c.Text("root", m.file.root);
  c.Text("path", m.file.path);
  c.Plain("device", m.file.identity.device);
  c.Plain("inode", m.file.identity.inode);
  c.Plain("file_bytes", m.file.identity.size_bytes);
  c.Plain("mtime_ns", m.file.identity.mtime_ns);
  c.Plain("offset", m.offset);
  c.Enum("dtype", m.dtype, DType::kF32, DType::kF16);
}

template <typename C>
void Walk(C& c, MergeRows& m) {
  c.Plain("operation", m.operation);
  c.Plain("first_row", m.first_row);
  c.Plain("row_count", m.row_count);
  c.Plain("columns", m.columns);
  c.Plain("rank", m.rank);
  c.Plain("scale", m.scale);
  Walk(c, m.base);
  Walk(c, m.lora_a);
  Walk(c, m.lora_b);
  c.Text("output_root", m.output.root);
  c.Text("output_path", m.output.path);
  c.Plain("output_device", m.output.identity.device);
  c.Plain("output_inode", m.output.identity.inode);
  c.Plain("output_offset", m.output_offset);
  c.Enum("output_dtype", m.output_dtype, DType::kF32, DType::kF16);
  c.Flag("sync", m.sync);
}

template <typename C>
void Walk(C& c, Hello& m) {
  c.Plain("version", m.version);
  c.Plain("pid", m.pid);
  c.Plain("device_memory_bytes", m.device_memory_bytes);
  c.Plain("h2d_bytes_per_second", m.h2d_bytes_per_second);
  c.Plain("d2h_bytes_per_second", m.d2h_bytes_per_second);
}

template <typename C>
void Walk(C& c, JobConfigured& m) {
  c.Plain("job", m.job);
}

template <typename C>
void Walk(C& c, SlotStarted& m) {
  c.Plain("slot", m.slot);
  c.Plain("received_ns", m.received_ns);
  c.Plain("time_ns", m.time_ns);
  c.Flag("fills_bubble", m.fills_bubble);
  c.Flag("backfill", m.backfill);
  c.Plain("waits", m.waits);
}

template <typename C>
void Walk(C& c, BackfillComputed& m) {
  c.Plain("slot", m.slot);
  c.Plain("index", m.index);
  c.Plain("started_ns", m.started_ns);
  c.Plain("ended_ns", m.ended_ns);
  c.Flag("fills_bubble", m.fills_bubble);
}

template <typename C>
void Walk(C& c, MicroBatchDone& m) {
  c.Plain("slot", m.slot);
  c.Plain("index", m.index);
  c.Flag("last", m.last);
  c.Plain("time_ns", m.time_ns);
  c.Plain("waits", m.waits);
}

template <typename C>
void Walk(C& c, SlotDone& m) {
  c.Plain("slot", m.slot);
  c.Plain("started_ns", m.started_ns);
  c.Plain("ended_ns", m.ended_ns);
  c.Plain("wait_ns", m.wait_ns);
  c.Plain("h2d_ns", m.h2d_ns);
  c.Plain("compute_ns", m.compute_ns);
  c.Plain("d2h_ns", m.d2h_ns);
  c.Plain("longest_activation_wait_ns", m.longest_activation_wait_ns);
  c.Plain("bytes", m.bytes);
  c.Plain("device_memory_peak_bytes", m.device_memory_peak_bytes);
  c.Plain("copies_left_out", m.copies_left_out);
  c.Array("results", m.results);
  c.EnumOfEach("results.finite", m.results, &MicroBatchResult::finite,
               Finite::kNo, Finite::kYes);
  c.Array("layers", m.layers);
  c.Array("copies", m.copies);
  c.EnumOfEach("copies.direction", m.copies, &CopyInterval::direction,
               Direction::kH2D, Direction::kD2H);
  c.EnumOfEach("copies.purpose", m.copies, &CopyInterval::purpose,
               Purpose::kWeights, Purpose::kOther);
}

template <typename C>
void Walk(C& c, SumsDown& m) {
  c.Plain("slot", m.slot);
  c.Plain("time_ns", m.time_ns);
  c.Array("units", m.units);
}

template <typename C>
void Walk(C& c, PeersInvited& m) {
  c.Plain("group", m.group);
  c.Plain("id", m.id);
}

template <typename C>
void Walk(C& c, PeersJoined& m) {
  c.Plain("group", m.group);
}

template <typename C>
void Walk(C& c, PeersLeft& m) {
  c.Plain("group", m.group);
  c.Text("text", m.text);
}

template <typename C>
void Walk(C& c, SumsHeld& m) {
  c.Plain("slot", m.slot);
  c.Array("units", m.units);
}

template <typename C>
void Walk(C& c, SliceDown& m) {
  c.Plain("slot", m.slot);
  c.Plain("group", m.group);
  c.Plain("unit", m.unit);
  c.Flag("whole", m.whole);
  c.Plain("time_ns", m.time_ns);
}

template <typename C>
void Walk(C& c, Withdrawn& m) {
  c.Plain("slot", m.slot);
}

template <typename C>
void Walk(C& c, SampleDone& m) {
  c.Plain("sample", m.sample);
  c.Plain("started_ns", m.started_ns);
  c.Plain("ended_ns", m.ended_ns);
  c.Plain("weight_bytes", m.weight_bytes);
  c.Array("counts", m.counts);
  c.Array("tokens", m.tokens);
}

template <typename C>
void Walk(C& c, HostOpDone& m) {
  c.Plain("operation", m.operation);
  c.Plain("norm_squared", m.norm_squared);
  c.Plain("started_ns", m.started_ns);
  c.Plain("ended_ns", m.ended_ns);
}

template <typename C>
void Walk(C& c, FileOpDone& m) {
  c.Plain("operation", m.operation);
  c.Plain("bytes", m.bytes);
}

template <typename C>
void Walk(C& c, Failed& m) {
  c.Plain("id", m.id);
  c.Plain("code", m.code);
  c.Text("text", m.text);
}

template <typename C>
void Walk(C& c, Heartbeat& m) {
  c.Plain("time_ns", m.time_ns);
  c.Plain("pinned_bytes", m.pinned_bytes);
}

// A message's type is its index in Body: the order there is the wire's.
template <size_t kIndex = 0>
absl::StatusOr<Body> ReadBody(uint16_t type, FieldReader& reader) {
  if constexpr (kIndex == std::variant_size_v<Body>) {
    return absl::InvalidArgumentError(
        absl::StrCat("message: unknown type ", type));
  } else {
    if (type != kIndex) return ReadBody<kIndex + 1>(type, reader);
    std::variant_alternative_t<kIndex, Body> body;
    Walk(reader, body);
    RETURN_IF_ERROR(reader.Finish());
    return Body(std::move(body));
  }
}

absl::Status CheckHeader(const Header& header, uint64_t bytes) {
  if (header.magic != kMessageMagic) {
    return absl::InvalidArgumentError("message: wrong magic");
  }
  if (header.version != kWireVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("message: wire version ", header.version, ", this build ",
                     "speaks ", kWireVersion));
  }
  if (header.bytes != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("message: says ", header.bytes, " bytes, has ", bytes));
  }
  return absl::OkStatus();
}

}  // namespace

Failed FailedWith(uint64_t id, const absl::Status& why) {
  return {id, static_cast<uint32_t>(why.code()),
          std::string(why.message().substr(0, kMaxTextBytes))};
}

absl::StatusOr<std::string> Encode(const Message& message) {
  std::string out(sizeof(Header), '\0');
  FieldWriter writer(out);
  // A FieldWriter only reads what Walk shows it.
  Body& body = const_cast<Body&>(message.body);
  std::visit([&](auto& alternative) { Walk(writer, alternative); }, body);
  RETURN_IF_ERROR(writer.status());
  if (out.size() > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "message: ", out.size(), " bytes, the limit is ", kMaxMessageBytes));
  }
  Header header;
  header.type = static_cast<uint16_t>(body.index());
  header.bytes = static_cast<uint32_t>(out.size());
  header.attempt = message.attempt;
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

absl::StatusOr<Message> Decode(absl::string_view datagram) {
  Header header;
  if (datagram.size() < sizeof(header) || datagram.size() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("message: ", datagram.size(), " bytes"));
  }
  std::memcpy(&header, datagram.data(), sizeof(header));
  RETURN_IF_ERROR(CheckHeader(header, datagram.size()));
  FieldReader reader(datagram.data() + sizeof(header),
                     datagram.size() - sizeof(header));
  ASSIGN_OR_RETURN(Body body, ReadBody(header.type, reader));
  return Message{header.attempt, std::move(body)};
}

}  // namespace roundhouse::wire
