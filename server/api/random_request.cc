#include "server/api/random_request.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "google/protobuf/descriptor.h"

namespace roundhouse {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kDeepest = 8;
constexpr size_t kMostElements = 6;
constexpr size_t kLongestString = 255;

class Filler {
 public:
  Filler(ByteSource& bytes, const std::vector<std::string>& words)
      : bytes_(bytes), words_(words) {}

  void Fill(Message* message, int depth) {
    const auto* descriptor = message->GetDescriptor();
    for (int i = 0; i < descriptor->field_count() && !bytes_.empty(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      if (field->is_repeated()) {
        const size_t count = bytes_.Next() % kMostElements;
        for (size_t j = 0; j < count; ++j) Put(message, field, depth);
      } else if (bytes_.Next() % 4 != 0) {
        Put(message, field, depth);
      }
    }
  }

 private:
  int64_t Integer() {
    static constexpr int64_t kEnds[] = {0,
                                        1,
                                        -1,
                                        2,
                                        100,
                                        101,
                                        500,
                                        501,
                                        1 << 20,
                                        std::numeric_limits<int32_t>::max(),
                                        std::numeric_limits<int32_t>::min(),
                                        std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::min()};
    const uint8_t choice = bytes_.Next();
    if (choice < std::size(kEnds)) return kEnds[choice];
    if (choice < 128) return choice;
    return static_cast<int64_t>(bytes_.NextWord());
  }

  double Real() {
    static constexpr double kEnds[] = {
        0,
        -0.0,
        1,
        -1,
        0.5,
        std::numeric_limits<double>::max(),
        std::numeric_limits<double>::denorm_min(),
        std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()};
    const uint8_t choice = bytes_.Next();
    if (choice < std::size(kEnds)) return kEnds[choice];
    return std::bit_cast<double>(bytes_.NextWord());
  }

  std::string String() {
    const uint8_t choice = bytes_.Next();
    if (choice < 192) return words_[choice % words_.size()];
    return bytes_.Take(std::min<size_t>(bytes_.Next(), kLongestString));
  }

  // Sets the field, or adds an element to it.
  template <typename Value, typename Set, typename Add>
  void SetOrAdd(Message* message, const FieldDescriptor* field, Value value,
                Set set, Add add) {
    const Reflection* const reflection = message->GetReflection();
    if (field->is_repeated()) {
      (reflection->*add)(message, field, value);
    } else {
      (reflection->*set)(message, field, value);
    }
  }

  void Put(Message* message, const FieldDescriptor* field, int depth) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return SetOrAdd(message, field, static_cast<int32_t>(Integer()),
                        &Reflection::SetInt32, &Reflection::AddInt32);
      case FieldDescriptor::CPPTYPE_INT64:
        return SetOrAdd(message, field, Integer(), &Reflection::SetInt64,
                        &Reflection::AddInt64);
      case FieldDescriptor::CPPTYPE_UINT32:
        return SetOrAdd(message, field, static_cast<uint32_t>(Integer()),
                        &Reflection::SetUInt32, &Reflection::AddUInt32);
      case FieldDescriptor::CPPTYPE_UINT64:
        return SetOrAdd(message, field, static_cast<uint64_t>(Integer()),
                        &Reflection::SetUInt64, &Reflection::AddUInt64);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return SetOrAdd(message, field, Real(), &Reflection::SetDouble,
                        &Reflection::AddDouble);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return SetOrAdd(
            message, field,
            std::bit_cast<float>(static_cast<uint32_t>(bytes_.NextWord())),
            &Reflection::SetFloat, &Reflection::AddFloat);
      case FieldDescriptor::CPPTYPE_BOOL:
        return SetOrAdd(message, field, bytes_.Next() % 2 == 1,
                        &Reflection::SetBool, &Reflection::AddBool);
      case FieldDescriptor::CPPTYPE_ENUM:
        return SetOrAdd(message, field, static_cast<int>(Integer()),
                        &Reflection::SetEnumValue, &Reflection::AddEnumValue);
      case FieldDescriptor::CPPTYPE_STRING:
        return SetOrAdd(message, field, String(), &Reflection::SetString,
                        &Reflection::AddString);
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return PutMessage(message, field, depth);
    }
  }

  void PutMessage(Message* message, const FieldDescriptor* field, int depth) {
    if (depth == kDeepest) return;
    const Reflection* const reflection = message->GetReflection();
    Fill(field->is_repeated() ? reflection->AddMessage(message, field)
                              : reflection->MutableMessage(message, field),
         depth + 1);
  }

  ByteSource& bytes_;
  const std::vector<std::string>& words_;
};

}  // namespace

uint8_t ByteSource::Next() {
  if (bytes_.empty()) return 0;
  const auto byte = static_cast<uint8_t>(bytes_.front());
  bytes_.remove_prefix(1);
  return byte;
}

uint64_t ByteSource::NextWord() {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= uint64_t{Next()} << (8 * i);
  return word;
}

std::string ByteSource::Take(size_t count) {
  std::string taken(bytes_.substr(0, count));
  bytes_.remove_prefix(taken.size());
  return taken;
}

void FillRandomly(ByteSource& bytes, const std::vector<std::string>& words,
                  Message* message) {
  Filler(bytes, words).Fill(message, 0);
}

}  // namespace roundhouse
