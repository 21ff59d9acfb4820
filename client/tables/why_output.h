// `roundhouse why`: why a job waits or is slow, as a screen of text.
//
// Names are somebody else's: what moves the cursor is not printed.  Pure;
// thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_WHY_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_WHY_OUTPUT_H_

#include <string>

#include "proto/roundhouse/v1/fine_tuning_job.pb.h"

namespace roundhouse::client {

// What is in the way first, then what is expected.  No line is wider than 80
// columns, but for words that are.  Each line ends with a newline.
std::string WhyText(const v1::ExplainFineTuningJobResponse& answer);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_WHY_OUTPUT_H_
