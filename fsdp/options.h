#pragma once

/// Options of fully_shard. Header only.

#include <optional>

#include "tessera/distributed/device_mesh.h"

namespace tessera::fsdp {

/// Which gathers are issued ahead of their use. Turning one off moves each gather to its group's
/// own pre-forward or pre-backward; the number of gathered buffers stays bounded as before.
struct PrefetchOptions {
  bool forward = true;  ///< the next group of the previous iteration's order, at each pre-forward
  bool backward =
      true;  ///< the preceding group of this iteration's forward order, at each pre-backward
  bool operator==(const PrefetchOptions&) const = default;
};

struct FullyShardOptions {
  /// Required; one axis, over which parameters are split along dim 0.
  distributed::DeviceMesh mesh;
  /// Free the gathered value between forward and backward. Unset: yes, except for the root, whose
  /// value is about to be needed again. With gradients off nothing is kept whatever this says by
  /// default.
  std::optional<bool> reshard_after_forward = std::nullopt;
};

}  // namespace tessera::fsdp
