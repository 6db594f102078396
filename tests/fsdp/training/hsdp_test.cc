// Hybrid sharding: parameters are sharded over one axis of a mesh and replicated over the other.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/tests/fsdp/training/side_by_side.h"
#include "tessera/tests/fsdp/training/tower.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;

DeviceMesh hybrid(RankTest& t, int replicas) {
  return DeviceMesh({"replicate", "shard"}, {replicas, t.size() / replicas}, t.world().group(),
                    t.world().device());
}

/// When the gradients of several passes are reduced.
enum class Sync {
  kAlways,
  kLate,          ///< both reductions in the last pass
  kLateAllReduce  ///< reduce-scatter in each, all-reduce in the last
};
constexpr int kPasses = 3;

void set_sync(const fsdp::Handle& root, Sync sync, bool last) {
  if (sync == Sync::kLate) root.set_requires_gradient_sync(last);
  if (sync == Sync::kLateAllReduce) root.set_requires_all_reduce(last);
}

struct HybridCase {
  int replicas = 2;
  std::int64_t dim = 3;
  bool recompute = false;
  Sync sync = Sync::kAlways;
  bool shard_optimizer = false;
  fsdp::ReshardAfterForward reshard = true;
  bool along_columns = false;  ///< matrices are sharded along dim 1
};

std::optional<distributed::Shard> columns(const nn::Parameter& parameter) {
  if (parameter.shape().ndim() < 2) return std::nullopt;
  return distributed::Shard{-1};
}

fsdp::FullyShardOptions options_of(RankTest& t, const HybridCase& c) {
  return {.mesh = hybrid(t, c.replicas),
          .reshard_after_forward = c.reshard,
          .shard_placement = c.along_columns ? columns : fsdp::ShardPlacement(),
          .shard_optimizer_over_replicas = c.shard_optimizer};
}

void train_hybrid(RankTest& t, const HybridCase& c) {
  Tower sharded({.dim = c.dim, .recompute = c.recompute}), reference({.dim = c.dim});
  shard_tower(sharded, options_of(t, c));
  initialize_both(sharded, reference);
  const std::string what =
      fmt::format("{} replicas of {}, dim {}, recompute {}, sync {}", c.replicas, t.size(), c.dim,
                  c.recompute, static_cast<int>(c.sync));
  SideBySide run = over_rows(what, sharded, reference,
                             {.rows = 13, .width = c.dim, .ranks = data_rank(t.group())});
  run.passes = kPasses;
  run.steps = 2;
  run.before_pass = [&](int pass) { set_sync(fsdp::of(sharded), c.sync, pass == kPasses - 1); };
  train_side_by_side(t, run);
}

void train_hybrids(RankTest& t, int replicas) {
  for (const bool recompute : {false, true}) {
    for (const std::int64_t dim : {3, 16, 17}) {
      for (const Sync sync : {Sync::kAlways, Sync::kLate}) {
        train_hybrid(t, {replicas, dim, recompute, sync});
      }
    }
  }
}

TESSERA_RANK_TEST_WITH("hybrid sharding, 2 x 2", "[fsdp]", {.worlds = {4}}) { train_hybrids(t, 2); }
TESSERA_RANK_TEST_WITH("hybrid sharding, 2 x 3", "[fsdp]", {.worlds = {6}}) { train_hybrids(t, 2); }
TESSERA_RANK_TEST_WITH("hybrid sharding, 4 x 1", "[fsdp]", {.worlds = {4}}) {
  train_hybrids(t, 4);
  for (const std::int64_t dim : {3, 16}) {
    train_hybrid(t, {.replicas = 4, .dim = dim, .sync = Sync::kLateAllReduce});
    for (const Sync sync : {Sync::kAlways, Sync::kLate})
      train_hybrid(t, {.replicas = 4, .dim = dim, .sync = sync, .shard_optimizer = true});
  }
}
TESSERA_RANK_TEST_WITH("hybrid sharding, 1 x 3 and 1 x 1", "[fsdp]", {.worlds = {1, 3}}) {
  train_hybrids(t, 1);
}

TESSERA_RANK_TEST_WITH("hybrid sharding with the all-reduce put off", "[fsdp]",
                       {.worlds = {4, 6}}) {
  for (const bool recompute : {false, true}) {
    for (const std::int64_t dim : {3, 17})
      train_hybrid(t, {2, dim, recompute, Sync::kLateAllReduce});
  }
}

TESSERA_RANK_TEST_WITH("hybrid sharding with values kept, and cut along columns", "[fsdp]",
                       {.worlds = {4, 8}}) {
  for (const bool shard_optimizer : {false, true}) {
    for (const fsdp::ReshardAfterForward& reshard :
         {fsdp::ReshardAfterForward(false), fsdp::ReshardAfterForward(2)}) {
      for (const bool along_columns : {false, true}) {
        train_hybrid(t, {.dim = 16,
                         .sync = Sync::kLate,
                         .shard_optimizer = shard_optimizer,
                         .reshard = reshard,
                         .along_columns = along_columns});
      }
    }
  }
}

// Also writes to chunks that were gathered over the replicas for a step without a backward.
TESSERA_RANK_TEST_WITH("hybrid sharding sees what is written between two forwards", "[fsdp]",
                       {.worlds = {4, 6}}) {
  for (const bool shard_optimizer : {false, true}) {
    Tower sharded({.dim = 5}), reference({.dim = 5});
    shard_tower(sharded, options_of(t, {.shard_optimizer = shard_optimizer}));
    initialize_both(sharded, reference);
    const RowBatch batch = {.width = 5, .ranks = data_rank(t.group())};
    for (int round = 0; round < 3; ++round) {
      const Tensor x = batch.all(round, 0);
      const Variable y = sharded(Variable(x)), expected = reference(Variable(x));
      t.check(relative_error(y.tensor(), expected.tensor(), expected.tensor()) <= 1e-12,
              "optimizer over all {}, round {}: results differ", shard_optimizer, round);
      for (Tower* model : {&sharded, &reference}) {
        for (const nn::Parameter& parameter : model->parameters())
          mul_(parameter.local().tensor(), 1.5);
      }
    }
  }
}

TESSERA_RANK_TEST_WITH("hybrid sharding with queued compute", "[fsdp]",
                       {.worlds = {4}, .cpu_compute = StreamKind::kQueued}) {
  for (const Sync sync : {Sync::kAlways, Sync::kLate, Sync::kLateAllReduce})
    train_hybrid(t, {.replicas = 2, .dim = 17, .recompute = true, .sync = sync});
}

TESSERA_RANK_TEST_WITH(
    "hybrid sharding with the optimizer over all ranks trains like the reference", "[fsdp]",
    {.worlds = {4, 6}}) {
  for (const std::int64_t dim : {3, 17}) {
    for (const Sync sync : {Sync::kAlways, Sync::kLate})
      train_hybrid(t, {.replicas = 2, .dim = dim, .sync = sync, .shard_optimizer = true});
  }
}

struct Counted {
  Sync sync;
  int scatters, all_reduces;
};

// Four groups: three perceptrons and the root's norm.
TESSERA_RANK_TEST_WITH("reductions of hybrid sharding, by when they are due", "[fsdp]",
                       {.worlds = {4, 6}}) {
  constexpr int kGroups = 4;
  for (const Counted& c : {Counted{Sync::kAlways, kGroups * kPasses, kGroups * kPasses},
                           Counted{Sync::kLate, kGroups, kGroups},
                           Counted{Sync::kLateAllReduce, kGroups * kPasses, kGroups}}) {
    Tower model({.dim = 5});
    shard_tower(model, options_of(t, {.dim = 5}));
    nn::initialize(model, {.seed = 3});
    const RowBatch batch = {.width = 5, .ranks = data_rank(t.group())};
    const StepTrace trace = StepTrace::of(t, [&] {
      for (int pass = 0; pass < kPasses; ++pass) {
        set_sync(fsdp::of(model), c.sync, pass == kPasses - 1);
        backward(half_squares(model(batch.mine(0, pass)), batch.rows));
        const bool waits = c.sync == Sync::kLateAllReduce && pass < kPasses - 1;
        for (const nn::Parameter& parameter : model.parameters())
          t.check(!waits || !parameter.grad().defined(), "{} has a gradient before its all-reduce",
                  parameter.name());
      }
    });
    t.check(trace.count("reduce_scatter") == c.scatters, "{} reduce-scatters, expected {}",
            trace.count("reduce_scatter"), c.scatters);
    t.check(trace.count("all_reduce") == c.all_reduces, "{} all-reduces, expected {}",
            trace.count("all_reduce"), c.all_reduces);
  }
}

/// Steps of SGD on this rank's rows.
void train_alone(Tower& model, nn::optim::SGD& sgd, const RowBatch& batch, int steps) {
  for (int step = 0; step < steps; ++step) {
    backward(half_squares(model(batch.mine(step, 0)), batch.rows, batch.ranks.size));
    sgd.step();
    if (step + 1 < steps) sgd.zero_grad();
  }
}

// Sums are formed in the same order: first over the shard axis, then over the replicas.
TESSERA_RANK_TEST_WITH("the optimizer over all ranks changes no bit of hybrid sharding", "[fsdp]",
                       {.worlds = {4, 6}}) {
  for (const std::int64_t dim : {3, 17}) {
    Tower plain({.dim = dim}), spread({.dim = dim});
    shard_tower(plain, options_of(t, {.dim = dim}));
    shard_tower(spread, options_of(t, {.dim = dim, .shard_optimizer = true}));
    initialize_both(plain, spread);
    nn::optim::SGD plain_sgd(plain.parameters(), kSgd), spread_sgd(spread.parameters(), kSgd);
    const RowBatch batch = {.rows = 13, .width = dim, .ranks = data_rank(t.group())};
    train_alone(plain, plain_sgd, batch, 4);
    train_alone(spread, spread_sgd, batch, 4);
    const auto a = plain.parameters(), b = spread.parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      t.check_equal(distributed::full_copy(b[i]), distributed::full_copy(a[i]), b[i].name());
      t.check_equal(distributed::full_grad(b[i]), distributed::full_grad(a[i]), "gradient");
    }
  }
}

TESSERA_RANK_TEST_WITH("the optimizer over all ranks: everything that stays is cut twice", "[fsdp]",
                       {.worlds = {4, 6}}) {
  Tower model({.dim = 7});
  const fsdp::FullyShardOptions options = options_of(t, {.shard_optimizer = true});
  shard_tower(model, options);
  nn::initialize(model, {.seed = 3});
  nn::optim::SGD sgd(model.parameters(), kSgd);
  train_alone(model, sgd, {.rows = 13, .width = 7, .ranks = data_rank(t.group())}, 1);
  const int shards = options.mesh.size("shard"), replicas = options.mesh.size("replicate");
  for (const nn::Parameter& parameter : model.parameters()) {
    const Shape& global = parameter.spec().global_shape;
    const auto outer = distributed::chunk_of(global[0], shards, options.mesh.coordinate("shard"));
    const auto inner =
        distributed::chunk_of(outer.rows(), replicas, options.mesh.coordinate("replicate"));
    const Shape expected = global.with(0, inner.rows());
    t.check(parameter.local().shape() == expected, "{} has {} here, expected {}", parameter.name(),
            parameter.local().shape().str(), expected.str());
    t.check(parameter.grad().shape() == expected, "the gradient of {} is {}", parameter.name(),
            parameter.grad().shape().str());
    t.check(sgd.state(parameter, "momentum").shape() == expected, "the momentum of {} is {}",
            parameter.name(), sgd.state(parameter, "momentum").shape().str());
  }
}

/// A row of the table in fsdp/README.md: the placements of a group.
struct PlacementRow {
  fsdp::FullyShardOptions options;
  const char *parameter, *kept, *gradient, *optimizer;
};

void check_row(RankTest& t, const PlacementRow& row) {
  Tower model({.dim = 8});
  shard_tower(model, row.options);
  const fsdp::GroupPlacements found = fsdp::of(model.mlp(0)).placements();
  const auto check = [&](const char* what, const distributed::Placements& placements,
                         const char* expected) {
    const std::string text = distributed::str(placements);
    t.check(text == expected, "{} is {}, expected {}", what, text, expected);
  };
  check("parameter", found.parameter, row.parameter);
  check("kept", found.kept, row.kept);
  check("gradient", found.gradient, row.gradient);
  check("optimizer", found.optimizer, row.optimizer);
  check("local()", distributed::placements_of(model.mlp(0).in_proj().weight()), row.parameter);
}

TESSERA_RANK_TEST_WITH("what is split over which axis", "[fsdp]", {.worlds = {4}}) {
  const auto options = [&](bool reshard, bool shard_optimizer) {
    return options_of(t, {.shard_optimizer = shard_optimizer, .reshard = reshard});
  };
  const char* rows = "[Replicate, Shard(0)]";
  const char* whole = "[Replicate, Replicate]";
  const char* twice = "[Shard(0, turn 1), Shard(0)]";
  check_row(t, {options(true, false), rows, rows, rows, rows});
  check_row(t, {options(false, false), rows, whole, rows, rows});
  check_row(t, {options(true, true), twice, rows, twice, twice});
  check_row(t, {options(false, true), twice, whole, twice, twice});
  const char* one = "[Shard(0)]";
  for (const bool reshard : {true, false}) {
    check_row(t, {{.mesh = t.world().mesh(), .reshard_after_forward = reshard},
                  one,
                  reshard ? one : "[Replicate]",
                  one,
                  one});
  }
}

}  // namespace
}  // namespace tessera::testing
