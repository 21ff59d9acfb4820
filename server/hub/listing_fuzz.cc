// libFuzzer entry: whatever a hub answers, what is taken of it has names and
// hashes that an upload may have.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/upload_names.h"
#include "server/hub/hub_listing.h"

namespace roundhouse {
namespace {

void CheckChoice(const HubListing& listing, const std::string& index) {
  const auto choice = ChooseFiles(listing, index);
  if (!choice.ok()) return;
  ROUNDHOUSE_CHECK(choice->files.size() + choice->left_out.size() ==
                   listing.files.size());
  for (const HubFile& file : choice->files) {
    ROUNDHOUSE_CHECK(CheckRelativeName(file.name).ok()) << file.name;
    ROUNDHOUSE_CHECK(file.sha256.size() == 64 || file.git_sha1.size() == 40);
  }
}

}  // namespace
}  // namespace roundhouse

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto listing = roundhouse::ParseListing(text);
  if (!listing.ok()) return 0;
  ROUNDHOUSE_CHECK(listing->commit.size() == 40);
  ROUNDHOUSE_CHECK(listing->files.size() <= roundhouse::kMaxHubFiles);
  roundhouse::CheckChoice(*listing, "");
  roundhouse::CheckChoice(
      *listing, R"({"weight_map": {"a": "model-00001-of-00002.safetensors"}})");
  return 0;
}
