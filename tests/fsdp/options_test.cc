// Training with each option of fully_shard and replicate equals training the unsharded reference.

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// All widths are divisible by the worlds that shard another dim than 0.
constexpr std::int64_t kEven = 12;

struct Case {
  std::string name;
  ChainOptions chain = {};
  double tolerance = 1e-13;
  int micro_batches = 1;
};

/// Two axes, as equal in size as the world allows.
distributed::DeviceMesh two_axes(distributed::World& world) {
  const int replicas = world.size() % 2 == 0 ? 2 : 1;
  return {
      {"replicate", "shard"}, {replicas, world.size() / replicas}, world.group(), world.device()};
}

/// The same rows of a full tensor, for any sharding.
Tensor boxes_of(const Tensor& whole, const nn::Parameter& parameter) {
  const nn::ShardBox& box = parameter.spec().boxes.front();
  Tensor part = whole;
  for (int d = 0; d < whole.ndim(); ++d) part = part.narrow(d, box.offset[d], box.extent[d]);
  return part;
}

std::string compare(const nn::Module& sharded, const nn::Module& reference, double tolerance,
                    bool gradients) {
  const auto left = sharded.named_parameters();
  const auto right = reference.named_parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    const nn::Parameter& a = left[i].parameter;
    const nn::Parameter& b = right[i].parameter;
    const double error = worst_error(a.local().tensor(), boxes_of(b.local().tensor(), a));
    if (error > tolerance) return left[i].name + " differs by " + std::to_string(error);
    if (!gradients) continue;
    if (!a.grad().defined()) return left[i].name + " has no gradient";
    const double grad_error = worst_error(a.grad(), boxes_of(b.grad(), a));
    if (grad_error > tolerance)
      return left[i].name + ": gradient differs by " + std::to_string(grad_error);
  }
  return {};
}

void train(RankTest& t, const Case& c, const std::function<void(Chain&)>& shard) {
  Chain sharded(c.chain);
  shard(sharded);
  nn::initialize(sharded, {.seed = 3});
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd);
  Chain reference(c.chain);
  nn::initialize(reference, {.seed = 3});
  nn::optim::SGD reference_sgd(reference.parameters(), kSgd);
  std::string difference = compare(sharded, reference, 0, false);
  t.check(difference.empty(), "{}: initial values: {}", c.name, difference);
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (int micro = 0; micro < c.micro_batches; ++micro) {
      const bool last = micro + 1 == c.micro_batches;
      fsdp::of(sharded).set_requires_gradient_sync(last);
      const Tensor x = random_rows(11, c.chain.widths.front(), c.chain.dtype,
                                   step * 10 + static_cast<std::uint64_t>(micro));
      backward(sharded_loss(sharded(Variable(my_rows(x, t.world()))), t.world()));
      backward(plain_loss(reference(Variable(x))));
    }
    difference = compare(sharded, reference, c.tolerance, true);
    t.check(difference.empty(), "{}, step {}: {}", c.name, step, difference);
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
  }
  difference = compare(sharded, reference, c.tolerance, false);
  t.check(difference.empty(), "{}, at the end: {}", c.name, difference);
}

void shard_all(Chain& chain, const fsdp::FullyShardOptions& options) {
  for (const auto& block : chain.blocks()) fsdp::fully_shard(*block, options);
  fsdp::fully_shard(chain, options);
}

void replicate_all(Chain& chain, const fsdp::ReplicateOptions& options) {
  for (const auto& block : chain.blocks()) fsdp::replicate(*block, options);
  fsdp::replicate(chain, options);
}

const ChainOptions kEvenChain = {.widths = {kEven, kEven * 2, kEven, kEven}, .classes = kEven};

TESSERA_RANK_TEST_WITH("fsdp options: replicas", "[fsdp]", {.worlds = {1, 2, 3, 4, 6}}) {
  for (const int micro_batches : {1, 3}) {
    train(t, {.name = "replicate", .micro_batches = micro_batches},
          [&](Chain& chain) { replicate_all(chain, {.mesh = t.world().mesh()}); });
    for (const bool over_replicas : {false, true}) {
      train(t,
            {.name = over_replicas ? "optimizer over replicas" : "hybrid",
             .micro_batches = micro_batches},
            [&](Chain& chain) {
              shard_all(chain, {.mesh = two_axes(t.world()),
                                .shard_optimizer_over_replicas = over_replicas});
            });
    }
    train(t, {.name = "mixed tree", .micro_batches = micro_batches}, [&](Chain& chain) {
      fsdp::replicate(*chain.blocks()[0], {.mesh = t.world().mesh()});
      fsdp::fully_shard(*chain.blocks()[1], {.mesh = two_axes(t.world())});
      fsdp::fully_shard(chain, {.mesh = t.world().mesh()});
    });
  }
}

TESSERA_RANK_TEST_WITH("fsdp options: parts, dims, lists and offload", "[fsdp]",
                       {.worlds = {1, 2, 3, 4, 6}}) {
  const auto mesh = t.world().mesh();
  const int part = t.size() % 2 == 0 ? 2 : 1;  // 1/n only for 4 and 6 ranks
  train(t, {.name = "part"},
        [&](Chain& chain) { shard_all(chain, {.mesh = mesh, .reshard_after_forward = part}); });
  train(t, {.name = "dim 1", .chain = kEvenChain}, [&](Chain& chain) {
    shard_all(chain, {.mesh = mesh, .shard_placement = [](const nn::Parameter& p) {
                        return std::optional(distributed::Shard{.dim = p.shape().ndim() - 1});
                      }});
  });
  for (const int micro_batches : {1, 2}) {
    train(t, {.name = "offload", .micro_batches = micro_batches},
          [&](Chain& chain) { shard_all(chain, {.mesh = mesh, .offload = fsdp::CpuOffload{}}); });
    train(t, {.name = "offload, replicate", .micro_batches = micro_batches}, [&](Chain& chain) {
      replicate_all(chain, {.mesh = mesh, .offload = fsdp::CpuOffload{}});
    });
  }
  train(t, {.name = "list"}, [&](Chain& chain) {
    fsdp::fully_shard({chain.blocks()[0].get(), chain.blocks()[1].get()}, {.mesh = mesh});
    fsdp::fully_shard(chain, {.mesh = mesh});
  });
  train(t, {.name = "depth 2"}, [&](Chain& chain) {
    shard_all(chain, {.mesh = mesh});
    fsdp::of(chain).set_prefetch({.forward = 2});
  });
}

// 16-bit training is compared bit for bit in mixed_precision_test.cc.
TESSERA_RANK_TEST_WITH("fsdp options: precision", "[fsdp]", {.worlds = {1, 2, 3, 4}}) {
  const auto mesh = t.world().mesh();
  const ChainOptions f32 = {.dtype = DType::kF32};
  train(t, {.name = "computes in f64", .chain = f32, .tolerance = 1e-5}, [&](Chain& chain) {
    for (const auto& block : chain.blocks()) {
      fsdp::fully_shard(
          *block, {.mesh = mesh,
                   .mixed_precision = {.param_dtype = DType::kF64, .output_dtype = DType::kF32}});
    }
    fsdp::fully_shard(chain, {.mesh = mesh});
  });
}

TESSERA_RANK_TEST_WITH("fsdp options: queued compute", "[fsdp]",
                       {.worlds = {2, 4}, .cpu_compute = StreamKind::kQueued}) {
  train(t, {.name = "queued replicate", .micro_batches = 2},
        [&](Chain& chain) { replicate_all(chain, {.mesh = t.world().mesh()}); });
  for (const bool over_replicas : {false, true}) {
    train(t, {.name = "queued hybrid"}, [&](Chain& chain) {
      shard_all(chain, {.mesh = two_axes(t.world()),
                        .reshard_after_forward = over_replicas,
                        .shard_optimizer_over_replicas = over_replicas});
    });
  }
  train(t, {.name = "queued part"}, [&](Chain& chain) {
    shard_all(chain, {.mesh = t.world().mesh(), .reshard_after_forward = 2});
  });
}

}  // namespace
}  // namespace tessera::testing
