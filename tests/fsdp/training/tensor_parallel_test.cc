// Tensor parallelism inside sharding: one mesh axis computes with shards of the weights, and the
// other axes shard those again.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/tests/distributed/tensor_parallel/tensor_parallel_plans.h"
#include "tessera/tests/fsdp/training/tokens.h"
#include "tessera/tests/fsdp/training/tower.h"

namespace tessera::testing {
namespace {

using distributed::ColwiseParallel;
using distributed::DeviceMesh;
using distributed::ParallelPlan;
using distributed::RowwiseParallel;

ParallelPlan tower_plan() {
  return {{"mlp?.in_proj", ColwiseParallel{}}, {"mlp?.out_proj", RowwiseParallel{}}};
}

/// The axes: data-parallel ranks (replicas outermost), each with `tensor` ranks.
struct Layout {
  int replicas = 1;  ///< above 1: hybrid
  int tensor = 2;
  bool hybrid = false;
};

struct Axes {
  Axes(RankTest& t, const Layout& layout)
      : whole({"replicate", "shard", "tp"},
              {layout.replicas, t.size() / layout.tensor / layout.replicas, layout.tensor},
              t.world().group(), t.world().device()),
        data(layout.hybrid ? whole.submesh({"replicate", "shard"}) : whole["shard"]),
        ranks{.size = whole.size("replicate") * whole.size("shard"),
              .rank = whole.coordinate("replicate") * whole.size("shard") +
                      whole.coordinate("shard")} {}
  DeviceMesh whole, data;
  DataRank ranks;
};

struct TensorCase {
  Layout layout;
  std::int64_t dim = 3;
  bool recompute = false;
  fsdp::ReshardAfterForward reshard = true;
  bool before = false;  ///< initialised before tensor parallelism shards it
  bool shard_optimizer = false;
  bool along_columns = false;  ///< FSDP shards matrices along dim 1
};

std::string name_of(const TensorCase& c) {
  return fmt::format("tp {}, replicas {}, dim {}, recompute {}, initialised before {}",
                     c.layout.tensor, c.layout.replicas, c.dim, c.recompute, c.before);
}

std::optional<distributed::Shard> columns(const nn::Parameter& parameter) {
  if (parameter.shape().ndim() < 2) return std::nullopt;
  return distributed::Shard{1};
}

void check_whole_copies(RankTest& t, const std::string& what, const nn::Module& sharded,
                        const nn::Module& reference) {
  const auto a = sharded.parameters(), b = reference.parameters();
  for (std::size_t i = 0; i < a.size(); ++i)
    t.check_equal(distributed::full_copy(a[i]), b[i].local().tensor(), what + " " + b[i].name());
}

void train_tower(RankTest& t, const TensorCase& c) {
  const Axes axes(t, c.layout);
  Tower sharded({.dim = c.dim, .recompute = c.recompute}), reference({.dim = c.dim});
  nn::initialize(reference, {.seed = 3});
  if (c.before) nn::initialize(sharded, {.seed = 3});
  distributed::parallelize(sharded, axes.whole["tp"], tower_plan());
  shard_tower(sharded, {.mesh = axes.data,
                        .reshard_after_forward = c.reshard,
                        .shard_placement = c.along_columns ? columns : fsdp::ShardPlacement(),
                        .shard_optimizer_over_replicas = c.shard_optimizer});
  if (!c.before) nn::initialize(sharded, {.seed = 3});
  check_whole_copies(t, name_of(c), sharded, reference);
  train_side_by_side(t, over_rows(name_of(c), sharded, reference,
                                  {.rows = 7, .width = c.dim, .ranks = axes.ranks}));
}

void train_towers(RankTest& t, const Layout& layout) {
  for (const std::int64_t dim : {3, 5, 16, 17}) {
    for (const bool recompute : {false, true}) {
      train_tower(t, {.layout = layout, .dim = dim, .recompute = recompute, .before = recompute});
    }
    train_tower(t, {.layout = layout, .dim = dim, .reshard = false, .before = true});
  }
}

TESSERA_RANK_TEST_WITH("tensor parallel x sharded, 2 x 2 and 3 x 2", "[fsdp]", {.worlds = {4, 6}}) {
  train_towers(t, {.tensor = 2});
}
TESSERA_RANK_TEST_WITH("tensor parallel x sharded, axes of one rank", "[fsdp]",
                       {.worlds = {2, 3}}) {
  for (const int tensor : {1, t.size()}) train_tower(t, {.layout = {.tensor = tensor}, .dim = 5});
}
TESSERA_RANK_TEST_WITH("tensor parallel x sharded, 2 x 3", "[fsdp]", {.worlds = {6}}) {
  train_tower(t, {.layout = {.tensor = 3}, .dim = 5});
  train_tower(t, {.layout = {.tensor = 3}, .dim = 17, .recompute = true});
}
TESSERA_RANK_TEST_WITH("tensor parallel x hybrid, 2 x 2 x 2", "[fsdp]", {.worlds = {8}}) {
  train_towers(t, {.replicas = 2, .tensor = 2, .hybrid = true});
}
TESSERA_RANK_TEST_WITH("tensor parallel x hybrid, with axes of one rank", "[fsdp]",
                       {.worlds = {4}}) {
  train_tower(t, {.layout = {.replicas = 2, .tensor = 2, .hybrid = true}, .dim = 5});
  train_tower(t, {.layout = {.replicas = 1, .tensor = 2, .hybrid = true}, .dim = 5});
}
TESSERA_RANK_TEST_WITH("tensor parallel x hybrid, with the optimizer over all ranks", "[fsdp]",
                       {.worlds = {8}}) {
  for (const std::int64_t dim : {3, 17}) {
    train_tower(t, {.layout = {.replicas = 2, .tensor = 2, .hybrid = true},
                    .dim = dim,
                    .before = dim == 3,
                    .shard_optimizer = true});
  }
}
TESSERA_RANK_TEST_WITH("tensor parallel x sharded along columns", "[fsdp]", {.worlds = {4, 6}}) {
  for (const bool before : {false, true}) {
    train_tower(t, {.layout = {.tensor = 2}, .dim = 12, .before = before, .along_columns = true});
  }
}
TESSERA_RANK_TEST_WITH("tensor parallel x sharded with queued compute", "[fsdp]",
                       {.worlds = {4}, .cpu_compute = StreamKind::kQueued}) {
  train_tower(t, {.layout = {.tensor = 2}, .dim = 17, .recompute = true});
}

TESSERA_RANK_TEST_WITH("tensor parallel x replicated", "[fsdp]", {.worlds = {4, 6}}) {
  const Axes axes(t, {.tensor = 2});
  Tower sharded({.dim = 5}), reference({.dim = 5});
  distributed::parallelize(sharded, axes.whole["tp"], tower_plan());
  for (nn::Module* mlp : sharded.mlps()) fsdp::replicate(*mlp, {.mesh = axes.data});
  fsdp::replicate(sharded, {.mesh = axes.data});
  initialize_both(sharded, reference);
  check_whole_copies(t, "replicated", sharded, reference);
  const std::string found =
      distributed::str(distributed::placements_of(sharded.mlp(0).in_proj().weight()));
  t.check(found == "[Replicate, Shard(0)]", "the weight is {}", found);
  train_side_by_side(
      t, over_rows("replicated", sharded, reference, {.rows = 7, .width = 5, .ranks = axes.ranks}));
}

// 8 rows: rank (data, tensor) has (0, 0) 0-1, (1, 0) 2-3, (0, 1) 4-5, (1, 1) 6-7.
TESSERA_RANK_TEST_WITH("rows that both axes cut go to tensor parallelism first", "[fsdp]",
                       {.worlds = {4}}) {
  const Axes axes(t, {.tensor = 2});
  Perceptron model(4, 2, DType::kF64);
  nn::initialize(model, {.seed = 3});
  const Tensor rows = clone(model.in_proj().weight().local().tensor());
  const Tensor columns = clone(model.out_proj().weight().local().tensor());
  distributed::parallelize(model, axes.whole["tp"],
                           {{"in_proj", ColwiseParallel{}}, {"out_proj", RowwiseParallel{}}});
  fsdp::fully_shard(model, {.mesh = axes.data});
  const std::int64_t data = axes.whole.coordinate("shard"), tensor = axes.whole.coordinate("tp");
  const std::int64_t first = 4 * tensor + 2 * data;
  const nn::Parameter& in = model.in_proj().weight();
  t.check_equal(in.local().tensor(), contiguous(rows.slice(0, first, first + 2)), "rows");
  const nn::Parameter& out = model.out_proj().weight();
  const Tensor part = columns.slice(0, 2 * data, 2 * data + 2).slice(1, 4 * tensor, 4 * tensor + 4);
  t.check_equal(out.local().tensor(), contiguous(part), "rows of columns");
  const auto text = [](const nn::Parameter& parameter) {
    return distributed::str(distributed::placements_of(parameter));
  };
  t.check(text(in) == "[Shard(0, turn 1), Shard(0)]", "in_proj is {}", text(in));
  t.check(text(out) == "[Shard(0), Shard(1)]", "out_proj is {}", text(out));
  t.check(in.shape() == Shape({4, 4}), "a rank computes with {}", in.shape().str());
  t.check(in.spec().global_shape == Shape({8, 4}), "of {}", in.spec().global_shape.str());
  t.check_equal(distributed::full_copy(in), rows, "put together");
}

struct SequenceCase {
  Layout layout;
  bool sequence = true;
  bool recompute = false;
};

/// Numbers of heads that `tensor` ranks divide.
models::ModelArgs transformer_for(int tensor) {
  models::ModelArgs args = small_transformer();
  args.dim = tensor == 3 ? 12 : 16;
  args.heads = tensor == 3 ? 3 : 4;
  return args;
}

void train_transformer(RankTest& t, const SequenceCase& c) {
  const Axes axes(t, c.layout);
  models::ModelArgs args = transformer_for(c.layout.tensor);
  models::Transformer reference(args);
  args.checkpoint_activations = c.recompute;
  models::Transformer sharded(args);
  distributed::parallelize(sharded, axes.whole["tp"],
                           c.sequence ? sequence_plan() : transformer_plan());
  shard_transformer(sharded, {.mesh = axes.data});
  initialize_both(sharded, reference);
  const std::string what = fmt::format("tp {}, replicas {}, sequence {}, recompute {}",
                                       c.layout.tensor, c.layout.replicas, c.sequence, c.recompute);
  check_whole_copies(t, what, sharded, reference);
  train_side_by_side(t, over_tokens(what, sharded, reference, {.ranks = axes.ranks}));
}

TESSERA_RANK_TEST_WITH("a Transformer with its sequence in parts, sharded", "[fsdp]",
                       {.worlds = {4, 6}}) {
  for (const bool sequence : {false, true}) {
    for (const bool recompute : {false, true})
      train_transformer(t, {.layout = {.tensor = 2}, .sequence = sequence, .recompute = recompute});
  }
}
TESSERA_RANK_TEST_WITH("a Transformer with its sequence in three parts, sharded", "[fsdp]",
                       {.worlds = {6}}) {
  train_transformer(t, {.layout = {.tensor = 3}, .recompute = true});
}
TESSERA_RANK_TEST_WITH("a Transformer with its sequence in parts, hybrid", "[fsdp]",
                       {.worlds = {8}}) {
  train_transformer(t, {.layout = {.replicas = 2, .tensor = 2, .hybrid = true}, .recompute = true});
}

// Each rank of the tensor axis sums over its part of the sequence: the gradient is sharded like the
// weight.
TESSERA_RANK_TEST_WITH("the table of places: weight and gradient lie alike", "[fsdp]",
                       {.worlds = {4}}) {
  const Axes axes(t, {.tensor = 2});
  models::Transformer model(transformer_for(2));
  distributed::parallelize(model, axes.whole["tp"], sequence_plan());
  shard_transformer(model, {.mesh = axes.data});
  nn::initialize(model, {.seed = 3});
  const TokenBatch batch = {.ranks = axes.ranks};
  backward(token_loss(model(rows_of_rank(batch.tokens(0, 0), batch.ranks)),
                      rows_of_rank(batch.targets(0, 0), batch.ranks), batch.count()));
  const nn::Parameter positions = model.get_parameter("pos_embeddings.weight");
  const std::string found = distributed::str(distributed::placements_of(positions));
  t.check(found == "[Shard(0, turn 1), Shard(0)]", "positions are {}", found);
  for (const nn::NamedParameter& named : model.named_parameters()) {
    t.check(named.parameter.grad().defined() &&
                named.parameter.grad().shape() == named.parameter.local().shape(),
            "gradient of {}", named.name);
  }
}

TESSERA_RANK_TEST_WITH("tensor parallelism comes before sharding", "[fsdp]", {.worlds = {4}}) {
  const Axes axes(t, {.tensor = 2});
  Perceptron model(4, 2, DType::kF64);
  fsdp::fully_shard(model, {.mesh = axes.data});
  t.check_throws<StateError>("", [&] {
    distributed::parallelize(model, axes.whole["tp"], {{"in_proj", ColwiseParallel{}}});
  });
}

}  // namespace
}  // namespace tessera::testing
