// Clipping for every placement of parameters: norms, collectives and clipped values, compared with
// the unsharded model.

#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/precision/clip_checks.h"
#include "tessera/tests/fsdp/precision/shard_compare.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;

/// Layers of 1 and 2 rows leave ranks without rows.
const ChainOptions kWidths = {.widths = {7, 2, 9, 1}, .stem = true};

/// Steps of a sharded chain and its reference, clipped each time.
void train(RankTest& t, Clipping c, const std::function<void(Chain&)>& split) {
  for (const double p : norms()) {
    c.norm_type = p;
    Chain sharded(kWidths), reference(kWidths);
    split(sharded);
    nn::initialize(sharded, {.seed = 3});
    nn::initialize(reference, {.seed = 3});
    nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd),
        reference_sgd(reference.parameters(), kSgd);
    for (std::uint64_t step = 0; step < 2; ++step) {
      const Tensor x = random_rows(11, 7, DType::kF64, step);
      backward(sharded_loss(sharded(Variable(my_rows(x, t.world()))), t.world()));
      backward(plain_loss(reference(Variable(x))));
      clip_both(t, c, sharded, reference);
      sharded_sgd.step();
      reference_sgd.step();
      sharded_sgd.zero_grad();
      reference_sgd.zero_grad();
    }
    const std::string difference = compare_parts(sharded, reference, 1e-12);
    t.check(difference.empty(), "{}, at the end: {}", c.name, difference);
  }
}

std::vector<nn::Module*> groups_of(Chain& chain) {
  std::vector<nn::Module*> groups;
  for (const auto& block : chain.blocks()) groups.push_back(block.get());
  groups.push_back(&chain);
  return groups;
}

TESSERA_RANK_TEST("clipping: sharded, replicated, and both in one tree", "[fsdp]") {
  const DeviceMesh& mesh = t.world().mesh();
  const int sharded = t.size() > 1 ? 1 : 0;  // one rank has everything
  train(t, {.name = "sharded", .all_reduces = sharded}, [&](Chain& chain) {
    for (nn::Module* group : groups_of(chain)) fsdp::fully_shard(*group, {.mesh = mesh});
  });
  train(t, {.name = "replicated"}, [&](Chain& chain) {
    for (nn::Module* group : groups_of(chain)) fsdp::replicate(*group, {.mesh = mesh});
  });
  train(t, {.name = "mixed", .all_reduces = sharded}, [&](Chain& chain) {
    fsdp::replicate(*chain.blocks()[1], {.mesh = mesh});
    for (nn::Module* group : groups_of(chain)) {
      if (!fsdp::has_state(*group)) fsdp::fully_shard(*group, {.mesh = mesh});
    }
  });
}

TESSERA_RANK_TEST_WITH("clipping: hybrid sharding counts replicas once", "[fsdp]",
                       {.worlds = {4}}) {
  const DeviceMesh mesh = two_by_two(t, "replica", "shard");
  train(t, {.name = "hybrid", .all_reduces = 1}, [&](Chain& chain) {
    for (nn::Module* group : groups_of(chain)) fsdp::fully_shard(*group, {.mesh = mesh});
  });
  train(t, {.name = "hybrid, optimizer over all", .all_reduces = 2}, [&](Chain& chain) {
    for (nn::Module* group : groups_of(chain))
      fsdp::fully_shard(*group, {.mesh = mesh, .shard_optimizer_over_replicas = true});
  });
  train(t, {.name = "hybrid beside replicated", .all_reduces = 1}, [&](Chain& chain) {
    fsdp::replicate(*chain.blocks()[0], {.mesh = t.world().mesh()});
    for (nn::Module* group : groups_of(chain)) {
      if (!fsdp::has_state(*group)) fsdp::fully_shard(*group, {.mesh = mesh});
    }
  });
}

TESSERA_RANK_TEST("clipping: ranks without gradients take part", "[fsdp]") {
  Chain sharded(kWidths);
  for (nn::Module* group : groups_of(sharded))
    fsdp::fully_shard(*group, {.mesh = t.world().mesh()});
  nn::initialize(sharded, {.seed = 3});
  for (const double p : norms()) {
    const Tensor none = nn::clip_grad_norm(sharded.parameters(), 1, {.norm_type = p});
    t.check(none.item<double>() == 0 && none.dtype() == DType::kF64, "no gradients: {}",
            none.item<double>());
  }
  backward(sharded_loss(sharded(Variable(my_rows(random_rows(9, 7, DType::kF64, 1), t.world()))),
                        t.world()));
  const double all = nn::grad_norm(sharded.parameters(), {.norm_type = 1}).item<double>();
  if (t.rank() == 0) {
    for (nn::Parameter& parameter : sharded.parameters()) parameter.zero_grad();
  }
  const double rest = nn::clip_grad_norm(sharded.parameters(), 1, {.norm_type = 1}).item<double>();
  t.check(t.size() == 1 ? rest == 0 : rest > 0 && rest < all, "{} of {} remain", rest, all);
  t.check_same_on_all_ranks(fmt::format("{}", rest), "norm");
}

}  // namespace
}  // namespace tessera::testing
