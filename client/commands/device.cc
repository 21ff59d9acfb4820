#include "client/commands/device.h"

#include <ostream>

#include "base/visible_text.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

class DeviceCommand : public Command {
 public:
  const CommandInfo& info() const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;
};

const CommandInfo& DeviceCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "device", "", "the devices and where their time went",
      "BUBBLE is the share of a device's busy time, since the daemon started, "
      "in which\nit waited although a job had work for it."};
  return info;
}

ExitCode DeviceCommand::Run(const std::vector<std::string>&, Session* session) {
  v1::ListDevicesResponse response;
  UnaryContext context(session->interrupt());
  const grpc::Status status = session->system().ListDevices(
      context.get(), v1::ListDevicesRequest(), &response);
  if (!status.ok()) {
    return session->Fail("device", status);
  }
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
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeDeviceCommand() {
  return std::make_unique<DeviceCommand>();
}

}  // namespace roundhouse::client
