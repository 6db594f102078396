// Collectives over the groups of a mesh, along each axis: by formula; what nn sees of a mesh.
#include <catch2/catch.hpp>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/double_options.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::Chunk;
using distributed::chunk_of;
using distributed::DeviceMesh;
using distributed::ProcessGroup;
using distributed::ReduceOp;

// Two axes over all ranks: 2 x 2, 2 x 4, else 1 x size.
DeviceMesh two_axes(RankTest& t) {
  const int outer = t.size() % 2 == 0 && t.size() > 2 ? 2 : 1;
  return {{"dp", "tp"}, {outer, t.size() / outer}, t.world().group(), kCpu};
}

// Rows of `width` equal elements: values[i] in row i.
Tensor rows_of(const std::vector<double>& values, std::int64_t width) {
  const auto rows = static_cast<std::int64_t>(values.size());
  return contiguous(Tensor::from_vector(values, {rows, 1}).expand({rows, width}));
}

double sum_of(const std::vector<int>& ranks) {
  double total = 0;
  for (const int rank : ranks) total += rank + 1;
  return total;
}

void check_sum(RankTest& t, ProcessGroup& group, const std::vector<int>& line,
               const std::string& what) {
  const Tensor x = full({3}, t.rank() + 1.0, kDouble);
  all_reduce(group, std::vector{x});
  t.check_equal(x, full({3}, sum_of(line), kDouble), what);
}

}  // namespace

TESSERA_RANK_TEST("along each axis only the ranks of a line reduce and broadcast", "[mesh]") {
  const DeviceMesh mesh = two_axes(t);
  for (const std::string& axis : mesh.axes()) {
    const std::vector<int> line = mesh.ranks_along(axis);
    check_sum(t, *mesh.group(axis), line, "sum over " + axis);
    for (int root = 0; root < mesh.size(axis); ++root) {
      const Tensor x = full({2, 3}, t.rank(), kDouble);
      broadcast(*mesh[axis].group(), std::vector{x}, root);
      t.check_equal(x, full({2, 3}, line[static_cast<std::size_t>(root)], kDouble),
                    "broadcast over " + axis);
    }
  }
  check_sum(t, *mesh.flatten().group(), mesh.ranks(), "sum over all");
  check_sum(t, t.group(), mesh.ranks(), "sum over the world");
}

TESSERA_RANK_TEST("equal meshes do not mix, in whatever order their axes are first used",
                  "[mesh]") {
  const DeviceMesh first = two_axes(t), second = two_axes(t);
  const auto ask = [&](const DeviceMesh& mesh) { return mesh["tp"].group(); };
  if (t.rank() % 2 == 0) (void)ask(second);
  const Tensor x = full({2}, 1, kDouble), y = full({2}, 10, kDouble);
  all_reduce(*ask(first), std::vector{x});
  all_reduce(*ask(second), std::vector{y});
  t.check_equal(x, full({2}, first.size("tp"), kDouble), "first");
  t.check_equal(y, full({2}, 10 * first.size("tp"), kDouble), "second");
}

TESSERA_RANK_TEST("scatter along an axis: even rows, and uneven ones padded", "[mesh]") {
  const DeviceMesh mesh = two_axes(t);
  for (const std::string& axis : mesh.axes()) {
    const int ranks = mesh.size(axis), mine = mesh.coordinate(axis);
    for (const std::int64_t rows : {2 * ranks, 2 * ranks - 1, ranks + 1, 1, 0}) {
      const Chunk chunk = chunk_of(rows, ranks, mine);
      std::vector<double> values(static_cast<std::size_t>(chunk.padded_rows * ranks), -1);
      for (std::int64_t i = 0; i < rows; ++i)
        values[static_cast<std::size_t>(i)] = static_cast<double>(i);
      std::vector<Tensor> inputs;
      if (mine == 0) inputs = {rows_of(values, 3)};
      const Tensor part = full({chunk.padded_rows, 3}, -7, kDouble);
      scatter(*mesh.group(axis), inputs, std::vector{part}, 0);
      std::vector<double> expected;
      for (std::int64_t i = chunk.begin; i < chunk.end; ++i)
        expected.push_back(static_cast<double>(i));
      t.check_equal(contiguous(part.narrow(0, 0, chunk.rows())), rows_of(expected, 3), axis);
    }
  }
}

TESSERA_RANK_TEST("reduce-scatter along an axis: closed forms, uneven and empty parts", "[mesh]") {
  const DeviceMesh mesh = two_axes(t);
  for (const std::string& axis : mesh.axes()) {
    const int ranks = mesh.size(axis), mine = mesh.coordinate(axis);
    for (const std::int64_t rows : {2 * ranks, 2 * ranks - 1, ranks - 1, 1, 0}) {
      const Chunk chunk = chunk_of(rows, ranks, mine);
      const Tensor x = full({chunk.padded_rows * ranks, 2}, mine, kDouble);
      const Tensor part = full({chunk.padded_rows, 2}, -7, kDouble);
      reduce_scatter(*mesh.group(axis), std::vector{x}, std::vector{part});
      const Tensor real = contiguous(part.narrow(0, 0, chunk.rows()));
      t.check_equal(real, full({chunk.rows(), 2}, (ranks - 1) * ranks / 2, kDouble), axis);
      if (mine * chunk.padded_rows >= rows)
        t.check(real.numel() == 0, "{} elements of no rows", real.numel());
    }
    // A transposed input: as it is refused, and as a copy it gives what its elements say.
    const Tensor square =
        add(arange(ranks * ranks, kDouble).view({ranks, ranks}), static_cast<double>(mine));
    const Tensor part = Tensor::empty({1, ranks}, kDouble);
    if (ranks > 1) {
      t.check_throws<InvalidArgument>("is not contiguous", [&] {
        reduce_scatter(*mesh.group(axis), std::vector{square.transpose(0, 1)}, std::vector{part});
      });
    }
    reduce_scatter(*mesh.group(axis), std::vector{contiguous(square.transpose(0, 1))},
                   std::vector{part});
    std::vector<double> expected;
    for (int j = 0; j < ranks; ++j)
      expected.push_back(ranks * (j * ranks + mine) + ranks * (ranks - 1) / 2);
    t.check_equal(part, Tensor::from_vector(expected, {1, ranks}), axis + " transposed");
  }
}

TESSERA_RANK_TEST("all-to-all along an axis transposes", "[mesh]") {
  const DeviceMesh mesh = two_axes(t);
  for (const std::string& axis : mesh.axes()) {
    const int ranks = mesh.size(axis), mine = mesh.coordinate(axis);
    std::vector<double> row, column;
    for (int j = 0; j < ranks; ++j) {
      row.push_back(mine * ranks + j);
      column.push_back(j * ranks + mine);
    }
    const Tensor out = Tensor::empty({ranks, 2}, kDouble);
    all_to_all(*mesh.group(axis), std::vector{rows_of(row, 2)}, std::vector{out});
    t.check_equal(out, rows_of(column, 2), axis);
  }
}

TESSERA_RANK_TEST("nn sees all axes of a mesh, and one mesh for equal sub-meshes", "[mesh]") {
  const DeviceMesh mesh = two_axes(t);
  const std::shared_ptr<const nn::Mesh> seen = distributed::make_mesh(mesh);
  t.check(seen->axes() == mesh.axes(), "axes");
  for (const std::string& axis : mesh.axes()) {
    t.check(seen->size(axis) == mesh.size(axis) && seen->rank(axis) == mesh.coordinate(axis), "{}",
            axis);
    const Tensor x = full({3}, t.rank() + 1.0, kDouble);
    seen->all_reduce(x, axis, nn::MeshReduce::kSum);
    t.check_equal(x, full({3}, sum_of(mesh.ranks_along(axis)), kDouble), axis);
    const Tensor rows = seen->all_gather(full({1}, t.rank(), kDouble), axis);
    const std::vector<int> line = mesh.ranks_along(axis);
    t.check_equal(
        rows, Tensor::from_vector(std::vector<double>(line.begin(), line.end()), {mesh.size(axis)}),
        axis);
  }
  t.check(distributed::make_mesh(mesh) == seen, "one for the mesh");
  const auto tp = distributed::make_mesh(mesh["tp"]);
  t.check(distributed::make_mesh(mesh["tp"]) == tp, "one for a sub-mesh");
  t.check(distributed::make_mesh(mesh.with_group("tp", mesh.group("tp"))) != seen,
          "another with other groups");
  t.check(
      distributed::device_mesh_of(*seen) == mesh && distributed::device_mesh_of(*tp) == mesh["tp"],
      "back");
  t.check(!distributed::device_mesh_of(*nn::local_mesh()).defined(),
          "one rank alone has no device mesh");
}

TESSERA_RANK_TEST("the hybrid mesh: nodes, and the ranks of one", "[mesh]") {
  const DeviceMesh one = distributed::hybrid_mesh(t.world());
  t.check(one.axes() == std::vector<std::string>{"replicate", "shard"}, "axes");
  t.check(one.shape() == std::vector<int>{1, t.size()} && one.group("shard") == t.world().group(),
          "one node");
  if (t.size() % 2 == 0) {
    const DeviceMesh mesh = distributed::hybrid_mesh(t.world(), 2);
    t.check(mesh.shape() == std::vector<int>{t.size() / 2, 2}, "nodes of two");
    const int first = t.rank() - t.rank() % 2;
    check_sum(t, *mesh.group("shard"), {first, first + 1}, "on the node");
  }
  for (const int ranks : {t.size() + 1, -1}) {
    t.check_throws<InvalidArgument>(
        fmt::format("{} ranks cannot be divided among nodes of {}", t.size(), ranks),
        [&] { (void)distributed::hybrid_mesh(t.world(), ranks); });
  }
}

TESSERA_RANK_TEST_WITH("three axes: flattened ones, apart and beside each other", "[mesh]",
                       {.worlds = {8}}) {
  const DeviceMesh mesh({"dp", "cp", "tp"}, {2, 2, 2}, t.world().group(), kCpu);
  for (const std::vector<std::string>& axes : std::vector<std::vector<std::string>>{
           {"dp"}, {"cp"}, {"tp"}, {"dp", "cp"}, {"dp", "tp"}, {"cp", "tp"}, {"dp", "cp", "tp"}}) {
    const DeviceMesh flat = mesh.submesh(axes).flatten();
    check_sum(t, *flat.group(), mesh.submesh(axes).ranks(), flat.str());
  }
  const DeviceMesh beside = mesh.submesh({"dp_cp", "tp"});
  check_sum(t, *beside.group("dp_cp"), beside.ranks_along("dp_cp"), "dp_cp");
  check_sum(t, *beside.group("tp"), mesh.ranks_along("tp"), "tp");
}

TESSERA_RANK_TEST_WITH("a mesh from groups that were split off", "[mesh]", {.worlds = {4, 8}}) {
  const int half = t.size() / 2;
  const auto shard = split(t.group(), t.rank() / half),
             replicate = split(t.group(), t.rank() % half);
  std::vector<int> ranks;
  for (int rank = 0; rank < t.size(); ++rank) ranks.push_back(rank);
  const DeviceMesh mesh = DeviceMesh::from_groups({.axes = {"replicate", "shard"},
                                                   .shape = {2, half},
                                                   .ranks = ranks,
                                                   .groups = {replicate, shard}},
                                                  kCpu);
  t.check(mesh == DeviceMesh({"replicate", "shard"}, {2, half}, t.world().group(), kCpu),
          "as a fresh one");
  for (const std::string& axis : mesh.axes())
    check_sum(t, *mesh.group(axis), mesh.ranks_along(axis), axis);
}

}  // namespace tessera::testing
