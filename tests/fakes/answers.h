// What workers that compute nothing answer, and what they write.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_TESTS_FAKES_ANSWERS_H_
#define ROUNDHOUSE_TESTS_FAKES_ANSWERS_H_

#include "base/wire/arena.h"
#include "base/wire/commands.h"
#include "base/wire/events.h"

namespace roundhouse::fakes {

// A sequence's next token is its last one plus one, modulo 50, until an end
// token comes or as many are drawn as were asked for.
wire::SampleDone DoneSample(const wire::Arena& arena,
                            const wire::RunSample& sample);

// Writes the files of a save as they lie in the arena, with their SHA-256;
// other operations are done already.  False: a file could not be written.
bool Save(wire::Arena& arena, const wire::FileOp& op);

// Fills its part of the output with "m".  False: it could not be written.
bool Merge(const wire::MergeRows& rows);

}  // namespace roundhouse::fakes

#endif  // ROUNDHOUSE_TESTS_FAKES_ANSWERS_H_
