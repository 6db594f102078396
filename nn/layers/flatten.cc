#include "tessera/nn/layers/flatten.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {

Variable Flatten::forward(const Variable& x) { return flatten(x, options_.first, options_.last); }

Unflatten::Unflatten(const UnflattenOptions& options) : options_(options) {
  TESSERA_CHECK(options.extents.ndim() >= 1, "nn.Unflatten", "extents of dim {} are missing",
                options.dim);
}

Variable Unflatten::forward(const Variable& x) {
  return unflatten(x, options_.dim, options_.extents);
}

}  // namespace tessera::nn
