// Clipping of parameters that tensor parallelism or experts have sharded before FSDP.

#include <catch2/catch.hpp>

#include <memory>
#include <vector>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/mesh/mesh_ops.h"
#include "tessera/tests/fsdp/precision/clip_checks.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;

/// down(gelu(up(x))), both sharded over tensor-parallel ranks; and one weight for each expert, of
/// which a rank has some.
class Wide final : public nn::Layer<Wide> {
 public:
  Wide()
      : up_({.in = 7, .out = 5, .dtype = DType::kF64}),
        down_({.in = 5, .out = 7, .dtype = DType::kF64}),
        last_({.in = 7, .out = 3, .dtype = DType::kF64}) {
    register_module("up", up_);
    register_module("down", down_);
    register_module("last", last_);
  }
  Variable forward(const Variable& x) { return last_(down_(gelu(up_(x)))); }
  nn::Linear& up() { return up_; }
  nn::Linear& down() { return down_; }

 private:
  nn::Linear up_, down_, last_;
};

TESSERA_RANK_TEST_WITH("clipping: tensor parallel layers inside sharded ones", "[fsdp]",
                       {.worlds = {4}}) {
  const DeviceMesh mesh = two_by_two(t, "dp", "tp");
  for (const bool replicate : {false, true}) {
    for (const double p : norms()) {
      Wide sharded, reference;
      distributed::parallelize(
          sharded, mesh["tp"],
          {{"up", distributed::ColwiseParallel{}}, {"down", distributed::RowwiseParallel{}}});
      for (nn::Module* group : std::vector<nn::Module*>{&sharded.up(), &sharded.down(), &sharded}) {
        if (replicate) {
          fsdp::replicate(*group, {.mesh = mesh["dp"]});
        } else {
          fsdp::fully_shard(*group, {.mesh = mesh["dp"]});
        }
      }
      nn::initialize(sharded, {.seed = 6});
      nn::initialize(reference, {.seed = 6});
      const Tensor x = random_rows(6, 7, DType::kF64, 2);
      const distributed::Chunk rows = distributed::chunk_of(6, 2, mesh.coordinate("dp"));
      const Variable y = sharded(Variable(x.slice(0, rows.begin, rows.end)));
      backward(nn::global_mean(mul(sum(square(y)), 0.5), y.dim(0), mesh["dp"], "dp"));
      backward(plain_loss(reference(Variable(x))));
      clip_both(t, {.name = "tensor parallel", .norm_type = p, .all_reduces = replicate ? 1 : 2},
                sharded, reference);
    }
  }
}

TESSERA_RANK_TEST_WITH("clipping: tensor parallel layers inside hybrid sharding", "[fsdp]",
                       {.worlds = {8}}) {
  const DeviceMesh mesh({"replica", "shard", "tp"}, {2, 2, 2}, t.world().group(),
                        t.world().device());
  const DeviceMesh data = mesh.submesh({"replica", "shard"});
  for (const bool over_replicas : {false, true}) {
    Wide sharded, reference;
    distributed::parallelize(
        sharded, mesh["tp"],
        {{"up", distributed::ColwiseParallel{}}, {"down", distributed::RowwiseParallel{}}});
    for (nn::Module* group : std::vector<nn::Module*>{&sharded.up(), &sharded.down(), &sharded})
      fsdp::fully_shard(*group, {.mesh = data, .shard_optimizer_over_replicas = over_replicas});
    nn::initialize(sharded, {.seed = 6});
    nn::initialize(reference, {.seed = 6});
    const Tensor x = random_rows(6, 7, DType::kF64, 2);
    const distributed::Chunk rows = distributed::chunk_of(6, 4, t.rank() / 2);
    const Variable y = sharded(Variable(x.slice(0, rows.begin, rows.end)));
    backward(mul(sum(square(y)), 0.5 * 4 / 6));
    backward(plain_loss(reference(Variable(x))));
    clip_both(
        t,
        {.name = "hybrid, tensor parallel", .norm_type = 3, .all_reduces = over_replicas ? 3 : 2},
        sharded, reference);
  }
}

/// Experts' weights, [experts, 4, 4]; every rank along "ep" has some of them.
class Experts final : public nn::Layer<Experts> {
 public:
  Experts() : weight_({.shape = {3, 4, 4}, .dtype = DType::kF64, .init = nn::init::normal(0, 1)}) {
    register_parameter("weight", weight_);
  }
  /// The sum of x W over this rank's experts.
  Variable forward(const Variable& x) { return sum(matmul(unsqueeze(x, 0), weight_.value()), {0}); }
  nn::Parameter& weight() { return weight_; }

 private:
  nn::Parameter weight_;
};

class WithExperts final : public nn::Layer<WithExperts> {
 public:
  /// `ranks`: those along "ep", each with some experts; undefined: this rank has all.
  explicit WithExperts(const DeviceMesh& ranks = {})
      : dense_({.in = 4, .out = 4, .dtype = DType::kF64}) {
    register_module("dense", dense_);
    register_module("experts", experts_);
    if (!ranks.defined()) return;
    ranks_ = distributed::make_mesh(ranks);
    experts_.weight().cut(distributed::shard_spec({3, 4, 4}, ranks, {distributed::Shard{0}}),
                          ranks_);
  }
  Variable forward(const Variable& x) {
    const Variable y = dense_(x);
    if (!ranks_) return experts_(y);
    return nn::reduce_from_ranks(experts_(nn::copy_to_ranks(y, ranks_, "ep")), ranks_, "ep");
  }
  Experts& experts() { return experts_; }

 private:
  nn::Linear dense_;
  Experts experts_;
  std::shared_ptr<const nn::Mesh> ranks_;
};

void clip_experts(RankTest& t, const Clipping& c, WithExperts& model, const DeviceMesh& data) {
  WithExperts reference;
  nn::initialize(model, {.seed = 6});
  nn::initialize(reference, {.seed = 6});
  const Tensor x = random_rows(6, 4, DType::kF64, 2);
  const distributed::Chunk rows = distributed::chunk_of(6, data.size(), data.coordinates()[0]);
  const Variable y = model(Variable(x.slice(0, rows.begin, rows.end)));
  backward(nn::global_mean(mul(sum(square(y)), 0.5), y.dim(0), data, data.axes()[0]));
  backward(plain_loss(reference(Variable(x))));
  clip_both(t, c, model, reference);
}

TESSERA_RANK_TEST_WITH("clipping: experts cut over an axis of their own", "[fsdp]",
                       {.worlds = {4}}) {
  const DeviceMesh mesh = two_by_two(t, "dp", "ep");
  for (const double p : norms()) {
    WithExperts model(mesh["ep"]);
    fsdp::fully_shard(model.experts(), {.mesh = mesh["dp"]});
    fsdp::fully_shard(model, {.mesh = mesh["dp"]});
    clip_experts(t, {.name = "one mesh", .norm_type = p, .all_reduces = 2}, model, mesh["dp"]);
  }
}

// The two meshes have the same ranks, so one all-reduce is enough.
TESSERA_RANK_TEST_WITH("clipping: experts on another mesh, which nothing shards further", "[fsdp]",
                       {.worlds = {2, 3}}) {
  for (const double p : norms()) {
    const DeviceMesh ep("ep", t.world().group(), t.world().device());
    // All ranks have the same rows, so that the experts' parts add up.
    const DeviceMesh alone("dp", t.world().group()->subgroup({t.rank()}), t.world().device());
    WithExperts model(ep);
    fsdp::fully_shard(model, {.mesh = t.world().mesh(), .ignored_modules = {&model.experts()}});
    clip_experts(t, {.name = "two meshes", .norm_type = p, .all_reduces = 1}, model, alone);
  }
}

}  // namespace
}  // namespace tessera::testing
