#include "server/spec/spec_value.h"

#include <cctype>
#include <exception>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/yaml.h"

namespace roundhouse {
namespace {

using Kind = SpecValue::Kind;

bool IsInteger(const std::string& s) {
  size_t i = (s[0] == '-' || s[0] == '+') ? 1 : 0;
  if (i == s.size()) return false;
  for (; i < s.size(); ++i) {
    if (!std::isdigit(static_cast<unsigned char>(s[i]))) return false;
  }
  return true;
}

bool IsNumber(const std::string& s) {
  if (s.find_first_not_of("0123456789+-.eE") != std::string::npos) return false;
  double ignored;
  return absl::SimpleAtod(s, &ignored);
}

Kind ScalarKind(const std::string& plain) {
  if (plain.empty()) return Kind::kNull;
  for (const char* word : {"true", "True", "TRUE", "false", "False", "FALSE"}) {
    if (plain == word) return Kind::kBool;
  }
  if (IsInteger(plain)) return Kind::kInteger;
  if (IsNumber(plain)) return Kind::kNumber;
  return Kind::kString;
}

// Well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates.
bool IsUtf8(const std::string& s) {
  size_t i = 0;
  while (i < s.size()) {
    const unsigned char c = s[i++];
    const int more = c < 0x80   ? 0
                     : c < 0xc2 ? -1
                     : c < 0xe0 ? 1
                     : c < 0xf0 ? 2
                     : c < 0xf5 ? 3
                                : -1;
    if (more < 0 || s.size() - i < static_cast<size_t>(more)) return false;
    if (more == 0) continue;
    const unsigned char second = s[i];
    if ((c == 0xe0 && second < 0xa0) || (c == 0xed && second > 0x9f) ||
        (c == 0xf0 && second < 0x90) || (c == 0xf4 && second > 0x8f)) {
      return false;
    }
    for (int k = 0; k < more; ++k) {
      if ((static_cast<unsigned char>(s[i++]) & 0xc0) != 0x80) return false;
    }
  }
  return true;
}

// Leaves the YAML library's parser; caught in ParseSpecText.
struct Refusal : std::exception {
  explicit Refusal(absl::Status s) : status(std::move(s)) {}
  absl::Status status;
};

// Builds the tree from the parser's events, checking as it goes, so that no
// text makes more of itself than its limits.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(const std::string& file_name) : file_name_(file_name) {}

  // The root; REQUIRES: HasRoot().
  SpecValue Take() { return std::move(*root_); }
  bool HasRoot() const { return root_.has_value(); }

  absl::Status Error(int line, const std::string& what) const {
    return FieldError(FieldReason::kInvalidSyntax, "",
                      absl::StrCat(file_name_, ":", line, ": ", what));
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(Open(mark, Kind::kNull, "?", anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(mark, "YAML aliases are not accepted; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag,
                YAML::anchor_t anchor, const std::string& text) override {
    const bool quoted = tag == "!";
    SpecValue value =
        Open(mark, quoted ? Kind::kString : ScalarKind(text), tag, anchor);
    if (text.find('\0') != std::string::npos) {
      Refuse(mark, "a text holds a zero byte");
    }
    if (!IsUtf8(text)) Refuse(mark, "not UTF-8");
    value.text = text;
    Add(std::move(value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open_.push_back({.value = Open(mark, Kind::kList, tag, anchor)});
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag,
                  YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open_.push_back({.value = Open(mark, Kind::kMap, tag, anchor)});
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Frame {
    SpecValue value;
    std::optional<SpecValue> key;  // of a mapping: read without its value
    std::set<std::string> keys;
  };

  [[noreturn]] void Refuse(const YAML::Mark& mark, const std::string& what) {
    throw Refusal(Error(mark.line + 1, what));
  }

  SpecValue Open(const YAML::Mark& mark, Kind kind, const std::string& tag,
                 YAML::anchor_t anchor) {
    if (++count_ > kMaxSpecValues) {
      Refuse(mark, absl::StrCat("more than ", kMaxSpecValues, " values"));
    }
    if (open_.size() >= kMaxSpecDepth) {
      Refuse(mark,
             absl::StrCat("nested deeper than ", kMaxSpecDepth, " levels"));
    }
    if (anchor != 0)
      Refuse(mark, "YAML anchors are not accepted; write each value out");
    if (!tag.empty() && tag != "?" && tag != "!") {
      Refuse(mark, "YAML tags are not accepted; write the value alone");
    }
    SpecValue value;
    value.kind = kind;
    value.line = mark.line + 1;
    return value;
  }

  void Close() {
    SpecValue value = std::move(open_.back().value);
    open_.pop_back();
    Add(std::move(value));
  }

  void Add(SpecValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& parent = open_.back();
    if (parent.value.kind == Kind::kList) {
      parent.value.items.push_back(std::move(value));
    } else if (!parent.key.has_value()) {
      CheckKey(value, &parent);
      parent.key = std::move(value);
    } else {
      parent.value.entries.push_back(
          {*std::move(parent.key), std::move(value)});
      parent.key.reset();
    }
  }

  void CheckKey(const SpecValue& key, Frame* parent) {
    if (key.kind == Kind::kList || key.kind == Kind::kMap ||
        key.kind == Kind::kNull) {
      throw Refusal(Error(key.line, "a key must be a name"));
    }
    // All that is wrong with a job's fields is told at once, by their reader.
    if (parent == &open_.front()) return;
    if (parent->keys.insert(key.text).second) return;
    throw Refusal(RequestError(FieldReason::kDuplicateField, key.text,
                               absl::StrCat(file_name_, ":", key.line, ": ",
                                            key.text, " is given twice")));
  }

  const std::string& file_name_;
  int count_ = 0;
  std::vector<Frame> open_;
  std::optional<SpecValue> root_;
};

absl::Status CheckBytes(const std::string& text, const Builder& builder) {
  if (text.size() > kMaxJobTextBytes) {
    return builder.Error(1, absl::StrCat(text.size(),
                                         " bytes; a job file "
                                         "has at most ",
                                         kMaxJobTextBytes));
  }
  if (text.find('\0') != std::string::npos) {
    return builder.Error(1, "a zero byte");
  }
  if (!IsUtf8(text)) return builder.Error(1, "not UTF-8");
  return absl::OkStatus();
}

absl::Status CheckMarks(const std::string& text, const Builder& builder) {
  int line = 1;
  int marks = 0;
  for (const char c : text) {
    if (c == '\n') ++line;
    if (absl::string_view("[]{},:?&*!\"'").find(c) == absl::string_view::npos) {
      continue;
    }
    if (++marks > kMaxSpecMarks) {
      return builder.Error(
          line, absl::StrCat("more than ", kMaxSpecMarks,
                             " brackets, commas, colons and quotes; what is "
                             "this large belongs into the dataset"));
    }
  }
  return absl::OkStatus();
}

std::string NotYaml(const std::string& why) {
  return absl::StrCat("not YAML: ", why,
                      "; look at brackets, quotes and indentation up to here");
}

}  // namespace

std::string Describe(const SpecValue& value) {
  constexpr size_t kShown = 60;
  std::string text = value.text.substr(0, kShown);
  if (text.size() < value.text.size()) text += "...";
  switch (value.kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kBool:
      return text;
    case Kind::kInteger:
    case Kind::kNumber:
      return absl::StrCat("the number ", text);
    case Kind::kString:
      return absl::StrCat("the text \"", text, "\"");
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a mapping";
  }
  return "";
}

absl::StatusOr<SpecValue> ParseSpecText(const std::string& text,
                                        const std::string& file_name,
                                        SpecWriter writer) {
  Builder builder(file_name);
  RETURN_IF_ERROR(CheckBytes(text, builder));
  if (writer == SpecWriter::kCaller) {
    RETURN_IF_ERROR(CheckMarks(text, builder));
  }
  // The library reports by exceptions of several types; this is where they
  // stop.
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder) || !builder.HasRoot()) {
      return builder.Error(
          1, "the file is empty; a job needs model_name_or_path and dataset");
    }
    SpecValue root = builder.Take();
    // Asked once only: on some texts the library gives empty documents for
    // ever.
    if (parser.HandleNextDocument(builder)) {
      return builder.Error(
          1, "expected one YAML document, got more; keep one, without ---");
    }
    return root;
  } catch (const Refusal& refusal) {
    return refusal.status;
  } catch (const YAML::Exception& e) {
    return builder.Error(e.mark.line + 1, NotYaml(e.msg));
  } catch (const std::exception& e) {
    return builder.Error(1, NotYaml(e.what()));
  }
}

}  // namespace roundhouse
