// How the fields of a message lie in its bytes: one after the other, numbers as
// this machine has them, arrays and texts behind their count.
//
// One walk over a body's fields serves both directions: the FieldWriter appends
// what the FieldReader takes.  A field that breaks a limit is named by the
// status: RESOURCE_EXHAUSTED what is written, INVALID_ARGUMENT what is read,
// which ends there.  For messages.cc alone.
#ifndef ROUNDHOUSE_BASE_WIRE_MESSAGE_FIELDS_H_
#define ROUNDHOUSE_BASE_WIRE_MESSAGE_FIELDS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/wire/messages.h"

namespace roundhouse::wire {

class FieldWriter {
 public:
  explicit FieldWriter(std::string& out) : out_(out) {}

  template <typename T>
  void Plain(const char*, T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }

  template <typename T>
  void Array(const char* name, std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    uint64_t count = values.size();
    if (count > kMaxArray) Fail(name, "has too many entries", count);
    Plain(name, count);
    out_.append(reinterpret_cast<const char*>(values.data()),
                count * sizeof(T));
  }

  void Text(const char* name, std::string& text) {
    uint64_t bytes = text.size();
    if (bytes > kMaxTextBytes) Fail(name, "is too long", bytes);
    Plain(name, bytes);
    out_.append(text);
  }

  template <typename E>
  void Enum(const char* name, E& value, E, E) {
    Plain(name, value);
  }

  template <typename T, typename E>
  void EnumOfEach(const char*, std::vector<T>&, E T::*, E, E) {}

  // Four bytes, 0 or 1.
  void Flag(const char* name, bool& value) {
    uint32_t number = value ? 1 : 0;
    Plain(name, number);
  }

  const absl::Status& status() const { return status_; }

 private:
  void Fail(const char* name, const char* what, uint64_t count) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat("message field ", name, " ", what, ": ", count));
  }

  std::string& out_;
  absl::Status status_;
};

class FieldReader {
 public:
  FieldReader(const char* data, uint64_t bytes) : data_(data), left_(bytes) {}

  template <typename T>
  void Plain(const char* name, T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!Take(name, sizeof(T))) return;
    std::memcpy(static_cast<void*>(&value), data_ - sizeof(T), sizeof(T));
  }

  template <typename T>
  void Array(const char* name, std::vector<T>& values) {
    uint64_t count = 0;
    Plain(name, count);
    if (count > kMaxArray) {
      Fail(absl::StrCat("field ", name, " has too many entries: ", count));
      return;
    }
    if (!Take(name, count * sizeof(T))) return;
    values.resize(count);
    if (count != 0) {
      std::memcpy(static_cast<void*>(values.data()), data_ - count * sizeof(T),
                  count * sizeof(T));
    }
  }

  void Text(const char* name, std::string& text) {
    uint64_t bytes = 0;
    Plain(name, bytes);
    if (bytes > kMaxTextBytes) {
      Fail(absl::StrCat("field ", name, " is too long: ", bytes));
      return;
    }
    if (Take(name, bytes)) text.assign(data_ - bytes, bytes);
  }

  template <typename E>
  void Enum(const char* name, E& value, E first, E last) {
    auto number = static_cast<std::underlying_type_t<E>>(first);
    Plain(name, number);
    if (number < static_cast<std::underlying_type_t<E>>(first) ||
        number > static_cast<std::underlying_type_t<E>>(last)) {
      Fail(absl::StrCat("field ", name, " has no meaning: ", number));
      return;
    }
    value = static_cast<E>(number);
  }

  // The `field` of what Array has read: an enum there, too, has a meaning.
  template <typename T, typename E>
  void EnumOfEach(const char* name, std::vector<T>& values, E T::*field,
                  E first, E last) {
    for (const T& value : values) {
      if (value.*field >= first && value.*field <= last) continue;
      Fail(absl::StrCat("field ", name, " has no meaning: ",
                        static_cast<std::underlying_type_t<E>>(value.*field)));
      return;
    }
  }

  void Flag(const char* name, bool& value) {
    uint32_t number = 0;
    Plain(name, number);
    if (number > 1) {
      Fail(absl::StrCat("field ", name, " has no meaning: ", number));
      return;
    }
    value = number == 1;
  }

  absl::Status Finish() {
    if (status_.ok() && left_ != 0) {
      Fail(absl::StrCat(left_, " bytes left over"));
    }
    return status_;
  }

 private:
  bool Take(const char* name, uint64_t bytes) {
    if (!status_.ok()) return false;
    if (bytes > left_) {
      Fail(absl::StrCat("field ", name, " wants ", bytes, " bytes, ", left_,
                        " are left"));
      return false;
    }
    data_ += bytes;
    left_ -= bytes;
    return true;
  }

  void Fail(const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError("message: " + what);
  }

  const char* data_;
  uint64_t left_;
  absl::Status status_;
};

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_MESSAGE_FIELDS_H_
