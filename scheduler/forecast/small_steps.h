// What a forecast is compared with in tests: the same pool with device time in
// small pieces, each to whoever of those that go had least for its weight since
// the last of them came or went.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_FORECAST_SMALL_STEPS_H_
#define ROUNDHOUSE_SCHEDULER_FORECAST_SMALL_STEPS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/forecast/pool_forecast.h"

namespace roundhouse {

class SmallSteps {
 public:
  explicit SmallSteps(const ForecastPool& pool) : pool_(pool) {
    for (const ForecastJob& job : pool.running) {
      jobs_.push_back({.job = job,
                       .state = State::kRuns,
                       .loading = job.loading_seconds,
                       .start = 0});
    }
    for (const ForecastJob& job : pool.queue) {
      jobs_.push_back({.job = job, .loading = job.loading_seconds});
    }
    bytes_ = static_cast<double>(pool.free_bytes);
    places_ = pool.free_places;
    project_use_ = pool.project_use;
    user_use_ = pool.user_use;
  }

  static constexpr double kStep = 0.01;
  // What lies nearer may be the other way round.
  static constexpr double kNear = 0.1;

  // Starts and ends; -1: none of them within `limit` seconds.
  struct Times {
    double start = -1;
    double end = -1;
  };
  std::vector<Times> Run(double limit) {
    for (; now_ < limit; now_ += kStep) {
      StartThose();
      Serve();
    }
    std::vector<Times> times;
    for (const Job& job : jobs_) times.push_back({job.start, job.end});
    return times;
  }
  // Whether two of something were ever that near where it was decided.
  bool near() const { return nearest_ < kNear; }
  int gave_way() const { return gave_way_; }

 private:
  enum class State { kWaits, kRuns, kLeaves, kOver };
  struct Job {
    ForecastJob job;
    State state = State::kWaits;
    double loading = 0;
    double start = -1;  // the first one
    double end = -1;
    double served = 0;
    double lived = 0;     // in this state
    double stepped = -1;  // when its last step was done, since its start
    double span = 0;      // served since the others are the same
    bool ran = false;

    bool runs() const { return state == State::kRuns; }
    bool steps() const { return runs() && stepped < 0 && lived >= loading; }
  };

  double ProjectTurn(const ForecastJob& job) {
    return project_use_[job.owner.project] /
           pool_.weights.OfProject(job.owner.project);
  }
  double UserTurn(const ForecastJob& job) {
    return user_use_[{job.owner.project, job.owner.user}] /
           pool_.weights.OfUser(job.owner.user);
  }
  void NoteGap(double gap) { nearest_ = std::min(nearest_, std::abs(gap)); }

  // Below 0: `a` had less.
  double TurnGap(const Job& a, const Job& b) {
    for (const double gap : {ProjectTurn(a.job) - ProjectTurn(b.job),
                             UserTurn(a.job) - UserTurn(b.job)}) {
      if (gap == 0) continue;
      NoteGap(gap);
      return gap;
    }
    return 0;
  }

  bool Before(const Job& a, const Job& b) {
    if (a.job.priority != b.job.priority) {
      return a.job.priority > b.job.priority;
    }
    if (a.ran != b.ran) return a.ran;
    if (a.ran) return a.job.number < b.job.number;
    return TurnGap(a, b) < 0;
  }

  // Whether `a` gives way before `b`.
  bool Yields(const Job& a, const Job& b) {
    if (a.job.priority != b.job.priority) {
      return a.job.priority < b.job.priority;
    }
    const double gap = TurnGap(a, b);
    return gap != 0 ? gap > 0 : a.job.number > b.job.number;
  }

  bool MakeRoom(Priority priority, double bytes) {
    std::vector<Job*> may;
    double all = 0;
    for (Job& job : jobs_) {
      if (!job.runs() || job.job.priority >= priority) continue;
      // Its last step may be done just before that, or just after.
      NoteGap(job.stepped < 0 ? *job.job.device_seconds - job.served
                              : job.lived - job.stepped);
      if (job.stepped >= 0) continue;
      may.push_back(&job);
      all += static_cast<double>(*job.job.host_bytes);
    }
    if (may.empty() || all < bytes) return false;
    std::sort(may.begin(), may.end(),
              [this](const Job* a, const Job* b) { return Yields(*a, *b); });
    const auto enough =
        std::find_if(may.begin(), may.end(), [bytes](const Job* job) {
          return static_cast<double>(*job->job.host_bytes) >= bytes;
        });
    Job& chosen = enough == may.end() ? *may.front() : **enough;
    chosen.state = State::kLeaves;
    chosen.lived = 0;
    ++places_;
    ++gave_way_;
    return true;
  }

  void StartThose() {
    while (true) {
      Job* first = nullptr;
      for (Job& job : jobs_) {
        if (job.state != State::kWaits) continue;
        if (first == nullptr || Before(job, *first)) first = &job;
      }
      if (first == nullptr) return;
      const Priority priority = first->job.priority;
      if (places_ <= 0 && !MakeRoom(priority, 0)) return;
      const auto bytes = static_cast<double>(*first->job.host_bytes);
      if (bytes > bytes_) {
        if (std::none_of(jobs_.begin(), jobs_.end(), [](const Job& job) {
              return job.state == State::kLeaves;
            })) {
          MakeRoom(priority, bytes - bytes_);
        }
        return;
      }
      if (first->start < 0) first->start = now_;
      first->state = State::kRuns;
      first->lived = 0;
      bytes_ -= bytes;
      --places_;
    }
  }

  void BeginSpan() {
    std::vector<bool> step;
    for (const Job& job : jobs_) step.push_back(job.steps());
    if (step == stepping_) return;
    stepping_ = step;
    span_ = 0;
    for (Job& job : jobs_) job.span = 0;
  }

  // What those of a kind were served in the span, over their weight.
  double SpanTurn(const Job& like, int level) const {
    double sum = 0;
    for (const Job& job : jobs_) {
      if (job.job.priority != like.job.priority) continue;
      const bool project = job.job.owner.project == like.job.owner.project;
      const bool user = project && job.job.owner.user == like.job.owner.user;
      if (level == 0 ? project : level == 1 ? user : &job == &like) {
        sum += job.span;
      }
    }
    return level == 0   ? sum / pool_.weights.OfProject(like.job.owner.project)
           : level == 1 ? sum / pool_.weights.OfUser(like.job.owner.user)
                        : sum;
  }

  Job* NextServed(double piece) {
    Job* next = nullptr;
    for (Job& job : jobs_) {
      if (!job.steps()) continue;
      if (job.span + piece / 2 > job.job.most_devices * span_) continue;
      if (next == nullptr || GoesFirst(job, *next)) next = &job;
    }
    return next;
  }
  bool GoesFirst(const Job& a, const Job& b) const {
    if (a.job.priority != b.job.priority) {
      return a.job.priority > b.job.priority;
    }
    for (int level = 0; level < 3; ++level) {
      const double turn = SpanTurn(a, level), other = SpanTurn(b, level);
      if (std::abs(turn - other) > 1e-12) return turn < other;
    }
    return false;
  }

  void Serve() {
    constexpr int kPieces = 60;
    const double piece = pool_.devices * kStep / kPieces;
    BeginSpan();
    span_ += kStep;
    for (int i = 0; i < kPieces; ++i) {
      Job* const job = NextServed(piece);
      if (job == nullptr) break;
      job->span += piece;
      job->served += piece;
      project_use_[job->job.owner.project] += piece;
      user_use_[{job->job.owner.project, job->job.owner.user}] += piece;
    }
    for (Job& job : jobs_) Live(job);
  }

  void Live(Job& job) {
    job.lived += kStep;
    const auto bytes = static_cast<double>(*job.job.host_bytes);
    if (job.state == State::kLeaves && job.lived >= job.job.ending_seconds) {
      job.state = State::kWaits;
      job.ran = true;
      job.loading = job.job.reloading_seconds;
      bytes_ += bytes;
    }
    if (!job.runs()) return;
    if (job.stepped < 0 && job.lived >= job.loading &&
        job.served >= *job.job.device_seconds) {
      job.stepped = job.lived;
    }
    if (job.stepped < 0 || job.lived - job.stepped < job.job.ending_seconds) {
      return;
    }
    job.end = now_ + kStep;
    job.state = State::kOver;
    bytes_ += bytes;
    ++places_;
  }

  const ForecastPool& pool_;
  std::vector<Job> jobs_;
  std::vector<bool> stepping_;
  double span_ = 0;  // how long they are the same
  double now_ = 0;
  double bytes_ = 0;
  int64_t places_ = 0;
  double nearest_ = std::numeric_limits<double>::infinity();
  int gave_way_ = 0;
  std::map<std::string, double> project_use_;
  std::map<std::pair<std::string, std::string>, double> user_use_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_FORECAST_SMALL_STEPS_H_
