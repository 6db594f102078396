// What nn computes over the ranks of a mesh: norms, losses and initial values that no split of the
// work changes.

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/nn/training/grad_scaler.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/counting_optimizer.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/double_options.h"
#include "tessera/tests/support/ranks.h"

namespace tessera {
namespace {

using nn::Parameter;
using testing::CountingOptimizer;
using testing::FakeOwner;
using testing::kDouble;

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
  p.materialize(default_device());
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
  replicated.materialize(default_device());
  replicated.set_grad(full({2}, 3));
  a.set_grad(clone(a.local().tensor()));
  b.set_grad(mul(b.local().tensor(), 2.0));
  const double squares = sum_of_squares(whole_values()).item<double>();
  const double norm = nn::grad_norm(std::vector<Parameter>{a, b, replicated}).item<double>();
  const double expected = std::sqrt(5 * squares + 18);
  t.check(std::abs(norm - expected) < 1e-12 * expected, "{} against {}", norm, expected);
  t.check_same_on_all_ranks(fmt::format("{:a}", norm), "the norm");
}

// The same by hand: |x|^p summed over the whole gradient.
double whole_norm(const std::vector<double>& gradient, double p) {
  double total = 0;
  for (double x : gradient)
    total = std::isinf(p) ? std::max(total, std::abs(x)) : total + std::pow(std::abs(x), p);
  return std::isinf(p) ? total : std::pow(total, 1 / p);
}

TESSERA_RANK_TEST("clipping shards is clipping the whole gradient, for every kind of norm",
                  "[nn]") {
  const auto mesh = distributed::make_mesh(t.world().mesh());
  const auto owner = std::make_shared<FakeOwner>("g");
  for (double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    Parameter a = sharded(t, mesh, owner), b = sharded(t, mesh, owner);
    Parameter replicated({.shape = {2}, .init = nn::init::zeros()});
    replicated.materialize(default_device());
    replicated.set_grad(full({2}, 3));
    a.set_grad(clone(a.local().tensor()));
    if (t.rank() == 0) b.set_grad(full(b.local().shape(), -2, kDouble));  // only rank 0 has one
    std::vector<double> gradient = whole_values().to_vector<double>();
    gradient.insert(gradient.end(), {3, 3});
    const std::int64_t first_rows = (kRows + t.size() - 1) / t.size();
    gradient.insert(gradient.end(), static_cast<std::size_t>(3 * first_rows), -2);
    const double expected = whole_norm(gradient, p);
    const Tensor norm =
        nn::clip_grad_norm(std::vector<Parameter>{a, b, replicated}, 0.5, {.norm_type = p});
    t.check(std::abs(norm.item<double>() - expected) < 1e-12 * expected, "p {}: {} against {}", p,
            norm.item<double>(), expected);
    t.check_same_on_all_ranks(fmt::format("{:a}", norm.item<double>()), "the norm");
    t.check_close(a.grad(), mul(a.local().tensor(), 0.5 / (expected + 1e-6)), {1e-12, 0},
                  "clipped shard");
    t.check_close(replicated.grad(), full({2}, 3 * 0.5 / (expected + 1e-6)), {1e-6, 0},
                  "clipped whole parameter");
  }
}

TESSERA_RANK_TEST("a norm that is not finite anywhere is an error everywhere", "[nn]") {
  const auto mesh = distributed::make_mesh(t.world().mesh());
  Parameter a = sharded(t, mesh, std::make_shared<FakeOwner>("g"));
  if (t.rank() == 0) a.set_grad(full(a.local().shape(), std::nan(""), kDouble));
  t.check_throws<StateError>("the gradients have a norm of nan", [&] {
    nn::clip_grad_norm(std::vector<Parameter>{a}, 1, {.error_if_nonfinite = true});
  });
}

// A parameter of one row: all of it lies on rank 0, the shards of the others are empty.
Parameter single_row(testing::RankTest& t, std::shared_ptr<const nn::Mesh> mesh,
                     std::shared_ptr<FakeOwner> owner) {
  const std::int64_t rows = t.rank() == 0 ? 1 : 0;
  Parameter p({.shape = {1, 3}, .init = nn::init::zeros()});
  p.shard(testing::row_sharding({1, 3}, t.rank() == 0 ? 0 : 1, rows, 1, std::move(mesh)),
          std::move(owner));
  p.materialize(default_device());
  return p;
}

TESSERA_RANK_TEST("all ranks leave a step out that is bad on one, however the rows lie", "[nn]") {
  const auto mesh = distributed::make_mesh(t.world().mesh());
  const auto owner = std::make_shared<FakeOwner>("g");
  for (int bad = -1; bad < t.size(); ++bad) {
    for (bool one_row : {false, true}) {
      nn::GradScaler scaler({.init_scale = 64});
      // With one row only rank 0 has elements; the other ranks have no gradient at all.
      Parameter p = one_row ? single_row(t, mesh, owner) : sharded(t, mesh, owner);
      const Tensor& local = p.local().tensor();
      if (!one_row || t.rank() == 0) p.set_grad(full(local.shape(), 32, local.options()));
      const bool has_elements = local.numel() > 0;
      if (bad == t.rank() && has_elements)
        fill_(p.grad().select(0, 0), std::numeric_limits<double>::infinity());
      const Tensor flag = Tensor::scalar(bad == t.rank() && has_elements);
      mesh->all_reduce(flag, "data", nn::MeshReduce::kMax);
      const bool found = flag.item<float>() != 0;
      CountingOptimizer optimizer({p});
      t.check(scaler.step(optimizer) == !found && optimizer.updates == (found ? 0 : 1),
              "bad on {}: {} steps", bad, optimizer.updates);
      scaler.update();
      t.check(scaler.get_scale() == (found ? 32 : 64), "scale {}", scaler.get_scale());
      t.check_same_on_all_ranks(fmt::format("{} {}", scaler.get_scale(), scaler.growth_tracker()),
                                "the scaler");
      if (!found && p.grad().defined())
        t.check_equal(p.grad(), full(local.shape(), 0.5, local.options()), "unscaled");
    }
  }
}

TESSERA_RANK_TEST("replicas that nothing shards agree through the scaler's mesh", "[nn]") {
  Parameter p({.shape = {2}, .init = nn::init::zeros()});
  p.materialize(default_device());
  p.set_grad(full({2}, t.rank() == t.size() - 1 ? std::nan("") : 1.0));
  CountingOptimizer optimizer({p});
  nn::GradScaler scaler({.mesh = distributed::make_mesh(t.world().mesh())});
  t.check(!scaler.step(optimizer) && optimizer.updates == 0, "{} steps", optimizer.updates);
}

TESSERA_RANK_TEST("a sharded layer is scaled, clipped and stepped as its reference", "[nn]") {
  // 3 rows: ranks of larger worlds have none.
  nn::Linear plain({.in = 2, .out = 3}), sharded({.in = 2, .out = 3});
  nn::initialize(plain, {.seed = 1});
  fsdp::fully_shard(sharded, {.mesh = t.world().mesh()});
  nn::initialize(sharded, {.seed = 1});
  const auto train = [&](nn::Linear& model) {
    nn::GradScaler scaler;
    nn::optim::SGD optimizer(model.parameters(), {.lr = 0.5});
    const Variable x(Tensor::from_vector<float>({1, 2, -1, 0.5}, {2, 2}));
    backward(scaler.scale(nn::mse_loss(model(x), Variable(ones({2, 3})))));
    scaler.unscale(optimizer);
    const double norm = nn::clip_grad_norm(optimizer.parameters(), 0.25).item<double>();
    t.check(scaler.step(optimizer), "the step was left out");
    return norm;
  };
  const double norm = train(sharded), expected = train(plain);
  t.check(std::abs(norm - expected) < 1e-6 && expected > 0.25, "{} against {}", norm, expected);
  const std::int64_t chunk = (3 + t.size() - 1) / t.size(),
                     first = std::min<std::int64_t>(3, t.rank() * chunk),
                     last = std::min<std::int64_t>(3, first + chunk);
  t.check_close(sharded.weight().local().tensor(),
                contiguous(plain.weight().local().tensor().slice(0, first, last)), "weight");
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
  const Variable loss = nn::global_mean(sum(square(mul(x, w))), rows, mesh);
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
