#include "client/commands/device.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/nearest_name.h"
#include "base/visible_text.h"
#include "client/tables/message_json.h"
#include "client/time_span.h"

namespace roundhouse::client {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(200);
// Longer than a daemon waits for a slot (kVacateLimit).
constexpr absl::Duration kPatience = absl::Seconds(40);

class DeviceCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  absl::Status CheckArguments(
      const std::vector<std::string>& arguments) const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  static ExitCode List(Session* session);
  static void Print(const v1::ListDevicesResponse& response, Session* session);
  grpc::Status Change(const std::string& what, const std::string& name,
                      Session* session, v1::Device* device) const;
  grpc::Status Lend(const std::string& name, Session* session,
                    v1::Device* device) const;
  static grpc::Status AwaitItsEnd(Session* session, v1::Device* device);

  std::string for_;
  std::string until_;
  std::string note_;
  absl::Duration duration_ = absl::InfiniteDuration();
};

const CommandInfo& DeviceCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "device",
      "[lend|return|fence|unfence DEVICE]",
      "the devices, where their time went, and having one yourself",
      "Without arguments it lists them.  BUBBLE is the share of a device's "
      "busy "
      "time, since the\ndaemon started, in which it waited although a job had "
      "work for it.\n\nlend gives you a device for a time: what it computes "
      "ends first, then its memory is\nfree, and the command returns.  Jobs go "
      "on with the other devices, to the same result.\nIt comes back by "
      "itself, "
      "or with return.  A member has it for 8 hours at most, and needs\nthe "
      "limit lent_devices, which an admin sets.\n\nfence takes a broken device "
      "out of use, unfence takes it back, and starts one that is\nLOST; both "
      "are for admins.",
      0,
      2};
  return info;
}

void DeviceCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("for", 0, "TIME", &for_,
                   "with lend: how long, such as 30m, 2h");
  flags->AddString("until", 0, "TIME", &until_,
                   "with lend: until when, such as 18:00, of this machine's "
                   "clock");
  flags->AddString("note", 0, "TEXT", &note_,
                   "with lend and fence: what for; everybody sees it");
}

// The next time that a clock shows "18:00", or "2026-11-27 18:00".
std::optional<absl::Time> ParseUntil(const std::string& text, absl::Time now) {
  const absl::TimeZone zone = absl::LocalTimeZone();
  absl::Time time;
  std::string error;
  for (const char* format : {absl::RFC3339_full, "%Y-%m-%d %H:%M"}) {
    if (absl::ParseTime(format, text, zone, &time, &error)) return time;
  }
  const absl::CivilDay today = absl::ToCivilDay(now, zone);
  for (const absl::CivilDay day : {today, today + 1}) {
    const std::string whole =
        absl::StrCat(absl::FormatCivilTime(day), " ", text);
    if (!absl::ParseTime("%Y-%m-%d %H:%M", whole, zone, &time, &error)) {
      return std::nullopt;
    }
    if (time > now) break;
  }
  return time;
}

absl::Status DeviceCommand::CheckFlags() {
  if (!for_.empty() && !until_.empty()) {
    return absl::InvalidArgumentError(
        "flags --for and --until exclude each other");
  }
  if (!for_.empty()) {
    const auto lasts = ParseTimeSpan("for", for_, absl::Minutes(1));
    if (!lasts.ok()) return lasts.status();
    duration_ = *lasts;
  }
  if (!until_.empty() && !ParseUntil(until_, absl::UnixEpoch()).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --until: \"", until_,
                     "\" is no time such as 18:00 or \"2026-11-27 18:00\""));
  }
  return absl::OkStatus();
}

absl::Status DeviceCommand::CheckArguments(
    const std::vector<std::string>& arguments) const {
  const std::string what = arguments.empty() ? "" : arguments[0];
  const std::vector<std::string> known = {"lend", "return", "fence", "unfence"};
  if (!what.empty() &&
      std::find(known.begin(), known.end(), what) == known.end()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", what, "\" is none of ",
                                                   absl::StrJoin(known, ", "),
                                                   DidYouMean(what, known)));
  }
  if (what != "lend" && !(for_.empty() && until_.empty())) {
    return absl::InvalidArgumentError("flags --for and --until are for lend");
  }
  if (what != "lend" && what != "fence" && !note_.empty()) {
    return absl::InvalidArgumentError("flag --note is for lend and fence");
  }
  if (what.empty()) return absl::OkStatus();
  uint32_t index = 0;
  if (arguments.size() == 2 && absl::SimpleAtoi(arguments[1], &index)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " needs a DEVICE, its number in roundhouse device"));
}

ExitCode DeviceCommand::List(Session* session) {
  v1::ListDevicesResponse response;
  UnaryContext context(session->interrupt());
  const grpc::Status status = session->system().ListDevices(
      context.get(), v1::ListDevicesRequest(), &response);
  if (!status.ok()) {
    return session->Fail("device", status);
  }
  Print(response, session);
  return ExitCode::kOk;
}

void DeviceCommand::Print(const v1::ListDevicesResponse& response,
                          Session* session) {
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << DeviceTable(
          {response.devices().begin(), response.devices().end()});
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(response), 2) << "\n";
      break;
    case OutputFormat::kName:
      for (const v1::Device& device : response.devices()) {
        session->out() << VisibleLine(device.name()) << "\n";
      }
      break;
  }
}

grpc::Status DeviceCommand::Lend(const std::string& name, Session* session,
                                 v1::Device* device) const {
  v1::LendDeviceRequest request;
  request.set_name(name);
  request.set_note(note_);
  if (duration_ != absl::InfiniteDuration()) {
    request.mutable_duration()->set_seconds(absl::ToInt64Seconds(duration_));
  }
  if (!until_.empty()) {
    const absl::Time until = *ParseUntil(until_, session->environment().now());
    request.mutable_until_time()->set_seconds(absl::ToUnixSeconds(until));
  }
  UnaryContext context(session->interrupt());
  return session->system().LendDevice(context.get(), request, device);
}

grpc::Status DeviceCommand::Change(const std::string& what,
                                   const std::string& name, Session* session,
                                   v1::Device* device) const {
  if (what == "lend") return Lend(name, session, device);
  UnaryContext context(session->interrupt());
  auto& system = session->system();
  if (what == "return") {
    v1::ReturnDeviceRequest request;
    request.set_name(name);
    return system.ReturnDevice(context.get(), request, device);
  }
  if (what == "fence") {
    v1::FenceDeviceRequest request;
    request.set_name(name);
    request.set_note(note_);
    return system.FenceDevice(context.get(), request, device);
  }
  v1::UnfenceDeviceRequest request;
  request.set_name(name);
  return system.UnfenceDevice(context.get(), request, device);
}

// It ends a slot, for half a minute at most, and its worker, which a driver can
// keep from it.
grpc::Status DeviceCommand::AwaitItsEnd(Session* session, v1::Device* device) {
  const absl::Time late = session->environment().now() + kPatience;
  bool told = false;
  while (device->state() == v1::LEAVING) {
    if (!told && session->environment().now() > late) {
      session->err() << "The device's worker does not end yet; nvidia-smi "
                        "shows it.\n";
      told = true;
    }
    if (!session->interrupt()->Wait(kBetweenLooks)) {
      return {grpc::StatusCode::CANCELLED,
              "the device still ends what it computes, and is out of use then"};
    }
    v1::ListDevicesResponse response;
    UnaryContext context(session->interrupt());
    const grpc::Status status = session->system().ListDevices(
        context.get(), v1::ListDevicesRequest(), &response);
    if (!status.ok()) return status;
    const auto found =
        std::find_if(response.devices().begin(), response.devices().end(),
                     [&](const v1::Device& other) {
                       return other.name() == device->name();
                     });
    if (found == response.devices().end()) break;
    *device = *found;
  }
  return grpc::Status::OK;
}

ExitCode DeviceCommand::Run(const std::vector<std::string>& arguments,
                            Session* session) {
  if (arguments.empty()) return List(session);
  const std::string name = absl::StrCat("devices/", arguments[1]);
  v1::Device device;
  grpc::Status status = Change(arguments[0], name, session, &device);
  if (status.ok()) status = AwaitItsEnd(session, &device);
  if (!status.ok()) {
    return session->Fail(
        absl::StrCat("device ", arguments[0], " ", arguments[1]), status);
  }
  if (session->format() == OutputFormat::kTable) {
    session->out() << DeviceLine(device);
  } else {
    v1::ListDevicesResponse only;
    *only.add_devices() = device;
    Print(only, session);
  }
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeDeviceCommand() {
  return std::make_unique<DeviceCommand>();
}

}  // namespace roundhouse::client
