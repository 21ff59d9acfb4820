#include "server/hub/fake_hub.h"

#include <openssl/sha.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

constexpr char kHub[] = "https://hub.example";

std::string GitHash(const std::string& data) {
  const std::string whole =
      absl::StrCat("blob ", data.size(), std::string(1, '\0'), data);
  unsigned char digest[SHA_DIGEST_LENGTH];
  SHA1(reinterpret_cast<const unsigned char*>(whole.data()), whole.size(),
       digest);
  return absl::BytesToHexString(
      std::string(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

}  // namespace

class FakeHub::Source final : public WebSource {
 public:
  explicit Source(FakeHub* hub) : hub_(*hub) {}
  absl::StatusOr<WebHead> Get(const WebRequest& request,
                              const WebSink& sink) override {
    return hub_.Get(request, sink);
  }

 private:
  FakeHub& hub_;
};

namespace {

WebHead HeadFor(const FakeHub::Request& request, const std::string& data) {
  return {.status = request.from > 0 ? 206 : 200,
          .begin = request.from,
          .total = request.from + data.size()};
}

}  // namespace

absl::StatusOr<WebHead> FakeHub::Whole(const Request& request,
                                       const std::string& data,
                                       const WebSink& sink) {
  const WebHead head = HeadFor(request, data);
  if (absl::Status taken = sink(head, data); !taken.ok()) return taken;
  return head;
}

FakeHub::Answer FakeHub::CutAfter(size_t bytes) {
  return [bytes](const Request& request, const std::string& data,
                 const WebSink& sink) -> absl::StatusOr<WebHead> {
    const WebHead head = HeadFor(request, data);
    if (absl::Status taken = sink(head, data.substr(0, bytes)); !taken.ok()) {
      return taken;
    }
    return absl::UnavailableError("the connection broke");
  };
}

FakeHub::Answer FakeHub::Status(int status, absl::Duration retry_after) {
  return [=](const Request&, const std::string&, const WebSink&) {
    return WebHead{.status = status, .retry_after = retry_after};
  };
}

void FakeHub::Add(const std::string& name, const std::string& data,
                  Store store) {
  MutexLock lock(mutex_);
  files_[name] = {data, store};
}

void FakeHub::AddModel(size_t bytes) {
  std::string weights(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) {
    weights[i] = static_cast<char>(i * 2654435761u >> 13);
  }
  Add("config.json", "{}", Store::kGit);
  Add("tokenizer.json", "{\"model\": 1}", Store::kGit);
  Add("model.safetensors", weights, Store::kLfs);
  Add("pytorch_model.bin", "pickled", Store::kLfs);
}

void FakeHub::SetListing(const std::string& json) {
  MutexLock lock(mutex_);
  listing_ = json;
}

void FakeHub::Next(const std::string& end, Answer answer) {
  MutexLock lock(mutex_);
  next_[end].push_back(std::move(answer));
}

std::string FakeHub::Listing() const {
  MutexLock lock(mutex_);
  if (!listing_.empty()) return listing_;
  nlohmann::json out = {{"sha", kFakeCommit},
                        {"siblings", nlohmann::json::array()}};
  for (const auto& [name, file] : files_) {
    nlohmann::json entry = {{"rfilename", name},
                            {"size", file.data.size()},
                            {"blobId", GitHash(file.data)}};
    if (file.store == Store::kLfs) {
      entry["blobId"] = std::string(40, '0');
      entry["lfs"] = {{"sha256", Sha256Of(file.data)},
                      {"size", file.data.size()}};
    }
    out["siblings"].push_back(std::move(entry));
  }
  return out.dump();
}

std::string FakeHub::Data(const std::string& name) const {
  MutexLock lock(mutex_);
  return files_.at(name).data;
}

std::vector<FakeHub::Request> FakeHub::requests() const {
  MutexLock lock(mutex_);
  return requests_;
}

std::vector<uint64_t> FakeHub::Begins(const std::string& end) const {
  std::vector<uint64_t> begins;
  for (const Request& request : requests()) {
    if (absl::EndsWith(request.path, end)) begins.push_back(request.from);
  }
  return begins;
}

std::vector<std::string> FakeHub::tokens() const {
  MutexLock lock(mutex_);
  return tokens_;
}

absl::StatusOr<WebHead> FakeHub::Get(const WebRequest& asked,
                                     const WebSink& sink) {
  // HubAddress writes the port.
  const Request request{asked.url.substr(std::string(kHub).size() + 4),
                        asked.from, asked.limit};
  const std::string listing = Listing();
  std::string data;
  Answer answer = Whole;
  bool there = absl::StartsWith(request.path, "/api/models/org/tiny/");
  if (there) data = listing;
  {
    MutexLock lock(mutex_);
    requests_.push_back(request);
    for (const auto& [name, file] : files_) {
      if (!absl::EndsWith(request.path, "/" + name)) continue;
      there = true;
      data = file.data;
    }
    for (auto& [end, answers] : next_) {
      if (!absl::EndsWith(request.path, end) || answers.empty()) continue;
      there = true;
      answer = std::move(answers.front());
      answers.pop_front();
    }
  }
  if (!there) return WebHead{.status = 404};
  return answer(request, data.substr(asked.from), sink);
}

ModelPullsOptions FakeHub::Options() {
  return {.hub = *HubAddress::Parse(kHub),
          .patience = {.tries = 3, .first_wait = absl::ZeroDuration()},
          .make_source = [this](const std::string& token, auto)
              -> absl::StatusOr<std::unique_ptr<WebSource>> {
            MutexLock lock(mutex_);
            tokens_.push_back(token);
            return std::make_unique<Source>(this);
          }};
}

}  // namespace roundhouse
