// One pull: asks the hub what the model is, makes an upload of it, fetches what
// of it is not there, and has it checked.
//
// The hashes of all files are known before the upload begins: those without a
// SHA-256 come into memory first, and are checked against their git hashes.
// So a pull that broke off, or whose daemon died, goes on in the same upload,
// and a file that another version has is not fetched.
//
// Thread-compatible: Run once, on a thread of its own.  Blocking.
#ifndef ROUNDHOUSE_SERVER_HUB_MODEL_PULL_H_
#define ROUNDHOUSE_SERVER_HUB_MODEL_PULL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/hub/hub_address.h"
#include "server/hub/hub_client.h"
#include "server/hub/hub_listing.h"
#include "server/hub/pull_task.h"
#include "server/hub/web_source.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

// Times that a file is fetched whose hash was another one's.
inline constexpr int kMaxPullRepeats = 2;
// Between two questions whether another upload of the owner is still checked.
inline constexpr absl::Duration kCheckWait = absl::Milliseconds(200);

class ModelPull {
 public:
  // All of it outlives this.
  ModelPull(const PullWish& wish, const HubAddress& hub, WebSource* source,
            const HubPatience& patience, Uploads* uploads, PullTask* task);

  // The errors of HubClient and of Uploads::Create and PutChunk.
  absl::StatusOr<PulledModel> Run();

 private:
  bool WaitForTry(const std::string& why, absl::Duration time);
  void Show() { task_.SetProgress(progress_); }

  // What is taken, and the texts of what has no SHA-256.
  absl::Status Choose();
  absl::Status ReadWhole(const HubFile& file);
  // Each with a SHA-256.
  UploadedFiles Files() const;
  absl::StatusOr<UploadProgress> Create();

  // All that is not there, then the check: until it is what the hashes say.
  absl::StatusOr<UploadRecord> Fill(UploadProgress upload);
  absl::Status FetchMissing(const UploadProgress& upload);
  absl::Status FetchFile(const std::string& id, size_t index, uint64_t from);
  absl::Status PutText(const std::string& id, size_t index,
                       const std::string& text, uint64_t from);
  absl::Status Put(const std::string& id, size_t index, uint64_t offset,
                   absl::string_view data);
  absl::StatusOr<UploadProgress> Check(const std::string& id);

  const PullWish& wish_;
  Uploads& uploads_;
  PullTask& task_;
  HubClient hub_;
  HubListing listing_;
  HubChoice choice_;
  std::map<std::string, std::string> texts_;  // by name
  PullProgress progress_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_MODEL_PULL_H_
