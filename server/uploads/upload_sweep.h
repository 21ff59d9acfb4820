// Has uploads that nobody finished removed from time to time.  Runs on the
// event loop's thread, and works beside it.
#ifndef ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_SWEEP_H_
#define ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_SWEEP_H_

#include "absl/time/time.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

class UploadSweep {
 public:
  // `loop` outlives it, and `uploads` EventLoop::Run.
  UploadSweep(EventLoop& loop, Uploads& uploads,
              absl::Duration interval = kUploadSweepInterval);
  ~UploadSweep();
  UploadSweep(const UploadSweep&) = delete;
  UploadSweep& operator=(const UploadSweep&) = delete;

 private:
  void Later();

  EventLoop& loop_;
  Uploads& uploads_;
  const absl::Duration interval_;
  EventLoop::TimerId timer_ = 0;
  Background background_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_SWEEP_H_
