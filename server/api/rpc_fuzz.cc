// libFuzzer entry: every RPC of every service, with requests that are random,
// mutated, or no requests at all, against the real API server over a fake
// engine.  The server lives, answers with a status that says whose fault it is,
// and what it answers can be read.
//
// An input is a script of calls, a line each:
//
//   #PauseFineTuningJob name: "job-1"
//
// (rpc_fuzz_script.h), or, without "#", one call: a byte for the method, one
// for the kind, and the bytes that the request is (even kinds) or is made of
// (odd ones, random_request.h).
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/status.h"
#include "google/protobuf/message.h"
#include "server/api/api_test_fixture.h"
#include "server/api/random_request.h"
#include "server/api/rpc_caller.h"
#include "server/api/rpc_fuzz_script.h"

namespace roundhouse {
namespace {

using google::protobuf::Message;

// Then a new server, so that what an input does depends on few before it.
constexpr int kCallsOfAServer = 500;
constexpr char kConfig[] =
    R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",)"
    R"( "head_dim": 16, "hidden_size": 48, "intermediate_size": 96,)"
    R"( "max_position_embeddings": 128, "num_attention_heads": 4,)"
    R"( "num_hidden_layers": 3, "num_key_value_heads": 2,)"
    R"( "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,)"
    R"( "tie_word_embeddings": true, "vocab_size": 211})";
// What the dataset helper answers, of a validation and of a preview.
constexpr char kHelper[] = R"(cat <<'E'
{"report": {"format": "text", "rows": 4, "sequences": 3, "tokens": 30,
 "target_tokens": 20, "truncated": 1, "truncated_lines": [2],
 "dropped": {"too_long": 1}, "dropped_lines": {"too_long": [4]},
 "boundary_merged": 5, "max_sequence_tokens": 16, "ignored_fields": {"id": 4},
 "warnings": []}, "format": "text",
 "rows": 5, "whole": true, "warnings": [],
 "samples": [{"line": 3, "tokens": 5, "target_tokens": 2,
 "spans": [{"text": "a", "trained": true}]}]}
E
)";

std::unique_ptr<Message> NewMessage(
    const google::protobuf::Descriptor* descriptor) {
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(descriptor)
          ->New());
}

// The API server of the tests, with jobs in several states.
class Target : public ApiTestFixture {
 public:
  Target() {
    SetUp();
    std::filesystem::create_directories(dir_ / "models/m");
    std::ofstream(dir_ / "models/m/config.json") << kConfig;
    std::ofstream(dir_ / "models/m/tokenizer.json") << "{}";
    std::ofstream(dir_ / "helper") << kHelper;
    for (int i = 0; i < 4; ++i) MustCreate(absl::StrCat("r", i));
    Move("job-2", {JobState::kQueued, JobState::kLoading, JobState::kRunning});
    Move("job-3", {JobState::kFailed});
    const std::string uid = store_->Get("job-2")->uid;
    JobFile(uid, "log") << "one\ntwo\n\xff\x1b[2J half";
    JobFile(uid, "metrics.jsonl")
        << "{\"step\": 1, \"loss\": 2.5}\n{\"step\": \"x\"}\n{\"step\": 2, ";
    JobFile(uid, "samples.jsonl")
        << R"({"step": 1, "index": 0, "prompt": "a", "completion": "b",)"
        << R"( "tokens": [1], "end": "end_token"})"
        << "\n[]\n";
    sampler_.answer = [](const SampleQuestion&,
                         const std::shared_ptr<SampleSink>& sink) {
      sink->OnEnd(absl::UnavailableError("no device"));
    };
    AnswerForTheDisk();
    methods_ = ListRpcs(channel_);
    words_ = {"job-1",
              "job-2",
              "job-3",
              "job-9",
              "m",
              "d",
              "outside",
              "lora",
              "projects/default/fineTuningJobs/job-2",
              "projects/default/fineTuningJobs/job-1/checkpoints/3",
              kJobText,
              "r1",
              (dir_ / "models/m").string(),
              "8xrtx4090",
              "2xrtx4090,1xh100:24GiB",
              "right",
              "YWZ0ZXI6MQ",
              "job:job-2",
              "auto",
              "fp32",
              "q_proj",
              "../../etc/passwd",
              "\x1b[2J\n"};
  }
  ~Target() override { TearDown(); }
  void TestBody() override {}

  // With what the request says, as far as it goes into an answer.
  void AnswerForTheDisk() {
    disk_.delete_job =
        [this](const DeleteJobRequest& request) -> absl::StatusOr<DeletedJob> {
      const DiskPart part{.name = request.job.message, .owner = request.who};
      if (!request.look_only) {
        RETURN_IF_ERROR(store_->RemoveJob(
            request.job.id, {}, [](Database*) { return absl::OkStatus(); }));
      }
      return DeletedJob{.parts = {part}, .kept_output = part};
    };
    disk_.old_checkpoints = [](const OldCheckpointsQuery& query) {
      return OldCheckpoints{
          .checkpoints = {{.job_id = "job-1", .create_time = query.before}},
          .next_before_job = query.before_job};
    };
    disk_.delete_checkpoints = [](const DeleteCheckpointsRequest& request) {
      return DeletedCheckpoints{.checkpoints = {{.step = request.steps[0]}},
                                .left = request.who};
    };
    disk_.usage = [](const DiskUsageQuery& query) {
      return DiskUsagePage{.parts = {{.name = query.page_token}},
                           .next_page_token = query.page_token};
    };
  }

  const std::vector<const RpcMethod*>& methods() const { return methods_; }
  const std::vector<std::string>& words() const { return words_; }
  int calls() const { return calls_; }

  // Calls, and checks what comes back.
  void CheckedCall(const RpcMethod& method, const std::string& request) {
    ++calls_;
    const RpcEnd end = CallRpc(channel_, method, request);
    const bool valid =
        NewMessage(method.input_type())->ParseFromString(request);
    // FakeEngine's own ways to break.
    const bool told_to_fail =
        absl::StrContains(request, "997") || absl::StrContains(request, "998");
    const auto code = end.status.error_code();
    // As gRPC says it, which has no details; it says the same of no request.
    ROUNDHOUSE_CHECK(!valid || code != grpc::StatusCode::UNIMPLEMENTED ||
                     !end.status.error_details().empty())
        << method.full_name() << " is not there";
    // Nobody's request is the server's fault.
    ROUNDHOUSE_CHECK(!valid || told_to_fail ||
                     (code != grpc::StatusCode::INTERNAL &&
                      code != grpc::StatusCode::UNKNOWN &&
                      code != grpc::StatusCode::DATA_LOSS))
        << method.full_name() << ": " << end.status.error_message();
    for (const std::string& response : end.responses) {
      ROUNDHOUSE_CHECK(
          NewMessage(method.output_type())->ParseFromString(response))
          << method.full_name();
    }
  }

 private:
  std::vector<const RpcMethod*> methods_;
  std::vector<std::string> words_;
  int calls_ = 0;
};

// Every RPC that the server lists is there and takes an empty request.
void CallEach(Target& target) {
  std::set<std::string> called;
  for (const RpcMethod* method : target.methods()) {
    target.CheckedCall(*method, "");
    called.insert(method->full_name());
  }
  ROUNDHOUSE_CHECK(called.size() == target.methods().size() &&
                   called.size() >= 20)
      << called.size();
}

std::unique_ptr<Target> FirstTarget() {
  auto target = std::make_unique<Target>();
  CallEach(*target);
  return target;
}

Target& TheTarget() {
  // Ends before what the first one used, as the checksums of the store's rows:
  // the audit writes its last rows when the server stops.
  static std::unique_ptr<Target> target = FirstTarget();
  if (target->calls() > kCallsOfAServer) {
    target.reset();
    target = std::make_unique<Target>();
  }
  return *target;
}

void CallOne(Target& target, absl::string_view input) {
  ByteSource bytes(input);
  const RpcMethod& method =
      *target.methods()[bytes.Next() % target.methods().size()];
  if (bytes.Next() % 2 == 0) {
    return target.CheckedCall(method, bytes.Take(input.size()));
  }
  const auto request = NewMessage(method.input_type());
  FillRandomly(bytes, target.words(), request.get());
  target.CheckedCall(method, request->SerializePartialAsString());
}

}  // namespace
}  // namespace roundhouse

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  roundhouse::Target& target = roundhouse::TheTarget();
  if (!absl::StartsWith(input, "#")) {
    if (!input.empty()) roundhouse::CallOne(target, input);
    return 0;
  }
  for (const auto& call : roundhouse::ParseRpcScript(input, target.methods())) {
    target.CheckedCall(*call.method, call.request);
  }
  return 0;
}
