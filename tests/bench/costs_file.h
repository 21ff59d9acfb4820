// What the tables in virtual time share: their inputs, and how they end.
#ifndef ROUNDHOUSE_TESTS_BENCH_COSTS_FILE_H_
#define ROUNDHOUSE_TESTS_BENCH_COSTS_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/plan/model_costs.h"

namespace roundhouse::bench {

// The models of a file in scheduler/testdata, as ParseModelCosts reads them,
// from where `bazel run` starts a program.
absl::StatusOr<std::vector<ModelCosts>> ReadCostsFile(const std::string& file);

// The exit status of the program, which says on stderr what went wrong.
int ExitStatus(const std::string& program, const absl::Status& status);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_COSTS_FILE_H_
