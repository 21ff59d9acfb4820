#include "server/uploads/upload_sweep.h"

#include "absl/status/status.h"

namespace roundhouse {

UploadSweep::UploadSweep(EventLoop& loop, Uploads& uploads,
                         absl::Duration interval)
    : loop_(loop), uploads_(uploads), interval_(interval), background_(loop) {
  Later();
}

UploadSweep::~UploadSweep() { loop_.CancelTimer(timer_); }

void UploadSweep::Later() {
  timer_ = loop_.After(interval_, [this] {
    background_.Run(
        [&uploads = uploads_] {
          uploads.Sweep();
          return absl::OkStatus();
        },
        [this](const absl::Status&) { Later(); });
  });
}

}  // namespace roundhouse
