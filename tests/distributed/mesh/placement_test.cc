// How tensors lie over ranks: every part against a plain list of indices, for all small sizes and
// for random meshes; texts and errors.
#include "tessera/distributed/mesh/placement.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <numeric>

#include "tessera/tensor/error.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Indices = std::vector<std::int64_t>;

// Every run tries the same cases, unless its environment says otherwise.
[[maybe_unused]] const int kConfigured =
    setenv("RC_PARAMS", "seed=20240611 max_success=300", /*overwrite=*/0);

// What torch.chunk gives to `index`: lists of ceil(n / parts), as many as there are, then none.
Indices chunk_list(const Indices& all, int parts, int index) {
  std::vector<Indices> chunks(static_cast<std::size_t>(parts));
  const std::size_t n = all.size();
  std::size_t length = n / static_cast<std::size_t>(parts);
  while (length * static_cast<std::size_t>(parts) < n) ++length;
  std::size_t next = 0;
  for (Indices& chunk : chunks) {
    while (chunk.size() < length && next < n) chunk.push_back(all[next++]);
  }
  return chunks[static_cast<std::size_t>(index)];
}

// The indices of a dim that a rank has, cut axis by axis.
Indices indices_of(std::int64_t extent, int dim, const Placements& placements,
                   const MeshPlace& place) {
  Indices out(static_cast<std::size_t>(extent));
  std::iota(out.begin(), out.end(), 0);
  for (int turn = 0; turn < 4; ++turn) {
    for (std::size_t axis = 0; axis < placements.size(); ++axis) {
      const Shard* shard = std::get_if<Shard>(&placements[axis]);
      if (shard != nullptr && shard->dim == dim && shard->turn == turn)
        out = chunk_list(out, place.shape[axis], place.coordinates[axis]);
    }
  }
  return out;
}

std::vector<MeshPlace> all_places(const std::vector<int>& shape) {
  int ranks = 1;
  for (const int size : shape) ranks *= size;
  std::vector<MeshPlace> out;
  for (int rank = 0; rank < ranks; ++rank) {
    MeshPlace place{.shape = shape, .coordinates = std::vector<int>(shape.size())};
    int rest = rank;
    for (std::size_t i = shape.size(); i-- > 0; rest /= shape[i])
      place.coordinates[i] = rest % shape[i];
    out.push_back(place);
  }
  return out;
}

// All parts are as the lists say; every element is held as often as it is replicated; nothing is
// larger than the padded shape, and offsets are in bounds. Returns the differences.
std::string wrong(const Shape& global, const Placements& placements, const std::vector<int>& mesh) {
  std::map<Indices, int> holders;
  const Shape padded = padded_shape(global, placements, mesh);
  for (const MeshPlace& place : all_places(mesh)) {
    const Box box = local_box(global, placements, place);
    if (local_shape(global, placements, place) != box.extent) return "local_shape";
    std::vector<Indices> held{{}};
    for (int d = 0; d < global.ndim(); ++d) {
      const Indices expected = indices_of(global[d], d, placements, place);
      if (box.extent[d] != static_cast<std::int64_t>(expected.size())) return "extent";
      if (box.extent[d] > padded[d]) return "padded";
      if (box.offset[d] < 0 || box.offset[d] + box.extent[d] > global[d]) return "bounds";
      if (!expected.empty() && expected.front() != box.offset[d]) return "offset";
      if (!expected.empty() && expected.back() != box.offset[d] + box.extent[d] - 1) return "end";
      std::vector<Indices> longer;
      for (const Indices& prefix : held) {
        for (const std::int64_t i : expected) {
          longer.push_back(prefix);
          longer.back().push_back(i);
        }
      }
      held = longer;
    }
    for (const Indices& index : held) ++holders[index];
  }
  int replicas = 1;
  for (std::size_t axis = 0; axis < mesh.size(); ++axis)
    replicas *= std::holds_alternative<Shard>(placements[axis]) ? 1 : mesh[axis];
  if (static_cast<std::int64_t>(holders.size()) != global.numel()) return "coverage";
  for (const auto& [index, count] : holders) {
    if (count != replicas) return "replicas";
  }
  return "";
}

TEST_CASE("one axis: the chunk rule, sizes 0 to 17 over 1 to 8 ranks") {
  for (std::int64_t n = 0; n <= 17; ++n) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      CAPTURE(n, ranks);
      CHECK(wrong({n}, {Shard{0}}, {ranks}).empty());
      CHECK(wrong({3, n}, {Shard{1}}, {ranks}).empty());
      CHECK(wrong({n}, {Replicate{}}, {ranks}).empty());
      CHECK(wrong({n}, {Partial{}}, {ranks}).empty());
      CHECK(padded_shape({n}, {Shard{0}}, {ranks}) == Shape{(n + ranks - 1) / ranks});
    }
  }
  CHECK(local_box({3, 5}, {Shard{-1}}, {.shape = {2}, .coordinates = {1}}) ==
        Box{.offset = {0, 3}, .extent = {3, 2}});
  const auto rows = [](std::int64_t n, int ranks) {
    std::vector<std::int64_t> out;
    for (const MeshPlace& place : all_places({ranks}))
      out.push_back(local_shape({n}, {Shard{0}}, place)[0]);
    return out;
  };
  CHECK(rows(5, 4) == Indices{2, 2, 1, 0});
  CHECK(rows(3, 4) == Indices{1, 1, 1, 0});
  CHECK(rows(9, 4) == Indices{3, 3, 3, 0});
  CHECK(rows(1, 2) == Indices{1, 0});
  CHECK(rows(6, 4) == Indices{2, 2, 2, 0});
  CHECK(rows(8, 4) == Indices{2, 2, 2, 2});
}

TEST_CASE("two axes that cut one dim, in either order") {
  for (std::int64_t n = 0; n <= 17; ++n) {
    for (int outer = 1; outer <= 4; ++outer) {
      for (int inner = 1; inner <= 4; ++inner) {
        CAPTURE(n, outer, inner);
        CHECK(wrong({n, 2}, {Shard{0}, Shard{0}}, {outer, inner}).empty());
        CHECK(wrong({n, 2}, {Shard{.dim = 0, .turn = 1}, Shard{0}}, {outer, inner}).empty());
        CHECK(wrong({n, 3}, {Shard{1}, Shard{0}}, {outer, inner}).empty());
      }
    }
  }
}

// Rows by (dp, tp).
std::vector<Indices> rows_over_two_by_two(const Placements& placements) {
  std::vector<Indices> out;
  for (const MeshPlace& place : all_places({2, 2})) {
    const Box box = local_box({8}, placements, place);
    out.push_back({box.offset[0], box.offset[0] + box.extent[0] - 1});
  }
  return out;
}

TEST_CASE("sharding over tensor parallelism cuts what that has left") {
  CHECK(rows_over_two_by_two({Shard{.dim = 0, .turn = 1}, Shard{0}}) ==
        std::vector<Indices>{{0, 1}, {4, 5}, {2, 3}, {6, 7}});
  CHECK(rows_over_two_by_two({Shard{0}, Shard{0}}) ==
        std::vector<Indices>{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  // Uneven: 5 rows over tp are 3 and 2, and these over dp 2 and 1, 1 and 1.
  const Placements strided{Shard{.dim = 0, .turn = 1}, Shard{0}};
  const auto box = [&](int dp, int tp) {
    return local_box({5, 4}, strided, {.shape = {2, 2}, .coordinates = {dp, tp}});
  };
  CHECK(box(0, 0) == Box{.offset = {0, 0}, .extent = {2, 4}});
  CHECK(box(1, 0) == Box{.offset = {2, 0}, .extent = {1, 4}});
  CHECK(box(0, 1) == Box{.offset = {3, 0}, .extent = {1, 4}});
  CHECK(box(1, 1) == Box{.offset = {4, 0}, .extent = {1, 4}});
  CHECK(padded_shape({5, 4}, strided, {2, 2}) == Shape{2, 4});
}

TEST_CASE("property: random meshes of up to three axes") {
  CHECK(rc::check("parts are what lists of indices say, and cover everything", [] {
    const int ndim = *rc::gen::inRange(1, 4), axes = *rc::gen::inRange(1, 4);
    Shape global;
    for (int d = 0; d < ndim; ++d) global.push_back(*rc::gen::inRange(0, d == 0 ? 18 : 6));
    std::vector<int> mesh;
    Placements placements;
    for (int a = 0; a < axes; ++a) {
      mesh.push_back(*rc::gen::inRange(1, 5));
      const int kind = *rc::gen::inRange(0, 6);
      if (kind == 0) {
        placements.push_back(Replicate{});
      } else if (kind == 1) {
        placements.push_back(Partial{});
      } else {
        placements.push_back(
            Shard{.dim = *rc::gen::inRange(0, ndim), .turn = *rc::gen::inRange(0, 3)});
      }
    }
    RC_LOG(str(placements) + " of " + global.str());
    RC_ASSERT(wrong(global, placements, mesh) == "");
  }));
}

TEST_CASE("a tensor without dims, and a mesh without axes") {
  CHECK(wrong({}, {Replicate{}, Partial{}}, {2, 3}).empty());
  CHECK(wrong({5, 2}, {}, {}).empty());
}

TEST_CASE("placements as text") {
  CHECK(str(Placements{Shard{0}, Replicate{}}) == "[Shard(0), Replicate]");
  CHECK(
      str(Placements{Shard{.dim = -1, .turn = 2}, Partial{}, Partial{ReduceOp::premul_sum(0.5)}}) ==
      "[Shard(-1, turn 2), Partial(sum), Partial(premul_sum(0.5))]");
  CHECK(str(Placements{}) == "[]");
  CHECK(str(Placement(Partial{ReduceOp::kMax})) == "Partial(max)");
}

TEST_CASE("cuts come in the order of their turns, then of the axes") {
  CHECK(shard_order({Shard{0}, Replicate{}, Shard{1}}) == std::vector<std::size_t>{0, 2});
  CHECK(shard_order({Shard{.dim = 0, .turn = 1}, Shard{.dim = 0, .turn = 1}, Shard{0}}) ==
        std::vector<std::size_t>{2, 0, 1});
  CHECK(shard_order({Partial{}}).empty());
}

TEST_CASE("placements that do not fit are refused") {
  const MeshPlace place{.shape = {2}, .coordinates = {0}};
  CHECK_THROWS_WITH(local_box({4}, {}, place), Contains("0 placements [] for a mesh of 1 axes"));
  CHECK_THROWS_WITH(local_box({4}, {Shard{0}, Replicate{}}, place),
                    Contains("2 placements [Shard(0), Replicate] for a mesh of 1 axes"));
  CHECK_THROWS_WITH(local_box({4, 2}, {Shard{2}}, place),
                    Contains("Shard(2) in [Shard(2)] does not fit a tensor of 2 dims"));
  CHECK_THROWS_WITH(local_box({4, 2}, {Shard{-3}}, place), Contains("Shard(-3)"));
  CHECK_THROWS_WITH(local_box({}, {Shard{0}}, place), Contains("a tensor of 0 dims"));
  CHECK_THROWS_WITH(local_box({4}, {Shard{.dim = 0, .turn = -1}}, place),
                    Contains("a turn is 0 or more"));
  for (const int coordinate : {-1, 2}) {
    CHECK_THROWS_WITH(local_box({4}, {Shard{0}}, {.shape = {2}, .coordinates = {coordinate}}),
                      Contains("are not in a mesh of shape [2]"));
  }
  CHECK_THROWS_AS(local_box({4}, {Shard{0}}, {.shape = {2}, .coordinates = {}}), InvalidArgument);
  CHECK(checked_placements({Shard{-1}}, 3, 1, "here") == Placements{Shard{2}});
}

}  // namespace
}  // namespace tessera::distributed
