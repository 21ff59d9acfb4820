#include "client/tables/doctor_output.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/visible_text.h"
#include "client/error_text.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

constexpr size_t kVerdictColumns = 9;
constexpr size_t kNameColumns = 17;

constexpr char kLookAtTheServer[] =
    "on the server: systemctl status roundhoused; journalctl -u roundhoused "
    "-n 50; roundhoused --doctor --config=/etc/roundhouse/daemon.conf";

v1::Finding MakeFinding(const std::string& name, const std::string& found,
                        v1::Verdict verdict = v1::VERDICT_OK,
                        const std::string& remedy = "") {
  v1::Finding finding;
  finding.set_name(name);
  finding.set_found(found);
  finding.set_verdict(verdict);
  finding.set_remedy(remedy);
  return finding;
}

std::string Padded(std::string text, size_t columns) {
  text.resize(std::max(columns, text.size() + 1), ' ');
  return text;
}

std::string VerdictText(v1::Verdict verdict) {
  switch (verdict) {
    case v1::VERDICT_OK:
      return "ok";
    case v1::VERDICT_WARNING:
      return "warning";
    case v1::VERDICT_PROBLEM:
      return "problem";
    default:
      return absl::StrCat("verdict ", static_cast<int>(verdict));
  }
}

}  // namespace

v1::Finding CheckAddress(const ServerAddress& address) {
  return MakeFinding("address",
                     absl::StrCat(address.target, " (", address.source, ")"));
}

v1::Finding CheckConnection(const grpc::Status& status,
                            const ServerAddress& address) {
  const std::string name = "connection";
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return MakeFinding(name, "the daemon answers");
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      if (CertificateRefused(status)) {
        return MakeFinding(
            name, status.error_message(), v1::VERDICT_PROBLEM,
            "ask the server's admin whether it was renewed; then roundhouse "
            "logout --forget and login again");
      }
      return MakeFinding(name,
                         absl::StrCat("no daemon answers at ", address.target,
                                      ": ", status.error_message()),
                         v1::VERDICT_PROBLEM, kLookAtTheServer);
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return MakeFinding(name, status.error_message(), v1::VERDICT_PROBLEM,
                         "roundhouse whoami; an admin: roundhouse user list");
    default:
      return MakeFinding(name, status.error_message(), v1::VERDICT_PROBLEM,
                         kLookAtTheServer);
  }
}

v1::Finding CheckVersions(const std::string& client,
                          const std::string& server) {
  if (client == server) {
    return MakeFinding("version", absl::StrCat("both sides ", client));
  }
  return MakeFinding(
      "version", absl::StrCat("client ", client, ", server ", server),
      v1::VERDICT_WARNING, "use the client of the server's version");
}

v1::Finding CheckClocks(absl::Time sent, absl::Time received,
                        absl::Time server) {
  // Whatever it was within the call is no difference.
  const absl::Duration difference = server < sent       ? server - sent
                                    : server > received ? server - received
                                                        : absl::ZeroDuration();
  const std::string found =
      difference == absl::ZeroDuration()
          ? "both sides agree"
          : absl::StrCat(
                "the server's is ",
                absl::FormatDuration(absl::Trunc(absl::AbsDuration(difference),
                                                 absl::Milliseconds(1))),
                difference > absl::ZeroDuration() ? " ahead" : " behind");
  if (absl::AbsDuration(difference) <= kMostClockDifference) {
    return MakeFinding("clocks", found);
  }
  return MakeFinding("clocks", found, v1::VERDICT_WARNING,
                     "timedatectl on both machines: one is not kept in time");
}

v1::Finding CheckDiagnosis(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return MakeFinding("server", "looked at");
    case grpc::StatusCode::UNIMPLEMENTED:
      return MakeFinding("server", "this daemon is older than the doctor",
                         v1::VERDICT_WARNING,
                         "on the server: roundhoused --doctor of a newer one");
    case grpc::StatusCode::PERMISSION_DENIED:
      return MakeFinding("server", status.error_message(), v1::VERDICT_WARNING,
                         "ask a member or an admin to run roundhouse doctor");
    default:
      return MakeFinding("server", status.error_message(), v1::VERDICT_PROBLEM,
                         kLookAtTheServer);
  }
}

std::string DiagnosisText(const v1::Diagnosis& diagnosis) {
  std::string text;
  for (const v1::Finding& finding : diagnosis.findings()) {
    absl::StrAppend(&text,
                    Padded(VerdictText(finding.verdict()), kVerdictColumns),
                    Padded(VisibleLine(finding.name()), kNameColumns),
                    VisibleLine(finding.found()), "\n");
    if (finding.remedy().empty()) continue;
    absl::StrAppend(&text, std::string(kVerdictColumns + kNameColumns, ' '),
                    "-> ", VisibleLine(finding.remedy()), "\n");
  }
  return text;
}

bool HasProblem(const v1::Diagnosis& diagnosis) {
  return std::any_of(diagnosis.findings().begin(), diagnosis.findings().end(),
                     [](const v1::Finding& finding) {
                       return finding.verdict() == v1::VERDICT_PROBLEM;
                     });
}

}  // namespace roundhouse::client
