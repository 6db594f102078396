// Divide factors of reduced gradients: the number of ranks or a user's factor, split in two for
// f16; and sums over microbatches of uneven sizes that equal one batch.

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/precision/precision_reference.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;

std::vector<nn::Module*> groups_of(Chain& chain) {
  std::vector<nn::Module*> groups;
  for (const auto& block : chain.blocks()) groups.push_back(block.get());
  groups.push_back(&chain);
  return groups;
}

/// y = w x, elementwise: the gradient of sum(y) is x.
class Scale final : public nn::Layer<Scale> {
 public:
  Scale() : weight_({.shape = {5}, .init = nn::init::ones()}) {
    register_parameter("weight", weight_);
  }
  Variable forward(const Variable& x) { return mul(x, weight_.value()); }
  nn::Parameter& weight() { return weight_; }

 private:
  nn::Parameter weight_;
};

/// The reduced gradient if every rank has `value`, all in f16.
std::vector<float> mean_in_f16(const fsdp::FullyShardOptions& options, double value,
                               std::optional<double> factor = {}) {
  Scale model;
  fsdp::fully_shard(model, options);
  nn::initialize(model, {.seed = 1});
  if (factor) fsdp::of(model).set_gradient_divide_factor(*factor);
  backward(sum(cast(model(Variable(full({5}, value))), DType::kF32)));
  return model.weight().grad().to_vector<float>();
}

bool all_are(const std::vector<float>& values, double expected) {
  for (const float value : values) {
    if (value != expected) return false;
  }
  return true;
}

TESSERA_RANK_TEST_WITH("gradients: sums of f16 do not overflow where the mean does not", "[fsdp]",
                       {.worlds = {1, 2, 3, 4, 5, 8}}) {
  // With a split factor, a mean is exact as long as `ranks / pre` times it fits into f16.
  const double pre = pre_divide_factor(t.size(), DType::kF16);
  double large = 32768;
  while (large * t.size() / pre > 65504) large /= 2;
  const fsdp::MixedPrecision half = {.param_dtype = DType::kF16};
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(), .mixed_precision = half};
  if (t.size() > 1) t.check(large * t.size() > 65504, "the plain sum would not overflow");
  for (const double value : {large, -large, 1.0, 0x1p-14}) {
    const std::vector<float> got = mean_in_f16(options, value);
    t.check(all_are(got, value), "mean of {}: {}", value, got.empty() ? 0 : got[0]);
  }
  // With the user's factor: half of the mean, and twice the mean.
  for (const double by : {0.5, 2.0}) {
    const double value = large / 4;
    const std::vector<float> got = mean_in_f16(options, value, by * t.size());
    t.check(all_are(got, value / by), "{} by {}: {}", value, by, got.empty() ? 0 : got[0]);
  }
  Scale replicated;
  fsdp::replicate(replicated, {.mesh = t.world().mesh(), .mixed_precision = half});
  nn::initialize(replicated, {.seed = 1});
  backward(sum(cast(replicated(Variable(full({5}, large))), DType::kF32)));
  t.check(all_are(replicated.weight().grad().to_vector<float>(), large), "replicated");
}

TESSERA_RANK_TEST_WITH("gradients: of hybrid sharding f16 is divided once", "[fsdp]",
                       {.worlds = {4}}) {
  const DeviceMesh mesh({"replica", "shard"}, {2, 2}, t.world().group(), t.world().device());
  for (const bool over_replicas : {false, true}) {
    const fsdp::FullyShardOptions options = {.mesh = mesh,
                                             .mixed_precision = {.param_dtype = DType::kF16},
                                             .shard_optimizer_over_replicas = over_replicas};
    const std::vector<float> got = mean_in_f16(options, 30016);
    t.check(all_are(got, 30016), "{}", got.empty() ? 0 : got[0]);
    const std::vector<float> doubled = mean_in_f16(options, 7504, 2);
    t.check(all_are(doubled, 15008), "{}", doubled.empty() ? 0 : doubled[0]);
  }
}

std::unique_ptr<Chain> make_chain() {
  auto chain = std::make_unique<Chain>(ChainOptions{.stem = true, .dtype = DType::kF32});
  nn::initialize(*chain, {.seed = 3});
  return chain;
}

// NCCL adds in its own order, in 16 bits too. A wrong factor is off by far more.
constexpr double kRounding = 0.03;

struct FactorCase {
  double factor;
  bool recurse;
  DType param, reduce;
  bool replicate = false;
};

/// Compares groups that the factor applies to with a reference that has it, the others with one
/// without.
void check_factor(RankTest& t, const FactorCase& c, const DeviceMesh& mesh, ReferenceRanks ranks) {
  Chain sharded({.stem = true, .dtype = DType::kF32});
  const fsdp::MixedPrecision mixed = {.param_dtype = c.param, .reduce_dtype = c.reduce};
  for (nn::Module* group : groups_of(sharded)) {
    if (c.replicate) {
      fsdp::replicate(*group, {.mesh = mesh, .mixed_precision = mixed});
    } else {
      fsdp::fully_shard(*group, {.mesh = mesh, .mixed_precision = mixed});
    }
  }
  nn::initialize(sharded, {.seed = 3});
  if (c.recurse) {
    fsdp::of(sharded).set_gradient_divide_factor(c.factor, {.recurse = true});
  } else {
    fsdp::of(sharded).set_gradient_divide_factor(c.factor);
  }
  const auto reference_with = [&](double divide) {
    return std::make_unique<PrecisionReference<Chain>>(
        make_chain, ReferencePrecision{.param = c.param, .reduce = c.reduce, .divide = divide},
        ranks);
  };
  const auto with = reference_with(c.factor), without = reference_with(0);
  const Tensor x = random_rows(11, 7, DType::kF32, 5);
  backward(row_loss(sharded(Variable(my_rows(x, t.world())))));
  for (const auto& reference : {with.get(), without.get()}) {
    for (int rank = 0; rank < t.size(); ++rank) {
      const distributed::Chunk rows = distributed::chunk_of(11, t.size(), rank);
      const Variable mine(cast(x.slice(0, rows.begin, rows.end), c.param));
      reference->run(rank, [&](Chain& chain) { return row_loss(chain(mine)); });
    }
    reference->reduce();
  }
  const auto own = sharded.named_parameters();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const bool reached = c.recurse || own[i].name.find("block") == std::string::npos;
    const nn::Parameter expected = (reached ? with : without)->master().parameters()[i];
    const Tensor rows = box_rows(expected.grad(), own[i].parameter);
    const double error = worst_error(own[i].parameter.grad(), rows);
    const double allowed = kRounding * worst_error(rows, zeros_like(rows));
    t.check(error <= (test_transport() == "nccl" ? allowed : 0),
            "factor {}, recurse {}: {} differs by {}", c.factor, c.recurse, own[i].name, error);
  }
}

TESSERA_RANK_TEST("gradients: a divide factor of one module, or of all below", "[fsdp]") {
  std::vector<double> factors = {2.0 * t.size(), 3.0};
  if (test_transport() == "local") factors.insert(factors.end(), {1.0 * t.size(), 0.25});
  for (const double factor : factors) {
    for (const bool recurse : {false, true}) {
      for (const bool replicate : {false, true}) {
        for (const DType param : {DType::kF32, DType::kBF16, DType::kF16}) {
          check_factor(t, {factor, recurse, param, param, replicate}, t.world().mesh(),
                       {.shards = t.size()});
        }
        check_factor(t, {factor, recurse, DType::kBF16, DType::kF32, replicate}, t.world().mesh(),
                     {.shards = t.size()});
      }
    }
  }
}

TESSERA_RANK_TEST_WITH("gradients: of hybrid sharding the factor counts once overall", "[fsdp]",
                       {.worlds = {4, 6}}) {
  const int shards = t.size() / 2;
  const DeviceMesh mesh({"replica", "shard"}, {2, shards}, t.world().group(), t.world().device());
  for (const double factor : {1.0 * t.size(), 5.0}) {
    for (const DType param : {DType::kF32, DType::kBF16, DType::kF16}) {
      check_factor(t, {factor, true, param, param}, mesh, {.shards = shards, .replicas = 2});
    }
  }
}

TESSERA_RANK_TEST("gradients: a divide factor is a number above 0", "[fsdp]") {
  Chain sharded({});
  const fsdp::Handle handle = fsdp::fully_shard(sharded, {.mesh = t.world().mesh()});
  for (const double wrong : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    t.check_throws<InvalidArgument>("factor", [&] { handle.set_gradient_divide_factor(wrong); });
  }
}

/// A rank's number of rows in a microbatch: uneven, sometimes none.
std::int64_t tokens(int rank, int micro) { return (3 * rank + 5 * micro + rank * micro) % 4; }

TESSERA_RANK_TEST("gradients: micro-batches of uneven sizes weigh each token alike", "[fsdp]") {
  constexpr int kMicroBatches = 4;
  const auto mesh = distributed::make_mesh(t.world().mesh());
  const auto rows = [](int rank, int micro) {
    return random_rows(tokens(rank, micro), 7, DType::kF64,
                       static_cast<std::uint64_t>(10 * rank + micro));
  };
  for (const bool replicate : {false, true}) {
    for (const bool sync_each : {false, true}) {
      Chain sharded({}), reference({});
      for (nn::Module* group : groups_of(sharded)) {
        if (replicate) {
          fsdp::replicate(*group, {.mesh = t.world().mesh()});
        } else {
          fsdp::fully_shard(*group, {.mesh = t.world().mesh()});
        }
      }
      nn::initialize(sharded, {.seed = 3});
      nn::initialize(reference, {.seed = 3});
      std::int64_t mine = 0, all = 0;
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        mine += tokens(t.rank(), micro);
        for (int rank = 0; rank < t.size(); ++rank) all += tokens(rank, micro);
      }
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        fsdp::of(sharded).set_requires_gradient_sync(sync_each || micro + 1 == kMicroBatches);
        const Variable y = sharded(Variable(rows(t.rank(), micro)));
        backward(nn::global_mean(mul(sum(square(y)), 0.5), mine, mesh));
        for (int rank = 0; rank < t.size(); ++rank) {
          const Variable loss = sum(square(reference(Variable(rows(rank, micro)))));
          backward(mul(loss, 0.5 / static_cast<double>(all)));
        }
      }
      const std::string difference = compare_with_reference(sharded, reference, 1e-13, true);
      t.check(difference.empty(), "replicate {}, sync each {}: {}", replicate, sync_each,
              difference);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
