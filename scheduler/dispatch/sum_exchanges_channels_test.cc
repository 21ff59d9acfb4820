// SumExchanges between a daemon and workers whose messages take time.
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/dispatch/sum_exchanges.h"

namespace roundhouse {
namespace {

using Verb = SumExchanges::Verb;

constexpr SumSetId kSet = {3, 1, 7};

SlotId Slot(uint64_t number) { return static_cast<SlotId>(number); }

// Parts and the channels between them and the daemon: messages take time, each
// channel keeps its order, and copies that make room begin before anybody is
// told.  Once a set is done, nobody writes to the blocks of its slices.
class Channels {
 public:
  Channels(uint64_t seed, uint64_t parts) : random_(seed), parts_(parts) {
    for (uint64_t p = 1; p <= parts; ++p) {
      EXPECT_TRUE(exchanges_.MayHold(static_cast<DeviceId>(p), kSet));
    }
  }

  // Whether nothing went wrong.
  bool Run() {
    for (int event = 0; event < 600 && ok_; ++event) {
      Step(1 + random_() % parts_.size(), event < 200);
    }
    for (const Part& part : parts_) {
      ok_ &= done_ ? part.block == Block::kSlice
                   : part.block == Block::kOwn && part.at == At::kDown;
    }
    return ok_;
  }
  bool done() const { return done_; }

 private:
  enum class At { kComputing, kHeld, kExchanging, kSliced, kLeaving, kDown };
  enum class Block { kNothing, kSlice, kOwn };
  enum class Word { kHeld, kWhole, kNotWhole, kDown, kWithdrawn };
  struct Part {
    At at = At::kComputing;
    bool holds = true;
    bool began = false;  // its share of the exchange
    bool asked_for = false;
    Block block = Block::kNothing;
    std::vector<Word> up;
    std::vector<Verb> down;
  };

  bool chance(uint64_t of) { return random_() % of == 0; }
  void Write(Part& part, Block block) {
    if (done_) ok_ = false;
    part.block = block;
  }
  void Leave(Part& part) {
    part.at = At::kLeaving;
    Write(part, Block::kOwn);
  }

  void Step(uint64_t p, bool trouble) {
    Part& part = parts_[p - 1];
    switch (random_() % 5) {
      case 0:
        if (!part.up.empty()) Hear(p);
        break;
      case 1:
        if (!part.down.empty()) Obey(part);
        break;
      case 2:
        Advance(p);
        break;
      case 3: {
        if (trouble && part.at == At::kHeld && chance(8)) Leave(part);
        break;
      }
      case 4:
        if (!trouble) break;
        if (chance(60)) {
          Die(p);
        } else if (chance(80)) {
          broken_ = true;
          exchanges_.BreakAll();
        } else if (chance(60) && part.at != At::kDown) {
          part.asked_for = true;
          exchanges_.Gone(Slot(p));
        }
        break;
    }
    Take();
  }

  void Hear(uint64_t p) {
    Part& part = parts_[p - 1];
    const Word word = part.up.front();
    part.up.erase(part.up.begin());
    switch (word) {
      case Word::kHeld:
        exchanges_.Held(Slot(p), kSet, 1, static_cast<int64_t>(parts_.size()),
                        true);
        break;
      case Word::kWhole:
      case Word::kNotWhole:
        exchanges_.Exchanged(Slot(p), kSet, word == Word::kWhole);
        break;
      case Word::kDown:
        exchanges_.NotHeld(Slot(p), kSet);
        break;
      case Word::kWithdrawn:
        SendAgain(p);
        break;
    }
    Take();
  }

  void Obey(Part& part) {
    const Verb verb = part.down.front();
    const bool held = part.at == At::kHeld || part.at == At::kSliced;
    part.down.erase(part.down.begin());
    if (verb == Verb::kExchange) {
      part.began = true;
      if (held) part.at = At::kExchanging;
    } else if (verb == Verb::kDownload && held) {
      Leave(part);
    } else if (verb == Verb::kRelease && held) {
      part.at = At::kDown;
    }
  }

  void Advance(uint64_t p) {
    Part& part = parts_[p - 1];
    if (part.asked_for && part.at != At::kExchanging && part.at != At::kDown &&
        part.at != At::kLeaving) {
      part.asked_for = false;
      part.at = At::kDown;  // or nowhere
      part.up.push_back(Word::kWithdrawn);
    } else if (part.at == At::kComputing) {
      if (part.holds) {
        part.at = At::kHeld;
        part.up.push_back(Word::kHeld);
      } else {
        Leave(part);
      }
    } else if (part.at == At::kLeaving) {
      part.at = At::kDown;
      part.up.push_back(Word::kDown);
    } else if (part.began && (Whole() || broken_)) {
      const bool whole = part.at == At::kExchanging && !broken_;
      if (whole) Write(part, Block::kSlice);
      if (part.at == At::kExchanging) {
        part.at = whole ? At::kSliced : At::kHeld;
      }
      part.began = false;
      part.up.push_back(whole ? Word::kWhole : Word::kNotWhole);
    }
  }
  // All were told to begin; an approximation of all having begun.
  bool Whole() const { return began_ >= parts_.size(); }

  void Die(uint64_t p) {
    Part& part = parts_[p - 1];
    while (!part.up.empty()) Hear(p);
    exchanges_.Gone(Slot(p));
    Take();
    broken_ = true;  // the group is
    part.down.clear();
    part.began = false;
    SendAgain(p);
  }

  void SendAgain(uint64_t p) {
    Part& part = parts_[p - 1];
    part.asked_for = false;
    part.at = At::kDown;  // of a set that is done it does not write the unit
    if (done_) return;
    part.at = At::kComputing;
    part.holds = false;
    exchanges_.NotHeld(Slot(p), kSet);
    Take();
  }

  void Take() {
    for (const auto& one : exchanges_.TakeDone()) {
      done_ = true;
      for (const SlotId slot : one.slots) {
        ok_ &= parts_[Number(slot) - 1].block == Block::kSlice;
      }
    }
    for (const auto& order : exchanges_.TakeOrders()) {
      if (order.verb == Verb::kExchange) ++began_;
      parts_[Number(order.slot) - 1].down.push_back(order.verb);
    }
  }

  std::mt19937_64 random_;
  std::vector<Part> parts_;
  SumExchanges exchanges_;
  uint64_t began_ = 0;
  bool broken_ = false;
  bool done_ = false;
  bool ok_ = true;
};

TEST(SumExchangesChannelsTest, NobodyWritesWhereASliceOfADoneSetLies) {
  int done = 0;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    Channels channels(seed, 2 + seed % 3);
    ASSERT_TRUE(channels.Run()) << "seed " << seed;
    done += channels.done() ? 1 : 0;
  }
  EXPECT_GT(done, 1000);
}

}  // namespace
}  // namespace roundhouse
