#include "client/tables/message_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/util/time_util.h>

#include <cmath>

#include "base/visible_text.h"

namespace roundhouse::client {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

ordered_json NumberJson(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "Infinity" : "-Infinity";
  }
  return value;
}

ordered_json EnumJson(const EnumValueDescriptor* value) {
  return value->name();
}

ordered_json SubmessageJson(const Message& message) {
  if (message.GetDescriptor() == google::protobuf::Timestamp::descriptor()) {
    return google::protobuf::util::TimeUtil::ToString(
        static_cast<const google::protobuf::Timestamp&>(message));
  }
  return MessageJson(message);
}

ordered_json SingularJson(const Message& message,
                          const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberJson(reflection->GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return NumberJson(reflection->GetFloat(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumJson(reflection->GetEnum(message, field));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->GetString(message, field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return SubmessageJson(reflection->GetMessage(message, field));
  }
  return nullptr;
}

ordered_json ElementJson(const Message& message, const FieldDescriptor* field,
                         int index) {
  const Reflection* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->GetRepeatedInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->GetRepeatedInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->GetRepeatedUInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->GetRepeatedUInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberJson(reflection->GetRepeatedDouble(message, field, index));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return NumberJson(reflection->GetRepeatedFloat(message, field, index));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetRepeatedBool(message, field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumJson(reflection->GetRepeatedEnum(message, field, index));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->GetRepeatedString(message, field, index);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return SubmessageJson(
          reflection->GetRepeatedMessage(message, field, index));
  }
  return nullptr;
}

}  // namespace

ordered_json MessageJson(const Message& message) {
  ordered_json json = ordered_json::object();
  const Reflection* reflection = message.GetReflection();
  const google::protobuf::Descriptor* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->is_repeated()) {
      ordered_json array = ordered_json::array();
      for (int j = 0; j < reflection->FieldSize(message, field); ++j) {
        array.push_back(ElementJson(message, field, j));
      }
      json[field->name()] = std::move(array);
    } else if (!field->has_presence() || reflection->HasField(message, field)) {
      json[field->name()] = SingularJson(message, field);
    }
  }
  return json;
}

ordered_json JobJson(const v1::FineTuningJob& job) {
  ordered_json json = MessageJson(job);
  ordered_json spec = ordered_json::parse(job.resolved_spec(), nullptr,
                                          /*allow_exceptions=*/false);
  if (!spec.is_discarded()) {
    json["resolved_spec"] = std::move(spec);
  }
  return json;
}

ordered_json BriefJobJson(const v1::FineTuningJob& job) {
  ordered_json json = MessageJson(job);
  for (const char* field : {"submitted_text", "resolved_spec", "loss_history",
                            "eval_history", "eval_samples"}) {
    json.erase(field);
  }
  return json;
}

std::string JsonText(const ordered_json& json, int indent) {
  return VisibleJson(json.dump(indent, ' ', /*ensure_ascii=*/false,
                               nlohmann::json::error_handler_t::replace));
}

}  // namespace roundhouse::client
