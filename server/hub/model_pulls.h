// The pulls of all users, each on a thread of its own: few at a time, and one
// of an owner.  Who asks for the same again takes it over: the call of before
// is cancelled, and what has come of it is gone on with.
//
//   ModelPulls pulls({.hub = hub, .token_file = path}, uploads);
//   auto task = pulls.Begin(wish);      // then task->progress(), ->result()
//
// Without a hub the daemon makes no connection to anywhere, and Begin says what
// an admin would do.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_HUB_MODEL_PULLS_H_
#define ROUNDHOUSE_SERVER_HUB_MODEL_PULLS_H_

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/hub/hub_address.h"
#include "server/hub/hub_client.h"
#include "server/hub/pull_task.h"
#include "server/hub/web_source.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

inline constexpr size_t kMaxPulls = 2;
// Beside those that were cancelled and have not ended yet.
inline constexpr size_t kMaxEndingPulls = 8;
inline constexpr size_t kMaxEndingPullsOfOwner = 2;

// The setting that names its token's file.
inline constexpr char kHubTokenFlag[] = "hub-token-file";

struct ModelPullsOptions {
  std::optional<HubAddress> hub;  // none: there are no pulls
  std::string token_file;         // "": none is shown
  HubPatience patience;
  // Makes what asks the hub for one pull; null: CurlSource::Create.
  std::function<absl::StatusOr<std::unique_ptr<WebSource>>(
      const std::string& token, std::function<bool()> stopped)>
      make_source;
};

class ModelPulls {
 public:
  // `uploads` outlives it.
  ModelPulls(ModelPullsOptions options, Uploads* uploads);
  // Stop().
  ~ModelPulls();
  ModelPulls(const ModelPulls&) = delete;
  ModelPulls& operator=(const ModelPulls&) = delete;

  // kInvalidArgument with the field: a name that is none.  kFailedPrecondition:
  // there is no hub, or its token can't be read; kResourceExhausted: as many
  // are under way as may be; kUnavailable after Stop.  Never blocks on the hub.
  absl::StatusOr<std::shared_ptr<PullTask>> Begin(PullWish wish);
  // Cancels all and waits for their threads; what has come of them stays.
  void Stop();

 private:
  struct Pull {
    PullWish wish;
    std::shared_ptr<PullTask> task;
    std::unique_ptr<WebSource> source;  // null once it has run
    std::thread thread;
  };

  absl::StatusOr<std::unique_ptr<WebSource>> MakeSource(
      const std::shared_ptr<PullTask>& task) const;
  absl::Status CheckRoom(const PullWish& wish) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Joins those that have ended.
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Pull* pull);

  const ModelPullsOptions options_;
  Uploads* const uploads_;
  Mutex mutex_;
  std::list<Pull> pulls_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// The name that an upload of this model has when none is given: "ORG--NAME",
// which no other model has.
std::string NameOfHubModel(const HubName& model);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_MODEL_PULLS_H_
