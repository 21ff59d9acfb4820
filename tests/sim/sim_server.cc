#include "tests/sim/sim_server.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "base/clock.h"
#include "base/files/durable_file.h"
#include "base/files/sealed_json.h"
#include "base/log.h"
#include "nlohmann/json.hpp"

namespace roundhouse::sim {
namespace {

constexpr char kConfig[] =
    R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",)"
    R"( "head_dim": 8, "hidden_size": 16, "intermediate_size": 24,)"
    R"( "max_position_embeddings": 64, "num_attention_heads": 2,)"
    R"( "num_hidden_layers": 3, "num_key_value_heads": 1,)"
    R"( "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,)"
    R"( "tie_word_embeddings": true, "vocab_size": $0})";

// In place of prepare.py: every dataset is the same one.
constexpr char kHelper[] =
    "while [ \"$1\" != --out ]; do shift; done\n"
    "exec install -D -t \"$2\" %ROOT%/prepared/*\n";

constexpr int kTokens = 3;       // of each sequence
constexpr uint32_t kWords = 36;  // less than models know

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
    tokens.push_back(static_cast<uint32_t>(i) % kWords);
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

}  // namespace

SimServer::SimServer(const SimServerOptions& options) : options_(options) {
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
  WriteModel(root + "/data/m", 40);
  WriteFile(root + "/data/d.jsonl", "{\"text\": \"a\"}\n");
  WriteFile(root + "/helper", absl::StrReplaceAll(kHelper, {{"%ROOT%", root}}));
  WritePrepared(root + "/prepared", options_.sequences);
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
                                .dataset_helper = {.python = "/bin/sh",
                                .script = options_.root + "/helper"},
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
  while (true) {
    if (Turn()) continue;
    if (!daemon_->loop->watches()) return;
    // A child runs, in real time.
    daemon_->loop->RunTurn(absl::Seconds(10));
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
