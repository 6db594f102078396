#pragma once

/// Which part of a parameter a rank holds: plain data, written by the sharding layer, read by
/// initialisation, optimizers, norms and checkpoints.

#include <string>
#include <vector>

#include "tessera/tensor/shape.h"

namespace tessera::nn {

/// A rectangular part of the global parameter: elements [offset, offset + extent) in each dim.
struct ShardBox {
  Shape offset;
  Shape extent;
  bool operator==(const ShardBox&) const = default;
};

/// One axis of the mesh has chunks of a dim.
struct ShardCut {
  std::string axis;
  int dim = 0;
  bool operator==(const ShardCut&) const = default;
};

struct ShardSpec {
  /// Of the whole parameter, over all ranks.
  Shape global_shape;
  /// What this rank's local() holds: the boxes' rows, one box after another. One box unless
  /// strided.
  std::vector<ShardBox> boxes;
  /// Mesh axes whose ranks hold different parts: sums over the whole parameter are all-reduced over
  /// these.
  std::vector<std::string> sharded_axes;
  /// How the boxes came about, the first cut first: each cuts what the one before it left in chunks
  /// of ceil(n / ranks), one for each rank of its axis. An axis of one rank may cut too, though it
  /// is not among sharded_axes. Empty for a parameter that is not sharded, and if it is not known.
  std::vector<ShardCut> cuts = {};
  /// True when every rank holds the whole parameter, so that the value may alias the shard.
  bool is_whole() const { return sharded_axes.empty(); }
  /// The spec of a parameter that is not sharded.
  static ShardSpec whole(const Shape& shape);
  bool operator==(const ShardSpec&) const = default;
};

}  // namespace tessera::nn
