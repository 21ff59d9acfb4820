#include "base/log.h"
#include "gtest/gtest.h"
#include "worker/slot/device_worker.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {

TestWorker::TestWorker(SlotTestJob& job, int index, TestWorkerOptions options)
    : job_(job),
      index_(index),
      device_(options.make_device(options.device_memory_bytes)) {
  auto ends = wire::Channel::Pair();
  ROUNDHOUSE_CHECK(ends.ok()) << ends.status().ToString();
  daemon_ = std::move(ends->first);
  worker_ = std::move(ends->second);
  thread_ = std::thread([this, runner = std::move(options.runner)] {
    const WorkerContext context{*worker_, job_.arena(), index_, 1};
    EXPECT_EQ(RunDeviceWorker(context, *device_, runner), absl::OkStatus());
  });
  wire::ConfigureJob configure;
  configure.job = SlotTestJob::kJob;
  configure.layout_offset = job_.layout_offset();
  Send(configure);
  Await<wire::JobConfigured>();
}

TestWorker::~TestWorker() {
  Send(wire::Stop{});
  thread_.join();
  EXPECT_EQ(device_->memory().used_bytes, 0u);
}

uint64_t TestWorker::Send(wire::Body body) {
  const uint64_t attempt = ++attempt_;
  const absl::Status sent =
      daemon_->Send(wire::Message{attempt, std::move(body)});
  ROUNDHOUSE_CHECK(sent.ok()) << sent.ToString();
  return attempt;
}

void TestWorker::Cancel(uint64_t attempt) {
  wire::Doorbell& bell = job_.arena().doorbells().bell[index_];
  bell.cancel[attempt % wire::kMaxDispatchedSlots].store(attempt);
  wire::Ring(bell);
}

wire::Message TestWorker::Next() {
  while (true) {
    absl::StatusOr<wire::Message> message = daemon_->Receive();
    ROUNDHOUSE_CHECK(message.ok()) << message.status().ToString();
    if (std::holds_alternative<wire::Hello>(message->body) ||
        std::holds_alternative<wire::Heartbeat>(message->body)) {
      continue;
    }
    events_.push_back(*message);
    return *std::move(message);
  }
}

void TestWorker::AwaitPinned(uint64_t bytes) {
  while (true) {
    const absl::StatusOr<wire::Message> message = daemon_->Receive();
    ROUNDHOUSE_CHECK(message.ok()) << message.status().ToString();
    const auto* beat = std::get_if<wire::Heartbeat>(&message->body);
    if (beat != nullptr && beat->pinned_bytes == bytes) return;
  }
}

wire::Body TestWorker::End(uint64_t attempt) {
  while (true) {
    wire::Message message = Next();
    if (message.attempt != attempt) continue;
    if (std::holds_alternative<wire::SlotDone>(message.body) ||
        std::holds_alternative<wire::SampleDone>(message.body) ||
        std::holds_alternative<wire::Withdrawn>(message.body) ||
        std::holds_alternative<wire::Failed>(message.body)) {
      return std::move(message.body);
    }
  }
}

std::map<uint64_t, wire::SlotDone> RunSlots(
    std::vector<std::unique_ptr<TestWorker>>& workers,
    const std::vector<wire::RunSlot>& slots) {
  std::map<uint64_t, wire::SlotDone> done;
  std::vector<std::vector<uint64_t>> open(workers.size());
  const auto finish_oldest = [&](size_t w) {
    const uint64_t attempt = open[w].front();
    open[w].erase(open[w].begin());
    wire::Body end = workers[w]->End(attempt);
    if (const auto* failed = std::get_if<wire::Failed>(&end)) {
      ADD_FAILURE() << failed->text;
      return;
    }
    const auto& one = std::get<wire::SlotDone>(end);
    done[one.slot] = one;
  };
  for (size_t i = 0; i < slots.size(); ++i) {
    const size_t w = i % workers.size();
    if (open[w].size() == wire::kMaxDispatchedSlots) finish_oldest(w);
    open[w].push_back(workers[w]->Send(slots[i]));
  }
  for (size_t w = 0; w < workers.size(); ++w) {
    while (!open[w].empty()) finish_oldest(w);
  }
  return done;
}

}  // namespace roundhouse::worker
