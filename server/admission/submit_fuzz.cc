// libFuzzer entry: a job file and the configurations that it leads to, through
// everything that the real engine checks at submit.  No input ends the process,
// and every refusal has words.
//
// An input is three texts with lines "%%" between them: the job file, the
// model's config.json and an adapter's adapter_config.json.  Those that are
// missing are good ones.  The job file finds the model as "m", data as
// "d.jsonl" and the adapter as "a".
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "server/arena/host_arena.h"
#include "server/jobs/engine.h"
#include "server/loop/event_loop.h"
#include "server/observe/metrics.h"
#include "server/store/store.h"
#include "server/workers/process_pool.h"

namespace roundhouse {
namespace {

constexpr char kConfig[] =
    R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",)"
    R"( "head_dim": 16, "hidden_size": 48, "intermediate_size": 96,)"
    R"( "max_position_embeddings": 128, "num_attention_heads": 4,)"
    R"( "num_hidden_layers": 3, "num_key_value_heads": 2,)"
    R"( "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,)"
    R"( "tie_word_embeddings": true, "vocab_size": 211})";
constexpr char kAdapter[] = R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8,)"
                            R"( "target_modules": ["q_proj", "v_proj"]})";
constexpr int kDevices = 4;
constexpr uint64_t kHostBytes = uint64_t{1} << 30;

std::filesystem::path NewFolder() {
  const char* const parent = getenv("TEST_TMPDIR");
  std::string name =
      std::string(parent == nullptr ? "/tmp" : parent) + "/submit_fuzz.XXXXXX";
  ROUNDHOUSE_CHECK(mkdtemp(name.data()) != nullptr);
  return name;
}

// A daemon's engine whose loop does not run and whose workers never start.
class Target {
 public:
  Target() : folder_(NewFolder()) {
    for (const char* name : {"data/m", "data/a", "state"}) {
      std::filesystem::create_directories(folder_ / name);
    }
    Write("data/m/tokenizer.json", "{}");
    Write("data/d.jsonl", "{\"text\": \"a\"}\n");
    loop_ = *EventLoop::Create();
    arena_ = *HostArena::Create(kHostBytes, kDevices + 2);
    ProcessPoolOptions pool;
    pool.device_count = kDevices;
    pool_ = *ProcessPool::Create(*loop_, *arena_, pool);
    store_ = *JobStore::Open({.path = folder_ / "state/jobs.db"});
    engine_ =
        *Engine::Create({.state_dir = folder_ / "state",
                         .data_roots = {folder_ / "data"},
                         .dataset_helper = {.script = folder_ / "prepare.py"},
                         .device = {256 << 20}},
                        {.loop = *loop_,
                         .arena = *arena_,
                         .pool = *pool_,
                         .store = *store_,
                         .metrics = *metrics_});
  }
  ~Target() { std::filesystem::remove_all(folder_); }

  void Run(absl::string_view input) {
    // A copy: without data there is not even an empty first text.
    const std::vector<std::string> texts =
        absl::StrSplit(std::string(input), "\n%%\n");
    Write("data/m/config.json", texts.size() > 1 ? texts[1] : kConfig);
    Write("data/a/adapter_config.json", texts.size() > 2 ? texts[2] : kAdapter);
    const auto dry = engine_->DryRun({.text = texts[0], .file_name = "fuzz"});
    if (!dry.ok()) {
      ROUNDHOUSE_CHECK(!dry.status().message().empty());
      ROUNDHOUSE_CHECK(!absl::IsInternal(dry.status())) << dry.status();
      return;
    }
    ROUNDHOUSE_CHECK(dry->needs.host_state_bytes > 0 &&
                     dry->needs.disk_bytes > 0 && dry->needs.parameters > 0)
        << dry->job.resolved;
  }

 private:
  void Write(const char* name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  const std::filesystem::path folder_;
  const std::unique_ptr<ServerMetrics> metrics_ = ServerMetrics::Create();
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<ProcessPool> pool_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace
}  // namespace roundhouse

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static roundhouse::Target target;
  target.Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
