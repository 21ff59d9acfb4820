#include "worker/model/library_choices.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

// What this program prints in an environment in which `assignment` is.
std::string ChoicesIn(const std::string& assignment) {
  FILE* const pipe =
      popen(("env " + assignment + " /proc/$PPID/exe --choices").c_str(), "r");
  std::string text;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) {
    text.push_back(static_cast<char>(c));
  }
  EXPECT_EQ(pclose(pipe), 0) << text;
  return text;
}

TEST(LibraryChoicesTest, AProcessStartsAnewWithThem) {
  EXPECT_EQ(ChoicesIn("MKL_DYNAMIC=TRUE"),
            "MKL_DYNAMIC=FALSE\n"
            "PYTORCH_ALLOC_CONF=backend:cudaMallocAsync\n");
}

// LibTorch 2.11 listens to the older name first.
TEST(LibraryChoicesTest, NoOtherNameSaysOtherwise) {
  EXPECT_EQ(ChoicesIn("PYTORCH_CUDA_ALLOC_CONF=backend:native"),
            "MKL_DYNAMIC=FALSE\n"
            "PYTORCH_ALLOC_CONF=backend:cudaMallocAsync\n");
}

TEST(LibraryChoicesTest, NothingMakesProductsTf32) {
  EXPECT_EQ(ChoicesIn("NVIDIA_TF32_OVERRIDE=1 "
                      "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1"),
            "MKL_DYNAMIC=FALSE\n"
            "PYTORCH_ALLOC_CONF=backend:cudaMallocAsync\n");
}

int Print(char** argv) {
  if (!FixLibraryChoices(argv).ok()) return 1;
  for (const char* name :
       {"MKL_DYNAMIC", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
        "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) std::printf("%s=%s\n", name, value);
  }
  return 0;
}

}  // namespace
}  // namespace roundhouse::worker

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--choices") == 0) {
    return roundhouse::worker::Print(argv);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
