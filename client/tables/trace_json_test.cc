#include "client/tables/trace_json.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

using nlohmann::json;

void Add(v1::Timeline* timeline, int resource, int kind, int64_t start,
         int64_t length) {
  v1::TimelineInterval* interval = timeline->add_intervals();
  interval->set_resource(resource);
  interval->set_kind(kind);
  interval->set_layer_begin(2);
  interval->set_layer_end(5);
  interval->set_micro_batch(7);
  interval->set_start_ns(start);
  interval->set_length_ns(length);
  interval->set_bytes(99);
}

v1::Timeline Example() {
  v1::Timeline timeline;
  for (const char* name : {"compute:0", "h2d:0", "host:reduce", "compute:11"}) {
    timeline.add_resources(name);
  }
  timeline.add_kinds("forward");
  timeline.add_kinds("weights");
  Add(&timeline, 0, 0, 1500, 2001);
  Add(&timeline, 1, 1, 0, 1500);
  Add(&timeline, 0, 0, 9000, 0);
  return timeline;
}

TEST(TraceJsonTest, EveryIntervalIsAnEventOnItsTrack) {
  const json trace = json::parse(TraceJson(Example()));
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  std::vector<json> events;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") events.push_back(event);
  }
  ASSERT_EQ(events.size(), 2u);  // one has no length
  EXPECT_EQ(events[0]["name"], "forward 2-4 m7");
  EXPECT_EQ(events[0]["cat"], "forward");
  EXPECT_DOUBLE_EQ(events[0]["ts"], 1.5);
  EXPECT_DOUBLE_EQ(events[0]["dur"], 2.001);
  EXPECT_EQ(events[0]["args"]["bytes"], 99);
  EXPECT_EQ(events[0]["pid"], events[1]["pid"]);
  EXPECT_NE(events[0]["tid"], events[1]["tid"]);
}

TEST(TraceJsonTest, TracksHaveNames) {
  const json trace = json::parse(TraceJson(Example()));
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "M") continue;
    const std::string name = event["args"].value("name", "");
    if (event["name"] == "process_name") processes[event["pid"]] = name;
    if (event["name"] == "thread_name") {
      threads[{event["pid"], event["tid"]}] = name;
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{
                           {0, "host"}, {1, "device 0"}, {12, "device 11"}}));
  EXPECT_EQ(threads.size(), 4u);
  EXPECT_EQ((threads[{1, 1}]), "compute");
  EXPECT_EQ((threads[{1, 3}]), "h2d");
  EXPECT_EQ((threads[{0, 3}]), "reduce");
}

TEST(TraceJsonTest, RecordedIntervalsSayWhoseTheyAre) {
  v1::Timeline timeline;
  for (const char* name :
       {"wait:2", "compute:2", "d2h:2", "host:steps", "backfill:2"}) {
    timeline.add_resources(name);
  }
  for (const char* name : {"step", "reduce", "memory"}) {
    timeline.add_kinds(name);
  }
  timeline.add_jobs("job-3");
  for (int i = 0; i < 3; ++i) {
    v1::TimelineInterval* const interval = timeline.add_intervals();
    interval->set_resource(i == 2 ? 0 : 3);
    interval->set_kind(i);
    interval->set_micro_batch(-1);
    interval->set_length_ns(5);
    interval->set_step(12);
    interval->set_job(0);
    if (i == 1) interval->set_unit(0);
  }
  const json trace = json::parse(TraceJson(timeline, {{"first_step", 12}}));
  EXPECT_EQ(trace["otherData"], json({{"first_step", 12}}));
  std::vector<json> events;
  std::map<std::string, int> threads;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") events.push_back(event);
    if (event["name"] == "thread_name") {
      threads[event["args"]["name"]] = event["tid"];
    }
  }
  EXPECT_EQ(threads, (std::map<std::string, int>{{"compute", 1},
                                                 {"d2h", 4},
                                                 {"wait", 2},
                                                 {"steps", 4},
                                                 {"backfill", 5}}));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["name"], "step 12");
  EXPECT_EQ(events[1]["name"], "reduce u0");
  EXPECT_EQ(events[1]["args"],
            json({{"unit", 0}, {"job", "job-3"}, {"step", 12}}));
  EXPECT_EQ(events[2]["name"], "memory");
  EXPECT_EQ(events[2]["tid"], 2);
}

TEST(TraceJsonTest, WhatNamesNothingIsStillThere) {
  v1::Timeline timeline = Example();
  Add(&timeline, 9, -1, 0, 10);
  timeline.mutable_intervals(3)->set_micro_batch(-1);
  timeline.mutable_intervals(3)->set_layer_end(3);
  const json trace = json::parse(TraceJson(timeline));
  EXPECT_EQ(trace["traceEvents"].back()["name"], "? 2");
  EXPECT_TRUE(json::parse(TraceJson({}))["traceEvents"].empty());
}

}  // namespace
}  // namespace roundhouse::client
