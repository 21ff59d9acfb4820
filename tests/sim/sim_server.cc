#include "tests/sim/sim_server.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/files/durable_file.h"
#include "base/files/sealed_json.h"
#include "base/log.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/model/safetensors.h"
#include "nlohmann/json.hpp"
#include "server/weights/base_weights.h"

namespace roundhouse::sim {
namespace {

constexpr char kConfig[] =
    R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",)"
    R"( "head_dim": 8, "hidden_size": 16, "intermediate_size": 24,)"
    R"( "max_position_embeddings": 64, "num_attention_heads": 2,)"
    R"( "num_hidden_layers": 3, "num_key_value_heads": 1,)"
    R"( "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,)"
    R"( "tie_word_embeddings": true, "vocab_size": $0})";

constexpr int kTokens = 3;  // of each sequence

void WriteFile(const std::string& path, absl::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes << std::flush;
  ROUNDHOUSE_CHECK(file.good()) << path;
}

template <typename T>
absl::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

void WritePrepared(const std::string& folder, int sequences) {
  std::vector<uint32_t> tokens;
  std::vector<uint64_t> offsets = {0};
  for (int i = 0; i < sequences * kTokens; ++i) {
    tokens.push_back(static_cast<uint32_t>(i % kPromptTokens));
  }
  std::vector<uint32_t> lines;
  for (int i = 1; i <= sequences; ++i) {
    offsets.push_back(static_cast<uint64_t>(i) * kTokens);
    lines.push_back(static_cast<uint32_t>(i));
  }
  const std::vector<uint8_t> labels(tokens.size(), 1);
  nlohmann::json files;
  const auto write = [&](const std::string& name, absl::string_view bytes) {
    WriteFile(folder + "/" + name, bytes);
    files[name] = {{"sha256", Sha256Of(bytes)}, {"bytes", bytes.size()}};
  };
  write("tokens.u32", BytesOf(tokens));
  write("labels.u8", BytesOf(labels));
  write("offsets.u64", BytesOf(offsets));
  write("lines.u32", BytesOf(lines));
  const nlohmann::json manifest = {{"format_version", 2},
                                   {"sequences", sequences},
                                   {"tokens", tokens.size()},
                                   {"target_tokens", tokens.size() - sequences},
                                   {"truncated", 0},
                                   {"files", files},
                                   {"max_sequence_tokens", kTokens}};
  WriteFile(folder + "/manifest.json", SealJson(manifest.dump(1) + "\n"));
}

ModelConfig ConfigOfModels() {
  auto config =
      ParseModelConfig(absl::Substitute(kConfig, kVocabulary), "config.json");
  ROUNDHOUSE_CHECK(config.ok()) << config.status();
  return *std::move(config);
}

// Zeros, for what is read of them nobody computes with.
void WriteWeights(const std::string& folder) {
  std::vector<SafetensorsEntry> entries;
  for (const UnitSpec& unit : ModelUnits(ConfigOfModels())) {
    for (const ParameterSpec& spec : unit.parameters) {
      entries.push_back({spec.name, FileDType::kF32, spec.shape});
    }
  }
  const auto prefix = BuildSafetensorsHeader(entries);
  ROUNDHOUSE_CHECK(prefix.ok()) << prefix.status();
  std::string file = prefix->bytes;
  file.resize(prefix->file_size);
  WriteFile(folder + "/model.safetensors", file);
}

}  // namespace

SimServer::SimServer(const SimServerOptions& options)
    : options_(options),
      helpers_({.prepared = options.root + "/prepared",
                .seed = options.workers.seed,
                .longest = options.helper_time}) {
  SetTimeForTest(&clock_);
  WriteInputs();
}

SimServer::~SimServer() {
  if (daemon_ != nullptr) Crash();
  SetTimeForTest(nullptr);
}

void SimServer::WriteInputs() const {
  const std::string& root = options_.root;
  for (const char* folder : {"/data", "/state", "/prepared"}) {
    std::filesystem::create_directories(root + folder);
  }
  for (const char* model : {kModel, kOtherModel}) {
    const std::string folder = absl::StrCat(root, "/data/", model);
    WriteModel(folder, kVocabulary);
    WriteWeights(folder);
  }
  WriteFile(root + "/data/d.jsonl", "{\"text\": \"a\"}\n");
  WritePrepared(root + "/prepared", options_.sequences);
}

HelperProgram SimServer::Helper() {
  return {.script = "/prepare.py",
          .start = [this](EventLoop& loop, const ChildOptions& options,
                          std::function<void(int)> on_exit,
                          std::function<void(const std::string&)> on_stdout) {
            return helpers_.Start(loop, options, std::move(on_exit),
                                  std::move(on_stdout));
          }};
}

void SimServer::Start() {
  const std::string state_dir = options_.root + "/state";
  daemon_ = std::make_unique<Daemon>();
  daemon_->loop = *EventLoop::Create();
  SimWorkersOptions workers = options_.workers;
  workers.seed += 1000 * lives_++;
  daemon_->arena = *HostArena::Create(
      options_.host_bytes, static_cast<uint32_t>(workers.device_count + 2));
  daemon_->metrics = ServerMetrics::Create();
  auto store = JobStore::Open(
      {.path = state_dir + "/jobs.db", .fault = options_.store_fault});
  ROUNDHOUSE_CHECK(store.ok()) << store.status();
  daemon_->store = *std::move(store);
  store_told_ = true;
  daemon_->store->SetListener([this] { store_told_ = true; });
  daemon_->workers =
      std::make_unique<SimWorkers>(*daemon_->loop, *daemon_->arena, workers);
  auto engine = Engine::Create({.state_dir = state_dir,
                                .data_roots = {options_.root + "/data"},
                                .dataset_helper = Helper(),
                                .device = {uint64_t{64} << 20},
                                .peers = {.enabled = false},
                                .max_running_jobs = options_.max_running_jobs},
                               {.loop = *daemon_->loop,
                                .arena = *daemon_->arena,
                                .pool = *daemon_->workers,
                                .store = *daemon_->store,
                                .metrics = *daemon_->metrics});
  ROUNDHOUSE_CHECK(engine.ok()) << engine.status();
  daemon_->engine = *std::move(engine);
  auto limits = LimitTable::Load(daemon_->store.get());
  ROUNDHOUSE_CHECK(limits.ok()) << limits.status();
  daemon_->limit_table = *std::move(limits);
  daemon_->limits = std::make_unique<LimitCheck>(daemon_->limit_table.get(),
                                                 daemon_->store.get());
  auto loans = DeviceLoans::Load(daemon_->store.get(),
                                 DeviceLoans::KeysOf({}, workers.device_count));
  ROUNDHOUSE_CHECK(loans.ok()) << loans.status();
  daemon_->loans = *std::move(loans);
  daemon_->engine->device_keeper().SetLoans(daemon_->loans->Stored());
  daemon_->workers->Start(&daemon_->engine->listener());
  const absl::Status recovered = daemon_->engine->Recover();
  ROUNDHOUSE_CHECK(recovered.ok()) << recovered;
  daemon_->engine->SetSharing(options_.sharing);
  daemon_->loans->OnChange(
      [engine = daemon_->engine.get()](const DeviceLoanList& changed) {
        engine->SetDeviceLoans(changed);
      });
  Settle();
}

void SimServer::Crash() {
  daemon_->threads.Abandon();
  daemon_->loop->StopBeside();
  daemon_.reset();
}

bool SimServer::Turn() {
  const bool found = daemon_->loop->RunTurn(absl::ZeroDuration());
  return daemon_->threads.Run() || found;
}

void SimServer::Settle() {
  while (Turn()) {
  }
}

void SimServer::RunFor(absl::Duration time, const std::function<void()>& each) {
  const int64_t end = clock_.MonotonicNs() + absl::ToInt64Nanoseconds(time);
  while (true) {
    Settle();
    each();
    if (daemon_ == nullptr) return;
    const int64_t now = clock_.MonotonicNs();
    const int64_t next = daemon_->loop->next_timer_ns().value_or(end);
    clock_.Advance(absl::Nanoseconds(std::min(next, end) - now));
    if (next > end || now >= end) break;
  }
  Settle();
}

uint64_t BaseBytes() {
  constexpr uint64_t kPageBytes = 4096;  // the arena gives whole pages
  const uint64_t bytes = BaseWeightsBytes(ConfigOfModels(), DType::kF32);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

void WriteModel(const std::string& folder, int vocabulary) {
  std::filesystem::create_directories(folder);
  WriteFile(folder + "/config.json", absl::Substitute(kConfig, vocabulary));
  WriteFile(folder + "/tokenizer.json", "{}");
}

std::string NewRoot() {
  for (const std::string& folder :
       {std::string("/dev/shm"),
        std::filesystem::temp_directory_path().string()}) {
    std::string name = folder + "/roundhouse_sim_XXXXXX";
    if (mkdtemp(name.data()) != nullptr) return name;
  }
  ROUNDHOUSE_CHECK(false) << "no folder for a history";
  return "";
}

}  // namespace roundhouse::sim
