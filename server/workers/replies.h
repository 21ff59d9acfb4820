// Who is told of what a worker answers: the one who sent the command.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WORKERS_REPLIES_H_
#define ROUNDHOUSE_SERVER_WORKERS_REPLIES_H_

#include <cstdint>
#include <map>
#include <string>

#include "base/wire/messages.h"

namespace roundhouse {

// Which worker: a device's index, then the host worker, then the files worker.
// It is also the index of the worker's doorbell.
enum class WorkerId : int32_t {};

class ReplyHandler {
 public:
  virtual ~ReplyHandler() = default;
  // An answer to one of this handler's commands, whose attempt it carries.  A
  // command has one last answer (EndsCommand); others may come before it.
  virtual void OnReply(WorkerId worker, const wire::Message& reply) = 0;
  // The worker has died with the command, which gets no answer any more.  The
  // dispatcher does not know of it yet: nothing may be carried out here.
  virtual void OnLost(WorkerId worker, uint64_t attempt,
                      const std::string& why) = 0;
};

// Whether this is a command's last answer.
bool EndsCommand(const wire::Body& body);

// The commands of one worker that are not ended.
class Replies {
 public:
  // `handler` outlives the command's end, or is forgotten before it goes.
  void Expect(uint64_t attempt, ReplyHandler* handler) {
    handlers_[attempt] = handler;
  }
  // Passes an answer on.  One to a command that nobody waits for is dropped.
  void Deliver(WorkerId worker, const wire::Message& reply);
  // All commands are lost.
  void Lose(WorkerId worker, const std::string& why);
  void Forget(const ReplyHandler* handler);

 private:
  std::map<uint64_t, ReplyHandler*> handlers_;  // by attempt
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_REPLIES_H_
