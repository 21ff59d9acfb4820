// Deterministic mutations of a text for parser tests: the same seed gives the
// same texts on every machine.
#ifndef ROUNDHOUSE_BASE_MODEL_MUTATION_H_
#define ROUNDHOUSE_BASE_MODEL_MUTATION_H_

#include <random>
#include <string>

namespace roundhouse {

// One to four random edits: bits flipped, ranges removed, doubled or cut off,
// numbers replaced, JSON fragments inserted.
std::string Mutate(std::string text, std::mt19937_64* random);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_MUTATION_H_
