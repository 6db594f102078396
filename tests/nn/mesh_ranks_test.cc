// What nn computes over the ranks of a mesh: norms, losses and initial values that no split of the
// work changes.

#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops.h"
#include "tessera/distributed/mesh_impl.h"
#include "tessera/nn/grad_norm.h"
#include "tessera/nn/loss.h"
#include "tessera/tensor/ops.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/ranks.h"

namespace tessera {
namespace {

using nn::Parameter;
using testing::FakeOwner;

constexpr TensorOptions kDouble{.dtype = DType::kF64};
constexpr std::int64_t kRows = 7;

// This rank's rows of a [7, 3] parameter by the chunk rule: uneven, and none on the last ranks of
// larger worlds.
Parameter sharded(testing::RankTest& t, std::shared_ptr<const nn::Mesh> mesh,
                  std::shared_ptr<FakeOwner> owner) {
  const std::int64_t chunk = (kRows + t.size() - 1) / t.size();
  const std::int64_t first = std::min(kRows, t.rank() * chunk),
                     last = std::min(kRows, first + chunk);
  Parameter p({.shape = {kRows, 3}, .dtype = DType::kF64, .init = nn::init::normal(0, 1)});
  p.shard(testing::row_sharding({kRows, 3}, first, last - first, chunk, std::move(mesh)),
          std::move(owner));
  p.materialize(kCpu);
  p.reset({.value = 11});
  return p;
}

Tensor whole_values() {
  const Tensor out = Tensor::empty({kRows, 3}, kDouble);
  random::fill_normal(out, {.value = 11}, random::whole({kRows, 3}), 0, 1);
  return out;
}

TESSERA_RANK_TEST("shards initialised by their ranks make up the whole parameter", "[nn]") {
  const auto mesh = distributed::make_mesh(t.world().mesh());
  const Parameter p = sharded(t, mesh, std::make_shared<FakeOwner>("g"));
  const Tensor gathered = mesh->all_gather(p.padded_local(), "data");
  t.check_equal(contiguous(gathered.slice(0, 0, kRows)), whole_values(), "rows");
  t.check_equal(contiguous(gathered.slice(0, kRows, gathered.dim(0))),
                zeros({gathered.dim(0) - kRows, 3}, kDouble), "padding");
}

TESSERA_RANK_TEST("grad_norm is the norm of the whole gradient, with equal bits on every rank",
                  "[nn]") {
  const auto mesh = distributed::make_mesh(t.world().mesh());
  const auto owner = std::make_shared<FakeOwner>("g");
  Parameter a = sharded(t, mesh, owner), b = sharded(t, mesh, owner);
  Parameter replicated({.shape = {2}, .init = nn::init::zeros()});
  replicated.materialize(kCpu);
  replicated.set_grad(full({2}, 3));
  a.set_grad(clone(a.local().tensor()));
  b.set_grad(mul(b.local().tensor(), 2.0));
  const double squares = sum_of_squares(whole_values()).item<double>();
  const double norm = nn::grad_norm(std::vector<Parameter>{a, b, replicated}).item<double>();
  const double expected = std::sqrt(5 * squares + 18);
  t.check(std::abs(norm - expected) < 1e-12 * expected, "{} against {}", norm, expected);
  t.check_same_on_all_ranks(fmt::format("{:a}", norm), "the norm");
}

// Rank r has r rows; rank 0 none.
TESSERA_RANK_TEST("global_mean gives the gradient of the mean over all samples, for any split",
                  "[nn]") {
  const auto mesh = distributed::make_mesh(t.world().mesh());
  const int rows = t.size() == 1 ? 3 : t.rank();
  std::vector<double> mine;
  double expected_loss = 0, expected_gradient = 0;
  int total = 0;
  for (int rank = 0; rank < t.size(); ++rank) {
    for (int i = 0; i < (t.size() == 1 ? 3 : rank); ++i, ++total) {
      const double x = 0.5 + rank + 0.25 * i;
      if (rank == t.rank()) mine.push_back(x);
      expected_loss += 4 * x * x;  // (w x)^2 at w = 2
      expected_gradient += 4 * x * x;
    }
  }
  const Variable w(Tensor::scalar(2, kDouble), true);
  const Variable x(Tensor::from_vector(mine, {rows}));
  const Variable loss = nn::global_mean(sum(square(mul(x, w))), rows, *mesh);
  backward(loss);
  const Tensor gradient = mul(w.grad(), 1.0 / t.size()), value = mul(loss.tensor(), 1.0 / t.size());
  mesh->all_reduce(gradient, "data", nn::MeshReduce::kSum);
  mesh->all_reduce(value, "data", nn::MeshReduce::kSum);
  t.check_close(gradient, Tensor::scalar(expected_gradient / total, kDouble), {1e-14, 0},
                "gradient");
  t.check_close(value, Tensor::scalar(expected_loss / total, kDouble), {1e-14, 0}, "loss");
}

}  // namespace
}  // namespace tessera
