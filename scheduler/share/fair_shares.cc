#include "scheduler/share/fair_shares.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse {
namespace {

// How many times what it takes itself a slot pays of a debt, at most.
constexpr double kMostPaid = 3;

}  // namespace

double ShareWeights::OfProject(const std::string& name) const {
  const auto found = projects.find(name);
  return found == projects.end() ? 1 : found->second;
}

double ShareWeights::OfUser(const std::string& name) const {
  const auto found = users.find(name);
  return found == users.end() ? other_users : found->second;
}

struct FairShares::Node {
  uint64_t number = 0;
  Node* parent = nullptr;
  std::optional<JobId> job;
  double weight = 1;
  double served_ns = 0;
  double debt_ns = 0;     // of NoteUse
  double longest_ns = 0;  // slot of it
  double charged_ns = 0;  // for the last slot
  double out_ns = 0;      // by NoteOut
  double time = 0;        // among its children
  std::map<std::string, std::unique_ptr<Node>> children;
};

FairShares::FairShares(std::function<double(JobId)> out_ns)
    : out_ns_(std::move(out_ns)), root_(std::make_unique<Node>()) {}

FairShares::~FairShares() = default;

FairShares::Node* FairShares::Child(Node& parent, const std::string& name,
                                    double weight) {
  std::unique_ptr<Node>& child = parent.children[name];
  if (child == nullptr) {
    child = std::make_unique<Node>();
    child->number = next_node_++;
    child->parent = &parent;
    child->weight = weight;
    SetTurn(*child, parent.time);
  }
  return child.get();
}

FairShares::Node* FairShares::UserOf(const JobOwner& owner) {
  Node* const project =
      Child(*root_, owner.project, weights_.OfProject(owner.project));
  return Child(*project, owner.user, weights_.OfUser(owner.user));
}

void FairShares::SetWeights(const ShareWeights& weights) {
  weights_ = weights;
  NoteOut();
  for (const auto& [name, project] : root_->children) {
    SetWeight(*project, weights_.OfProject(name));
    for (const auto& [user, node] : project->children) {
      SetWeight(*node, weights_.OfUser(user));
    }
  }
}

void FairShares::SetWeight(Node& node, double weight) {
  ROUNDHOUSE_CHECK(weight > 0) << weight;
  const double turn = (node.served_ns + node.out_ns) / node.weight;
  node.weight = weight;
  SetTurn(node, turn);
}

void FairShares::SetTurn(Node& node, double turn) {
  node.served_ns = turn * node.weight - node.out_ns;
}

void FairShares::AddJob(JobId job, const JobOwner& owner) {
  Node* const user = UserOf(owner);
  Node* const node = Child(*user, absl::StrCat(Number(job)), 1);
  const bool added = jobs_.try_emplace(job, node).second;
  ROUNDHOUSE_CHECK(added) << "job " << Number(job);
  node->job = job;
}

void FairShares::RemoveJob(JobId job) {
  const auto found = jobs_.find(job);
  ROUNDHOUSE_CHECK(found != jobs_.end()) << "job " << Number(job);
  Node* const user = found->second->parent;
  jobs_.erase(found);
  user->children.erase(absl::StrCat(Number(job)));
  Forget();
}

bool FairShares::HasJobs(const Node& node) {
  return node.job.has_value() ||
         std::any_of(node.children.begin(), node.children.end(),
                     [](const auto& child) { return HasJobs(*child.second); });
}

void FairShares::Forget() {
  NoteOut();
  for (const auto& [name, project] : root_->children) ForgetChildren(*project);
  ForgetChildren(*root_);
}

// Whoever has nothing, and would start at the time that it is.  Where nobody
// has anything there is nobody to pay back.
void FairShares::ForgetChildren(Node& parent) {
  if (!HasJobs(parent)) {
    for (const auto& [name, child] : parent.children) child->debt_ns = 0;
  }
  std::erase_if(parent.children, [&](const auto& entry) {
    const Node& child = *entry.second;
    return child.children.empty() && !child.job.has_value() &&
           child.debt_ns <= 0 && TurnOf(child) <= parent.time;
  });
}

double FairShares::NoteOut(Node& node) {
  node.out_ns = node.job.has_value() ? out_ns_(*node.job) : 0;
  for (const auto& [name, child] : node.children) {
    node.out_ns += NoteOut(*child);
  }
  return node.out_ns;
}

void FairShares::NoteOut() { NoteOut(*root_); }

double FairShares::TurnOf(const Node& node) const {
  return std::max((node.served_ns + node.out_ns) / node.weight,
                  node.parent->time - node.longest_ns * devices_ / node.weight);
}

FairShares::Turn FairShares::TurnOf(JobId job) const {
  const Node& node = *jobs_.at(job);
  const Node& user = *node.parent;
  const Node& project = *user.parent;
  return {{{{project.number, TurnOf(project)},
            {user.number, TurnOf(user)},
            {node.number, TurnOf(node)}}}};
}

bool FairShares::Before(const Turn& a, const Turn& b) {
  for (size_t i = 0; i < a.levels.size(); ++i) {
    if (a.levels[i].node == b.levels[i].node) continue;
    if (a.levels[i].turn != b.levels[i].turn) {
      return a.levels[i].turn < b.levels[i].turn;
    }
    return a.levels[i].node < b.levels[i].node;
  }
  return false;
}

// What those have been given who go on while `sent` does.  Its slots that wait
// on devices are not served yet, nor are those of its siblings.  These may have
// as many out as they may, and are behind by a slot of its then; whoever is
// further behind cannot use what he gets.
double FairShares::Served(const Node& sent) const {
  const auto served = [](const Node& node) {
    return node.served_ns / node.weight;
  };
  const double last = served(sent);
  const double behind =
      std::max(sent.longest_ns, sent.charged_ns) * devices_ / sent.weight;
  double least = last;
  for (const auto& [name, one] : sent.parent->children) {
    if (one->out_ns > 0 && served(*one) >= last - behind) {
      least = std::min(least, served(*one));
    }
  }
  return least;
}

void FairShares::NoteSent(JobId job) {
  for (Node* node = jobs_.at(job); node != root_.get(); node = node->parent) {
    SetTurn(*node, TurnOf(*node));
    node->parent->time = std::max(node->parent->time, Served(*node));
  }
}

void FairShares::NoteDone(JobId job, double ns) {
  for (Node* node = jobs_.at(job); node != root_.get(); node = node->parent) {
    const double paid_ns = std::min(node->debt_ns, kMostPaid * ns);
    node->debt_ns -= paid_ns;
    node->served_ns += ns + paid_ns;
    node->charged_ns = ns + paid_ns;
    node->longest_ns = std::max(node->longest_ns, ns);
  }
}

void FairShares::NoteUse(const JobOwner& owner, double ns) {
  for (Node* node = UserOf(owner); node != root_.get(); node = node->parent) {
    const auto& siblings = node->parent->children;
    const bool waited = std::any_of(
        siblings.begin(), siblings.end(), [node](const auto& child) {
          return child.second.get() != node && HasJobs(*child.second);
        });
    if (waited) node->debt_ns += std::max(0.0, ns);
  }
  Forget();
}

}  // namespace roundhouse
