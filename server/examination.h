// What the doctor looks at for a daemon with given settings, running or not.
#ifndef ROUNDHOUSE_SERVER_EXAMINATION_H_
#define ROUNDHOUSE_SERVER_EXAMINATION_H_

#include "server/daemon_options.h"
#include "server/doctor/doctor.h"

namespace roundhouse {

// Every data root, of whomever it is.  Pure.
ExamineOptions WhatToExamine(const DaemonOptions& options);

// Looks at the machine as a daemon with these settings would use it, prints
// what it finds, and starts nothing.  False: there is a problem.
bool PrintExamination(const DaemonOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_EXAMINATION_H_
