// Frozen weights of a base model in the host arena, shared by every job that
// trains adapters of it, and kept between such jobs.
//
// A base's units are base/model's ModelUnits: compute weights in one dtype and
// a version word each, nothing else (base/wire/layout.h).  Nobody writes them
// once they are loaded.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_BASE_WEIGHTS_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_BASE_WEIGHTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/model/config.h"
#include "base/model/directory.h"
#include "server/arena/host_arena.h"

namespace roundhouse {

// What every version word is raised to when all units are loaded.
inline constexpr uint64_t kBaseVersion = 1;

// What a BaseWeights of this model takes from the arena, in bytes.
uint64_t BaseWeightsBytes(const ModelConfig& model, DType dtype);

class BaseWeights {
 public:
  static absl::StatusOr<std::shared_ptr<BaseWeights>> Create(
      HostArena& arena, const ModelConfig& model, DType dtype);

  struct Unit {
    uint64_t compute_offset = 0;
    uint64_t version_word_offset = 0;
  };
  const Unit& unit(int index) const { return units_[index]; }
  uint64_t host_bytes() const { return range_.bytes(); }
  bool loaded() const { return state_ == State::kLoaded; }

  // Several jobs may want a base at once, and one of them loads it.  Join calls
  // `granted` as soon as the weights are there (kReady) or it is the caller's
  // turn to load them (kLoad), at once where that is so already.  Who got kLoad
  // calls LoadDone or LoadFailed; who doesn't want it any more calls Leave,
  // which for the one who loads is LoadFailed() and else without effect after
  // the turn.
  enum class Grant { kReady, kLoad };
  using Ticket = uint64_t;
  Ticket Join(std::function<void(Grant)> granted);
  // Every unit is there: raises the version words.
  void LoadDone();
  // The next who waits gets its turn.
  void LoadFailed();
  void Leave(Ticket ticket);

 private:
  enum class State { kEmpty, kLoading, kLoaded };
  struct Waiting {
    Ticket ticket = 0;
    std::function<void(Grant)> granted;
  };

  explicit BaseWeights(HostArena& arena) : arena_(arena) {}
  void NextTurn();

  HostArena& arena_;
  ArenaRange range_;
  std::vector<Unit> units_;
  State state_ = State::kEmpty;
  Ticket next_ticket_ = 1;
  Ticket loader_ = 0;  // of who loads
  std::deque<Waiting> waiting_;
};

// Which files a base was read from, as a SHA-256: the dtype, config.json's
// text, where in which file each parameter lies, and of each file its device,
// inode, size and times of change of content and status.  So a base is the same
// while its files are, whatever path leads to them; a copy is another one.
// NOT_FOUND where a file is gone, UNAVAILABLE where its file system does not
// answer.  Blocks on the disk: not for the event loop's thread.
absl::StatusOr<std::string> BaseKey(const ModelDirectory& directory,
                                    DType dtype);

// The bases in the arena by key.  A base that no job uses stays until another
// one is made or its bytes are wanted.
class BaseCache {
 public:
  // `arena` outlives the cache and every base that it gave out.
  explicit BaseCache(HostArena& arena) : arena_(arena) {}

  // The base of `key`, made (and empty) where there is none.
  // RESOURCE_EXHAUSTED as HostArena::Allocate.
  absl::StatusOr<std::shared_ptr<BaseWeights>> Get(const std::string& key,
                                                   const ModelConfig& model,
                                                   DType dtype);

  bool Has(const std::string& key) const;
  // Gives back the bytes of every base that no job uses.  False: there is none.
  bool DropUnused();
  // Drops the bases that nobody uses and nobody has loaded.
  void DropEmpty();
  // Whoever uses the base keeps it; later jobs do not get it.
  void Forget(const BaseWeights& base);

  int count() const { return static_cast<int>(bases_.size()); }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<BaseWeights> base;
  };

  HostArena& arena_;
  std::vector<Entry> bases_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_BASE_WEIGHTS_H_
