#include "server/planning/model_catalog.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/byte_text.h"
#include "base/dtype.h"
#include "base/files/open_limit.h"
#include "base/model/directory.h"
#include "base/model/family.h"
#include "base/model/parameters.h"
#include "base/model/safetensors.h"
#include "base/status.h"
#include "server/planning/job_needs.h"
#include "server/spec/model_limits.h"
#include "server/spec/spec.h"
#include "server/weights/adapter_files.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

// A link to a file that may not be opened says nothing of it.
bool HasFile(const FileOpener& files, const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  return type == fs::file_type::regular ||
         (type == fs::file_type::symlink && files.Open(path.string()).ok());
}

// Depth first, a folder's children by name.
class Walk {
 public:
  Walk(const FileOpener& files, std::vector<std::string> left_out)
      : files_(files), left_out_(std::move(left_out)) {}

  void Visit(const fs::path& folder, int depth) {
    if (IsLeftOut(folder) || Full()) return;
    ++looked_at_;
    if (HasFile(files_, folder / "config.json") ||
        HasFile(files_, folder / kAdapterConfigName)) {
      found_.paths.push_back(folder.string());
      return;
    }
    const std::vector<fs::path> children = Children(folder);
    if (depth == kMaxModelDepth) {
      found_.truncated |= !children.empty();
      return;
    }
    for (const fs::path& child : children) Visit(child, depth + 1);
  }

  ModelFolders Take() { return std::move(found_); }

 private:
  bool IsLeftOut(const fs::path& folder) const {
    return std::find(left_out_.begin(), left_out_.end(), folder.string()) !=
           left_out_.end();
  }

  bool Full() {
    const bool full = found_.paths.size() >= kMaxListedModels ||
                      looked_at_ >= kMaxFoldersLookedAt;
    found_.truncated |= full;
    return full;
  }

  static std::vector<fs::path> Children(const fs::path& folder) {
    std::vector<fs::path> children;
    std::error_code error;
    for (auto entry = fs::directory_iterator(folder, error);
         !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      std::error_code unreadable;
      const bool plain =
          entry->symlink_status(unreadable).type() == fs::file_type::directory;
      if (!plain || absl::StartsWith(name, ".") ||
          absl::StartsWith(name, "tmp-")) {
        continue;
      }
      children.push_back(entry->path());
    }
    std::sort(children.begin(), children.end());
    return children;
  }

  const FileOpener& files_;
  const std::vector<std::string> left_out_;
  ModelFolders found_;
  int64_t looked_at_ = 0;
};

absl::Status DescribeAdapter(const FileOpener& files, ModelInfo* info) {
  info->adapter = true;
  ASSIGN_OR_RETURN(const AdapterDirectory adapter,
                   ReadAdapterConfig(files, info->path));
  info->base_model = adapter.base_model;
  ASSIGN_OR_RETURN(
      const SafetensorsHeader header,
      ReadSafetensorsHeader(
          files, absl::StrCat(info->path, "/", kAdapterWeightsName)));
  for (const auto& [name, tensor] : header.tensors) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    info->parameters += elements;
    info->bytes += tensor.end - tensor.begin;
    const std::optional<DType> dtype = ToDType(tensor.dtype);
    info->dtype =
        dtype.has_value() ? DTypeName(*dtype) : FileDTypeName(tensor.dtype);
  }
  return absl::OkStatus();
}

}  // namespace

ModelFolders FindModelFolders(const FileOpener& files,
                              const std::vector<std::string>& roots,
                              const std::vector<std::string>& left_out) {
  Walk walk(files, left_out);
  for (const std::string& root : roots) walk.Visit(root, 0);
  ModelFolders found = walk.Take();
  // One root may lie under another.
  std::sort(found.paths.begin(), found.paths.end());
  found.paths.erase(std::unique(found.paths.begin(), found.paths.end()),
                    found.paths.end());
  return found;
}

ModelCatalog::ModelCatalog(ModelCatalogOptions options, const JobStore& store,
                           const DataRoots& files, NamesOf names)
    : options_(std::move(options)),
      files_(files),
      hub_(options_.hf_cache),
      store_(store),
      names_(std::move(names)) {}

MethodNeed ModelCatalog::NeedWith(const char* method,
                                  const ModelDirectory& directory) const {
  const ModelConfig& model = directory.config;
  MethodNeed need;
  const auto parsed = ParseJobSpec(
      absl::StrCat("model_name_or_path: m\ndataset: d\nmethod: ", method, "\n"),
      "defaults");
  if (!parsed.ok()) {
    need.problem = std::string(parsed.status().message());
    return need;
  }
  const int devices = std::max(1, options_.device_count);
  const ResolvedSpec resolved = ResolvedSpec::Resolve(
      *parsed, devices, DefaultsOf(directory, options_.device));
  const HostRoom room = {devices, options_.host_limit_bytes};
  const auto plan = InitialPlan(resolved, model, room, options_.device);
  if (!plan.ok()) {
    need.problem = std::string(plan.status().message());
    return need;
  }
  need.host_bytes =
      NeedOf(resolved, model, *plan, resolved.max_length(), room).total();
  need.fits = need.host_bytes <= options_.host_limit_bytes;
  if (!need.fits) {
    need.problem = absl::StrCat("needs ", ByteText(need.host_bytes),
                                " of host memory, the limit is ",
                                ByteText(options_.host_limit_bytes));
  }
  return need;
}

void ModelCatalog::DescribeModel(ModelInfo* info) const {
  const auto model = OpenModelDirectory(files_, info->path);
  if (!model.ok()) {
    info->problem = std::string(model.status().message());
    return;
  }
  info->family = FamilyOf(model->config.architecture).model_type;
  info->parameters = ParameterCount(model->config);
  info->dtype = DTypeName(MostlyIn(*model));
  info->bytes = model->weight_bytes;
  info->full = NeedWith("full", *model);
  info->lora = NeedWith("lora", *model);
}

ModelInfo ModelCatalog::Describe(const std::string& name,
                                 const std::string& path) const {
  ModelInfo info;
  info.name = name;
  info.path = path;
  if (IsAdapterDirectory(files_, path)) {
    info.problem = std::string(DescribeAdapter(files_, &info).message());
  } else {
    DescribeModel(&info);
  }
  return info;
}

ModelInfo ModelCatalog::DescribeCached(const std::string& id) const {
  const auto path = hub_.Find("name", HubName{id});
  if (path.ok()) return Describe(id, *path);
  ModelInfo info;
  info.name = id;
  info.problem = std::string(path.status().message());
  return info;
}

absl::StatusOr<ModelList> ModelCatalog::List(const Caller& caller) const {
  ASSIGN_OR_RETURN(
      const JobPage page,
      store_.List({JobState::kSucceeded}, std::nullopt, kMaxListedModels));
  ModelList list;
  list.truncated = page.next_before.has_value();
  for (const JobRecord& job : page.jobs) {
    std::error_code error;
    if (caller.RoleIn(job.project) < Role::kViewer ||
        !fs::is_directory(job.output_path, error)) {
      continue;
    }
    const std::string& name =
        job.output_name.empty() ? job.id : job.output_name;
    list.models.push_back(Describe("job:" + name, job.output_path));
  }
  const MayUseRoot may = RootsOf(caller, Role::kViewer);
  const MayUseRoot looked_at = [&may](const RootOwner& owner) {
    return owner.kind != RootOwner::Kind::kServer && may(owner);
  };
  std::vector<std::string> left_out =
      files_.roots([&](const RootOwner& owner) { return !looked_at(owner); });
  left_out.push_back(RealPathWithinLimit(options_.state_dir));
  const ModelFolders found =
      FindModelFolders(files_, files_.roots(looked_at), left_out);
  list.truncated |= found.truncated;
  for (const std::string& path : found.paths) {
    list.models.push_back(Describe(path, path));
  }
  const std::vector<std::string> ids = hub_.Ids(kMaxListedModels + 1);
  list.truncated |= ids.size() > kMaxListedModels;
  for (size_t i = 0; i < std::min(ids.size(), kMaxListedModels); ++i) {
    list.models.push_back(DescribeCached(ids[i]));
  }
  return list;
}

absl::StatusOr<ModelInfo> ModelCatalog::Get(const std::string& name,
                                            const Caller& caller) const {
  const PathResolver resolve = names_(caller, Role::kViewer);
  ASSIGN_OR_RETURN(const std::string path,
                   resolve("name", name, PathKind::kModel));
  return Describe(name, path);
}

}  // namespace roundhouse
