// The one place that says which Roundhouse this is.
#ifndef ROUNDHOUSE_BASE_VERSION_H_
#define ROUNDHOUSE_BASE_VERSION_H_

namespace roundhouse {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_VERSION_H_
