#include "tessera/tensor/ops/quantile.h"

#include "tessera/tensor/ops/composed/quantile.h"

namespace tessera {

Tensor quantile(const Tensor& x, double q, const QuantileOptions& options) {
  return composed::quantile(x, q, options);
}
Tensor quantile(const Tensor& x, const std::vector<double>& q, const QuantileOptions& options) {
  return composed::quantiles(x, q, options);
}

}  // namespace tessera
