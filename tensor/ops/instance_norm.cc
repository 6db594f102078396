#include "tessera/tensor/ops/composed/norms.h"
#include "tessera/tensor/ops/norm.h"

namespace tessera {

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const InstanceNormOptions& options) {
  return composed::instance_norm(x, weight, bias, options);
}

Tensor local_response_norm(const Tensor& x, const LocalResponseNormOptions& options) {
  return composed::local_response_norm(x, options);
}

}  // namespace tessera
