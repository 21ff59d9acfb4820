// What a check of the doctor says.  Values; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_DOCTOR_FINDING_H_
#define ROUNDHOUSE_SERVER_DOCTOR_FINDING_H_

#include <string>
#include <vector>

namespace roundhouse {

// kWarning: it works, but slower, or for fewer people, or not for long.
// kProblem: the daemon can't start, or jobs can't run.
enum class Verdict { kOk, kWarning, kProblem };

struct Finding {
  std::string name;   // "memory lock"
  std::string found;  // what is so, with its numbers
  Verdict verdict = Verdict::kOk;
  std::string remedy;  // a command to type, or what to change; "": nothing
};

// "ok", "warning", "problem".
const char* VerdictName(Verdict verdict);
// A line for each finding, its remedy below it; nothing of them moves a
// terminal's cursor.
std::string FindingsText(const std::vector<Finding>& findings);
bool HasProblem(const std::vector<Finding>& findings);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOCTOR_FINDING_H_
