// One model with replicated, sharded and hybrid parts, nested in both orders.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/tests/fsdp/training/side_by_side.h"
#include "tessera/tests/fsdp/training/tokens.h"
#include "tessera/tests/fsdp/training/tower.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;
using fsdp::Kind;

void wrap(nn::Module& module, Kind kind, const DeviceMesh& mesh) {
  if (kind == Kind::kReplicate) {
    fsdp::replicate(module, {.mesh = mesh});
  } else {
    fsdp::fully_shard(module, {.mesh = mesh});
  }
}
Kind other(Kind kind) { return kind == Kind::kReplicate ? Kind::kFullyShard : Kind::kReplicate; }

TESSERA_RANK_TEST("blocks replicated and sharded in turn, under a root of either kind", "[fsdp]") {
  for (const Kind root : {Kind::kReplicate, Kind::kFullyShard}) {
    models::Transformer model(small_transformer(3)), reference(small_transformer(3));
    Kind kind = Kind::kReplicate;
    for (models::TransformerBlock& block : model.blocks()) {
      wrap(block, kind, t.world().mesh());
      kind = other(kind);
    }
    wrap(model, root, t.world().mesh());
    initialize_both(model, reference);
    kind = Kind::kReplicate;
    for (models::TransformerBlock& block : model.blocks()) {
      t.check(fsdp::of(block).kind() == kind, "kind of a block");
      const std::string expected = kind == Kind::kReplicate ? "[Replicate]" : "[Shard(0)]";
      for (const nn::Parameter& parameter : block.parameters()) {
        const std::string found = distributed::str(distributed::placements_of(parameter));
        t.check(found == expected, "{} is {}, expected {}", parameter.name(), found, expected);
      }
      kind = other(kind);
    }
    t.check(fsdp::of(model).kind() == root, "kind of the root");
    train_side_by_side(t, over_tokens(fmt::format("root {}", fsdp::kind_name(root)), model,
                                      reference, {.ranks = data_rank(t.group())}));
  }
}

/// A sharded perceptron inside a replicated one, or the reverse: the outer group has only its own
/// parameters.
void train_nested(RankTest& t, Kind inner) {
  Tower model({.dim = 5}), reference({.dim = 5});
  for (std::size_t i = 0; i < 3; ++i) {
    wrap(model.mlp(i).in_proj(), inner, t.world().mesh());
    wrap(model.mlp(i), other(inner), t.world().mesh());
  }
  wrap(model, inner, t.world().mesh());
  initialize_both(model, reference);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<std::string> names = fsdp::of(model.mlp(i)).parameter_names();
    t.check(names.size() == 2, "the outer group has {} parameters, expected those of out_proj",
            names.size());
  }
  t.check(fsdp::of(model).parameter_names().size() == 1, "the root's group has the norm alone");
  train_side_by_side(t, over_rows(fmt::format("{} inside", fsdp::kind_name(inner)), model,
                                  reference, {.width = 5, .ranks = data_rank(t.group())}));
}

TESSERA_RANK_TEST("replicate inside fully_shard inside replicate, and the reverse", "[fsdp]") {
  train_nested(t, Kind::kReplicate);
  train_nested(t, Kind::kFullyShard);
}

TESSERA_RANK_TEST_WITH("modules that a call looks after: 49, and 21 without two blocks", "[fsdp]",
                       {.worlds = {2}}) {
  const auto managed = [](const nn::Module& module) {
    return fsdp::of(module).managed_modules().size();
  };
  models::Transformer whole(small_transformer(3));
  fsdp::replicate(whole, {.mesh = t.world().mesh()});
  t.check(managed(whole) == 49, "{} modules", managed(whole));
  models::Transformer parts(small_transformer(3));
  fsdp::replicate(parts.blocks()[0].get(), {.mesh = t.world().mesh()});
  fsdp::fully_shard(parts.blocks()[1].get(), {.mesh = t.world().mesh()});
  fsdp::replicate(parts, {.mesh = t.world().mesh()});
  t.check(managed(parts) == 21, "{} modules of the root", managed(parts));
  t.check(managed(parts.blocks()[0].get()) == 14, "{} modules of a block",
          managed(parts.blocks()[0].get()));
}

/// Sharded, replicated and hybrid perceptrons over one mesh of four ranks and its flattened mesh.
struct MixedMeshes {
  explicit MixedMeshes(RankTest& t)
      : hybrid({"replicate", "shard"}, {2, t.size() / 2}, t.world().group(), t.world().device()),
        all(hybrid.flatten("data")) {}
  DeviceMesh hybrid, all;
};

void train_mixed(RankTest& t, bool recompute, bool late) {
  constexpr int kPasses = 2;
  Tower model({.dim = 5, .recompute = recompute}), reference({.dim = 5});
  const MixedMeshes meshes(t);
  wrap(model.mlp(0), Kind::kFullyShard, meshes.all);
  wrap(model.mlp(1), Kind::kReplicate, meshes.all);
  wrap(model.mlp(2), Kind::kFullyShard, meshes.hybrid);
  wrap(model, Kind::kFullyShard, meshes.all);
  initialize_both(model, reference);
  SideBySide run = over_rows(fmt::format("recompute {}, late {}", recompute, late), model,
                             reference, {.width = 5, .ranks = data_rank(t.group())});
  run.passes = kPasses;
  if (late) {
    run.before_pass = [&](int pass) {
      fsdp::of(model).set_requires_gradient_sync(pass == kPasses - 1);
    };
  }
  train_side_by_side(t, run);
}

TESSERA_RANK_TEST_WITH("a tree of three kinds trains like the reference", "[fsdp]",
                       {.worlds = {4, 6}}) {
  for (const bool recompute : {false, true}) {
    for (const bool late : {false, true}) train_mixed(t, recompute, late);
  }
}

TESSERA_RANK_TEST_WITH("a tree of three kinds with queued compute", "[fsdp]",
                       {.worlds = {4}, .cpu_compute = StreamKind::kQueued}) {
  train_mixed(t, true, true);
}

TESSERA_RANK_TEST_WITH("each kind has its own collectives", "[fsdp]", {.worlds = {4}}) {
  Tower model({.dim = 5});
  const MixedMeshes meshes(t);
  wrap(model.mlp(0), Kind::kFullyShard, meshes.all);
  wrap(model.mlp(1), Kind::kReplicate, meshes.all);
  wrap(model.mlp(2), Kind::kFullyShard, meshes.hybrid);
  wrap(model, Kind::kReplicate, meshes.all);
  nn::initialize(model, {.seed = 3});
  const RowBatch batch = {.width = 5, .ranks = data_rank(t.group())};
  const StepTrace trace =
      StepTrace::of(t, [&] { backward(half_squares(model(batch.mine(0, 0)), batch.rows)); });
  using Counts = std::map<std::string, int>;
  t.check(trace.by_group("all_gather") == Counts{{"mlp0", 2}, {"mlp2", 2}}, "gathers");
  t.check(trace.by_group("reduce_scatter") == Counts{{"mlp0", 1}, {"mlp2", 1}}, "scatters");
  t.check(trace.by_group("all_reduce") == Counts{{"mlp1", 1}, {"mlp2", 1}, {"root", 1}}, "reduces");
}

}  // namespace
}  // namespace tessera::testing
