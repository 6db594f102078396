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

struct ShardSpec {
  /// Of the whole parameter, over all ranks.
  Shape global_shape;
  /// What this rank's local() holds: the boxes' rows, one box after another. One box unless
  /// strided.
  std::vector<ShardBox> boxes;
  /// Mesh axes whose ranks hold different parts: sums over the whole parameter are all-reduced over
  /// these.
  std::vector<std::string> sharded_axes;
  /// True when every rank holds the whole parameter, so that the value may alias the shard.
  bool is_whole() const { return sharded_axes.empty(); }
  /// The spec of a parameter that nobody shards.
  static ShardSpec whole(const Shape& shape);
  bool operator==(const ShardSpec&) const = default;
};

}  // namespace tessera::nn
