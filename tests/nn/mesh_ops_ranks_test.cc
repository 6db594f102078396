// Differentiable collectives: values, first and second derivatives against differences taken across
// ranks, uneven and empty parts, ranks to which no gradient comes.
#include "tessera/nn/mesh/mesh_ops.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/ranks.h"

namespace tessera {
namespace {

using MeshHandle = std::shared_ptr<const nn::Mesh>;
using RankLoss = std::function<Variable(const Variable&)>;  // this rank's loss of its x
const std::string kAxis = "data";

Tensor irregular(const Shape& shape, double seed) {
  std::vector<double> numbers(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = std::sin(seed + 0.7 * static_cast<double>(i) + 0.3);
  return Tensor::from_vector(numbers, shape);
}

double summed_over_ranks(const MeshHandle& mesh, double mine) {
  const Tensor total = Tensor::scalar(mine, {.dtype = DType::kF64});
  mesh->all_reduce(total, kAxis, nn::MeshReduce::kSum);
  return total.item<double>();
}

// Every rank's number, in rank order.
std::vector<std::int64_t> gathered(const MeshHandle& mesh, std::int64_t mine) {
  return mesh->all_gather(Tensor::from_vector(std::vector<std::int64_t>{mine}, {1}), kAxis)
      .to_vector<std::int64_t>();
}

// The gradient of this rank's x is that of the sum of all ranks' losses: every element of every
// rank is moved in turn, while all ranks compute.
void check_gradient(testing::RankTest& t, const MeshHandle& mesh, const RankLoss& loss,
                    const Tensor& x, const std::string& what) {
  const double step = 1e-6;
  const Variable leaf(x, true);
  const Variable value = loss(leaf);
  const Variable gradient = grad({&value, 1}, {&leaf, 1})[0];
  const std::vector<double> analytic = gradient.tensor().to_vector<double>();
  const std::vector<double> at = x.to_vector<double>();
  const std::vector<std::int64_t> counts = gathered(mesh, x.numel());
  for (int rank = 0; rank < t.size(); ++rank) {
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(rank)]; ++i) {
      const auto moved = [&](double by) {
        std::vector<double> numbers = at;
        if (rank == t.rank()) numbers[static_cast<std::size_t>(i)] += by;
        const Variable there(Tensor::from_vector(numbers, x.shape()), true);
        return summed_over_ranks(mesh, loss(there).item<double>());
      };
      const double numeric = (moved(step) - moved(-step)) / (2 * step);
      if (rank != t.rank()) continue;
      const double got = analytic[static_cast<std::size_t>(i)];
      t.check(std::abs(got - numeric) <= 1e-7 * std::max(1.0, std::abs(numeric)),
              "{}: gradient {} is {}, by differences {}", what, i, got, numeric);
    }
  }
}

// The same for the derivative of the derivative.
void check_twice(testing::RankTest& t, const MeshHandle& mesh, const RankLoss& loss,
                 const Tensor& x, const std::string& what) {
  check_gradient(t, mesh, loss, x, what);
  const auto second = [&](const Variable& in) {
    const Variable value = loss(in);
    const Variable first = grad({&value, 1}, {&in, 1}, {.create_graph = true})[0];
    return sum(mul(square(first), Variable(irregular(first.shape(), 5.0 + t.rank()))));
  };
  check_gradient(t, mesh, second, x, what + ", twice");
}

// A loss of this rank that weighs every element of y = operation(x) for itself.
RankLoss weighed(testing::RankTest& t, std::function<Variable(const Variable&)> operation) {
  return [&t, operation = std::move(operation)](const Variable& x) {
    const Variable y = operation(mul(x, x));
    return sum(mul(mul(y, sin(y)), Variable(irregular(y.shape(), 1.0 + t.rank()))));
  };
}

nn::RowCounts uneven(const testing::RankTest& t) {
  nn::RowCounts rows;
  for (int peer = 0; peer < t.size(); ++peer) {
    rows.sent.push_back((2 * t.rank() + peer) % 3);
    rows.received.push_back((2 * peer + t.rank()) % 3);
  }
  return rows;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (std::int64_t count : counts) sum += count;
  return sum;
}

TESSERA_RANK_TEST("differentiable collectives compute what the mesh does", "[mesh_ops]") {
  const MeshHandle mesh = distributed::make_mesh(t.world().mesh());
  const Tensor x = irregular({2 * t.size(), 3}, t.rank());
  const Variable v(x, true);
  const Tensor sum_of_all = clone(x);
  mesh->all_reduce(sum_of_all, kAxis, nn::MeshReduce::kSum);
  t.check_equal(nn::all_reduce(v, mesh, kAxis).tensor(), sum_of_all, "all_reduce");
  t.check_equal(nn::reduce_from_ranks(v, mesh, kAxis).tensor(), sum_of_all, "reduce_from_ranks");
  t.check_equal(nn::copy_to_ranks(v, mesh, kAxis).tensor(), x, "copy_to_ranks");
  t.check_equal(nn::all_gather(v, mesh, kAxis).tensor(), mesh->all_gather(x, kAxis), "all_gather");
  t.check_equal(nn::reduce_scatter(v, mesh, kAxis).tensor(), mesh->reduce_scatter(x, kAxis),
                "reduce_scatter");
  t.check_equal(nn::all_to_all(v, mesh, kAxis).tensor(), mesh->all_to_all(x, kAxis), "all_to_all");
  t.check_equal(v.tensor(), irregular({2 * t.size(), 3}, t.rank()), "the operand");
  const Variable strided = transpose(Variable(irregular({3, 2 * t.size()}, t.rank()), true), 0, 1);
  t.check_equal(nn::all_gather(strided, mesh, kAxis).tensor(),
                mesh->all_gather(contiguous(strided.tensor()), kAxis), "strided");
  const NoGradGuard no_grad;
  t.check(!nn::all_reduce(v, mesh, kAxis).requires_grad(), "recorded without grad mode");
}

TESSERA_RANK_TEST_WITH("gradients of the sum of all ranks' losses, twice", "[mesh_ops]",
                       {.worlds = {1, 2, 3, 4}}) {
  const MeshHandle mesh = distributed::make_mesh(t.world().mesh());
  check_twice(t, mesh,
              weighed(t, [&](const Variable& x) { return nn::all_reduce(x, mesh, kAxis); }),
              irregular({2, 2}, t.rank()), "all_reduce");
  check_twice(t, mesh,
              weighed(t, [&](const Variable& x) { return nn::all_reduce(x, mesh, kAxis); }),
              irregular({}, t.rank()), "all_reduce of a 0-d tensor");
  check_twice(t, mesh,
              weighed(t, [&](const Variable& x) { return nn::all_gather(x, mesh, kAxis); }),
              irregular({2, 1}, t.rank()), "all_gather");
  check_twice(t, mesh,
              weighed(t, [&](const Variable& x) { return nn::reduce_scatter(x, mesh, kAxis); }),
              irregular({t.size(), 2}, t.rank()), "reduce_scatter");
  check_twice(t, mesh,
              weighed(t, [&](const Variable& x) { return nn::all_to_all(x, mesh, kAxis); }),
              irregular({t.size(), 2}, t.rank()), "all_to_all");
}

TESSERA_RANK_TEST_WITH("gradients of uneven exchanges, with empty parts", "[mesh_ops]",
                       {.worlds = {1, 2, 3, 4}}) {
  const MeshHandle mesh = distributed::make_mesh(t.world().mesh());
  const nn::RowCounts rows = uneven(t);
  const auto exchange = [&](const Variable& x) { return nn::all_to_all(x, mesh, kAxis, rows); };
  check_twice(t, mesh, weighed(t, exchange), irregular({total(rows.sent), 2}, t.rank()), "uneven");

  // All rows to rank 0; the others keep none.
  nn::RowCounts to_first;
  for (int peer = 0; peer < t.size(); ++peer) {
    to_first.sent.push_back(peer == 0 ? t.rank() : 0);
    to_first.received.push_back(t.rank() == 0 ? peer : 0);
  }
  const auto collect = [&](const Variable& x) { return nn::all_to_all(x, mesh, kAxis, to_first); };
  check_twice(t, mesh, weighed(t, collect), irregular({t.rank(), 3}, t.rank()), "to rank 0");
}

// Two layers split over the ranks, columns of the first and rows of the second, against one rank
// that computes all of it. The loss is the same on every rank and counts once.
TESSERA_RANK_TEST_WITH(
    "copy_to_ranks and reduce_from_ranks give a split layer its gradients, twice", "[mesh_ops]",
    {.worlds = {1, 2, 3, 4}}) {
  const MeshHandle mesh = distributed::make_mesh(t.world().mesh());
  const std::int64_t hidden = 2 * t.size(), first = 2 * t.rank();
  const Tensor up = irregular({3, hidden}, 2), down = irregular({hidden, 2}, 3);
  const auto gradients = [&](const Variable& x, const Variable& u, const Variable& d, bool split) {
    const Variable in = split ? nn::copy_to_ranks(x, mesh, kAxis) : x;
    const Variable part = matmul(tanh(matmul(in, u)), d);
    const Variable y = split ? nn::reduce_from_ranks(part, mesh, kAxis) : part;
    const Variable loss = sum(mul(y, sin(y)));
    const std::vector<Variable> of = {x, u, d};
    std::vector<Variable> out = grad({&loss, 1}, of, {.create_graph = true});
    const Variable second = sum(square(out[0]));  // of x's gradient, which is the same everywhere
    for (const Variable& g : grad({&second, 1}, of)) out.push_back(g);
    out.push_back(loss);
    return out;
  };
  const Tensor x = irregular({4, 3}, 1);
  const auto whole = gradients(Variable(x, true), Variable(up, true), Variable(down, true), false);
  const auto mine =
      gradients(Variable(x, true), Variable(contiguous(up.slice(1, first, first + 2)), true),
                Variable(contiguous(down.slice(0, first, first + 2)), true), true);
  const testing::Tolerance tolerance{1e-12, 1e-12};
  for (std::size_t order : {0u, 3u}) {
    const std::string what = order == 0 ? "first" : "second";
    t.check_close(mine[order].tensor(), whole[order].tensor(), tolerance, what + " of x");
    t.check_close(mine[order + 1].tensor(),
                  contiguous(whole[order + 1].tensor().slice(1, first, first + 2)), tolerance,
                  what + " of the columns");
    t.check_close(mine[order + 2].tensor(),
                  contiguous(whole[order + 2].tensor().slice(0, first, first + 2)), tolerance,
                  what + " of the rows");
  }
  t.check_close(mine[6].tensor(), whole[6].tensor(), tolerance, "loss");
}

TESSERA_RANK_TEST("a rank to whose result no gradient comes joins the others", "[mesh_ops]") {
  const MeshHandle mesh = distributed::make_mesh(t.world().mesh());
  const Variable x(irregular({3}, t.rank()), true);
  Variable y = nn::all_reduce(x, mesh, kAxis);
  if (t.rank() != 0) {  // an operation that has no gradient to give
    y = record_differentiable("drop", {y.tensor()}, std::span(&y, 1),
                              [](const Gradients&, const BackwardContext&) { return Gradients(1); })
            .front();
  }
  backward(sum(y));
  t.check_equal(x.grad(), ones({3}, {.dtype = DType::kF64}), "gradient");
}

TESSERA_RANK_TEST("mesh operations name what is wrong", "[mesh_ops]") {
  const MeshHandle mesh = distributed::make_mesh(t.world().mesh());
  const Variable x(ones({t.size()}), true);
  const std::string null = "the mesh is null; pass local_mesh() for one rank alone";
  t.check_throws<InvalidArgument>("[nn.all_reduce]", [&] { nn::all_reduce(x, nullptr, kAxis); });
  t.check_throws<InvalidArgument>(null, [&] { nn::all_reduce(x, nullptr, kAxis); });
  t.check_throws<InvalidArgument>(null, [&] { nn::all_gather(x, nullptr, kAxis); });
  t.check_throws<InvalidArgument>(null, [&] { nn::reduce_scatter(x, nullptr, kAxis); });
  t.check_throws<InvalidArgument>(null, [&] { nn::all_to_all(x, nullptr, kAxis); });
  t.check_throws<InvalidArgument>(null, [&] { nn::all_to_all(x, nullptr, kAxis, {}); });
  t.check_throws<InvalidArgument>(null, [&] { nn::copy_to_ranks(x, nullptr, kAxis); });
  t.check_throws<InvalidArgument>(null, [&] { nn::reduce_from_ranks(x, nullptr, kAxis); });
  t.check_throws<InvalidArgument>("no axis", [&] { nn::copy_to_ranks(x, mesh, "model"); });
  t.check_throws<InvalidArgument>("0 counts of rows to",
                                  [&] { nn::all_to_all(x, mesh, kAxis, {}); });
}

TESSERA_RANK_TEST_WITH("one rank alone needs no group", "[mesh_ops]", {.worlds = {1}}) {
  const MeshHandle mesh = nn::local_mesh();
  const Variable x(irregular({4, 2}, 1), true);
  const nn::RowCounts all{.sent = {4}, .received = {4}};
  for (const Variable& y : {nn::all_reduce(x, mesh, kAxis), nn::all_gather(x, mesh, kAxis),
                            nn::reduce_scatter(x, mesh, kAxis), nn::all_to_all(x, mesh, kAxis),
                            nn::all_to_all(x, mesh, kAxis, all), nn::copy_to_ranks(x, mesh, kAxis),
                            nn::reduce_from_ranks(x, mesh, kAxis)}) {
    t.check_equal(y.tensor(), x.tensor());
    const Variable loss = sum(square(y));
    t.check_equal(grad({&loss, 1}, {&x, 1})[0].tensor(), mul(x.tensor(), 2.0), "gradient");
  }
  t.check_throws<InvalidArgument>(
      "one rank sends all rows of a tensor of shape [4, 2] to itself, got counts [3] and [4]",
      [&] { nn::all_to_all(x, mesh, kAxis, {.sent = {3}, .received = {4}}); });
  t.check_throws<InvalidArgument>("a 0-d tensor has no dim 0 to divide",
                                  [&] { mesh->reduce_scatter(Tensor::scalar(1), kAxis); });
  t.check_throws<InvalidArgument>("unknown axis",
                                  [&] { mesh->reduce_scatter(x.tensor(), "model"); });
  t.check_throws<InvalidArgument>("unknown axis",
                                  [&] { mesh->all_to_all(x.tensor(), "model", all); });
}

}  // namespace
}  // namespace tessera
