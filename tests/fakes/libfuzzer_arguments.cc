// What fuzz_driver.cc takes, for libFuzzer's own main() (--config=asan):
// corpus files, and in the environment
//
//   ROUNDHOUSE_FUZZ_SECONDS  how long (10)
//   ROUNDHOUSE_FUZZ_SEED     of the mutations (1)
//
// Inputs that fail are kept in TEST_UNDECLARED_OUTPUTS_DIR (or the working
// directory); such a file as the only argument with ROUNDHOUSE_FUZZ_SECONDS=0
// runs it again.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::string FromEnvironment(const char* name, const std::string& otherwise) {
  const char* const text = getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : text;
}

// A folder that libFuzzer may add inputs to.
std::string CopyCorpus(const std::vector<std::string>& files) {
  std::string folder =
      FromEnvironment("TEST_TMPDIR", "/tmp") + "/corpus.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) abort();
  for (size_t i = 0; i < files.size(); ++i) {
    fs::copy_file(files[i], folder + "/" + std::to_string(i));
  }
  return folder;
}

std::vector<std::string> Arguments(const std::vector<std::string>& given) {
  const std::string seconds = FromEnvironment("ROUNDHOUSE_FUZZ_SECONDS", "10");
  const std::vector<std::string> files(given.begin() + 1, given.end());
  if (seconds == "0") return given;  // libFuzzer runs files once
  return {given[0],
          "-max_total_time=" + seconds,
          "-seed=" + FromEnvironment("ROUNDHOUSE_FUZZ_SEED", "1"),
          "-max_len=65536",
          "-timeout=20",
          "-print_final_stats=1",
          "-artifact_prefix=" +
              FromEnvironment("TEST_UNDECLARED_OUTPUTS_DIR", ".") + "/",
          CopyCorpus(files)};
}

}  // namespace

// libFuzzer calls this before it reads its arguments.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static const std::vector<std::string> arguments =
      Arguments({*argv, *argv + *argc});
  static std::vector<char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));
  }
  *argc = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  *argv = pointers.data();
  return 0;
}
