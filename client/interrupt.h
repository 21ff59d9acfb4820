// Ctrl-C as an event: it ends waits and cancels the calls in progress, so that
// a command can say how to come back before it returns.
//
//   Interrupt interrupt;
//   interrupt.HandleSignals();             // main only
//   grpc::ClientContext context;
//   Interrupt::Scope scope(&interrupt, &context);
//
// Thread-safe.  A signal handler writes one byte into a pipe; a thread of the
// Interrupt does everything else.
#ifndef ROUNDHOUSE_CLIENT_INTERRUPT_H_
#define ROUNDHOUSE_CLIENT_INTERRUPT_H_

#include <set>
#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace grpc {
class ClientContext;
}  // namespace grpc

namespace roundhouse::client {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // SIGINT and SIGTERM mean Request() from now on; a second one ends the
  // process at once.  REQUIRES: one Interrupt of the process at most.
  void HandleSignals();

  // Idempotent; calls begun later are cancelled too.
  void Request();
  bool requested() const;

  // Sleeps; false when interrupted, before or meanwhile.
  bool Wait(absl::Duration duration);

  // Cancels `context`'s call on a request while the scope lives.
  class Scope {
   public:
    Scope(Interrupt* interrupt, grpc::ClientContext* context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interrupt* interrupt_;
    grpc::ClientContext* context_;
  };

 private:
  void ReadPipe();

  int read_fd_ = -1;
  int write_fd_ = -1;
  bool handles_signals_ = false;
  mutable Mutex mutex_;
  CondVar changed_;
  bool requested_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
  std::thread reader_;
};

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_INTERRUPT_H_
