#pragma once

/// How a tensor, or the samples of a batch, lies over ranks: pure functions of shapes, sizes and
/// coordinates.
///
/// A tensor over a mesh has one placement for each axis of the mesh, outermost first:
///
///     {Replicate{}, Shard{0}}     // replicated over the first axis, sharded by rows over the second
///
/// Every shard follows the chunk rule below, so ranks may have short or empty ones. When several
/// axes shard the same dim, each shards what the one before it has left, the outermost axis first.
/// An axis of a later turn waits for those of earlier ones: FSDP over tensor parallelism on a mesh
/// {"dp", "tp"} shards the rows that tp has left, {Shard{.dim = 0, .turn = 1}, Shard{0}}. 8 rows over
/// 2 x 2 ranks, as (dp, tp): (0, 0) has rows 0-1, (1, 0) 2-3, (0, 1) 4-5, (1, 1) 6-7. (PyTorch's
/// name for that is a strided shard.) So a rank's part is always one box.

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tessera/distributed/reduce_op.h"
#include "tessera/tensor/shape.h"

namespace tessera::distributed {

/// One rank's rows [begin, end) of n, cut into `parts` chunks of ceil(n / parts) rows: the rule of
/// torch.chunk, so the last ranks may have short or empty chunks. 5 rows over 4 ranks: 2, 2, 1, 0.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t padded_rows = 0;  ///< rows of every chunk once padded: ceil(n / parts)

  std::int64_t rows() const { return end - begin; }
};

/// Needs n >= 0, parts >= 1 and 0 <= index < parts.
constexpr Chunk chunk_of(std::int64_t n, int parts, int index) {
  const std::int64_t padded = (n + parts - 1) / parts;
  return {.begin = std::min(n, padded * index),
          .end = std::min(n, padded * (index + 1)),
          .padded_rows = padded};
}

/// The ranks of the axis have chunks of `dim`; negative ones count from the back.
struct Shard {
  int dim = 0;
  int turn = 0;  ///< comes after the axes of lower turn, if they shard the same dim
  bool operator==(const Shard&) const = default;
};
/// The ranks of the axis have equal elements.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};
/// The ranks of the axis have terms: the elements are what `op` makes of theirs.
struct Partial {
  ReduceOp op{};
  bool operator==(const Partial&) const = default;
};
using Placement = std::variant<Replicate, Shard, Partial>;
/// By axis of a mesh, outermost first.
using Placements = std::vector<Placement>;

/// "Shard(0)", "Shard(0, turn 1)", "Replicate", "Partial(sum)"; "[Shard(0), Replicate]".
std::string str(const Placement& placement);
std::string str(const Placements& placements);

/// The same with dims counted from the front. Throws InvalidArgument tagged `where` unless there
/// are `axes` placements, whose dims a tensor of `ndim` dims has, and no turn is negative.
Placements checked_placements(const Placements& placements, int ndim, std::size_t axes,
                              const char* where);

/// The axes that shard, in the order in which they do.
std::vector<std::size_t> shard_order(const Placements& placements);

/// A rank's place in a mesh, by axis.
struct MeshPlace {
  std::vector<int> shape;
  std::vector<int> coordinates;
};

/// Elements [offset, offset + extent) in each dim.
struct Box {
  Shape offset;
  Shape extent;
  bool operator==(const Box&) const = default;
};

/// The elements of a tensor of shape `global` that the rank there holds; an empty part lies at the
/// place, inside the tensor, where its elements would be. Throws InvalidArgument for placements
/// that do not fit, or coordinates outside the mesh.
Box local_box(const Shape& global, const Placements& placements, const MeshPlace& place);
/// The extent of that.
Shape local_shape(const Shape& global, const Placements& placements, const MeshPlace& place);
/// The largest local shape, of the first rank: what every part has once padded.
Shape padded_shape(const Shape& global, const Placements& placements,
                   const std::vector<int>& mesh_shape);

}  // namespace tessera::distributed
