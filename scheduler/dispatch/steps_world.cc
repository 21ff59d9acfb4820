#include <utility>

#include "scheduler/dispatch/test_world.h"

namespace roundhouse {

StepsWorld::StepsWorld(const JobShape& shape, int devices, uint64_t seed,
                       StepSpec step, int steps)
    : World(shape, devices, seed),
      alive_(devices),
      step_(std::move(step)),
      left_(steps) {
  on_reduced = [this] { BeginOne(); };
  BeginOne();
  if (shape.stale) BeginOne();
}

void StepsWorld::LoseAtRandom(std::mt19937_64& random) {
  if (random() % 4 == 0) CrashHost();
  const int device = static_cast<int>(random() % alive_);
  Crash(device);
  if (alive_ > 1 && random() % 8 == 0 && device == alive_ - 1) {
    Lose(device);
    --alive_;
  } else {
    Respawn(device);
  }
}

void StepsWorld::BeginOne() {
  if (left_ == 0) return;
  --left_;
  Begin(step_);
}

}  // namespace roundhouse
