// The result of a run in real time, quantity by quantity, in the units that a
// simulation of the same inputs has: milliseconds of the inputs, not of the
// scaled run.  Latencies are not scaled.  Pure.
#ifndef ROUNDHOUSE_TESTS_BENCH_REAL_TIME_REPORT_H_
#define ROUNDHOUSE_TESTS_BENCH_REAL_TIME_REPORT_H_

#include <string>
#include <vector>

#include "tests/bench/cpu_use.h"
#include "tests/bench/real_time_forecast.h"
#include "tests/bench/samples.h"
#include "tests/bench/socket_loop.h"

namespace roundhouse::bench {

// What every line of the CSV begins with.
struct RealTimeKey {
  std::string model;
  std::string plan;  // "published", "searched", "all-wide", "daemon", "given"
  int devices = 0;
  double speed = 0;  // of all devices together
  int64_t micro_batches = 0;
  int64_t first_step = 1;  // those after it are counted
  int64_t steps = 0;       // of the job
  double scale = 1;
  bool clip = true;
};

struct RealTimeRow {
  std::string quantity;
  int device = -1;  // -1: of all
  std::string unit;
  double value = 0;
};

struct RealTimeRun {
  double work_ms = 0;  // of a step, all devices together, as the inputs say
  RealTimeForecast forecast;
  StepSamples samples;
  UseShares use;
  int cores = 1;  // of the machine
  // Round trips within the counted steps: of a message alone, and of as many at
  // once as there are devices.
  std::vector<RoundTrip> trips;
  std::vector<RoundTrip> trips_at_once;
};

// REQUIRES: the run has dispatches and trips of both kinds within its steps.
std::vector<RealTimeRow> RealTimeRows(const RealTimeKey& key,
                                      const RealTimeRun& run);

// True when RealTimeRows may be called.
bool HasLatencies(const RealTimeRun& run);

// model,plan,devices,speed,micro_batches,first_step,steps,scale,clip,run,
// quantity,device,unit,value: a line per run, numbered from 1, and row.
std::string RealTimeCsv(const RealTimeKey& key,
                        const std::vector<std::vector<RealTimeRow>>& runs);
// As tests/bench/table.h: the runs' median, least and greatest.
// REQUIRES: every run has the same rows; there is one.
std::string RealTimeMarkdown(const std::vector<std::vector<RealTimeRow>>& runs);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_REAL_TIME_REPORT_H_
