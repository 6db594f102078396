#include "tessera/autograd/ops/quantile.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/composed/quantile.h"

namespace tessera {

Variable quantile(const Variable& x, double q, const QuantileOptions& options) {
  return composed::quantile(x, q, options);
}
Variable quantile(const Variable& x, const std::vector<double>& q, const QuantileOptions& options) {
  return composed::quantiles(x, q, options);
}

}  // namespace tessera
