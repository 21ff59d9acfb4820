// What is in the way of a job, of those that wait and of all others.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_EXPLAIN_OBSTACLES_H_
#define ROUNDHOUSE_SERVER_EXPLAIN_OBSTACLES_H_

#include <functional>
#include <optional>
#include <string>

#include "google/protobuf/repeated_ptr_field.h"
#include "proto/roundhouse/v1/explanation.pb.h"
#include "server/explain/pool_snapshot.h"

namespace roundhouse {

// Gives a job its name in an answer; "" to one that is not to be named.
using NameOf = std::function<std::string(const std::string& id,
                                         const std::string& project)>;
using Obstacles = google::protobuf::RepeatedPtrField<v1::Obstacle>;

// The asked job's, whatever its state.
Obstacles ObstaclesOf(const PoolSnapshot& snapshot, const NameOf& name_of);
// Its place in the queue; none: it is not there.
std::optional<v1::QueuePlace> PlaceOf(const PoolSnapshot& snapshot,
                                      const NameOf& name_of);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_EXPLAIN_OBSTACLES_H_
