#include "tessera/tensor/ops/activations.h"

#include "tessera/tensor/ops/composed/activations.h"
#include "tessera/tensor/ops/nn.h"

namespace tessera {

Tensor hardtanh(const Tensor& x, double min_val, double max_val) {
  return composed::hardtanh("hardtanh", x, min_val, max_val);
}
Tensor relu6(const Tensor& x) { return composed::hardtanh("relu6", x, 0, 6); }
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return composed::leaky_relu(x, negative_slope);
}
Tensor prelu(const Tensor& x, const Tensor& weight) { return composed::prelu(x, weight); }
Tensor elu(const Tensor& x, double alpha) { return composed::scaled_elu("elu", x, alpha, 1); }
Tensor selu(const Tensor& x) {
  return composed::scaled_elu("selu", x, composed::kSeluAlpha, composed::kSeluScale);
}
Tensor celu(const Tensor& x, double alpha) { return composed::celu(x, alpha); }
Tensor mish(const Tensor& x) { return composed::mish(x); }
Tensor logsigmoid(const Tensor& x) { return composed::logsigmoid(x); }
Tensor hardsigmoid(const Tensor& x) { return composed::hardsigmoid(x); }
Tensor hardswish(const Tensor& x) { return composed::hardswish(x); }
Tensor softsign(const Tensor& x) { return composed::softsign(x); }
Tensor tanhshrink(const Tensor& x) { return composed::tanhshrink(x); }
Tensor hardshrink(const Tensor& x, double lambd) { return composed::hardshrink(x, lambd); }
Tensor softshrink(const Tensor& x, double lambd) { return composed::softshrink(x, lambd); }
Tensor threshold(const Tensor& x, double threshold, double value) {
  return composed::threshold(x, threshold, value);
}
Tensor glu(const Tensor& x, int dim) { return composed::glu(x, dim); }
Tensor softmin(const Tensor& x, int dim) { return composed::softmin(x, dim); }

}  // namespace tessera
