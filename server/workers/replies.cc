#include "server/workers/replies.h"

#include <variant>

namespace roundhouse {

bool EndsCommand(const wire::Body& body) {
  return std::holds_alternative<wire::SlotDone>(body) ||
         std::holds_alternative<wire::Withdrawn>(body) ||
         std::holds_alternative<wire::SampleDone>(body) ||
         std::holds_alternative<wire::HostOpDone>(body) ||
         std::holds_alternative<wire::FileOpDone>(body) ||
         std::holds_alternative<wire::JobConfigured>(body) ||
         std::holds_alternative<wire::Failed>(body);
}

void Replies::Deliver(WorkerId worker, const wire::Message& reply) {
  const auto found = handlers_.find(reply.attempt);
  if (found == handlers_.end()) return;
  ReplyHandler* const handler = found->second;
  if (EndsCommand(reply.body)) handlers_.erase(found);
  handler->OnReply(worker, reply);
}

void Replies::Lose(WorkerId worker, const std::string& why) {
  // One at a time: a handler that is told may end others.
  while (!handlers_.empty()) {
    const auto first = handlers_.extract(handlers_.begin());
    first.mapped()->OnLost(worker, first.key(), why);
  }
}

void Replies::Forget(const ReplyHandler* handler) {
  std::erase_if(handlers_,
                [=](const auto& entry) { return entry.second == handler; });
}

}  // namespace roundhouse
