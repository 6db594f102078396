// The effects of fully_shard on a model: rows of each rank, sharding along other dims, values
// before and after initialize(), meshes from groups, ignored parameters.

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;
using distributed::Placements;
using distributed::Replicate;
using distributed::Shard;

/// Standard normal parameters of these shapes.
std::vector<nn::ParameterOptions> normal_of(const std::vector<Shape>& shapes) {
  std::vector<nn::ParameterOptions> out;
  for (const Shape& shape : shapes)
    out.push_back({.shape = shape, .dtype = DType::kF64, .init = nn::init::normal(0, 1)});
  return out;
}

/// The box of a full tensor that local() holds, sharded along any dim.
Tensor box_of(Tensor whole, const nn::Parameter& parameter) {
  const nn::ShardBox& box = parameter.spec().boxes.front();
  for (int d = 0; d < whole.ndim(); ++d)
    whole = whole.slice(d, box.offset[d], box.offset[d] + box.extent[d]);
  return whole;
}

/// Rows of n on each of w ranks, as PyTorch's chunk splits them.
const std::map<std::pair<std::int64_t, int>, std::vector<std::int64_t>>& chunk_table() {
  static const std::map<std::pair<std::int64_t, int>, std::vector<std::int64_t>> table = {
      {{5, 4}, {2, 2, 1, 0}},    {{3, 4}, {1, 1, 1, 0}}, {{9, 4}, {3, 3, 3, 0}},
      {{6, 4}, {2, 2, 2, 0}},    {{8, 4}, {2, 2, 2, 2}}, {{1, 2}, {1, 0}},
      {{5, 2}, {3, 2}},          {{5, 3}, {2, 2, 1}},    {{7, 5}, {2, 2, 2, 1, 0}},
      {{1, 5}, {1, 0, 0, 0, 0}}, {{3, 1}, {3}}};
  return table;
}

TESSERA_RANK_TEST_WITH("fsdp init: rows of each rank, few and none included", "[fsdp]",
                       {.worlds = {1, 2, 3, 4, 5}}) {
  for (const auto& [key, rows] : chunk_table()) {
    if (key.second != t.size()) continue;
    const std::int64_t n = key.first, mine = rows[static_cast<std::size_t>(t.rank())];
    for (const bool values_first : {true, false}) {
      Holder holder(normal_of({{n, 3, 2}, {n}})), reference(normal_of({{n, 3, 2}, {n}}));
      if (values_first) nn::initialize(holder, {.seed = 1});
      const fsdp::Handle handle = fsdp::fully_shard(holder, {.mesh = t.world().mesh()});
      if (!values_first) nn::initialize(holder, {.seed = 1});
      nn::initialize(reference, {.seed = 1});
      for (std::size_t i = 0; i < 2; ++i) {
        const nn::Parameter& p = holder.at(i);
        const Shape global = i == 0 ? Shape({n, 3, 2}) : Shape({n});
        const Shape local = i == 0 ? Shape({mine, 3, 2}) : Shape({mine});
        t.check(p.local().shape() == local, "{} rows over {}: local() is {}, expected {}", n,
                t.size(), p.local().shape().str(), local.str());
        t.check(p.spec().global_shape == global && p.shape() == global, "{} rows: the whole is {}",
                n, p.spec().global_shape.str());
        t.check(p.local().tensor().is_contiguous(), "{} rows: local() has gaps", n);
        t.check_equal(p.local().tensor(), box_of(reference.at(i).local().tensor(), p), "rows");
      }
      handle.unshard();
      for (std::size_t i = 0; i < 2; ++i) {
        t.check_equal(holder.at(i).value().tensor(), reference.at(i).value().tensor(), "the whole");
        t.check(holder.at(i).value().tensor().is_contiguous(), "{} rows: value() has gaps", n);
      }
    }
  }
}

/// The largest dim, the first of equal ones.
std::optional<Shard> largest_dim(const nn::Parameter& parameter) {
  const Shape& shape = parameter.spec().global_shape;
  int best = 0;
  for (int d = 1; d < shape.ndim(); ++d) best = shape[d] > shape[best] ? d : best;
  return Shard{.dim = best};
}

TESSERA_RANK_TEST_WITH("fsdp init: cuts along other dims", "[fsdp]", {.worlds = {1, 2, 4, 8}}) {
  // p0 is sharded along dim 1, p1 along dim 0, p2 along dim 2 (given as negative), p3 by default.
  const std::vector<Shape> shapes = {{3, 16}, {9, 2}, {2, 3, 8}, {5}};
  const fsdp::ShardPlacement place = [](const nn::Parameter& p) -> std::optional<Shard> {
    if (p.spec().global_shape.ndim() == 1) return std::nullopt;
    return p.spec().global_shape.ndim() == 3 ? Shard{.dim = -1} : largest_dim(p);
  };
  Holder holder(normal_of(shapes)), reference(normal_of(shapes));
  const fsdp::Handle handle =
      fsdp::fully_shard(holder, {.mesh = t.world().mesh(), .shard_placement = place});
  nn::initialize(holder, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  const std::int64_t w = t.size();
  const Shape locals[] = {{3, 16 / w}, {}, {2, 3, 8 / w}, {}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const nn::Parameter& p = holder.at(i);
    if (locals[i].ndim() > 0)
      t.check(p.local().shape() == locals[i], "p{} is {}, expected {}", i, p.local().shape().str(),
              locals[i].str());
    t.check_equal(p.local().tensor(), box_of(reference.at(i).local().tensor(), p), "local()");
    t.check(p.local().tensor().is_contiguous(), "local() of p{} has gaps", i);
  }
  holder.inside = [&] {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      t.check_equal(holder.at(i).value().tensor(), reference.at(i).value().tensor(), "value()");
    }
  };
  backward(holder(Variable(full({1}, t.rank(), {.dtype = DType::kF64}))));
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Tensor grad = holder.at(i).grad();
    t.check(grad.shape() == holder.at(i).local().shape() && grad.is_contiguous(),
            "grad() of p{} is {}", i, grad.shape().str());
    t.check_equal(grad, full(grad.shape(), (t.size() - 1) / 2.0, {.dtype = DType::kF64}),
                  "gradients");
  }
  t.check(handle.has_group(), "there is no group");
}

TESSERA_RANK_TEST_WITH("fsdp init: training with cuts along the largest dim", "[fsdp]",
                       {.worlds = {1, 2, 4}}) {
  models::Transformer model(transformer_args(2)), reference(transformer_args(2));
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(),
                                           .shard_placement = &largest_dim};
  shard_transformer(model, options, options);
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
  for (std::int64_t step = 0; step < 3; ++step) {
    const Tensor tokens = token_rows(8, 5, 8, step);
    backward(mul(sharded_loss(model(my_rows(tokens, t.world())), t.world()), 0.01));
    backward(mul(plain_loss(reference(tokens)), 0.01));
    for (auto* each : {&sgd, &reference_sgd}) {
      each->step();
      each->zero_grad();
    }
  }
  const auto left = model.named_parameters(), right = reference.named_parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double error =
        worst_error(left[i].parameter.local().tensor(),
                    box_of(right[i].parameter.local().tensor(), left[i].parameter));
    t.check(error < 1e-12, "{} differs by {}", left[i].name, error);
  }
}

TESSERA_RANK_TEST_WITH("fsdp init: values come after sharding, and are drawn again", "[fsdp]",
                       {.worlds = {1, 2, 4}}) {
  for (const std::int64_t dim : {8, 3, 1}) {
    const MLPOptions options = {
        .dim = dim, .multiplier = 1, .bias = false, .with_buffer = true, .dtype = DType::kF64};
    MLP model(options), reference(options);
    for (const char* name : {"in_proj", "out_proj"})
      fsdp::fully_shard(model.get_submodule(name), {.mesh = t.world().mesh()});
    fsdp::fully_shard(model, {.mesh = t.world().mesh()});
    for (const nn::Parameter& parameter : model.parameters())
      t.check(!parameter.is_materialized(), "{} has values before initialize()", parameter.name());
    t.check_throws<StateError>("\"in_proj.weight\", \"out_proj.weight\"",
                               [&] { model(Variable(random_rows(2, dim, DType::kF64, 1))); });
    nn::initialize(model, {.seed = 5});
    nn::initialize(reference, {.seed = 5});
    std::string difference = compare_with_reference(model, reference, 0);
    t.check(difference.empty(), "width {}: {}", dim, difference);
    for (const nn::Parameter& parameter : model.parameters())
      fill_(parameter.local().tensor(), 1337);
    nn::reinitialize(model, 5);
    difference = compare_with_reference(model, reference, 0);
    t.check(difference.empty(), "width {}, again: {}", dim, difference);
    const Tensor x = random_rows(2 * t.size(), dim, DType::kF64, 1);
    backward(sharded_loss(model(Variable(my_rows(x, t.world()))), t.world()));
    backward(plain_loss(reference(Variable(x))));
    difference = compare_with_reference(model, reference, 1e-13, /*gradients=*/true);
    t.check(difference.empty(), "width {}, gradients: {}", dim, difference);
  }
}

void check_training(RankTest& t, const DeviceMesh& mesh, const std::string& what) {
  Chain model({}), reference({});
  for (const auto& block : model.blocks()) fsdp::fully_shard(*block, {.mesh = mesh});
  fsdp::fully_shard(model, {.mesh = mesh});
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Tensor x = random_rows(3 * t.size(), 7, DType::kF64, step);
    const Variable y = model(Variable(my_rows(x, t.world())));
    backward(mul(sum(square(y)), 0.5 / 3));
    backward(plain_loss(reference(Variable(x))));
    const std::string difference =
        compare_with_reference(model, reference, 1e-12, /*gradients=*/true);
    t.check(difference.empty(), "{}, step {}: {}", what, step, difference);
    for (auto* each : {&sgd, &reference_sgd}) {
      each->step();
      each->zero_grad();
    }
  }
}

TESSERA_RANK_TEST_WITH("fsdp init: meshes made of groups that exist", "[fsdp]",
                       {.worlds = {1, 2, 3, 4}}) {
  std::vector<int> ranks(static_cast<std::size_t>(t.size()));
  for (int r = 0; r < t.size(); ++r) ranks[static_cast<std::size_t>(r)] = r;
  check_training(
      t,
      DeviceMesh::from_groups(
          {.axes = {"data"}, .shape = {t.size()}, .ranks = ranks, .groups = {t.world().group()}},
          t.world().device()),
      "one axis");
  if (t.size() != 4) return;
  const int r = t.rank();
  const auto replicas = t.group().subgroup({r % 2, r % 2 + 2});
  const auto shards = t.group().subgroup({r / 2 * 2, r / 2 * 2 + 1});
  check_training(t,
                 DeviceMesh::from_groups({.axes = {"replicate", "shard"},
                                          .shape = {2, 2},
                                          .ranks = ranks,
                                          .groups = {replicas, shards}},
                                         t.world().device()),
                 "two axes");
}

TESSERA_RANK_TEST_WITH("fsdp init: placements of each kind", "[fsdp]", {.worlds = {4}}) {
  const auto check = [&](const char* what, const Placements& seen, const Placements& expected) {
    t.check(seen == expected, "{}: {}, expected {}", what, str(seen), str(expected));
  };
  Chain flat({}), hybrid({}), both({}), whole({});
  const DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(), t.world().device());
  const auto of_flat = fsdp::fully_shard(flat, {.mesh = t.world().mesh()}).placements();
  check("parameter", of_flat.parameter, {Shard{0}});
  check("gradient", of_flat.gradient, {Shard{0}});
  check("optimizer", of_flat.optimizer, {Shard{0}});
  const auto of_hybrid = fsdp::fully_shard(hybrid, {.mesh = mesh}).placements();
  check("parameter", of_hybrid.parameter, {Replicate{}, Shard{0}});
  check("gradient", of_hybrid.gradient, {Replicate{}, Shard{0}});
  const auto of_whole = fsdp::replicate(whole, {.mesh = t.world().mesh()}).placements();
  check("parameter", of_whole.parameter, {Replicate{}});
  check("gradient", of_whole.gradient, {Replicate{}});
  nn::initialize(hybrid, {.seed = 1});
  const nn::Parameter weight = hybrid.parameters().front();
  const distributed::Chunk chunk = distributed::chunk_of(5, 2, t.rank() % 2);
  t.check(weight.local().shape() == Shape({chunk.rows(), 7}), "the weight is {}",
          weight.local().shape().str());
}

}  // namespace
}  // namespace tessera::testing
