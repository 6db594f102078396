#include "tessera/models/runs/mesh_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/models/runs/option_error.h"
#include "tessera/models/runs/option_table.h"
#include "tessera/models/runs/words.h"

namespace tessera::models::runs {
namespace {

// "2x4" becomes {2, 4}.
std::vector<std::int64_t> extents(std::string text) {
  std::replace(text.begin(), text.end(), 'x', ',');
  std::vector<std::int64_t> sizes;
  for (const std::string& part : parts_of(text)) sizes.push_back(std::stoll(part));
  return sizes;
}

// Without --mesh the groups are hosts, or two halves of one host.
int default_replicas(const TrainOptions& options, int data_ranks) {
  if (options.shard != "hybrid") return 1;
  if (options.nnodes > 1 && data_ranks % options.nnodes == 0) return options.nnodes;
  return data_ranks % 2 == 0 ? 2 : 1;
}

}  // namespace

std::string mesh_problem(const std::string& text) {
  std::string list = text;
  std::replace(list.begin(), list.end(), 'x', ',');
  const bool numbers = text.find(',') == std::string::npos && whole_numbers(1, 1024)(list).empty();
  if (numbers && std::count(text.begin(), text.end(), 'x') <= 1) return {};
  return fmt::format("{} is not a mesh: write ranks as 4, or groups x ranks as 2x4", text);
}

std::string MeshPlan::str() const {
  const std::string data =
      hybrid ? fmt::format("{} x {}", replicas, shards) : fmt::format("{}", shards);
  return tensor_parallel == 1 ? data : fmt::format("{}, tensor parallel {}", data, tensor_parallel);
}

MeshPlan plan_mesh(const TrainOptions& options) {
  const int world = options.world_size(), cut = options.tensor_parallel;
  if (cut < 1) throw OptionError(fmt::format("--tensor-parallel: {} is less than 1 rank", cut));
  const std::string problem = options.mesh.empty() ? "" : mesh_problem(options.mesh);
  if (!problem.empty()) throw OptionError("--mesh: " + problem);
  if (world % cut != 0)
    throw OptionError(fmt::format("--tensor-parallel: {} ranks are no multiple of {}", world, cut));
  const int data_ranks = world / cut;
  MeshPlan plan{.tensor_parallel = cut, .hybrid = options.shard == "hybrid"};
  if (options.mesh.empty()) {
    plan.replicas = default_replicas(options, data_ranks);
    plan.shards = data_ranks / plan.replicas;
    return plan;
  }
  const std::vector<std::int64_t> sizes = extents(options.mesh);
  if (plan.hybrid != (sizes.size() == 2))
    throw OptionError(fmt::format("--mesh: --shard {} needs {}, not {}", options.shard,
                                  plan.hybrid ? "groups x ranks, as 2x4" : "one number, as 4",
                                  options.mesh));
  plan.shards = static_cast<int>(sizes.back());
  plan.replicas = plan.hybrid ? static_cast<int>(sizes.front()) : 1;
  if (plan.data_ranks() != data_ranks)
    throw OptionError(fmt::format("--mesh: {} is {} ranks, but {}{} share a batch", options.mesh,
                                  plan.data_ranks(), data_ranks,
                                  cut > 1 ? fmt::format(" of {}", world) : ""));
  return plan;
}

RunMeshes make_meshes(const distributed::World& world, const MeshPlan& plan) {
  std::vector<std::string> axes = {"data"};
  std::vector<int> sizes = {plan.shards};
  if (plan.hybrid) {
    axes = {"replicate", "shard"};
    sizes = {plan.replicas, plan.shards};
  }
  const std::vector<std::string> data_axes = axes;
  if (plan.tensor_parallel > 1) {
    axes.push_back("tensor");
    sizes.push_back(plan.tensor_parallel);
  }
  const distributed::DeviceMesh root(axes, sizes, world.group(), world.device());
  RunMeshes meshes;
  meshes.shard = root.submesh(data_axes);
  meshes.data = plan.hybrid ? meshes.shard.flatten("data") : meshes.shard;
  if (plan.tensor_parallel > 1) meshes.tensor = root["tensor"];
  return meshes;
}

}  // namespace tessera::models::runs
