// The table behind spec.h: one row per field of the vocabulary, in the order of
// docs/job-spec.md.  Private to server/spec/spec.
#ifndef ROUNDHOUSE_SERVER_SPEC_SPEC_FIELDS_H_
#define ROUNDHOUSE_SERVER_SPEC_SPEC_FIELDS_H_

#include <vector>

#include "server/spec/spec_rows.h"

namespace roundhouse {

const std::vector<SpecFieldRow>& SpecFieldRows();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_SPEC_FIELDS_H_
