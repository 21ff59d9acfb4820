#include "server/gpu/gpu_events.h"

#include <utility>

#include "base/status.h"

namespace roundhouse {

GpuEvents::GpuEvents(EventLoop& loop, std::string program, OnEvent on_event,
                     absl::Duration restart_delay)
    : watch_(loop,
             {.program = std::move(program),
              .argument = "--watch",
              .begin = wire::kGpuEventsBegin,
              .max_line_bytes = wire::kMaxGpuEventBytes,
              .what = "Xid errors",
              .restart_delay = restart_delay},
             [told = std::move(on_event)](const std::string& line) {
               const auto event = wire::DecodeGpuEvent(line);
               if (event.ok()) told(*event);
               return event.status();
             }) {}

}  // namespace roundhouse
