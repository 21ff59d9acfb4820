#include "server/limits/limit_answers.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace roundhouse {
namespace {

v1::Limit LimitOf(const LimitInfo& info, const std::string& subject,
                  int64_t value) {
  v1::Limit out;
  out.set_subject(subject);
  out.set_limit(info.name);
  out.set_value(value);
  return out;
}

// The sources, and what others count at one moment.
struct Sources {
  explicit Sources(const LimitSources& sources)
      : table(sources.table),
        check(sources.check),
        others(sources.check.OthersUsed()) {}

  const LimitTable& table;
  const LimitCheck& check;
  const LimitCheck::OtherUse others;
};

absl::Status PutUsed(const Sources& sources, const LimitInfo& info,
                     const Counted& counted, v1::Limit* out) {
  ASSIGN_OR_RETURN(std::optional<int64_t> used,
                   sources.check.Used(info.limit, counted));
  if (!used.has_value()) used = sources.others(info.limit, counted);
  if (used.has_value()) out->set_used(*used);
  return absl::OkStatus();
}

// A constant that holds without a row.
std::optional<v1::Limit> BuiltIn(const LimitInfo& info) {
  if (!info.built_in.has_value()) return std::nullopt;
  v1::Limit out = LimitOf(info, kEverybody, *info.built_in);
  out.set_built_in(true);
  return out;
}

// A user's own, whoever set it.
absl::Status PutOwn(const Sources& sources, const LimitRows& rows,
                    const LimitInfo& info, const Caller& caller,
                    v1::ListLimitsResponse* out) {
  std::optional<v1::Limit> own = BuiltIn(info);
  const auto set = rows.OfUser(caller.user, info.limit);
  if (set.has_value()) own = LimitOf(info, set->subject, set->value);
  if (!own.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(PutUsed(sources, info, {.owner = caller.owner()}, &*own));
  *out->add_limits() = *std::move(own);
  return absl::OkStatus();
}

absl::Status PutRow(const Sources& sources, const LimitInfo& info,
                    const std::string& text, int64_t value,
                    v1::ListLimitsResponse* out) {
  v1::Limit row = LimitOf(info, text, value);
  ASSIGN_OR_RETURN(const LimitSubject subject, ParseLimitSubject(text));
  // Everybody's is each one's.
  if (text != kEverybody) {
    RETURN_IF_ERROR(PutUsed(sources, info,
                            {.owner = subject.user, .project = subject.project},
                            &row));
  }
  *out->add_limits() = std::move(row);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ListLimitsResponse> LimitsOfCaller(const LimitSources& of,
                                                      const Caller& caller) {
  const Sources sources(of);
  v1::ListLimitsResponse out;
  const auto rows = sources.table.rows();
  for (const LimitInfo& info : LimitInfos()) {
    RETURN_IF_ERROR(PutOwn(sources, *rows, info, caller, &out));
    for (const auto& [project, role] : caller.projects) {
      const std::string subject = absl::StrCat("project:", project);
      const auto value = rows->Of(subject, info.limit);
      if (!value.has_value()) continue;
      RETURN_IF_ERROR(PutRow(sources, info, subject, *value, &out));
    }
    const auto value = rows->Of(kServer, info.limit);
    if (!value.has_value()) continue;
    RETURN_IF_ERROR(PutRow(sources, info, kServer, *value, &out));
  }
  return out;
}

absl::StatusOr<v1::ListLimitsResponse> AllLimits(const LimitSources& of) {
  const Sources sources(of);
  v1::ListLimitsResponse out;
  const auto rows = sources.table.rows();
  for (const LimitInfo& info : LimitInfos()) {
    if (rows->Of(kEverybody, info.limit).has_value()) continue;
    if (auto constant = BuiltIn(info); constant.has_value()) {
      *out.add_limits() = *std::move(constant);
    }
  }
  for (const auto& [key, value] : rows->values) {
    RETURN_IF_ERROR(
        PutRow(sources, InfoOf(key.first), key.second, value, &out));
  }
  return out;
}

}  // namespace roundhouse
