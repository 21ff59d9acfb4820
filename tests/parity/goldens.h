// What tests/parity/generate.py and generate_adapters.py wrote: tensors of
// goldens and the checkpoint beside them.  For tests: anything wrong aborts
// with its name.
#ifndef ROUNDHOUSE_TESTS_PARITY_GOLDENS_H_
#define ROUNDHOUSE_TESTS_PARITY_GOLDENS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/model/directory.h"
#include "base/model/safetensors.h"
#include "worker/model/aligned.h"

namespace roundhouse::parity {

// The folder of the goldens: $ROUNDHOUSE_PARITY_GOLDENS, or the committed ones.
std::string GoldensFolder();

class Goldens {
 public:
  explicit Goldens(const std::string& path);

  bool Has(const std::string& name) const {
    return header_.tensors.contains(name);
  }
  std::vector<int64_t> Shape(const std::string& name) const {
    return Find(name).shape;
  }
  std::vector<float> Floats(const std::string& name) const;
  std::vector<double> Doubles(const std::string& name) const;
  std::vector<int32_t> Ints(const std::string& name) const;
  float Scalar(const std::string& name) const { return Floats(name).at(0); }

 private:
  const SafetensorsTensor& Find(const std::string& name) const;
  template <typename T>
  std::vector<T> Read(const std::string& name, FileDType dtype) const;

  std::string path_;
  std::string bytes_;
  SafetensorsHeader header_;
};

// What the sources hold, widened to fp32: per unit, laid out as UnitSpec says.
std::vector<worker::AlignedVector<float>> ReadUnits(
    const std::vector<UnitSpec>& units,
    const std::vector<std::vector<ParameterSource>>& sources);

// A checkpoint, and its weights as ReadUnits has them.
struct Checkpoint {
  explicit Checkpoint(const std::string& folder);

  ModelConfig config;
  std::vector<UnitSpec> units;
  std::vector<worker::AlignedVector<float>> weights;
};

}  // namespace roundhouse::parity

#endif  // ROUNDHOUSE_TESTS_PARITY_GOLDENS_H_
