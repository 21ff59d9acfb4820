// Distinct types for the numbers that name things, so that a slot is never
// passed for a job.  Torch-free; pure.
#ifndef ROUNDHOUSE_BASE_IDS_H_
#define ROUNDHOUSE_BASE_IDS_H_

#include <cstdint>
#include <ostream>
#include <type_traits>

namespace roundhouse {

enum class JobId : uint64_t {};     // a job of this server
enum class DeviceId : int32_t {};   // index of a device of this server, from 0
enum class SlotId : uint64_t {};    // drawn per daemon life, rising
enum class HostOpId : uint64_t {};  // drawn per daemon life, rising

template <typename Id>
requires std::is_enum_v<Id>
constexpr std::underlying_type_t<Id> Number(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_IDS_H_
