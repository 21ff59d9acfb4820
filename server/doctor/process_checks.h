// Checks of the daemon's processes: their limits, and the programs they run.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_DOCTOR_PROCESS_CHECKS_H_
#define ROUNDHOUSE_SERVER_DOCTOR_PROCESS_CHECKS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "server/doctor/finding.h"
#include "server/doctor/program_run.h"

namespace roundhouse {

// Real-time priority for the threads that pass slots on, as --realtime asks.
enum class RealtimeWish { kAsked, kOff };
enum class RealtimeRight { kPermitted, kRefused };

// `limit` without a value: none.  The hard limit: the daemon raises its own.
Finding CheckDescriptors(std::optional<uint64_t> limit);

Finding CheckRealtime(RealtimeWish wish, RealtimeRight right);

// A worker loads LibTorch before it reads its flags: `run` is of the worker's
// --version.  The loader's exit status is 127.
Finding CheckLibtorch(const std::string& program, const ProgramEnd& run);

// `run` is of the interpreter with kHelperModules.
Finding CheckPython(const std::string& program, const ProgramEnd& run);
// For `python -I -c`: prints Python's version and those of what the dataset
// helper imports.
extern const char kHelperModules[];

// `run` is of the helper's own --help: its files are there and fit.
Finding CheckDatasetHelper(const std::string& script, const ProgramEnd& run);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOCTOR_PROCESS_CHECKS_H_
