// Checks of what is on disk: the state directory, the socket's folder, the data
// roots.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_DOCTOR_FILE_CHECKS_H_
#define ROUNDHOUSE_SERVER_DOCTOR_FILE_CHECKS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "server/doctor/finding.h"
#include "server/doctor/measures.h"

namespace roundhouse {

// Free disk below which the monitoring warns, too (DiskLow).
inline constexpr uint64_t kLittleDiskBytes = uint64_t{20'000'000'000};

// Whose process looks; root may read and write everything.
struct Looker {
  uid_t uid = 0;
  std::string name;  // for commands: "roundhouse"
};

// Missing is well where its folder can be written: the daemon makes it.
Finding CheckStateDirectory(const std::string& path, const PathMeasure& state,
                            const PathMeasure& parent, const Looker& looker);
// `reserve` is the file that is held for the job store; it is made by the
// daemon.
Finding CheckDisk(const std::string& path, const PathMeasure& state,
                  const PathMeasure& reserve);
Finding CheckSocketFolder(const std::string& path, const PathMeasure& folder,
                          const PathMeasure& parent, const Looker& looker);
Finding CheckDataRoot(const std::string& path, const PathMeasure& root,
                      const Looker& looker);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOCTOR_FILE_CHECKS_H_
