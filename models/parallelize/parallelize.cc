#include "tessera/models/parallelize/parallelize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/models/parallelize/parallelize_rules.h"
#include "tessera/tensor/check.h"

namespace tessera::models {
namespace {

// The index of a name among the names of an enum.
std::size_t named(std::string_view what, const std::vector<std::string>& names,
                  std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  TESSERA_CHECK(found != names.end(), "models.parallelize", "\"{}\" is no {}; there are: {}", name,
                what, fmt::join(names, ", "));
  return static_cast<std::size_t>(std::distance(names.begin(), found));
}

// Otherwise a model of another dtype would silently compute in the precision's dtype.
void check_storage(nn::Module& module, const Precision& precision) {
  for (const auto& [name, parameter] : module.named_parameters())
    TESSERA_CHECK(parameter.dtype() == precision.storage, "models.parallelize",
                  "parameter \"{}\" is {}, precision {} stores {}; construct the model with it, or "
                  "give another precision",
                  name, dtype_name(parameter.dtype()), precision.name,
                  dtype_name(precision.storage));
}

}  // namespace

const std::vector<std::string>& shard_mode_names() {
  static const std::vector<std::string> names = {"full", "grad", "replicate", "hybrid"};
  return names;
}

ShardMode shard_mode_named(std::string_view name) {
  return static_cast<ShardMode>(named("way to shard", shard_mode_names(), name));
}

const std::vector<std::string>& recompute_mode_names() {
  static const std::vector<std::string> names = {"none", "full", "selective"};
  return names;
}

RecomputeMode recompute_mode_named(std::string_view name) {
  return static_cast<RecomputeMode>(named("way to recompute", recompute_mode_names(), name));
}

void check_mesh(const ParallelizeOptions& options) {
  TESSERA_CHECK(options.mesh.defined(), "models.parallelize", "a mesh is needed: world.mesh()");
  const int wanted = options.shard == ShardMode::kHybrid ? 2 : 1;
  TESSERA_CHECK(
      options.mesh.ndim() == wanted, "models.parallelize", "{} needs a mesh of {} axes, got {}",
      shard_mode_names()[static_cast<std::size_t>(options.shard)], wanted, options.mesh.str());
}

void shard_module(nn::Module& module, const ParallelizeOptions& options) {
  check_mesh(options);
  check_storage(module, options.precision);
  const fsdp::MixedPrecision precision = mixed_precision(options.precision);
  if (options.shard == ShardMode::kReplicate) {
    fsdp::replicate(module, {.mesh = options.mesh, .mixed_precision = precision});
    return;
  }
  fsdp::FullyShardOptions sharding{.mesh = options.mesh, .mixed_precision = precision};
  if (options.shard == ShardMode::kGrad) sharding.reshard_after_forward = false;
  fsdp::fully_shard(module, sharding);
}

void shard_block(nn::Module& block, std::string_view feed_forward,
                 const ParallelizeOptions& options) {
  if (options.recompute == RecomputeMode::kFull) nn::recompute(block);
  if (options.recompute == RecomputeMode::kSelective) {
    const std::vector<nn::NamedModule> children = block.children();
    const auto found =
        std::find_if(children.begin(), children.end(),
                     [&](const nn::NamedModule& child) { return child.name == feed_forward; });
    TESSERA_CHECK(found != children.end(), "models.parallelize",
                  "a {} has no \"{}\" to recompute; choose another way to recompute",
                  block.type_name(), feed_forward);
    nn::recompute(*found->module);
  }
  shard_module(block, options);
}

void cut_layers(nn::Module& model, const ParallelizeOptions& options,
                const distributed::ParallelPlan& plan) {
  check_mesh(options);
  if (options.tensor_mesh.defined()) distributed::parallelize(model, options.tensor_mesh, plan);
}

void parallelize(MlpStack& model, const ParallelizeOptions& options) {
  TESSERA_CHECK(!options.tensor_mesh.defined(), "models.parallelize",
                "an MlpStack has no plan for tensor parallelism; leave tensor_mesh out");
  for (auto& [name, block] : model.blocks().children()) {
    if (options.recompute != RecomputeMode::kNone) nn::recompute(*block);
    shard_module(*block, options);
  }
  shard_module(model, options);
}

}  // namespace tessera::models
