#include "tessera/autograd/ops/conv.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/nn.h"
#include "tessera/autograd/ops/shape.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/ops/composed/norms.h"

namespace tessera {

Variable instance_norm(const Variable& x, const Variable& weight, const Variable& bias,
                       const InstanceNormOptions& options) {
  return composed::instance_norm(x, weight, bias, options);
}

Variable local_response_norm(const Variable& x, const LocalResponseNormOptions& options) {
  return composed::local_response_norm(x, options);
}

}  // namespace tessera
