#include "tests/parity/goldens.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/convert.h"
#include "base/log.h"

namespace roundhouse::parity {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  ROUNDHOUSE_CHECK(file.good()) << "cannot read " << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string GoldensFolder() {
  const char* folder = std::getenv("ROUNDHOUSE_PARITY_GOLDENS");
  return folder != nullptr ? folder : "tests/parity/goldens";
}

Goldens::Goldens(const std::string& path)
    : path_(path), bytes_(ReadFile(path)) {
  auto header = ReadSafetensorsHeader(AnyFiles(), path);
  ROUNDHOUSE_CHECK(header.ok()) << header.status();
  header_ = *std::move(header);
}

const SafetensorsTensor& Goldens::Find(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  ROUNDHOUSE_CHECK(found != header_.tensors.end())
      << path_ << " has no " << name;
  return found->second;
}

template <typename T>
std::vector<T> Goldens::Read(const std::string& name, FileDType dtype) const {
  const SafetensorsTensor& tensor = Find(name);
  ROUNDHOUSE_CHECK(tensor.dtype == dtype)
      << name << " is " << FileDTypeName(tensor.dtype);
  std::vector<T> values((tensor.end - tensor.begin) / sizeof(T));
  std::memcpy(values.data(), bytes_.data() + tensor.begin,
              values.size() * sizeof(T));
  return values;
}

std::vector<float> Goldens::Floats(const std::string& name) const {
  return Read<float>(name, FileDType::kF32);
}

std::vector<double> Goldens::Doubles(const std::string& name) const {
  return Read<double>(name, FileDType::kF64);
}

std::vector<int32_t> Goldens::Ints(const std::string& name) const {
  return Read<int32_t>(name, FileDType::kI32);
}

std::vector<worker::AlignedVector<float>> ReadUnits(
    const std::vector<UnitSpec>& units,
    const std::vector<std::vector<ParameterSource>>& sources) {
  std::vector<worker::AlignedVector<float>> weights;
  for (size_t u = 0; u < units.size(); ++u) {
    weights.emplace_back(static_cast<size_t>(units[u].element_count), 0.0f);
    const std::vector<StoredTensor> stored = StoredTensors(units[u]);
    for (size_t t = 0; t < stored.size(); ++t) {
      const ParameterSource& source = sources[u][t];
      worker::AlignedVector<std::byte> data(source.bytes);
      const std::string file = ReadFile(source.file.path);
      std::memcpy(data.data(), file.data() + source.offset, source.bytes);
      ToF32(source.dtype, data.data(),
            weights[u].data() + stored[t].unit_offset_elements,
            static_cast<uint64_t>(stored[t].element_count));
    }
  }
  return weights;
}

Checkpoint::Checkpoint(const std::string& folder) {
  auto directory = OpenModelDirectory(AnyFiles(), folder);
  ROUNDHOUSE_CHECK(directory.ok()) << directory.status();
  config = directory->config;
  units = ModelUnits(config);
  weights = ReadUnits(units, directory->sources);
}

}  // namespace roundhouse::parity
