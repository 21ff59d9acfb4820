// A main() for libFuzzer entries, so that every compiler and sanitizer runs
// them: replays the corpus, then mutates it, all of it chosen by a seed.
//
//   fuzz_driver CORPUS_FILE...
//
//   ROUNDHOUSE_FUZZ_RUNS        mutated inputs
//   ROUNDHOUSE_FUZZ_USUAL_RUNS  where that is not set, by the target (20000)
//   ROUNDHOUSE_FUZZ_SEED        seed of the mutations (1)
//
// The input at work when the process dies is written to crash-input in
// TEST_UNDECLARED_OUTPUTS_DIR (or the working directory); giving that file as
// the only argument with ROUNDHOUSE_FUZZ_RUNS=0 runs it again.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)())
    __attribute__((weak));

namespace {

using Input = std::vector<uint8_t>;

constexpr size_t kMaxInputBytes = 64 << 10;
constexpr int kMaxMutations = 8;

// Read by the death handlers, which may call nothing but the kernel.
const Input* current = nullptr;
char crash_path[4096] = "crash-input";

void SaveCurrentInput() {
  if (current == nullptr) return;
  const int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return;
  size_t written = 0;
  while (written < current->size()) {
    const ssize_t n =
        write(fd, current->data() + written, current->size() - written);
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  close(fd);
  current = nullptr;
}

void OnSignal(int number) {
  SaveCurrentInput();
  std::signal(number, SIG_DFL);
  raise(number);
}

void InstallDeathHandlers() {
  if (const char* folder = getenv("TEST_UNDECLARED_OUTPUTS_DIR")) {
    snprintf(crash_path, sizeof(crash_path), "%s/crash-input", folder);
  }
  std::signal(SIGABRT, OnSignal);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(SaveCurrentInput);
    return;  // The sanitizer has its own handlers of the others.
  }
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    std::signal(number, OnSignal);
  }
}

void RunOne(const Input& input) {
  // An exact copy on the heap, so that a read past the end is seen.
  const Input copy(input.begin(), input.end());
  current = &copy;
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  current = nullptr;
}

class Mutator {
 public:
  Mutator(uint64_t seed, std::vector<Input> corpus)
      : random_(seed), corpus_(std::move(corpus)) {
    if (corpus_.empty()) corpus_.push_back({});
  }

  Input Next() {
    Input input = corpus_[Below(corpus_.size())];
    for (size_t left = 1 + Below(kMaxMutations); left > 0; --left) {
      Mutate(input);
    }
    if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
    return input;
  }

 private:
  // Modulo: its bias does not matter here, its being the same everywhere does.
  size_t Below(size_t end) { return random_() % end; }

  void Mutate(Input& input) {
    if (input.empty()) return Insert(input);
    switch (Below(8)) {
      case 0:
        input[Below(input.size())] ^= 1u << Below(8);
        return;
      case 1:
        input[Below(input.size())] = static_cast<uint8_t>(random_());
        return;
      case 2:
        return Insert(input);
      case 3:
        return Erase(input);
      case 4:
        input.resize(Below(input.size()));
        return;
      case 5:
        return PutNumber(input);
      case 6:
        return CopyWithin(input);
      default:
        return Splice(input);
    }
  }

  void Insert(Input& input) {
    // What parsers of text and of numbers stumble on.
    static constexpr char kBytes[] =
        "\"\\{}[]:,-+.eE0919\n\t \0\xff\x80\x7f'#&*";
    const size_t count = 1 + Below(4);
    const size_t at = Below(input.size() + 1);
    for (size_t i = 0; i < count; ++i) {
      input.insert(input.begin() + at,
                   static_cast<uint8_t>(kBytes[Below(sizeof(kBytes) - 1)]));
    }
  }

  void Erase(Input& input) {
    const size_t at = Below(input.size());
    const size_t count = 1 + Below(std::min<size_t>(16, input.size() - at));
    input.erase(input.begin() + at, input.begin() + at + count);
  }

  // A little-endian integer near the end of some width's range.
  void PutNumber(Input& input) {
    const size_t width = size_t{1} << Below(4);
    if (input.size() < width) return;
    uint64_t value = uint64_t{1} << Below(width * 8);
    value += Below(3) - 1;
    if (Below(4) == 0) value = ~value;
    memcpy(input.data() + Below(input.size() - width + 1), &value, width);
  }

  void CopyWithin(Input& input) {
    const size_t from = Below(input.size());
    const size_t count = 1 + Below(std::min<size_t>(64, input.size() - from));
    const Input part(input.begin() + from, input.begin() + from + count);
    const size_t to = Below(input.size() + 1);
    input.insert(input.begin() + to, part.begin(), part.end());
  }

  void Splice(Input& input) {
    const Input& other = corpus_[Below(corpus_.size())];
    const size_t from = Below(other.size() + 1);
    input.resize(Below(input.size() + 1));
    input.insert(input.end(), other.begin() + from, other.end());
  }

  std::mt19937_64 random_;
  std::vector<Input> corpus_;
};

uint64_t NumberFromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const uint64_t value = strtoull(text, &end, 10);
  if (*end != '\0') {
    fprintf(stderr, "%s=%s is not a number\n", name, text);
    exit(2);
  }
  return value;
}

std::vector<Input> ReadCorpus(int count, char** paths) {
  std::vector<Input> corpus;
  for (int i = 0; i < count; ++i) {
    std::ifstream file(paths[i], std::ios::binary);
    if (!file) {
      fprintf(stderr, "cannot read %s\n", paths[i]);
      exit(2);
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(file),
                        std::istreambuf_iterator<char>());
  }
  return corpus;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t runs = NumberFromEnvironment(
      "ROUNDHOUSE_FUZZ_RUNS",
      NumberFromEnvironment("ROUNDHOUSE_FUZZ_USUAL_RUNS", 20'000));
  const uint64_t seed = NumberFromEnvironment("ROUNDHOUSE_FUZZ_SEED", 1);
  const std::vector<Input> corpus = ReadCorpus(argc - 1, argv + 1);
  fprintf(stderr, "fuzzing: seed %llu, %zu corpus files, %llu mutations\n",
          static_cast<unsigned long long>(seed), corpus.size(),
          static_cast<unsigned long long>(runs));
  InstallDeathHandlers();
  RunOne({});
  for (const Input& input : corpus) RunOne(input);
  Mutator mutator(seed, corpus);
  for (uint64_t i = 0; i < runs; ++i) RunOne(mutator.Next());
  fprintf(stderr, "fuzzing: done\n");
  return 0;
}
