#include "server/weights/base_weights.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/open_limit.h"
#include "base/log.h"
#include "base/model/parameters.h"
#include "base/status.h"
#include "base/wire/words.h"

namespace roundhouse {
namespace {

uint64_t ComputeBytes(const UnitSpec& unit, DType dtype) {
  return static_cast<uint64_t>(unit.element_count) * DTypeBytes(dtype);
}

absl::StatusOr<std::string> StateOf(const std::string& path) {
  struct Looked {
    struct stat info;
    int error = 0;
  };
  const auto looked = std::make_shared<Looked>();
  if (!CallWithinLimit(path, [path, looked] {
        looked->error = stat(path.c_str(), &looked->info) == 0 ? 0 : errno;
      })) {
    return absl::UnavailableError(
        absl::StrCat(path, ": ", OpenErrorText(errno)));
  }
  if (looked->error != 0) {
    return absl::NotFoundError(
        absl::StrCat(path, ": ", std::strerror(looked->error)));
  }
  const struct stat& info = looked->info;
  return absl::StrCat(info.st_dev, ":", info.st_ino, ":", info.st_size, ":",
                      info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, ":",
                      info.st_ctim.tv_sec, ".", info.st_ctim.tv_nsec);
}

}  // namespace

// A unit's word comes first: tensors begin at multiples of 64 bytes, and a word
// fills 64.
static_assert(sizeof(wire::Word) == 64);

uint64_t BaseWeightsBytes(const ModelConfig& model, DType dtype) {
  uint64_t bytes = 0;
  for (const UnitSpec& unit : ModelUnits(model)) {
    bytes += sizeof(wire::Word) + ComputeBytes(unit, dtype);
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<BaseWeights>> BaseWeights::Create(
    HostArena& arena, const ModelConfig& model, DType dtype) {
  auto base = std::shared_ptr<BaseWeights>(new BaseWeights(arena));
  ASSIGN_OR_RETURN(base->range_,
                   ArenaRange::Allocate(arena, BaseWeightsBytes(model, dtype)));
  uint64_t next = base->range_.offset();
  for (const UnitSpec& unit : ModelUnits(model)) {
    base->units_.push_back({next + sizeof(wire::Word), next});
    next += sizeof(wire::Word) + ComputeBytes(unit, dtype);
  }
  return base;
}

BaseWeights::Ticket BaseWeights::Join(std::function<void(Grant)> granted) {
  const Ticket ticket = next_ticket_++;
  waiting_.push_back({ticket, std::move(granted)});
  if (state_ != State::kLoading) NextTurn();
  return ticket;
}

void BaseWeights::NextTurn() {
  // One at a time while it is not loaded: who loads calls LoadDone or
  // LoadFailed.
  while (!waiting_.empty() && state_ != State::kLoading) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const bool ready = state_ == State::kLoaded;
    if (!ready) {
      state_ = State::kLoading;
      loader_ = next.ticket;
    }
    next.granted(ready ? Grant::kReady : Grant::kLoad);
  }
}

void BaseWeights::LoadFailed() {
  ROUNDHOUSE_CHECK(state_ == State::kLoading);
  loader_ = 0;
  state_ = State::kEmpty;
  NextTurn();
}

void BaseWeights::LoadDone() {
  ROUNDHOUSE_CHECK(state_ == State::kLoading);
  loader_ = 0;
  state_ = State::kLoaded;
  for (const Unit& unit : units_) {
    wire::Raise(arena_.arena().WordAt(unit.version_word_offset), kBaseVersion,
                arena_.arena().doorbells());
  }
  NextTurn();
}

void BaseWeights::Leave(Ticket ticket) {
  std::erase_if(waiting_, [ticket](const Waiting& waiting) {
    return waiting.ticket == ticket;
  });
  if (ticket != 0 && loader_ == ticket) LoadFailed();
}

absl::StatusOr<std::string> BaseKey(const ModelDirectory& directory,
                                    DType dtype) {
  std::string text =
      absl::StrCat(DTypeName(dtype), "\n", directory.config_json, "\n");
  std::map<std::string, std::string> identities;
  for (const auto& unit : directory.sources) {
    for (const ParameterSource& source : unit) {
      std::string& identity = identities[source.file.path];
      if (identity.empty()) {
        ASSIGN_OR_RETURN(identity, StateOf(source.file.path));
      }
      absl::StrAppend(&text, identity, " ", source.offset, " ", source.bytes,
                      " ", DTypeName(source.dtype), "\n");
    }
  }
  return Sha256Of(text);
}

absl::StatusOr<std::shared_ptr<BaseWeights>> BaseCache::Get(
    const std::string& key, const ModelConfig& model, DType dtype) {
  for (const Entry& entry : bases_) {
    if (entry.key == key) return entry.base;
  }
  DropUnused();
  ASSIGN_OR_RETURN(std::shared_ptr<BaseWeights> base,
                   BaseWeights::Create(arena_, model, dtype));
  bases_.push_back({key, base});
  return base;
}

bool BaseCache::Has(const std::string& key) const {
  return std::any_of(bases_.begin(), bases_.end(),
                     [&](const Entry& entry) { return entry.key == key; });
}

bool BaseCache::DropUnused() {
  return std::erase_if(bases_, [](const Entry& entry) {
           return entry.base.use_count() == 1;
         }) != 0;
}

void BaseCache::DropEmpty() {
  std::erase_if(bases_, [](const Entry& entry) {
    return entry.base.use_count() == 1 && !entry.base->loaded();
  });
}

void BaseCache::Forget(const BaseWeights& base) {
  std::erase_if(bases_, [&base](const Entry& entry) {
    return entry.base.get() == &base;
  });
}

}  // namespace roundhouse
