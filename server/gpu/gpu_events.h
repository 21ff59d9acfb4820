// Hears of the GPUs' Xid errors as the driver reports them, from
// `roundhouse-gpu-probe --watch` (gpu_watch.h).
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_GPU_GPU_EVENTS_H_
#define ROUNDHOUSE_SERVER_GPU_GPU_EVENTS_H_

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "base/wire/gpu_event.h"
#include "server/gpu/gpu_watch.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

class GpuEvents {
 public:
  using OnEvent = std::function<void(const wire::GpuEvent&)>;

  GpuEvents(EventLoop& loop, std::string program, OnEvent on_event,
            absl::Duration restart_delay = absl::Seconds(30));

 private:
  GpuWatch watch_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_GPU_GPU_EVENTS_H_
