// Who is served next, so that projects, users in them and jobs of those get
// device time by their weights: hierarchical start-time fair queueing (Goyal,
// Vin, Cheng, "Start-time Fair Queuing", SIGCOMM 1996) on a pool of devices.
//
// Projects, users and jobs are a tree.  A node's *turn* is the device time that
// it was given, with what its slots that are out will take, over its weight.
// Of those that can go the project of the lowest turn goes, of its users the
// one of the lowest, of his jobs the one of the lowest: whoever has ten jobs
// gets what one with one job gets, and nothing is kept for who has no slot that
// can go.  What those were given that go is the *time* among siblings: of those
// that have slots on devices, what the one has that was given least.  A
// newcomer starts there.  Whoever could not go for a while is owed its own
// longest slot on each device at most, whatever the others got meanwhile.
//
// Pure; times are in nanoseconds.  Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SHARE_FAIR_SHARES_H_
#define ROUNDHOUSE_SCHEDULER_SHARE_FAIR_SHARES_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/ids.h"

namespace roundhouse {

// Whose a job is.
struct JobOwner {
  std::string project;
  std::string user;
};

// How much of the device time each is to get beside his siblings: twice as much
// with a weight of 2.  Weights are above 0.
struct ShareWeights {
  std::map<std::string, double> projects = {};  // others have 1
  std::map<std::string, double> users = {};     // in every project
  double other_users = 1;

  double OfProject(const std::string& name) const;
  double OfUser(const std::string& name) const;
};

class FairShares {
 public:
  // `out_ns` says what the job's slots that are out will take.
  explicit FairShares(std::function<double(JobId)> out_ns);
  ~FairShares();
  FairShares(const FairShares&) = delete;
  FairShares& operator=(const FairShares&) = delete;

  // How many devices serve; 1 at first.
  void SetDevices(int count) { devices_ = count; }
  // From now on; turns stay as they are.
  void SetWeights(const ShareWeights& weights);

  // REQUIRES: not added, added.
  void AddJob(JobId job, const JobOwner& owner);
  // Its owner is still to wait for the time that it was given.
  void RemoveJob(JobId job);

  // Where a job stands: at each level the node and its turn.
  struct Turn {
    struct Level {
      uint64_t node = 0;
      double turn = 0;
    };
    std::array<Level, 3> levels;  // project, user, job
  };
  // REQUIRES: added; NoteOut was called since something else was out.
  Turn TurnOf(JobId job) const;
  // Whether `a` goes first; of equal ones the one that was added first.
  static bool Before(const Turn& a, const Turn& b);

  // Asks what jobs have out.
  void NoteOut();
  // REQUIRES: as TurnOf.  A slot of the job is about to go out: time goes on to
  // its turn, and what it is not owed is gone.
  void NoteSent(JobId job);
  // Its device computed for the job for as long.
  void NoteDone(JobId job, double ns);
  // The same of what is no slot, a sample, which counts where others have jobs
  // meanwhile.  The owner's next slots pay for it, each at most with three
  // times what it takes itself: it may have been a thousand slots long, and
  // whoever is that far ahead says nothing of the time.  So of two users with
  // equal weights one whose samples take more than three eighths of the devices
  // has more than his share.
  void NoteUse(const JobOwner& owner, double ns);

 private:
  struct Node;

  Node* Child(Node& parent, const std::string& name, double weight);
  Node* UserOf(const JobOwner& owner);
  double NoteOut(Node& node);
  static bool HasJobs(const Node& node);
  double TurnOf(const Node& node) const;
  static void SetWeight(Node& node, double weight);
  static void SetTurn(Node& node, double turn);
  double Served(const Node& sent) const;
  void Forget();
  void ForgetChildren(Node& parent);

  const std::function<double(JobId)> out_ns_;
  int devices_ = 1;
  ShareWeights weights_;
  uint64_t next_node_ = 1;
  std::unique_ptr<Node> root_;
  std::map<JobId, Node*> jobs_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SHARE_FAIR_SHARES_H_
