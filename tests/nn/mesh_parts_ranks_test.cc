// Differentiable collectives of parts along any dim, uneven and empty: what each rank gets, and
// first and second derivatives against one rank that computes all of it.
#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/nn/mesh/mesh_ops.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/ranks.h"

namespace tessera {
namespace {

using MeshHandle = std::shared_ptr<const nn::Mesh>;
const std::string kAxis = "data";
const testing::Tolerance kTolerance{1e-12, 1e-12};

Tensor irregular(const Shape& shape, double seed) {
  std::vector<double> numbers(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = std::sin(seed + 0.7 * static_cast<double>(i) + 0.3);
  return Tensor::from_vector(numbers, shape);
}

Tensor own_part(testing::RankTest& t, const Tensor& whole, int dim) {
  const auto chunk = distributed::chunk_of(whole.dim(dim), t.size(), t.rank());
  return contiguous(whole.narrow(dim, chunk.begin, chunk.rows()));
}

Variable curved(const Variable& x) { return mul(x, sin(x)); }

// First and second derivatives of a loss for x: the gradient, and that of its square's sum.
std::vector<Tensor> derivatives(const Variable& loss, const Variable& x) {
  const Variable first = grad({&loss, 1}, {&x, 1}, {.create_graph = true})[0];
  const Variable again = sum(curved(first));
  const Variable second = grad({&again, 1}, {&x, 1})[0];
  return {first.tensor(), second.tensor()};
}

// Parts -> whole, where all ranks go on alike; and whole -> parts, where each goes on with its own.
TESSERA_RANK_TEST("gather_from_ranks and split_to_ranks, along any dim, uneven", "[mesh_ops]") {
  const MeshHandle mesh = distributed::make_mesh(t.world().mesh());
  for (const int dim : {0, 1, -1}) {
    for (const std::int64_t extent : {1, 3, 4, 8}) {
      const int at = dim < 0 ? dim + 3 : dim;
      const Tensor x = irregular(Shape{2, 3, 2}.with(at, extent), 1);
      const std::string what = fmt::format("dim {} of {}", dim, x.shape().str());
      const Variable whole(x, true), part(own_part(t, x, at), true);
      const Variable weights(irregular(x.shape(), 2));

      const Variable gathered =
          nn::gather_from_ranks(part, mesh, kAxis, {.dim = dim, .extent = extent});
      t.check_equal(gathered.tensor(), x, what + " gathered");
      const auto got = derivatives(sum(mul(curved(gathered), weights)), part);
      const auto expected = derivatives(sum(mul(curved(whole), weights)), whole);
      for (std::size_t order : {0u, 1u})
        t.check_close(got[order], own_part(t, expected[order], at), kTolerance, what + " gather");

      // Each rank has a term of the loss; terms are added where all go on alike.
      const Variable split = nn::split_to_ranks(whole, mesh, kAxis, dim);
      t.check_equal(split.tensor(), own_part(t, x, at), what + " split");
      const Variable own = Variable(own_part(t, weights.tensor(), at));
      const Variable loss = nn::reduce_from_ranks(sum(mul(curved(split), own)), mesh, kAxis);
      const Variable first = grad({&loss, 1}, {&whole, 1}, {.create_graph = true})[0];
      t.check_close(first.tensor(), expected[0], kTolerance, what + " split");
      const Variable again = sum(curved(first));
      t.check_close(grad({&again, 1}, {&whole, 1})[0].tensor(), expected[1], kTolerance,
                    what + " split twice");
    }
  }
}

// The ranks' own work on a whole, between parts: W_r x on each, added up into parts again.
TESSERA_RANK_TEST("all_gather and reduce_scatter along any dim, uneven, twice", "[mesh_ops]") {
  const MeshHandle mesh = distributed::make_mesh(t.world().mesh());
  for (const int dim : {0, 1, -1}) {
    for (const std::int64_t extent : {1, 3, 4, 8}) {
      const int at = dim < 0 ? dim + 3 : dim;
      const Tensor x = irregular(Shape{2, 3, 2}.with(at, extent), 1);
      const std::string what = fmt::format("dim {} of {}", dim, x.shape().str());
      const Variable whole(x, true), part(own_part(t, x, at), true);
      const auto work = [&](const Variable& in, int rank) {
        return mul(curved(in), Variable(irregular(x.shape(), rank)));
      };
      const Variable in = nn::all_gather(part, mesh, kAxis, {.dim = dim, .extent = extent});
      t.check_equal(in.tensor(), x, what + " gathered");
      const Variable out = nn::reduce_scatter(work(in, t.rank()), mesh, kAxis, dim);
      Variable all = work(whole, 0);
      for (int rank = 1; rank < t.size(); ++rank) all = add(all, work(whole, rank));
      t.check_close(out.tensor(), own_part(t, all.tensor(), at), kTolerance, what + " scattered");
      // Every rank's loss is of its part, and their sum that of the whole.
      const auto got = derivatives(sum(curved(out)), part);
      const auto expected = derivatives(sum(curved(all)), whole);
      for (std::size_t order : {0u, 1u})
        t.check_close(got[order], own_part(t, expected[order], at), kTolerance, what);
    }
  }
}

TESSERA_RANK_TEST("equal parts need no extent", "[mesh_ops]") {
  const MeshHandle mesh = distributed::make_mesh(t.world().mesh());
  const Tensor x = irregular({2, 3 * t.size()}, 1);
  const Variable part(own_part(t, x, 1));
  t.check_equal(nn::all_gather(part, mesh, kAxis, {.dim = 1}).tensor(), x, "all_gather");
  t.check_equal(nn::gather_from_ranks(part, mesh, kAxis, {.dim = -1}).tensor(), x, "gather");
  const Tensor rows = irregular({3 * t.size()}, 1);
  t.check_equal(nn::gather_from_ranks(Variable(own_part(t, rows, 0)), mesh, kAxis).tensor(), rows,
                "rows");
}

TESSERA_RANK_TEST_WITH("parts that are not a rank's are refused", "[mesh_ops]", {.worlds = {2}}) {
  const MeshHandle mesh = distributed::make_mesh(t.world().mesh());
  const Variable x(ones({2, 3}));
  const std::string part = fmt::format(
      "this rank's part [2, 3] has 3 elements along dim 1; rank {} of 2 has 2 of 4", t.rank());
  const std::string null = "the mesh is null";
  for (const bool gather : {false, true}) {
    const auto call = [&](const MeshHandle& over, const nn::PartsOptions& parts) {
      return gather ? nn::gather_from_ranks(x, over, kAxis, parts)
                    : nn::all_gather(x, over, kAxis, parts);
    };
    t.check_throws<InvalidArgument>(part, [&] { call(mesh, {.dim = 1, .extent = 4}); });
    t.check_throws<InvalidArgument>("a tensor of shape [2, 3] has no dim 2 to have parts along",
                                    [&] { call(mesh, {.dim = 2}); });
    t.check_throws<InvalidArgument>(null, [&] { call(nullptr, {}); });
  }
  t.check_throws<InvalidArgument>("no dim -3", [&] { nn::split_to_ranks(x, mesh, kAxis, -3); });
  t.check_throws<InvalidArgument>("no dim 5", [&] { nn::reduce_scatter(x, mesh, kAxis, 5); });
  t.check_throws<InvalidArgument>(null, [&] { nn::split_to_ranks(x, nullptr, kAxis); });
  t.check_throws<InvalidArgument>(null, [&] { nn::reduce_scatter(x, nullptr, kAxis, 0); });
}

}  // namespace
}  // namespace tessera
