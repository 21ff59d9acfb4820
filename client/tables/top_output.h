// `roundhouse top`: what devices and jobs did between two looks at the server,
// as a screen of text.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_TOP_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_TOP_OUTPUT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"
#include "proto/roundhouse/v1/system.pb.h"

namespace roundhouse::client {

// One look at the server.
struct TopLook {
  absl::Time time;
  v1::Server server;
  std::vector<v1::Device> devices;
  std::vector<v1::FineTuningJob> jobs;  // running and waiting
};

// Devices by their time between the looks, then the jobs of the second one.
// No line is wider than `columns`, the terminal's, where there are some: a list
// of causes that is too wide ends with ", ...", other lines are cut.  Each line
// ends with a newline.
std::string TopText(const TopLook& before, const TopLook& after,
                    std::optional<int> columns);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_TOP_OUTPUT_H_
