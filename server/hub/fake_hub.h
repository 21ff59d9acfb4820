// A hub for tests, without a network: it lists the files that a test gives it,
// and answers requests for them, or what the test says.
//
// Thread-safe; it outlives its sources.
#ifndef ROUNDHOUSE_SERVER_HUB_FAKE_HUB_H_
#define ROUNDHOUSE_SERVER_HUB_FAKE_HUB_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/hub/model_pulls.h"
#include "server/hub/web_source.h"

namespace roundhouse {

inline constexpr char kFakeCommit[] =
    "0123456789abcdef0123456789abcdef01234567";
// The text of an index whose shards are a and b.
inline constexpr char kFakeIndex[] =
    R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})";

class FakeHub {
 public:
  enum class Store { kGit, kLfs };
  struct Request {
    std::string path;  // "/org/tiny/resolve/.../config.json"
    uint64_t from = 0;
    absl::Duration limit;
  };
  // Answers one request; `data` is what the hub would send from there on.
  using Answer = std::function<absl::StatusOr<WebHead>(
      const Request& request, const std::string& data, const WebSink& sink)>;

  // The answer of a server that sends all that it is asked for.
  static absl::StatusOr<WebHead> Whole(const Request& request,
                                       const std::string& data,
                                       const WebSink& sink);
  // Sends `bytes` of it, and breaks the connection.
  static Answer CutAfter(size_t bytes);
  // An answer without a body.
  static Answer Status(int status, absl::Duration retry_after = {});

  void Add(const std::string& name, const std::string& data, Store store);
  // A model with weights of `bytes`, its config and a tokenizer.
  void AddModel(size_t bytes);
  // What it says instead of its listing.
  void SetListing(const std::string& json);
  // How it answers the next requests whose path ends so, one after the other.
  void Next(const std::string& end, Answer answer);

  std::string Listing() const;
  std::string Data(const std::string& name) const;
  std::vector<Request> requests() const;
  // For files that end so: where each began.
  std::vector<uint64_t> Begins(const std::string& end) const;
  std::vector<std::string> tokens() const;

  // Pulls from it, without waits.
  ModelPullsOptions Options();

 private:
  class Source;
  struct File {
    std::string data;
    Store store;
  };

  absl::StatusOr<WebHead> Get(const WebRequest& asked, const WebSink& sink);

  mutable Mutex mutex_;
  std::map<std::string, File> files_ ABSL_GUARDED_BY(mutex_);
  std::string listing_ ABSL_GUARDED_BY(mutex_);  // "": of the files
  std::map<std::string, std::deque<Answer>> next_ ABSL_GUARDED_BY(mutex_);
  std::vector<Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> tokens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_FAKE_HUB_H_
