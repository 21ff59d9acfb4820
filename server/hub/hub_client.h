// What is asked of the hub, tried again as long as that may help: what breaks
// goes on where it broke.
//
// Thread-compatible; blocking.  Errors are for people: kFailedPrecondition says
// what the hub does wrong, or that it does not give the model to this server;
// kNotFound: it has none; kDeadlineExceeded: it stayed away, or broke off
// again and again with little that was new; kCancelled.
#ifndef ROUNDHOUSE_SERVER_HUB_HUB_CLIENT_H_
#define ROUNDHOUSE_SERVER_HUB_HUB_CLIENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/hub/hub_address.h"
#include "server/hub/hub_listing.h"
#include "server/hub/web_source.h"

namespace roundhouse {

struct HubPatience {
  // In a row, none of which moved.
  int tries = 6;
  // An attempt moved that brought so many new bytes, or the file's end.
  uint64_t moved_bytes = 1 << 20;
  absl::Duration first_wait =
      absl::Seconds(1);  // then twice as long, up to ...
  absl::Duration longest_wait = absl::Seconds(16);
  // The hub may ask for a longer wait, up to this.
  absl::Duration longest_asked = absl::Seconds(60);
};

// For each answer that goes into memory as a whole.
inline constexpr absl::Duration kWholeAnswerLimit = absl::Minutes(10);

// Told why another try is waited for, and how long; returns when the wait is
// over.  False: stop.
using WaitForTry =
    std::function<bool(const std::string& why, absl::Duration time)>;

class HubClient {
 public:
  // `source` outlives it.
  HubClient(HubAddress hub, WebSource* source, HubPatience patience,
            WaitForTry wait)
      : hub_(std::move(hub)),
        source_(*source),
        patience_(patience),
        wait_(std::move(wait)) {}

  absl::StatusOr<HubListing> List(const HubName& model);
  // A file that is small, checked against its hash.
  absl::StatusOr<std::string> ReadWhole(const std::string& id,
                                        const std::string& commit,
                                        const HubFile& file);
  // The file's bytes from `from` on, each once and in order, to its end.  An
  // error of `take`, whatever its code, ends it and is not tried again.
  absl::Status Read(const std::string& id, const std::string& commit,
                    const HubFile& file, uint64_t from,
                    const std::function<absl::Status(absl::string_view)>& take);

 private:
  struct Attempt {
    absl::Status status;   // kUnavailable: another one may help, unless ...
    bool is_ours = false;  // ... the hub has no part in it
    absl::Duration asked_wait;
    bool moved = false;
  };

  absl::Status Persist(const std::function<Attempt()>& attempt);
  // One request; `take` gets the body of an answer that is a file.
  Attempt Ask(const WebRequest& request, const WebSink& take);
  // Read, each attempt within the limit.
  absl::Status ReadWithin(
      absl::Duration limit, const std::string& id, const std::string& commit,
      const HubFile& file, uint64_t from,
      const std::function<absl::Status(absl::string_view)>& take);
  absl::Status StatusOf(const WebHead& head) const;

  const HubAddress hub_;
  WebSource& source_;
  const HubPatience patience_;
  const WaitForTry wait_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_HUB_CLIENT_H_
