#include "server/doctor/finding_proto.h"

#include "base/visible_text.h"

namespace roundhouse {
namespace {

v1::Verdict VerdictToProto(Verdict verdict) {
  return verdict == Verdict::kOk        ? v1::VERDICT_OK
         : verdict == Verdict::kWarning ? v1::VERDICT_WARNING
                                        : v1::VERDICT_PROBLEM;
}

}  // namespace

v1::Finding FindingToProto(const Finding& finding) {
  v1::Finding out;
  out.set_name(ValidUtf8(finding.name));
  out.set_found(ValidUtf8(finding.found));
  out.set_verdict(VerdictToProto(finding.verdict));
  out.set_remedy(ValidUtf8(finding.remedy));
  return out;
}

}  // namespace roundhouse
