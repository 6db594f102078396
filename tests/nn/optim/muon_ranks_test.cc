// Muon on matrices that ranks hold rows of: the bits of the unsharded optimizer, in any world.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/muon.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/nn/optim/support.h"
#include "tessera/tests/support/ranks.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::optim::Muon;
using nn::optim::MuonOptions;
using namespace testing;

// This rank's rows by the chunk rule.
struct Rows {
  Rows(RankTest& t, std::int64_t rows)
      : chunk((rows + t.size() - 1) / t.size()),
        first(std::min(rows, t.rank() * chunk)),
        last(std::min(rows, first + chunk)) {}
  Tensor of(const Tensor& whole) const { return contiguous(whole.slice(0, first, last)); }
  std::int64_t chunk, first, last;
};

struct Sharded {
  Sharded(RankTest& t, const Shape& shape, std::uint64_t key, DType dtype)
      : rows(t, shape[0]),
        owner(std::make_shared<FakeOwner>("g")),
        parameter(make(shape, key, dtype)) {
    parameter.shard(row_sharding(shape, rows.first, rows.last - rows.first, rows.chunk,
                                 distributed::make_mesh(t.world().mesh())),
                    owner);
  }
  Rows rows;
  std::shared_ptr<FakeOwner> owner;
  Parameter parameter;
};

void check_muon(RankTest& t, DType dtype, const MuonOptions& options) {
  const std::vector<Shape> shapes = {{7, 3}, {2, 5}, {1, 1}, {5, 5}};
  std::vector<Sharded> shards;
  std::vector<Parameter> whole, parts;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    whole.push_back(make(shapes[i], i, dtype));
    shards.emplace_back(t, shapes[i], i, dtype);
    parts.push_back(shards.back().parameter);
  }
  Muon whole_muon(whole, options), part_muon(parts, options);
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (step == 1 && i == 1) {  // left alone, on every rank
        whole[i].zero_grad();
        parts[i].zero_grad();
        continue;
      }
      const Tensor gradient = cast(random_gradient(shapes[i], 10 * step + i), dtype);
      whole[i].set_grad(gradient);
      parts[i].set_grad(shards[i].rows.of(gradient));
    }
    whole_muon.step();
    part_muon.step();
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    t.check_equal(parts[i].local().tensor(), shards[i].rows.of(whole[i].local().tensor()),
                  "parameter " + std::to_string(i));
    t.check_equal(part_muon.state(parts[i], "momentum"),
                  shards[i].rows.of(whole_muon.state(whole[i], "momentum")),
                  "momentum " + std::to_string(i));
  }
}

TESSERA_RANK_TEST("sharded Muon has the bits of the unsharded one", "[nn]") {
  check_muon(t, DType::kF64, {.lr = 0.05});
  check_muon(t, DType::kF32, {.lr = 0.05, .nesterov = false, .match_rms_adamw = true});
  check_muon(t, DType::kBF16, {.lr = 0.05});
}

TESSERA_RANK_TEST("gather_rows makes the whole, own_rows takes this rank's part", "[nn]") {
  for (std::int64_t rows : {7, 3, 1, 0}) {
    const Sharded shard(t, {rows, 2}, 5, DType::kF64);
    const Parameter whole = make({rows, 2}, 5);
    const Tensor gathered =
        nn::optim::gather_rows(shard.parameter, shard.parameter.local().tensor());
    t.check_equal(contiguous(gathered), whole.local().tensor(), "gathered");
    t.check_equal(contiguous(nn::optim::own_rows(shard.parameter, gathered)),
                  shard.parameter.local().tensor(), "own");
  }
}

// The bias too, by an AdamW beside it. 7, 2 and 5 rows: some ranks have none.
struct TwoOptimizers {
  explicit TwoOptimizers(nn::Module& model)
      : lists(nn::optim::group_parameters(model, nn::optim::min_dims(2))),
        muon(lists[0], {.lr = 0.05}),
        adamw(lists[1], {.lr = 0.01}) {}
  void step() {
    muon.step();
    adamw.step();
    muon.zero_grad();
    adamw.zero_grad();
  }
  std::array<std::vector<Parameter>, 2> lists;
  Muon muon;
  nn::optim::AdamW adamw;
};

void build(nn::Sequential& model) {
  model.add<nn::Linear>({.in = 3, .out = 7, .dtype = DType::kF64});
  model.add<nn::Linear>({.in = 7, .out = 2, .dtype = DType::kF64});
  model.add<nn::Linear>({.in = 2, .out = 5, .dtype = DType::kF64});
}

TESSERA_RANK_TEST("a fully sharded model trains with Muon as its reference does", "[nn]") {
  nn::Sequential plain, sharded;
  build(plain);
  build(sharded);
  nn::initialize(plain);
  fsdp::fully_shard(sharded, {.mesh = t.world().mesh()});
  nn::initialize(sharded);
  TwoOptimizers plain_step(plain), sharded_step(sharded);
  for (std::uint64_t step = 0; step < 4; ++step) {
    const Variable x(random_gradient({6, 3}, step));
    backward(sum(square(plain(x))));
    backward(sum(square(sharded(x))));
    plain_step.step();
    sharded_step.step();
  }
  const auto expected = plain.parameters(), got = sharded.parameters();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const Rows rows(t, expected[i].shape()[0]);
    t.check_close(got[i].local().tensor(), rows.of(expected[i].local().tensor()), {1e-10, 1e-10},
                  got[i].name());
  }
}

}  // namespace
}  // namespace tessera
