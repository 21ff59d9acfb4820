// Status propagation: RETURN_IF_ERROR and ASSIGN_OR_RETURN over absl::Status,
// and the house's classes of failure.
//
//   bad request   kInvalidArgument     the caller can fix it; names the field
//   try later     kUnavailable         nothing was done
//   infeasible    kResourceExhausted   names what is needed and the limit
//   device lost   kAborted             replay elsewhere
//   bug           ROUNDHOUSE_CHECK     never a status
#ifndef ROUNDHOUSE_BASE_STATUS_H_
#define ROUNDHOUSE_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define ROUNDHOUSE_CONCAT_INNER(a, b) a##b
#define ROUNDHOUSE_CONCAT(a, b) ROUNDHOUSE_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                \
  do {                                       \
    absl::Status roundhouse_status = (expr); \
    if (!roundhouse_status.ok()) {           \
      return roundhouse_status;              \
    }                                        \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr) \
  ROUNDHOUSE_ASSIGN_OR_RETURN(      \
      ROUNDHOUSE_CONCAT(roundhouse_statusor_, __LINE__), lhs, expr)

#define ROUNDHOUSE_ASSIGN_OR_RETURN(statusor, lhs, expr) \
  auto statusor = (expr);                                \
  if (!statusor.ok()) {                                  \
    return std::move(statusor).status();                 \
  }                                                      \
  lhs = *std::move(statusor)

#endif  // ROUNDHOUSE_BASE_STATUS_H_
