#include "tests/bench/costs_file.h"

#include <fstream>
#include <iostream>
#include <iterator>

namespace roundhouse::bench {

absl::StatusOr<std::vector<ModelCosts>> ReadCostsFile(const std::string& file) {
  const std::string path = "scheduler/testdata/" + file;
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)),
                         std::istreambuf_iterator<char>());
  return ParseModelCosts(path, text);
}

int ExitStatus(const std::string& program, const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << program << ": " << status.message() << "\n";
  return 1;
}

}  // namespace roundhouse::bench
