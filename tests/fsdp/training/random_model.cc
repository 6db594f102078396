#include "tessera/tests/fsdp/training/random_model.h"

#include <algorithm>

#include "tessera/fsdp/replicate.h"

namespace tessera::testing {
namespace {

/// The option for a plan's number on a shard axis of `ranks`.
fsdp::ReshardAfterForward reshard_of(int number, int ranks) {
  if (number == 0) return {};
  if (number == 1) return true;
  if (number == 2) return false;
  std::vector<int> divisors;
  for (int n = 1; n <= ranks; ++n) {
    if (ranks % n == 0) divisors.push_back(n);
  }
  return divisors[static_cast<std::size_t>(number - 3) % divisors.size()];
}

class Sharder {
 public:
  Sharder(const Program& program, const distributed::DeviceMesh& mesh,
          const distributed::DeviceMesh& flat)
      : program_(program), mesh_(mesh), flat_(flat), ranks_(mesh.shape().back()) {}

  void shard(RandomNode& node) const {
    for (const auto& child : node.children()) shard(*child);
    const NodePlan& plan = node.plan();
    if (plan.list) {
      fsdp::fully_shard({node.children()[0].get(), node.children()[1].get()},
                        sharded(plan.reshard));
    }
    if (plan.wrap == Wrap::kShard) fsdp::fully_shard(node, sharded(plan.reshard));
    if (plan.wrap == Wrap::kReplicate) fsdp::replicate(node, replicated());
  }

  fsdp::FullyShardOptions sharded(int reshard) const {
    fsdp::FullyShardOptions options = {.mesh = mesh_,
                                       .reshard_after_forward = reshard_of(reshard, ranks_),
                                       .mixed_precision = precision(),
                                       .offload = offload(),
                                       .shard_optimizer_over_replicas = program_.over_replicas};
    if (program_.cut_dim1) {
      options.shard_placement =
          [ranks = ranks_](const nn::Parameter& p) -> std::optional<distributed::Shard> {
        if (p.shape().ndim() < 2 || p.shape()[1] % ranks != 0) return std::nullopt;
        return distributed::Shard{1};
      };
    }
    return options;
  }

  fsdp::ReplicateOptions replicated() const {
    return {.mesh = flat_, .mixed_precision = precision(), .offload = offload()};
  }

 private:
  fsdp::MixedPrecision precision() const {
    fsdp::MixedPrecision out;
    if (program_.precision == Precision::kStored) return out;
    out.param_dtype = DType::kF32;
    if (program_.precision == Precision::kF32ValuesF64Gradients) out.reduce_dtype = DType::kF64;
    if (program_.exempt_norms) out.exempt = fsdp::is_norm;
    return out;
  }
  std::optional<fsdp::CpuOffload> offload() const {
    if (!program_.offload) return std::nullopt;
    return fsdp::CpuOffload{};
  }

  const Program& program_;
  distributed::DeviceMesh mesh_, flat_;
  int ranks_;
};

}  // namespace

void shard_random_model(RandomModel& model, const Program& program,
                        const distributed::DeviceMesh& mesh, const distributed::DeviceMesh& flat) {
  const Sharder sharder(program, mesh, flat);
  sharder.shard(model.body());
  if (program.root_replicated) {
    fsdp::replicate(model, sharder.replicated());
  } else {
    fsdp::fully_shard(model, sharder.sharded(program.root_reshard));
  }
}

bool has_sharded_group(nn::Module& model) {
  const std::vector<nn::Module*> modules = fsdp::sharded_modules(model);
  return std::any_of(modules.begin(), modules.end(), [](const nn::Module* module) {
    const fsdp::Handle handle = fsdp::of(*module);
    return handle.kind() == fsdp::Kind::kFullyShard && handle.has_group();
  });
}

}  // namespace tessera::testing
