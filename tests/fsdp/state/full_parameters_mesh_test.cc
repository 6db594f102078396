// FullParameters over two and three axes: HSDP, the optimizer sharded over all ranks, columns, and
// tensor parallelism below, where value() is this rank's part.
#include <catch2/catch.hpp>

#include <functional>
#include <optional>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/fsdp/state/full_parameters.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/state/state_model.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;
using fsdp::FullParameters;

// The values that this rank computes with: the boxes of value_spec(), concatenated.
Tensor value_of(const nn::Parameter& parameter, const Tensor& whole) {
  const Tensor value = Tensor::empty(parameter.shape(), whole.options());
  std::int64_t row = 0;
  for (const nn::ShardBox& box : parameter.value_spec().boxes) {
    Tensor part = whole;
    for (int d = 0; d < whole.ndim(); ++d) part = part.narrow(d, box.offset[d], box.extent[d]);
    copy_(value.narrow(0, row, box.extent[0]), part);
    row += box.extent[0];
  }
  return value;
}

// Guards of both kinds over a sharded model, which is initialised here like its reference.
void check_guards(RankTest& t, nn::Module& net, nn::Module& plain,
                  const std::function<bool(const nn::Parameter&)>& is_first) {
  nn::initialize(net, {.seed = 3});
  nn::initialize(plain, {.seed = 3});
  nn::StateDict expected = nn::state_dict(plain).clone();
  for (const bool rank0_only : {false, true}) {
    {
      const FullParameters full(net, {.rank0_only = rank0_only});
      for (const auto& [name, parameter] : net.named_parameters()) {
        if (rank0_only && !is_first(parameter)) {
          t.check_throws<StateError>("is sharded", [&] { parameter.value(); });
          continue;
        }
        const Tensor& value = parameter.value().tensor();
        t.check_equal(value, value_of(parameter, expected.tensor(name)), name);
        copy_(value, tessera::add(value, full_like(value, 1)));
      }
    }
    for (const auto& [name, parameter] : net.named_parameters()) {
      const Tensor& whole = expected.tensor(name);
      copy_(whole, tessera::add(whole, full_like(whole, 1)));
    }
    check_same_state(t, fsdp::full_state_dict(net, {.rank0_only = false}), expected, "written");
  }
}

TESSERA_RANK_TEST_WITH("guards over replicas and shards", "[fsdp][full]", {.worlds = {4, 6}}) {
  const DeviceMesh mesh = distributed::hybrid_mesh(t.world(), t.size() / 2);
  for (const bool over_replicas : {false, true}) {
    StateNet net, plain;
    shard_net(net, {.mesh = mesh, .shard_optimizer_over_replicas = over_replicas});
    check_guards(t, net, plain, [&](const nn::Parameter&) { return t.rank() == 0; });
  }
}

TESSERA_RANK_TEST_WITH("guards over columns", "[fsdp][full]", {.worlds = {1, 5, 7}}) {
  const auto by_columns = [&t](const nn::Parameter& p) -> std::optional<distributed::Shard> {
    const bool fits = p.shape().ndim() == 2 && p.shape()[1] % t.size() == 0;
    return distributed::Shard{.dim = fits ? 1 : 0};
  };
  StateNet net, plain;
  shard_net(net, {.mesh = t.world().mesh(), .shard_placement = by_columns});
  check_guards(t, net, plain, [&](const nn::Parameter&) { return t.rank() == 0; });
}

TESSERA_RANK_TEST_WITH("guards over tensor parallelism hold this rank's part", "[fsdp][full]",
                       {.worlds = {4, 6, 8}}) {
  const bool hybrid = t.size() == 8;
  const DeviceMesh mesh =
      hybrid
          ? DeviceMesh({"rep", "shard", "tp"}, {2, 2, 2}, t.world().group(), t.world().device())
          : DeviceMesh({"shard", "tp"}, {t.size() / 2, 2}, t.world().group(), t.world().device());
  const DeviceMesh data = hybrid ? mesh.submesh({"rep", "shard"}) : mesh["shard"];
  StateNet net, plain;
  distributed::parallelize(
      net, mesh["tp"],
      {{"inner", distributed::ColwiseParallel{.output_layout = distributed::Replicate{}}},
       {"head", distributed::RowwiseParallel{.input_layout = distributed::Replicate{}}}});
  shard_net(net, {.mesh = data});
  // Coordinate 0 on the data axes, at any coordinate on "tp".
  check_guards(t, net, plain, [&](const nn::Parameter&) { return t.rank() < 2; });
}

// Their specs have no cuts. World 6 shards columns, world 9 rows, and world 12 has two data axes,
// which both shard.
TESSERA_RANK_TEST_WITH("guards over packed projections under tensor parallelism", "[fsdp][full]",
                       {.worlds = {6, 9, 12}}) {
  const bool hybrid = t.size() == 12, by_columns = t.size() == 6;
  const DeviceMesh mesh =
      hybrid ? DeviceMesh({"rep", "dp", "tp"}, {2, 2, 3}, t.world().group(), t.world().device())
             : DeviceMesh({"dp", "tp"}, {t.size() / 3, 3}, t.world().group(), t.world().device());
  const DeviceMesh data = hybrid ? mesh.submesh({"rep", "dp"}) : mesh["dp"];
  const nn::MultiheadAttentionOptions options = {
      .dim = 12, .heads = 6, .kv_heads = 3, .dtype = DType::kF64};
  nn::MultiheadAttention net(options), plain(options);
  distributed::parallelize(net, mesh["tp"], {{"", distributed::HeadParallel{}}});
  fsdp::FullyShardOptions sharding = {.mesh = data};
  sharding.shard_optimizer_over_replicas = hybrid;
  sharding.shard_placement = [=](const nn::Parameter& p) -> std::optional<distributed::Shard> {
    return distributed::Shard{.dim = by_columns && p.shape().ndim() == 2 ? 1 : 0};
  };
  fsdp::fully_shard(net, sharding);
  check_guards(t, net, plain, [&](const nn::Parameter&) { return t.rank() < 3; });
}

}  // namespace
}  // namespace tessera::testing
