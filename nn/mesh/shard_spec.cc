#include "tessera/nn/mesh/shard_spec.h"

namespace tessera::nn {

ShardSpec ShardSpec::whole(const Shape& shape) {
  return {.global_shape = shape,
          .boxes = {{.offset = Shape::filled(shape.ndim(), 0), .extent = shape}},
          .sharded_axes = {},
          .cuts = {}};
}

}  // namespace tessera::nn
